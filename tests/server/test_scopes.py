"""Tokens that are limited to scopes, definitions and networks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from penstock.core.errors import ScopeMissing
from penstock.core.scopes import AREAS, KEYS_CHECKED, Keys, Scope, check_scope, rule_of
from penstock.queue import claim
from penstock.queue.access import create_token
from tests.server.support import ROLES, World
from tests.server.table import ANY_ID, MAY, ROUTES, STREAMS, Route, address

CLOSED = {name: route for name, route in ROUTES.items() if route.need is not None}
ALL = [each.value for each in Scope]
Limited = Callable[..., httpx.Client]


@pytest.fixture
def limited(world: World) -> Limited:
    """A client whose token is limited as given."""

    def make(role: str, tenant: str = "acme", **limits: Any) -> httpx.Client:
        owner = None if role == "super_admin" else tenant
        _, token = create_token(world.penstock.ground, role, f"limited {role}", owner, **limits)
        return world.bare(Authorization=f"Bearer {token}")

    return make


def send(client: httpx.Client, method: str, path: str, route: Route, target: str = ANY_ID) -> httpx.Response:
    given: dict[str, Any] = {} if route.body is None else {"json": route.body}
    return client.request(method, address(path, route, target), **given)


def able(route: Route) -> str:
    return next(role for role in reversed(ROLES) if route.need in MAY[role])


def test_every_route_has_a_scope_and_the_document_names_it(world: World) -> None:
    paths = world.app.openapi()["paths"]
    for method, path in CLOSED:
        rule = rule_of(method, path)
        assert rule.known, f"{method} {path} needs a line in AREAS of core/scopes.py"
        told = paths[path][method.lower()].get("x-scope")
        assert told == (None if rule.scope is None else rule.scope.value), (method, path)
    assert {f"{method} {path}" for method, path in CLOSED} >= KEYS_CHECKED
    assert all(any(path == each or path.startswith(f"{each}/") for _, path in ROUTES) for each, _, _ in AREAS)


def test_every_scope_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "service" / "tokens.md").read_text()
    assert [each.value for each in Scope if f"`{each.value}`" not in page] == []


def test_only_what_concerns_the_caller_alone_needs_no_scope() -> None:
    free = {path for (method, path), route in CLOSED.items() if rule_of(method, path).scope is None}
    assert free == {"/api/v1/sessions", "/api/v1/sessions/{session_id}"}


def test_a_token_with_scopes_may_what_they_say_and_no_more(world: World, limited: Limited) -> None:
    with_one: dict[tuple[str, str], httpx.Client] = {}
    for (method, path), route in CLOSED.items():
        scope = rule_of(method, path).scope
        if scope is None:
            continue
        role = able(route)
        others = with_one.setdefault(
            (role, f"not {scope}"), limited(role, scopes=[each for each in ALL if each != scope])
        )
        refused = send(others, method, path, route)
        assert (refused.status_code, refused.json()["code"]) == (403, "scope_missing"), (method, path)
        assert f"lacks the scope {scope.value}" in refused.json()["detail"]
        if (method, path) in STREAMS:
            continue
        only = with_one.setdefault((role, scope), limited(role, scopes=[scope.value]))
        allowed = send(only, method, path, route)
        assert allowed.status_code not in (401, 403) and allowed.status_code < 500, (method, path, allowed.text)


def test_scopes_widen_no_role(limited: Limited) -> None:
    viewer = limited("viewer", scopes=ALL)
    for (method, path), route in CLOSED.items():
        if route.need not in MAY["viewer"]:
            answer = send(viewer, method, path, route)
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), (method, path)


def test_a_route_that_the_table_does_not_name_is_closed_to_scoped_tokens(world: World) -> None:
    scoped, _ = create_token(world.penstock.ground, "super_admin", "s", scopes=ALL)
    plain, _ = create_token(world.penstock.ground, "super_admin", "p")
    rule = rule_of("GET", "/api/v1/brand-new")
    check_scope(plain, rule)
    with pytest.raises(ScopeMissing):
        check_scope(scoped, rule)


def test_a_token_for_some_definitions_may_use_only_routes_that_look_at_them(limited: Limited) -> None:
    clients = {role: limited(role, keys=["report.*"]) for role in ROLES}
    for (method, path), route in CLOSED.items():
        if rule_of(method, path).keys is Keys.CLOSED:
            answer = send(clients[able(route)], method, path, route)
            assert (answer.status_code, answer.json()["code"]) == (403, "scope_missing"), (method, path)


def test_a_token_for_some_definitions_sees_and_changes_only_their_jobs(world: World, limited: Limited) -> None:
    world.penstock.define("report.daily", runner="command")
    world.penstock.define("REPORT.loud", runner="command")
    acme = world.penstock.as_tenant("acme")
    mine, loud, other = (acme.enqueue(key) for key in ("report.daily", "REPORT.loud", "echo"))
    admin = limited("tenant_admin", keys=["report.*"])
    assert [job["id"] for job in admin.get("/api/v1/jobs").json()["items"]] == [str(mine.id)]
    assert admin.get("/api/v1/jobs", params={"definition_key": "echo"}).json()["items"] == []
    export = admin.get("/api/v1/jobs/export.csv").text
    assert str(mine.id) in export
    assert str(other.id) not in export and str(loud.id) not in export
    assert [each["key"] for each in admin.get("/api/v1/definitions").json()["items"]] == ["report.daily"]
    for (method, path), route in CLOSED.items():
        if "{job_id}" not in path or rule_of(method, path).keys is not Keys.CHECKED or route.need == "work":
            continue
        theirs, unknown = (send(admin, method, path, route, str(each)) for each in (other.id, uuid4()))
        assert theirs.status_code == unknown.status_code == 404, (method, path, theirs.text)
        assert theirs.content == unknown.content
    bulk = {"filter": {"ids": [str(mine.id), str(other.id)]}, "dry_run": True}
    assert admin.post("/api/v1/jobs/cancel", json=bulk).json()["matched"] == 1
    bulk = {"filter": {"status": ["queued"]}, "dry_run": False}
    assert admin.post("/api/v1/jobs/cancel", json=bulk).json()["changed"] == 1
    assert acme.jobs.get(other.id).status.value == "queued"


def test_a_token_for_some_definitions_enqueues_only_their_jobs(world: World, limited: Limited) -> None:
    world.penstock.define("report.daily", runner="command")
    operator = limited("operator", keys=["report.*"])
    assert operator.post("/api/v1/jobs", json={"definition_key": "report.daily"}).status_code == 201
    for path, body in (
        ("/api/v1/jobs", {"definition_key": "echo"}),
        ("/api/v1/groups", {"jobs": [{"definition_key": "report.daily"}, {"definition_key": "echo"}]}),
    ):
        refused = operator.post(path, json=body)
        assert (refused.status_code, refused.json()["code"]) == (403, "scope_missing")
        assert "report.*" in refused.json()["detail"]
    world.penstock.as_tenant("acme").enqueue("echo", dedupe_key="taken")
    deduped = operator.post("/api/v1/jobs", json={"definition_key": "report.daily", "dedupe_key": "taken"})
    assert (deduped.status_code, deduped.json()["code"]) == (403, "scope_missing")


def test_a_worker_for_some_definitions_claims_only_their_jobs(world: World, limited: Limited) -> None:
    world.penstock.define("report.daily", runner="command")
    acme = world.penstock.as_tenant("acme")
    acme.enqueue("echo")
    acme.enqueue("report.daily")
    worker = limited("worker", keys=["report.*"])
    for keys in (None, [], ["echo"], ["report.daily", "echo"]):
        refused = worker.post("/api/v1/worker/jobs/claim", json={"worker_id": "w", "keys": keys})
        assert refused.status_code in (403, 422), refused.text
    taken = worker.post("/api/v1/worker/jobs/claim", json={"worker_id": "w", "keys": ["report.daily"], "limit": 10})
    assert [each["definition_key"] for each in taken.json()["items"]] == ["report.daily"]
    [held] = claim.claim(world.penstock.ground, "other", 1)
    body = {"run_id": str(held.run_id)}
    assert worker.post(f"/api/v1/worker/jobs/{held.job_id}/complete", json=body).status_code == 404


def test_a_token_for_some_networks_works_only_from_there(world: World, limited: Limited) -> None:
    here, elsewhere = limited("viewer", addresses=["127.0.0.0/8"]), limited("viewer", addresses=["10.0.0.0/8"])
    assert here.get("/api/v1/jobs").status_code == 200
    for path in ("/api/v1/jobs", "/api/v1/session"):
        refused = elsewhere.get(path)
        assert (refused.status_code, refused.json()["code"]) == (403, "address_refused")
    _, token = create_token(world.penstock.ground, "viewer", "v", "acme", addresses=["10.0.0.1"])
    signing_in = world.bare().post("/api/v1/session", json={"token": token})
    assert (signing_in.status_code, signing_in.json()["code"]) == (403, "address_refused")


def test_the_limits_of_a_token_are_shown_and_checked(world: World) -> None:
    admin = world.client("tenant_admin")
    body = {"role": "viewer", "label": "v", "scopes": ["jobs:read"], "keys": ["report.*"], "addresses": ["10.1.2.3/8"]}
    made = admin.post("/api/v1/tokens", json=body).json()
    assert (made["scopes"], made["keys"], made["addresses"]) == (["jobs:read"], ["report.*"], ["10.0.0.0/8"])
    me = world.bare(Authorization=f"Bearer {made['token']}")
    assert me.get("/api/v1/session").json()["code"] == "address_refused"
    for wrong in (
        {"scopes": ["jobs:eat"]}, {"scopes": []}, {"keys": ["a*b"]}, {"keys": [""]}, {"keys": ["a b"]},
        {"addresses": ["10.0.0.0/99"]}, {"addresses": ["here"]}, {"queues": ["default"]},
    ):  # fmt: skip
        answer = admin.post("/api/v1/tokens", json={"role": "viewer", "label": "v", **wrong})
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input"), wrong
