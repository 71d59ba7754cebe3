"""The service: `create_app(penstock, settings)` wires the routes, the gate and the page."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio.to_thread
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from penstock.app import Penstock
from penstock.core.errors import InvalidInput
from penstock.core.version import VERSION
from penstock.queue.access import ensure_bootstrap
from penstock.server import page, problems
from penstock.server.audit_log import AuditLog
from penstock.server.auth import Gate
from penstock.server.limits import stream_limit
from penstock.server.live import Hub
from penstock.server.metrics import Metrics
from penstock.server.middleware import Edge
from penstock.server.pipelines import Pipelines
from penstock.server.readiness import Readiness
from penstock.server.routes import RESOURCES, health, help, metrics
from penstock.server.settings import Settings
from penstock.server.threads import Threads
from penstock.server.tracing import Traced
from penstock.server.waits import Places, WaitingRoom

DESCRIPTION = "Durable jobs in your own database: ask for them, see them, steer them."


class Service(FastAPI):
    """FastAPI with our OpenAPI document."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            self.openapi_schema = _document(self)
        return self.openapi_schema


def create_app(penstock: Penstock, settings: Settings | None = None) -> FastAPI:
    """The service on an app's database.

    ```python
    app = create_app(Penstock("sqlite:///jobs.db"), Settings(bootstrap_token="…"))
    uvicorn.Server(uvicorn_config(app, port=8080)).run()
    ```

    `uvicorn_config` brings the deadlines and bounds of connections that uvicorn alone does not have.
    """
    chosen = settings or Settings.from_environment()
    if chosen.bootstrap_token:
        ensure_bootstrap(penstock.ground, chosen.bootstrap_token)
    penstock.sync_definitions()
    audit_log = AuditLog(penstock.ground, time.monotonic)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        audit_log.start()
        try:
            yield
        finally:
            await anyio.to_thread.run_sync(audit_log.close)

    app = Service(
        title="Penstock", version=VERSION, description=DESCRIPTION, lifespan=lifespan, docs_url=None, redoc_url=None,
        openapi_url="/api/v1/openapi.json" if chosen.public_docs == "on" else None, redirect_slashes=False,
    )  # fmt: skip
    app.state.penstock = penstock
    app.state.settings = chosen
    app.state.gate = Gate(penstock, chosen)
    app.state.sign_ins = _sign_ins(penstock, chosen)
    app.state.audit_log = audit_log
    app.state.gate.listeners.append(audit_log.outcome)
    app.state.threads = Threads(chosen.threads, processor_share=chosen.processor_share)
    app.state.room = WaitingRoom(penstock.db)
    app.state.waits = Places(
        chosen.waits_per_token, lambda _: chosen.waits_per_tenant, "too_many_waits", "requests that wait"
    )
    streams = partial(stream_limit, penstock.ground, chosen.stream_limit)
    app.state.streams = Places(None, streams, "too_many_streams", "streams")
    app.state.hub = Hub(penstock.ground, app.state.room, chosen.stream_interval)
    app.state.metrics = Metrics(penstock.ground, chosen.metrics_tenants, chosen.metrics_series)
    app.state.readiness = Readiness(penstock.db)
    app.state.pipelines = Pipelines(chosen.pipelines)
    problems.install(app)
    app.include_router(health.router)
    app.include_router(metrics.router)
    if chosen.public_docs == "on":
        app.include_router(help.router)
    for routes in RESOURCES:
        app.include_router(routes.router)
    page.mount(app)
    if chosen.tracing == "on":
        app.add_middleware(Traced)
    app.add_middleware(Edge, settings=chosen)
    return app


def _sign_ins(penstock: Penstock, settings: Settings) -> Any:
    """What signs people in with OpenID Connect, where that is set up; Authlib is loaded only then."""
    if settings.oidc_issuer is None:
        return None
    try:
        from penstock.server.oidc import Provider
        from penstock.server.signing_in import SignIns
    except ModuleNotFoundError as error:
        raise InvalidInput(
            f"Sign-in with OpenID Connect needs {error.name}, which is not installed: pip install 'penstock[server,oidc]'"
        ) from error
    return SignIns(Provider(settings), settings, penstock.ground)


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    if root := app.state.settings.root_path:
        document["servers"] = [{"url": root}]
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    problem = problems.ProblemModel.model_json_schema(ref_template="#/components/schemas/{model}")
    parts = problem.pop("$defs")
    schemas["Fault"], schemas["QuotaModel"] = parts["FaultModel"], parts["QuotaModel"]
    problem["properties"]["faults"]["items"] = {"$ref": "#/components/schemas/Fault"}
    schemas["Problem"] = problem
    schemas.pop("HTTPValidationError", None)
    schemas.pop("ValidationError", None)
    components["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer"},
        "session": {"type": "apiKey", "in": "cookie", "name": "penstock_session"},
    }
    return document
