"""/metrics, for Prometheus."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse
from starlette.concurrency import run_in_threadpool

from penstock.core.access import Need, Role
from penstock.core.scopes import Scope, rule_of
from penstock.server.auth import Gate
from penstock.server.metrics import Metrics
from penstock.server.origin import is_this_machine
from penstock.server.problems import documented

router = APIRouter(tags=["metrics"])
RULE = rule_of("GET", "/metrics")
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@router.get(
    "/metrics",
    operation_id="read_metrics",
    response_class=PlainTextResponse,
    openapi_extra={"x-need": Need.VIEW.value, "x-scope": Scope.METRICS_READ.value, "security": [{"token": []}]},
    responses=documented(401, 403, 404, 429, 503),
)
async def read_metrics(request: Request) -> Response:
    """Everyone's figures for a super admin, else those of the caller's tenant."""
    gate: Gate = request.app.state.gate
    metrics: Metrics = request.app.state.metrics
    only = None
    if not (gate.settings.metrics == "loopback" and is_this_machine(request)):
        call = await gate.admit(request, Need.VIEW, RULE)
        only = None if call.principal.role is Role.SUPER_ADMIN else call.tenant_id
    return Response(await run_in_threadpool(metrics.render, only), media_type=CONTENT_TYPE)
