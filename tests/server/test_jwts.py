"""JSON Web Tokens for the API: their lifetime, their revocation, and an issuer that is slow, gone or hostile."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest
from sqlalchemy import update

from penstock import Penstock
from penstock.client import Client
from penstock.core.errors import InvalidInput
from penstock.queue.revoke import list_revoked, revoke_jwt
from penstock.server import Settings, create_app, fetching
from penstock.store.tables import revocations, sessions
from tests.server.support import Loop, World, served
from tests.support.issuer import Issuer, issuing


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with issuing() as found:
        yield found


@pytest.fixture
def settings(issuer: Issuer) -> Settings:
    return Settings(jwt_issuer=issuer.url, jwt_audience="penstock", jwt_jwks=f"{issuer.url}/jwks", threads=2)


def ask(world: World, token: str) -> httpx.Response:
    return world.bare(Authorization=f"Bearer {token}").get("/api/v1/jobs")


def ann(issuer: Issuer, **given: Any) -> str:
    return issuer.sign(issuer.claims(**{"role": "operator", "tenant": "acme", **given}))


def test_a_jwt_lives_for_a_day_at_most_and_says_since_when(world: World, issuer: Issuer) -> None:
    now = int(time.time())
    assert ask(world, ann(issuer)).status_code == 200
    assert ask(world, ann(issuer, exp=now + 86_000)).status_code == 200
    for wrong in (
        {"exp": now + 100 * 365 * 86_400}, {"exp": now + 86_401 + 60}, {"iat": None}, {"iat": now + 3600, "exp": now + 3700},
        {"iat": "yesterday"}, {"iat": -1, "exp": now + 60}, {"sub": ""}, {"sub": "a\x00b"}, {"jti": 7}, {"jti": "a\x00b"},
        {"tenant": "ac\x00me"},
    ):  # fmt: skip
        assert ask(world, ann(issuer, **wrong)).status_code == 401, wrong


def test_the_longest_lifetime_is_a_setting(url: str, loop: Loop, issuer: Issuer, settings: Settings) -> None:
    with Penstock(url) as penstock:
        penstock.tenants.create("acme")
        short = Settings(jwt_issuer=issuer.url, jwt_audience="penstock", jwt_jwks=settings.jwt_jwks, jwt_max_seconds=60)
        world = World(penstock, create_app(penstock, short), loop)
        assert ask(world, ann(issuer, exp=int(time.time()) + 50)).status_code == 200
        assert ask(world, ann(issuer, exp=int(time.time()) + 90)).status_code == 401
    with pytest.raises(InvalidInput, match="jwt_max_seconds"):
        Settings(jwt_max_seconds=0)


def test_one_jwt_is_revoked_by_its_id(world: World, issuer: Issuer) -> None:
    lost, kept = ann(issuer, jti="lost"), ann(issuer, jti="kept")
    assert (ask(world, lost).status_code, ask(world, kept).status_code) == (200, 200)
    admin = world.client()
    made = admin.post("/api/v1/admin/revoked-jwts", json={"jti": "lost"})
    assert made.status_code == 201, made.text
    assert (made.json()["kind"], made.json()["value"], made.json()["issuer"]) == ("jti", "lost", issuer.url)
    assert (ask(world, lost).status_code, ask(world, kept).status_code) == (401, 200)
    [listed] = admin.get("/api/v1/admin/revoked-jwts").json()["items"]
    assert listed == made.json()
    [entry] = admin.get("/api/v1/admin/audit", params={"action": "jwt.revoke"}).json()["items"]
    assert (entry["subject_id"], entry["after"]["issuer"]) == ("lost", issuer.url)


def test_the_client_revokes_and_lists(world: World, issuer: Issuer) -> None:
    token = ann(issuer)
    with served(world) as address, Client(address, world.token("super_admin")) as client:
        made = client.revoke_jwt(subject="ann")
        assert (made.kind, made.value, made.issuer) == ("subject", "ann", issuer.url)
        assert [each.value for each in client.revoked_jwts().items] == ["ann"]
    assert ask(world, token).status_code == 401


def test_what_a_subject_was_issued_before_is_revoked_and_what_comes_later_is_not(world: World, issuer: Issuer) -> None:
    now = int(time.time())
    token, others = ann(issuer), ann(issuer, sub="bob")
    assert ask(world, token).status_code == 200
    revoke_jwt(world.penstock.ground, issuer.url, subject="ann")
    world.app.state.gate.forget()
    assert (ask(world, token).status_code, ask(world, others).status_code) == (401, 200)
    ahead = ann(issuer, iat=now + 20)
    assert ask(world, ahead).status_code == 401, "issued before, by a clock that is ahead of ours"
    with world.penstock.db.write() as tx:
        tx.run(update(revocations).values(revoked_at=tx.later(-3600)))
    world.app.state.gate.forget()
    assert ask(world, token).status_code == 200
    assert ask(world, ann(issuer, iat=now - 3700)).status_code == 401


def test_a_revocation_is_of_one_issuer_and_is_forgotten_when_it_has_no_object(world: World, issuer: Issuer) -> None:
    ground = world.penstock.ground
    revoke_jwt(ground, "https://other.test", subject="ann")
    assert ask(world, ann(issuer)).status_code == 200
    revoke_jwt(ground, issuer.url, jti="old", seconds=3600)
    [found] = [each for each in list_revoked(ground) if each.value == "old"]
    assert timedelta(hours=1) <= found.expires_at - found.revoked_at <= timedelta(hours=1.1)
    with world.penstock.db.write() as tx:
        tx.run(update(revocations).values(expires_at=tx.later(-1)))
    assert list_revoked(ground) == []
    revoke_jwt(ground, issuer.url, jti="new")
    with world.penstock.db.read() as tx:
        assert [row.value for row in tx.rows(revocations.select())] == ["new"]


def test_a_revocation_names_one_thing_and_an_issuer(world: World, url: str, loop: Loop) -> None:
    admin = world.client()
    for body in ({}, {"jti": "a", "subject": "b"}, {"jti": ""}, {"subject": "a\x00b"}, {"subject": "x" * 501}):
        answer = admin.post("/api/v1/admin/revoked-jwts", json=body)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input"), body
    bare = World(world.penstock, create_app(world.penstock, Settings()), loop)
    bare.tokens = world.tokens
    refused = bare.client().post("/api/v1/admin/revoked-jwts", json={"jti": "a"})
    assert (refused.status_code, "issuer" in refused.json()["detail"]) == (422, True)
    assert admin.get("/api/v1/admin/revoked-jwts").json()["items"] == []


def test_made_up_keys_cost_the_issuer_one_request(world: World, issuer: Issuer) -> None:
    world.app.state.gate._refused.burst = 1e9
    assert ask(world, ann(issuer)).status_code == 200
    for _ in range(200):
        forged = issuer.sign(issuer.claims(role="super_admin"), kid=uuid4().hex)
        assert ask(world, forged).status_code == 401
    assert issuer.counts["/jwks"] <= 2


def test_a_new_key_of_the_issuer_is_found(world: World, issuer: Issuer) -> None:
    now = 1000.0
    world.app.state.gate._jwts._keys._cached._clock = lambda: now
    assert ask(world, ann(issuer)).status_code == 200
    issuer.jwks["keys"] = [issuer.jwk(issuer.key, "k2")]
    fresh = issuer.sign(issuer.claims(role="operator", tenant="acme"), kid="k2")
    assert ask(world, fresh).status_code == 401
    now += 31
    assert ask(world, fresh).status_code == 200


def test_an_issuer_that_does_not_reply_costs_nobody_a_thread(world: World, issuer: Issuer) -> None:
    """More requests with JWTs wait for the issuer's keys than there are threads; a request with a token does not wait."""
    issuer.held = threading.Event()
    plain = world.token("viewer")
    with served(world) as address, ThreadPoolExecutor(8) as pool, httpx.Client(base_url=address, timeout=60) as client:
        waiting = [
            pool.submit(
                httpx.get,
                f"{address}/api/v1/jobs",
                headers={"authorization": f"Bearer {ann(issuer, jti=str(n))}"},
                timeout=60,
            )
            for n in range(8)
        ]
        assert issuer.asked.wait(120)
        answer = client.get("/api/v1/jobs", headers={"authorization": f"Bearer {plain}"})
        assert answer.status_code == 200
        assert not any(each.done() for each in waiting), "they still wait for the issuer"
        issuer.held.set()
        assert [each.result(60).status_code for each in waiting] == [200] * 8
    assert issuer.counts["/jwks"] == 1


@pytest.mark.parametrize("fault", ["down", "huge", "text", "list", "deep", "many", "status"])
def test_keys_that_cannot_be_had_are_told_as_such(world: World, issuer: Issuer, fault: str) -> None:
    replies: dict[str, Any] = {
        "huge": (200, {"keys": [], "padding": "x" * fetching.MAX_BYTES}), "text": (200, b"<html>"), "list": (200, []),
        "deep": (200, b"[" * 100_000), "many": (200, {"keys": [issuer.jwk(issuer.key, "k1")] * 101}), "status": (500, {}),
    }  # fmt: skip
    if fault == "down":
        issuer._server.server_close()
    else:
        issuer.replies["/jwks"] = lambda: replies[fault]
    answer = ask(world, ann(issuer))
    assert (answer.status_code, answer.json()["code"]) == (503, "provider_unavailable")
    assert issuer.url not in answer.text
    assert ask(world, world.token("viewer")).status_code == 200


def test_keys_are_kept_while_the_issuer_is_away(world: World, issuer: Issuer) -> None:
    now = 1000.0
    world.app.state.gate._jwts._keys._cached._clock = lambda: now
    assert ask(world, ann(issuer)).status_code == 200
    issuer.replies["/jwks"] = lambda: (500, {})
    now += 3600
    world.app.state.gate.forget()
    assert ask(world, ann(issuer)).status_code == 200
    now += 25 * 3600
    world.app.state.gate.forget()
    assert ask(world, ann(issuer)).status_code == 503


def test_a_jwt_opens_a_session_that_ends_with_it(world: World, issuer: Issuer) -> None:
    page = world.bare()
    end = int(time.time()) + 120
    signed_in = page.post("/api/v1/session", json={"token": ann(issuer, exp=end, jti="j1")})
    assert signed_in.status_code == 201, signed_in.text
    assert (signed_in.json()["role"], signed_in.json()["tenant"], signed_in.json()["label"]) == (
        "operator",
        "acme",
        "ann",
    )
    with world.penstock.db.read() as tx:
        [row] = tx.rows(sessions.select())
    assert row.expires_at.timestamp() == end
    assert page.get("/api/v1/session").status_code == 200
    world.client().post("/api/v1/admin/revoked-jwts", json={"jti": "j1"})
    assert page.get("/api/v1/session").status_code == 401
    assert page.post("/api/v1/session", json={"token": ann(issuer, jti="j1")}).status_code == 401
    assert page.post("/api/v1/session", json={"token": ann(issuer, jti="j2")}).status_code == 201
    revoke_jwt(world.penstock.ground, issuer.url, subject="ann")
    world.app.state.gate.forget()
    assert page.get("/api/v1/session").status_code == 401


def test_a_jwt_that_is_not_good_opens_no_session(world: World, issuer: Issuer, settings: Settings) -> None:
    page = world.bare()
    for token in (
        ann(issuer, exp=int(time.time()) - 3600),
        ann(issuer, aud="other"),
        ann(issuer, tenant="nowhere"),
        "a.b.c",
    ):
        assert page.post("/api/v1/session", json={"token": token}).status_code == 401
    off = World(world.penstock, create_app(world.penstock, replace(settings, jwt_sessions="off")), world.loop)
    assert off.bare().post("/api/v1/session", json={"token": ann(issuer)}).status_code == 401
    assert ask(off, ann(issuer)).status_code == 200
    with world.penstock.db.read() as tx:
        assert tx.rows(sessions.select()) == []


def test_somebody_whose_access_was_revoked_here_cannot_use_a_jwt(world: World, issuer: Issuer) -> None:
    page = world.bare()
    me = page.post("/api/v1/session", json={"token": ann(issuer)}).json()
    assert world.client().delete(f"/api/v1/admin/tokens/{me['principal_id']}").status_code == 200
    assert page.get("/api/v1/session").status_code == 401
    assert ask(world, ann(issuer)).status_code == 401
    assert page.post("/api/v1/session", json={"token": ann(issuer)}).status_code == 401
