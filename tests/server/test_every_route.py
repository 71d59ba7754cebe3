"""The same attacks on every route there is."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import httpx
import pytest

from penstock import Penstock
from penstock.core.access import Need
from penstock.queue import claim, reserve
from penstock.queue.access import create_token, revoke_token
from penstock.queue.sign_in import Visit, sign_in
from penstock.server import Settings, create_app
from penstock.server.routes import RESOURCES
from penstock.server.routing import Guarded
from penstock.store.database import Database
from penstock.store.schema import upgrade
from penstock.store.tables import metadata
from tests.conftest import BACKENDS
from tests.server.support import ROLES, Loop, World
from tests.server.table import ANY_ID, MAY, OPEN, ROUTES, STREAMS, Route, address

CASES = [pytest.param(method, path, id=f"{method} {path}") for method, path in ROUTES]
CLOSED = [case for case in CASES if ROUTES[case.values[0], case.values[1]].need is not None]
OWNED = [case for case in CASES if ROUTES[case.values[0], case.values[1]].owned is not None]
TAKING = [case for case in CASES if ROUTES[case.values[0], case.values[1]].body is not None]


@pytest.fixture(scope="module", params=BACKENDS)
def realm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, loop: Loop) -> Iterator[World]:
    """One service for all attacks of a backend, with one of everything in the tenant bolt."""
    if request.param == "sqlite":
        url, drop = f"sqlite:///{tmp_path_factory.mktemp('realm') / 'penstock.db'}", None
        db = Database(url)
        upgrade(db)
        db.close()
    else:
        server = request.getfixturevalue("postgres")
        drop = server.create_database(server.template)
        url = server.url(drop)
    with Penstock(url) as penstock:
        penstock.tenants.create("acme")
        penstock.tenants.create("bolt")
        penstock.define("echo", runner="command")
        app = create_app(penstock, Settings(rate_limit=1e6))
        app.state.gate._refused.burst = 1e9
        yield World(penstock, app, loop)
    if drop is not None:
        request.getfixturevalue("postgres").drop_database(drop)


@pytest.fixture(scope="module")
def bolts(realm: World) -> dict[str, str]:
    """The ids of what bolt has, one of each kind."""
    bolt = realm.penstock.as_tenant("bolt")
    running = bolt.enqueue("echo")
    [taken] = claim.claim(realm.penstock.ground, "w", 1, tenant_id=running.tenant_id)
    assert taken.job_id == running.id
    job = bolt.enqueue("echo", {"n": 1})
    made = {
        "job": job.id,
        "run": running.id,
        "trigger": bolt.triggers.on_event("secret label", "a.b", "echo").id,
        "group": bolt.groups.create([("echo", {})]).id,
        "event": bolt.emit("x.y").id,
        "webhook": bolt.webhooks.create("https://example.com/").webhook.id,
        "token": create_token(realm.penstock.ground, "viewer", "bolt's", "bolt")[0].id,
    }
    admin = realm.client("tenant_admin", "bolt")
    assert admin.get(f"/api/v1/jobs/{job.id}").status_code == 200
    signed_in = sign_in(realm.penstock.ground, realm.token("viewer", "bolt"), Visit(3600))
    assert signed_in is not None
    made["session"] = signed_in.session.id
    other = realm.penstock.tenants.create("cork")
    made["reservation"] = reserve.take(realm.penstock.ground, other.id, 0, 600).id
    return {kind: str(id) for kind, id in made.items()}


def send(
    client: httpx.Client, method: str, path: str, route: Route, target: str = ANY_ID, **more: Any
) -> httpx.Response:
    given = {} if route.body is None else {"json": {**route.body, **more}}
    return client.request(method, address(path, route, target), **given)


def test_every_route_is_in_the_table(realm: World) -> None:
    documented = realm.app.openapi()["paths"]
    found = {(m.upper(), p): extra.get("x-need") for p, methods in documented.items() for m, extra in methods.items()}
    assert found == {name: route.need for name, route in ROUTES.items()}
    routes = [route for resource in RESOURCES for route in resource.router.routes]
    assert all(isinstance(route, Guarded) and route.include_in_schema for route in routes)


@pytest.mark.parametrize(("method", "path"), CLOSED)
def test_who_has_no_good_token_gets_401(realm: World, method: str, path: str) -> None:
    route = ROUTES[method, path]
    role = next(role for role in ROLES if route.need in MAY[role])
    tenant = None if role == "super_admin" else "acme"
    revoked, token = create_token(realm.penstock.ground, role, "gone", tenant)
    revoke_token(realm.penstock.ground, revoked.id)
    expired = _expired_token(realm, role, tenant)
    good = realm.token(role)
    for value in (
        None,
        f"Bearer {token}",
        f"Bearer {expired}",
        "Bearer x",
        f"Bearer {good[:-1]}!",
        f"Basic {good}",
        good,
    ):
        client = realm.bare(**({"Authorization": value} if value else {}))
        answer = client.request(method, address(path, route), content=b"{not even json")
        assert answer.status_code == 401, (value, answer.text)
        assert answer.json()["code"] == "unauthenticated"
        assert "www-authenticate" in answer.headers


def _expired_token(realm: World, role: str, tenant: str | None) -> str:
    return create_token(realm.penstock.ground, role, "old", tenant, datetime(2020, 1, 1, tzinfo=UTC))[1]


@pytest.mark.parametrize(("method", "path"), CLOSED)
def test_each_role_may_what_it_may_and_no_more(realm: World, method: str, path: str) -> None:
    route = ROUTES[method, path]
    for role in ROLES:
        if route.need in MAY[role] and (method, path) in STREAMS:
            continue
        answer = send(realm.client(role), method, path, route)
        if route.need in MAY[role]:
            assert answer.status_code not in (401, 403), answer.text
            assert answer.status_code < 500, answer.text
        else:
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
            assert realm.client(role).request(method, address(path, route), content=b"{").status_code == 403


@pytest.mark.parametrize(("method", "path"), OWNED)
def test_anothers_id_and_an_unknown_id_answer_the_same_bytes(
    realm: World, bolts: dict[str, str], method: str, path: str
) -> None:
    route = ROUTES[method, path]
    assert route.owned is not None
    role = "worker" if route.need == Need.WORK else "tenant_admin"
    client = realm.client(role, "acme")
    before = dump(realm)
    theirs = send(client, method, path, route, bolts[route.owned])
    unknown = send(client, method, path, route, str(uuid4()))
    assert theirs.status_code == unknown.status_code == 404
    assert theirs.content == unknown.content
    varying = {"x-request-id"}
    assert {k: v for k, v in theirs.headers.items() if k not in varying} == {
        k: v for k, v in unknown.headers.items() if k not in varying
    }
    assert dump(realm) == before


LAST_USED = ("last_used_at", "last_used_address", "last_seen_at")


def dump(realm: World) -> dict[str, list[Any]]:
    """Every row there is, but for when tokens were last used."""
    with realm.penstock.db.read() as tx:
        return {
            table.name: sorted(
                repr([row[i] for i, column in enumerate(table.c) if column.name not in LAST_USED])
                for row in tx.rows(table.select())
            )
            for table in metadata.sorted_tables
        }


def test_a_viewer_changes_nothing_anywhere(realm: World, bolts: dict[str, str]) -> None:
    acme = realm.penstock.as_tenant("acme")
    mine = {"job": str(acme.enqueue("echo").id), "trigger": str(acme.triggers.on_event("l", "a.b", "echo").id)}
    viewer = realm.client("viewer", "acme")
    viewer.get("/api/v1/jobs")
    before = dump(realm)
    for (method, path), route in ROUTES.items():
        if route.need is None or (method, path) in STREAMS:
            continue
        send(viewer, method, path, route, mine.get(route.owned or "", ANY_ID))
    assert dump(realm) == before


@pytest.mark.parametrize(("method", "path"), TAKING)
def test_unknown_fields_are_refused(realm: World, method: str, path: str) -> None:
    route = ROUTES[method, path]
    client = realm.client()
    before = dump(realm)
    for field in (
        "tenant_id", "status", "created_by", "id", "attempt_no", "attempt_count", "claimed_by", "lease_expires_at",
        "fence", "is_admin", "created_at", "typo",
    ):  # fmt: skip
        answer = send(client, method, path, route, **{field: "x"})
        if route.body and field in route.body:
            continue
        assert answer.status_code == 422, (field, answer.text)
        assert f"$.{field}" in {fault["path"] for fault in answer.json()["faults"]}
    assert dump(realm) == before


@pytest.mark.parametrize(
    ("method", "path"),
    [case for case in CASES if case.values[1].startswith("/api/") and tuple(case.values) not in OPEN],
)
def test_unknown_query_parameters_are_refused(realm: World, method: str, path: str) -> None:
    route = ROUTES[method, path]
    answer = realm.client().request(
        method,
        address(path, route),
        params={"tenant_id": ANY_ID},
        **({} if route.body is None else {"json": route.body}),
    )
    assert answer.status_code == 422
    assert answer.json()["faults"][0]["path"] == "query.tenant_id"


@pytest.mark.parametrize(("method", "path"), TAKING)
def test_bodies_that_are_not_plain_json_are_refused(realm: World, method: str, path: str) -> None:
    route = ROUTES[method, path]
    client = realm.client()
    where = address(path, route)
    for body, code in (
        (b'{"a": NaN}', "invalid_json"),
        (b'{"a": Infinity}', "invalid_json"),
        (b'{"a": 1, "a": 2}', "invalid_json"),
        (b"[" * 100_000, "invalid_json"),
        (b'{"a":' * 10_000, "invalid_json"),
        (b'{"a": ' + b"9" * 5000 + b"}", "invalid_json"),
        (b'{"a": 1e999}', "invalid_json"),
        (b"\xff\xfe", "invalid_json"),
        (b'{"a": "\\u0000', "invalid_json"),
        (b'"' + b'\\"' * 200_000, "invalid_json"),
        (b"[]", "invalid_input"),
        (b"null", "invalid_input"),
    ):
        answer = client.request(method, where, content=body, headers={"content-type": "application/json"})
        assert answer.status_code in (400, 422), (body[:40], answer.text)
        assert answer.json()["code"] == code, (body[:40], answer.text)
    plain = client.request(method, where, content=b"{}", headers={"content-type": "text/plain"})
    assert plain.status_code == 415


@pytest.mark.parametrize(("method", "path"), [case for case in CASES if case.values[1].startswith("/api/")])
def test_other_spellings_of_a_path_lead_nowhere(realm: World, method: str, path: str) -> None:
    where = address(path, ROUTES[method, path])
    client = realm.client("worker") if ROUTES[method, path].need != "work" else realm.client("viewer")
    for other in (where + "/", "/" + where, where.upper(), where.replace("/api/", "/api/%2e%2e/api/"), where + "%00"):
        answer = client.request(method, other)
        assert answer.status_code in (401, 403, 404, 405, 422), (other, answer.status_code)
    for verb in ("HEAD", "OPTIONS", "TRACE", "PUT"):
        answer = client.request(verb, where, headers={"x-http-method-override": method})
        assert answer.status_code == 405
