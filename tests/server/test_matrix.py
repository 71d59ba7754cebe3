"""The matrix: every route, every actor, and an id of their own, of another tenant, of nobody and of no shape.

Each cell has one expected status, from `tests/server/table.py` and `tests/server/actors.py`. A route that is new in the app fails
here until the table says what it needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from starlette.routing import BaseRoute, Mount
from starlette.routing import Route as PlainRoute

from penstock import Penstock
from penstock.queue import claim, reserve
from penstock.queue.access import create_token
from penstock.server import Settings, create_app
from penstock.store.database import Database
from penstock.store.schema import upgrade
from tests.conftest import BACKENDS
from tests.server.actors import ACTORS, Actor, Cast, refusal
from tests.server.support import Loop, World
from tests.server.table import ROUTES, STREAMS, Route, address
from tests.server.test_every_route import dump
from tests.support.issuer import issuing

CASES = [pytest.param(method, path, id=f"{method} {path}") for (method, path), route in ROUTES.items() if route.need]
BODY_NAMES_A_DEFINITION = {
    ("POST", "/api/v1/jobs"), ("POST", "/api/v1/groups"), ("POST", "/api/v1/worker/jobs/claim"),
}  # fmt: skip
"""Where a token for other definitions is refused because of what it asks for."""
ENDS_SESSIONS = {("DELETE", "/api/v1/sessions"), ("DELETE", "/api/v1/session")}
NOT_FOUND, TAKEN = 404, 409
OTHERWISE = {
    ("POST", "/api/v1/admin/tenants"): TAKEN,
    ("POST", "/api/v1/admin/tokens"): 422,
    ("POST", "/api/v1/queues/{name}/pause"): NOT_FOUND,
    ("POST", "/api/v1/queues/{name}/resume"): NOT_FOUND,
    ("POST", "/api/v1/admin/jobs/definitions"): TAKEN,
}
"""What those get who are let in, where the body of the table names what is taken, or not there."""
UNGUARDED = {"/api/v1/openapi.json", "/help/errors/{code}", "/{path:path}"}
"""Routes outside the table: they show nothing of any tenant."""
OPEN = {
    # route: what somebody gets who is known, who is not, and whose token is for another network
    ("GET", "/health/live"): (200, 200, 200),
    ("GET", "/health/ready"): (200, 200, 200),
    ("POST", "/api/v1/session"): (401, 401, 401),  # the body's token counts, and it is wrong
    ("GET", "/api/v1/session"): (200, 401, 403),
    ("DELETE", "/api/v1/session"): (204, 204, 204),
    ("GET", "/api/v1/sign-in"): (200, 200, 200),
    ("GET", "/api/v1/sign-in/oidc"): (404, 404, 404),  # not set up here
    ("GET", "/api/v1/sign-in/oidc/callback"): (404, 404, 404),
    ("GET", "/api/v1/sign-in/oidc/sign-out"): (404, 404, 404),
    ("POST", "/api/v1/sign-in/oidc/back-channel-logout"): (404, 404, 404),
}


class Stage:
    """One service, its actors, and things for them to name."""

    def __init__(self, world: World, cast: Cast) -> None:
        self.world, self.cast = world, cast
        self.ground = world.penstock.ground
        self._runs: dict[str, str] = {}

    def make(self, kind: str, tenant: str, path: str, actor: Actor | None = None) -> str:
        """The id of a new thing of this kind, in the state that the route expects."""
        there = self.world.penstock.as_tenant(tenant)
        match kind:
            case "job" if path.endswith("/run-now"):
                return str(there.enqueue("echo", scheduled_for=datetime.now(UTC) + timedelta(days=1)).id)
            case "job" if path.endswith("/retry"):
                job = there.enqueue("echo")
                there.jobs.cancel(job.id)
                return str(job.id)
            case "job":
                return str(there.enqueue("echo").id)
            case "run":
                job = there.enqueue("echo", priority=-1000 - len(self._runs))  # the one that is claimed first
                [taken] = claim.claim(self.ground, "w", 1, keys=["echo"], tenant_id=job.tenant_id)
                assert taken.job_id == job.id
                self._runs[str(job.id)] = str(taken.run_id)
                return str(job.id)
            case "trigger":
                return str(there.triggers.on_event(f"t{uuid4()}", "a.b", "echo").id)
            case "group":
                return str(there.groups.create([("echo", {})]).id)
            case "event":
                return str(there.emit("x.y").id)
            case "webhook":
                return str(there.webhooks.create("https://example.com/").webhook.id)
            case "token":
                # The child of nobody, with an end: nobody who may rotate tokens may do less than it.
                return str(create_token(self.ground, "viewer", "theirs", tenant, **self._within(actor))[0].id)
            case "session" if actor is not None:
                return self.cast.session_of(actor)
            case "session":
                other = Actor("operator by OpenID Connect of another subject", "operator", by="person")
                return self.cast.session_of(other)
            case "reservation":
                return str(reserve.take(self.ground, self._tenant(tenant), 0, 600).id)
            case "definition":
                return str(self.world.penstock.define(f"d-{uuid4()}", runner="command").id)
            case "tenant":
                return self.world.penstock.tenants.create(f"t-{uuid4()}").slug
            case "deletion":
                made = self.world.penstock.tenants.create(f"t-{uuid4()}")
                assert self.world.client().delete(
                    f"/api/v1/admin/tenants/{made.slug}", params={"confirm": made.slug}
                ).status_code == 202  # fmt: skip
                return str(made.id)
        raise AssertionError(kind)

    @staticmethod
    def _within(actor: Actor | None) -> dict[str, Any]:
        return {} if actor is None else {"scopes": actor.scopes, "keys": actor.keys}

    def _tenant(self, slug: str) -> Any:
        return self.ground.tenant_id(slug)

    def send(self, actor: Actor, method: str, path: str, route: Route, target: str = "") -> httpx.Response:
        client = self.cast.client(actor)
        given: dict[str, Any] = {} if route.body is None else {"json": dict(route.body)}
        if "label" in (route.body or {}):
            given["json"]["label"] = str(uuid4())
        if route.owned == "run":
            given["json"]["run_id"] = self._runs.get(target, str(uuid4()))
        if (method, path) == ("DELETE", "/api/v1/admin/tenants/{slug}"):
            given["params"] = {"confirm": target}
        where = address(path, Route(route.need, names={} if route.any == "tenant" else route.names), target)
        if (method, path) in STREAMS:
            return begin(self.world, client, where)
        return client.request(method, where, **given)


def begin(world: World, client: httpx.Client, where: str) -> httpx.Response:
    """The beginning of an answer; then the client goes away, so that a stream ends."""
    request = client.build_request("GET", where)
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
        "path": request.url.path, "raw_path": request.url.raw_path, "query_string": request.url.query, "root_path": "",
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
        "server": ("penstock.test", 80), "client": ("127.0.0.1", 1),
    }  # fmt: skip
    answer: dict[str, Any] = {"status": 0, "headers": [], "body": b""}

    async def call() -> None:
        begun, asked = asyncio.Event(), False

        async def receive() -> dict[str, Any]:
            nonlocal asked
            if not asked:
                asked = True
                return {"type": "http.request", "body": b"", "more_body": False}
            await begun.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                answer.update(status=message["status"], headers=message["headers"])
                if message["status"] < 400:
                    begun.set()
            else:
                answer["body"] += message.get("body", b"")

        await world.app(scope, receive, send)

    world.loop.run(call())
    return httpx.Response(answer["status"], headers=answer["headers"], content=answer["body"])


@pytest.fixture(scope="module", params=BACKENDS)
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, loop: Loop) -> Iterator[Stage]:
    drop = None
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('matrix') / 'penstock.db'}"
        db = Database(url)
        upgrade(db)
        db.close()
    else:
        server = request.getfixturevalue("postgres")
        drop = server.create_database(server.template)
        url = server.url(drop)
    with Penstock(url) as penstock, issuing() as issuer:
        for tenant in ("acme", "bolt", "cork"):
            penstock.tenants.create(tenant)
        penstock.define("echo", runner="command")
        settings = Settings(
            rate_limit=1e6, jwt_issuer=issuer.url, jwt_audience="penstock", jwt_jwks=f"{issuer.url}/jwks",
            quotas=("tokens=unlimited", "triggers=unlimited", "webhooks=unlimited", "requests_per_second=unlimited"),
        )  # fmt: skip
        app = create_app(penstock, settings)
        app.state.gate._refused.burst = 1e9
        world = World(penstock, app, loop)
        yield Stage(world, Cast(world, issuer))
    if drop is not None:
        request.getfixturevalue("postgres").drop_database(drop)


def plain_routes(routes: Sequence[BaseRoute]) -> Iterator[PlainRoute | Mount]:
    """The app's routes, with those of the routers that it includes."""
    for route in routes:
        if isinstance(route, PlainRoute | Mount):
            yield route
        else:
            yield from plain_routes(route.original_router.routes)  # type: ignore[attr-defined]


def test_the_matrix_has_every_route_of_the_app(stage: Stage) -> None:
    found, outside = set(), set()
    for route in plain_routes(stage.world.app.routes):
        for method in (getattr(route, "methods", None) or {"GET"}) - {"HEAD"}:
            (found if (method, route.path) in ROUTES else outside).add((method, route.path))
    assert found == set(ROUTES)
    assert {path for _, path in outside} <= UNGUARDED
    assert set(OPEN) == {name for name, route in ROUTES.items() if route.need is None}


def told(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def shown(answer: httpx.Response) -> tuple[Any, ...]:
    """All that the caller sees, but for the request's own id."""
    return answer.status_code, answer.content, {k: v for k, v in answer.headers.items() if k != "x-request-id"}


@pytest.mark.parametrize(("method", "path"), CASES)
def test_every_cell(stage: Stage, method: str, path: str) -> None:
    route = ROUTES[method, path]
    kind = route.owned or route.any
    for actor in ACTORS:
        stage.cast.client(actor)
    own = foreign = ""
    if kind is not None:
        own = stage.make(kind, "acme", path)
        foreign = stage.make(kind, "cork" if kind == "reservation" else "bolt", path)
    _let_nobody_in(stage, method, path, route, [own, foreign, str(uuid4()), "no-id"] if kind else [""])
    if route.owned is not None:
        _know_nothing_of_others(stage, method, path, route, foreign)
    if route.owned == "reservation":
        reserve.release(stage.ground, UUID(own))
    for actor in ACTORS:
        if refusal(actor, method, route) is None:
            _let_in(stage, actor, method, path, route)
    stage.cast.again()


def _let_nobody_in(stage: Stage, method: str, path: str, route: Route, ids: list[str]) -> None:
    """Who may not use the route gets the same whatever the id is, and changes nothing."""
    before = dump(stage.world)
    for actor in ACTORS:
        expected = refusal(actor, method, route)
        if expected is None:
            continue
        answers = [stage.send(actor, method, path, route, each) for each in ids]
        assert [told(each) for each in answers] == [expected] * len(ids), actor
        assert len({each.content for each in answers}) == 1, actor
    assert dump(stage.world) == before


def _know_nothing_of_others(stage: Stage, method: str, path: str, route: Route, foreign: str) -> None:
    """Who may use the route gets the same 404 for another tenant's id, for their own tenant's if they are limited to other
    definitions, and for nobody's; and changes nothing."""
    before = dump(stage.world)
    for actor in ACTORS:
        if refusal(actor, method, route) is not None:
            continue
        unknown = stage.send(actor, method, path, route, str(uuid4()))
        assert unknown.status_code == 404, (actor, unknown.text)
        if not (route.owned == "run" and actor.role == "super_admin"):  # who works for all tenants
            theirs = stage.send(actor, method, path, route, foreign)
            assert shown(theirs) == shown(unknown), actor
        shapeless = stage.send(actor, method, path, route, "no-id")
        assert told(shapeless) == (422, "invalid_input"), (actor, shapeless.text)
    assert dump(stage.world) == before


def _let_in(stage: Stage, actor: Actor, method: str, path: str, route: Route) -> None:
    kind = route.owned or route.any
    target = "" if kind is None else stage.make(kind, "acme", path, actor)
    answer = stage.send(actor, method, path, route, target)
    if actor.for_others and route.keys == "checked" and route.owned is not None:
        unknown = stage.send(actor, method, path, route, str(uuid4()))
        assert shown(answer) == shown(unknown), actor
        assert answer.status_code == 404
    elif actor.for_others and (method, path) in BODY_NAMES_A_DEFINITION:
        assert told(answer) == (403, "scope_missing"), actor
    elif (method, path) in OTHERWISE:
        assert answer.status_code == OTHERWISE[method, path], (actor, answer.text)
    elif "no-such-schema" in route.names.values():
        assert answer.status_code == 404, (actor, answer.text)
    else:
        assert 200 <= answer.status_code < 300, (actor, answer.status_code, answer.text)
    if (method, path) == ("POST", "/api/v1/reservations"):
        reserve.release(stage.ground, UUID(answer.json()["id"]))
    if (method, path) in ENDS_SESSIONS:
        stage.cast.again()


@pytest.mark.parametrize(("method", "path"), list(OPEN))
def test_every_cell_of_what_needs_no_token(stage: Stage, method: str, path: str) -> None:
    known, unknown, elsewhere = OPEN[method, path]
    for actor in ACTORS:
        answer = stage.send(actor, method, path, ROUTES[method, path])
        expected = known if actor.refused is None else elsewhere if actor.refused[0] == 403 else unknown
        assert answer.status_code == expected, (actor, answer.text)
        if (method, path) in ENDS_SESSIONS:
            stage.cast.again()


def test_what_names_many_runs_keeps_to_the_token(stage: Stage) -> None:
    """Heartbeats and releases of many runs: a run that is another tenant's, or of a definition that the token is not for, is
    treated as one that is not there."""
    for actor in ACTORS:
        if refusal(actor, "POST", ROUTES["POST", "/api/v1/worker/jobs/heartbeat"]) is not None:
            continue
        ids = {tenant: stage.make("run", tenant, "") for tenant in ("acme", "bolt")}
        runs = [{"job_id": job, "run_id": stage._runs[job]} for job in ids.values()]
        mine = not actor.for_others
        theirs = actor.role == "super_admin"
        client = stage.cast.client(actor)
        beaten = client.post("/api/v1/worker/jobs/heartbeat", json={"runs": runs}).json()["items"]
        states = ["lost" if each["state"] == "lost" else "kept" for each in beaten]
        assert states == ["kept" if mine else "lost", "kept" if theirs else "lost"], actor
        released = client.post("/api/v1/worker/jobs/release", json={"runs": runs})
        assert released.json()["released"] == mine + theirs, actor
