"""Sessions of the page: how they begin, how they end, and who sees them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import httpx
import pytest

from penstock import Penstock
from penstock.core.access import Outcome, Person, Role
from penstock.core.clock import ManualClock
from penstock.core.errors import Forbidden
from penstock.queue.access import create_token, revoke_token, sign_in_code
from penstock.queue.sign_in import Visit, sign_in_person, sign_out_person
from penstock.server import Settings, create_app
from tests.server.support import Loop, World

ISSUER = "https://id.example.com"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def timed(url: str, loop: Loop, clock: ManualClock) -> Iterator[World]:
    """A service whose clock the test holds, where a session lasts four hours and one that is not used half an hour."""
    with Penstock(url, clock=clock) as penstock:
        penstock.tenants.create("acme")
        settings = Settings(session_seconds=4 * 3600, session_idle_seconds=1800)
        app = create_app(penstock, settings)
        app.state.gate.clock = lambda: clock.now().timestamp()
        yield World(penstock, app, loop)


def signed_in(world: World, token: str, **headers: str) -> httpx.Client:
    page = world.bare(**headers)
    answer = page.post("/api/v1/session", json={"token": token})
    assert answer.status_code == 201, answer.text
    page.headers["x-csrf-token"] = answer.json()["csrf_token"]
    return page


def ann(world: World, role: Role = Role.OPERATOR, tenant: str | None = "acme") -> Person:
    return Person(ISSUER, "ann", "Ann", role, None if tenant is None else world.penstock.ground.tenant_id(tenant))


def test_a_session_that_is_not_used_ends(timed: World, clock: ManualClock) -> None:
    page = signed_in(timed, timed.token("viewer"))
    for _ in range(4):  # two hours of use
        clock.advance(minutes=29)
        assert page.get("/api/v1/jobs").status_code == 200
    clock.advance(minutes=31)
    assert page.get("/api/v1/jobs").status_code == 401


def test_a_session_ends_however_much_it_is_used(timed: World, clock: ManualClock) -> None:
    page = signed_in(timed, timed.token("viewer"))
    for _ in range(11):
        clock.advance(minutes=20)
        assert page.get("/api/v1/jobs").status_code == 200
    clock.advance(minutes=20)
    assert page.get("/api/v1/jobs").status_code == 401


def test_waiting_on_a_stream_does_not_keep_a_session(timed: World, clock: ManualClock) -> None:
    page = signed_in(timed, timed.token("viewer"))
    for _ in range(3):
        clock.advance(minutes=9)
        assert page.get("/api/v1/session").status_code == 200  # what an open stream asks, too
    clock.advance(minutes=4)
    assert page.get("/api/v1/session").status_code == 401


def test_a_session_does_not_outlive_its_token(timed: World, clock: ManualClock) -> None:
    _, token = create_token(timed.penstock.ground, "viewer", "v", "acme", clock.now() + timedelta(minutes=10))
    page = signed_in(timed, token)
    clock.advance(minutes=11)
    assert page.get("/api/v1/jobs").status_code == 401


def test_signing_in_ends_the_session_that_the_browser_had(world: World) -> None:
    page = signed_in(world, world.token("viewer"))
    first = page.cookies["penstock_session"]
    assert page.post("/api/v1/session", json={"token": world.token("operator")}).status_code == 201
    assert page.cookies["penstock_session"] != first
    assert world.bare(Cookie=f"penstock_session={first}").get("/api/v1/jobs").status_code == 401


def test_a_secret_that_the_browser_brings_along_becomes_no_session(world: World) -> None:
    page = world.bare(Cookie="penstock_session=chosen-by-somebody-else")
    answer = page.post("/api/v1/session", json={"token": world.token("viewer")})
    assert answer.cookies["penstock_session"] != "chosen-by-somebody-else"
    assert page.get("/api/v1/jobs").status_code == 401


def test_a_person_has_a_session_without_a_token(world: World) -> None:
    opened = sign_in_person(world.penstock.ground, ann(world), Visit(3600, "10.0.0.1"), sid="s-1")
    page = world.bare(Cookie=f"penstock_session={opened.secret}")
    me = page.get("/api/v1/session").json()
    assert (me["label"], me["role"], me["tenant"]) == ("Ann", "operator", "acme")
    made = page.post("/api/v1/jobs", json={"definition_key": "echo"}, headers={"x-csrf-token": opened.csrf_token})
    assert made.status_code == 201, made.text
    for never in (f"person:{opened.principal.id}", str(opened.principal.id), "person"):
        assert world.bare(Authorization=f"Bearer {never}").get("/api/v1/session").status_code == 401
    assert sign_out_person(world.penstock.ground, ISSUER, sid="another") == 0
    assert sign_out_person(world.penstock.ground, ISSUER, sid="s-1") == 1
    world.app.state.gate.forget()
    assert page.get("/api/v1/session").status_code == 401


def test_a_person_has_the_role_that_the_provider_said_last(world: World) -> None:
    ground = world.penstock.ground
    before = sign_in_person(ground, ann(world, Role.TENANT_ADMIN), Visit(3600))
    after = sign_in_person(ground, ann(world, Role.VIEWER), Visit(3600))
    assert before.principal.id == after.principal.id
    page = world.bare(Cookie=f"penstock_session={before.secret}")
    assert page.get("/api/v1/session").json()["role"] == "viewer"


def test_tokens_that_a_person_created_end_when_the_provider_takes_the_role_away(world: World) -> None:
    ground = world.penstock.ground
    opened = sign_in_person(ground, ann(world, Role.TENANT_ADMIN), Visit(3600))
    page = world.bare(Cookie=f"penstock_session={opened.secret}", X_CSRF_Token=opened.csrf_token)
    made = page.post("/api/v1/tokens", json={"role": "operator", "label": "robot"}).json()
    assert made["parent_id"] == str(opened.principal.id)
    robot = world.bare(Authorization=f"Bearer {made['token']}")
    sign_in_person(ground, ann(world, Role.TENANT_ADMIN), Visit(3600))
    assert robot.get("/api/v1/jobs").status_code == 200
    sign_in_person(ground, ann(world, Role.OPERATOR), Visit(3600))
    world.app.state.gate.forget()
    assert robot.get("/api/v1/jobs").status_code == 401


def test_what_a_person_no_longer_has_at_the_provider_ends_here(world: World) -> None:
    ground = world.penstock.ground
    everywhere = sign_in_person(ground, ann(world, Role.SUPER_ADMIN, None), Visit(3600))
    in_bolt = sign_in_person(ground, ann(world, Role.OPERATOR, "bolt"), Visit(3600), also=[None])
    pages = [world.bare(Cookie=f"penstock_session={each.secret}") for each in (everywhere, in_bolt)]
    assert [page.get("/api/v1/session").status_code for page in pages] == [200, 200]
    sign_in_person(ground, ann(world), Visit(3600), also=[ground.tenant_id("bolt")])
    world.app.state.gate.forget()
    assert [page.get("/api/v1/session").status_code for page in pages] == [401, 200]


def test_a_person_whose_access_was_revoked_is_not_let_in_again(world: World) -> None:
    ground = world.penstock.ground
    opened = sign_in_person(ground, ann(world), Visit(3600))
    revoked = revoke_token(ground, opened.principal.id)
    assert (revoked.tokens, revoked.sessions) == (1, 1)
    page = world.bare(Cookie=f"penstock_session={opened.secret}")
    assert page.get("/api/v1/session").status_code == 401
    with pytest.raises(Forbidden, match="tokens restore"):
        sign_in_person(ground, ann(world), Visit(3600))


def test_listeners_are_told_of_every_sign_in_sign_out_and_refusal(world: World) -> None:
    heard: list[Outcome] = []
    world.app.state.gate.listeners.append(heard.append)
    page = signed_in(world, world.token("viewer"))
    page.delete("/api/v1/session")
    world.bare().post("/api/v1/session", json={"token": "guess"})
    world.bare(Authorization="Bearer guess").get("/api/v1/jobs")
    world.client("viewer").post("/api/v1/jobs", json={"definition_key": "echo"})
    assert [(each.kind, each.principal and each.principal.label) for each in heard] == [
        ("session.open", "viewer of acme"), ("session.close", "viewer of acme"), ("session.refused", None),
        ("token.refused", None), ("access.refused", "viewer of acme"),
    ]  # fmt: skip
    assert all(each.address and each.request_id for each in heard)
    assert "POST /api/v1/jobs" in heard[-1].detail


def test_one_sees_ones_own_sessions_and_ends_one_or_all(world: World) -> None:
    token = world.token("viewer")
    here, there = signed_in(world, token, User_Agent="Here/1"), signed_in(world, token, User_Agent="There/2")
    stranger = signed_in(world, world.token("operator"))
    found = here.get("/api/v1/sessions").json()["items"]
    assert {(each["user_agent"], each["current"]) for each in found} == {("Here/1", True), ("There/2", False)}
    assert {each["address"] for each in found} == {"127.0.0.1"}
    other = next(each for each in found if not each["current"])
    assert stranger.delete(f"/api/v1/sessions/{other['id']}").status_code == 404
    assert here.delete(f"/api/v1/sessions/{other['id']}", headers={"x-csrf-token": ""}).status_code == 403
    assert here.delete(f"/api/v1/sessions/{other['id']}").status_code == 204
    assert there.get("/api/v1/jobs").status_code == 401
    again = signed_in(world, token)
    assert here.delete("/api/v1/sessions").json() == {"ended": 2}
    assert [each.get("/api/v1/jobs").status_code for each in (here, again, stranger)] == [401, 401, 200]
    assert world.client("viewer").get("/api/v1/sessions").json() == {"items": []}


def test_an_administrator_ends_the_sessions_of_a_token(world: World) -> None:
    principal, token = create_token(world.penstock.ground, "viewer", "ann", "acme")
    page = signed_in(world, token)
    code = sign_in_code(world.penstock.ground, principal.id)
    ended = world.client("tenant_admin").delete(f"/api/v1/tokens/{principal.id}/sessions")
    assert ended.json() == {"ended": 1}
    assert page.get("/api/v1/jobs").status_code == 401
    assert world.bare().post("/api/v1/session", json={"token": code}).status_code == 401
    assert signed_in(world, token).get("/api/v1/jobs").status_code == 200
    elsewhere = world.client("tenant_admin", "bolt").delete(f"/api/v1/tokens/{principal.id}/sessions")
    assert elsewhere.status_code == 404
