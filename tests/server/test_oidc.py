"""Sign-in with OpenID Connect, against a real provider: django-oauth-toolkit in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest

from penstock import Penstock
from penstock.core.access import Outcome
from penstock.server import Settings, create_app
from penstock.store.tables import sessions, tenants
from tests.server.signing import HOME, Browser, asked
from tests.server.support import Loop, World
from tests.support.openid import CLIENT, SECRET, OpenIdProvider, client

USERS = {
    "ann": ["penstock-admins", "acme-operators"],
    "bob": ["acme-operators"],
    "cem": [],
    "dora": ["viewers", "operators", "tenant:bolt", "tenant:acme"],
    "eli": ["viewers", "tenant:nowhere"],
}
ROLES = "penstock-admins=super_admin, acme-operators=operator@acme, operators=operator, viewers=viewer"


@pytest.fixture(scope="module")
def provider() -> Iterator[OpenIdProvider]:
    clients = [
        client(HOME),
        client(HOME, "public", None),
        client(HOME, "asking", trusted=False),
        client(HOME, "hmac", algorithm="HS256"),
    ]
    found = OpenIdProvider(USERS, clients)
    yield found
    found.stop()


@pytest.fixture
def settings(provider: OpenIdProvider) -> Settings:
    return Settings(
        public_url=HOME, oidc_issuer=provider.issuer, oidc_client_id=CLIENT, oidc_client_secret=SECRET, oidc_name="Acme ID",
        oidc_role_map=ROLES, oidc_tenant_claim="tenants",
    )  # fmt: skip


@pytest.fixture
def browser(world: World) -> Browser:
    return Browser(world)


def other(world: World, settings: Settings, **changes: Any) -> World:
    """The same service with other settings."""
    return World(world.penstock, create_app(world.penstock, replace(settings, **changes)), world.loop)


def test_somebody_signs_in_at_the_provider_and_out_again(
    world: World, browser: Browser, provider: OpenIdProvider
) -> None:
    told: list[Outcome] = []
    world.app.state.gate.listeners.append(told.append)
    ways = browser.get("/api/v1/sign-in").json()
    assert ways == {"openid": {"name": "Acme ID", "url": f"{HOME}/api/v1/sign-in/oidc"}}
    assert browser.session() is None
    begun = browser.begin(return_to="/t/acme/jobs?status=failed")
    sent = asked(begun)
    assert begun.startswith(f"{provider.issuer}/authorize/?")
    assert (sent["response_type"], sent["code_challenge_method"]) == ("code", "S256")
    assert (sent["redirect_uri"], sent["scope"]) == (f"{HOME}/api/v1/sign-in/oidc/callback", "openid profile email")
    back = browser.log_in(begun, "bob")
    assert asked(back)["iss"] == provider.issuer
    done = browser.get(back)
    assert (done.status_code, done.headers["location"]) == (303, f"{HOME}/t/acme/jobs?status=failed")
    me = browser.session()
    assert me is not None
    assert (me["role"], me["tenant"]) == ("operator", "acme")
    assert me["label"] == "oidc:2 (Bob, bob@example.com)"
    made = browser.post(
        "/api/v1/jobs", json={"definition_key": "echo"}, headers={"x-csrf-token": str(me["csrf_token"])}
    )
    assert made.status_code == 201, made.text
    [entry] = world.client("tenant_admin").get("/api/v1/audit", params={"action": "job.create"}).json()["items"]
    assert entry["actor"].startswith("oidc:2 (Bob, bob@example.com) (")
    left = browser.client.delete(f"{HOME}/api/v1/session", headers={"x-csrf-token": str(me["csrf_token"])})
    assert left.status_code == 204
    assert browser.session() is None
    gone = browser.get(str(me["sign_out_url"]))
    assert gone.status_code == 303
    assert gone.headers["location"].startswith(
        f"{provider.issuer}/logout/?client_id={CLIENT}&post_logout_redirect_uri="
    )
    ended = browser.log_in(gone.headers["location"], "bob")
    assert ended.rstrip("/") == HOME
    assert urlsplit(browser.client.get(browser.begin()).headers["location"]).path == "/login/", "signed out there, too"
    assert [each.kind for each in told] == ["session.open", "session.close"]
    assert told[0].detail == f"by {provider.issuer}"


def test_a_session_of_a_person_ends_in_time(world: World, settings: Settings) -> None:
    browser = Browser(other(world, settings, oidc_session_seconds=600, session_seconds=3600))
    done = browser.sign_in("bob")
    [cookie] = [each for each in done.headers.get_list("set-cookie") if each.startswith("penstock_session=")]
    assert "Max-Age=600" in cookie
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    with world.penstock.db.read() as tx:
        [row] = tx.rows(sessions.select())
    assert row.expires_at - row.created_at == timedelta(seconds=600)
    assert isinstance(row.expires_at, datetime)
    assert row.sid == "bob-session"


@pytest.mark.parametrize(
    ("user", "query", "role", "tenant"),
    [
        ("ann", {}, "super_admin", "default"),
        ("bob", {}, "operator", "acme"),
        ("dora", {}, "operator", "acme"),
        ("dora", {"tenant": "bolt"}, "operator", "bolt"),
    ],
)
def test_claims_give_a_role_and_a_tenant(browser: Browser, user: str, query: Any, role: str, tenant: str) -> None:
    assert browser.sign_in(user, **query).status_code == 303
    me = browser.session()
    assert me is not None
    assert (me["role"], me["tenant"]) == (role, tenant)


@pytest.mark.parametrize(("user", "query"), [("cem", {}), ("eli", {}), ("bob", {"tenant": "bolt"})])
def test_somebody_without_a_role_is_told_so(world: World, browser: Browser, user: str, query: Any) -> None:
    answer = browser.sign_in(user, **query)
    assert answer.status_code == 403
    assert answer.headers["content-type"].startswith("text/html")
    assert f"({user.title()}, {user}@example.com), but you have no role here" in answer.text
    assert "penstock_session" not in answer.headers.get("set-cookie", "")
    assert browser.session() is None
    with world.penstock.db.read() as tx:
        assert {row.slug for row in tx.rows(tenants.select())} == {"default", "acme", "bolt"}
        assert tx.rows(sessions.select()) == []


def test_a_tenant_that_was_switched_off_lets_nobody_in(world: World, browser: Browser) -> None:
    assert browser.sign_in("bob").status_code == 303
    assert browser.session() is not None
    world.client().patch("/api/v1/admin/tenants/acme", json={"is_active": False})
    assert browser.session() is None
    assert browser.sign_in("bob").status_code == 403


def test_a_public_client_signs_in_without_a_secret(world: World, settings: Settings) -> None:
    browser = Browser(other(world, settings, oidc_client_id="public", oidc_client_secret=None))
    assert browser.sign_in("bob").status_code == 303
    assert browser.session() is not None


def test_claims_are_read_from_userinfo_where_that_is_on(world: World, settings: Settings) -> None:
    browser = Browser(other(world, settings, oidc_userinfo="on"))
    assert browser.sign_in("bob").status_code == 303
    assert browser.session() is not None


def test_a_refusal_of_the_provider_is_told(world: World, settings: Settings) -> None:
    browser = Browser(other(world, settings, oidc_client_id="asking"))
    answer = browser.get(browser.log_in(browser.begin(), "bob", allow=False))
    assert (answer.status_code, "It says: access_denied" in answer.text) == (403, True)
    assert browser.session() is None
    wrong = Browser(other(world, settings, oidc_client_secret="wrong"))
    answer = wrong.sign_in("bob")
    assert (answer.status_code, "It says: invalid_client" in answer.text) == (403, True)


def test_an_id_token_signed_by_the_clients_secret_is_refused(world: World, settings: Settings) -> None:
    """The provider itself signs by HS256 here: whoever knows the secret could write such a token."""
    browser = Browser(other(world, settings, oidc_client_id="hmac"))
    answer = browser.sign_in("bob")
    assert (answer.status_code, "could not be verified" in answer.text) == (403, True)
    assert browser.session() is None


def test_a_code_works_once_and_only_in_the_browser_that_asked_for_it(world: World) -> None:
    mine, theirs = Browser(world), Browser(world)
    stolen = theirs.log_in(theirs.begin(), "ann")
    own = asked(mine.begin())["state"]
    crossed = mine.get(stolen)
    assert crossed.status_code == 400, "the state is not this browser's"
    own = asked(mine.begin())["state"]
    injected = mine.get(stolen.replace(asked(stolen)["state"], own))
    assert (injected.status_code, "It says: invalid_grant" in injected.text) == (403, True), "PKCE"
    assert mine.session() is None
    fresh = mine.log_in(mine.begin(), "bob")
    cookies = dict(mine.client.cookies)
    assert mine.get(fresh).status_code == 303
    assert mine.session() is not None
    replayed = Browser(world)
    for name, value in cookies.items():
        replayed.client.cookies.set(name, value)
    assert replayed.get(fresh).status_code in (400, 403)
    assert replayed.session() is None


def test_a_revoked_subject_is_signed_out_and_may_come_back(
    world: World, browser: Browser, provider: OpenIdProvider
) -> None:
    assert browser.sign_in("bob").status_code == 303
    made = world.client().post("/api/v1/admin/revoked-jwts", json={"subject": "2", "issuer": provider.issuer})
    assert made.status_code == 201, made.text
    assert browser.session() is None
    assert browser.sign_in("bob").status_code == 303


def test_a_provider_that_is_down_is_told_and_tokens_still_work(url: str, loop: Loop, settings: Settings) -> None:
    with Penstock(url) as penstock:
        gone = replace(settings, oidc_issuer="http://127.0.0.1:1/o")
        world = World(penstock, create_app(penstock, gone), loop)
        browser = Browser(world)
        answer = browser.get("/api/v1/sign-in/oidc")
        assert (answer.status_code, "cannot be reached now" in answer.text) == (503, True)
        signed_in = browser.post("/api/v1/session", json={"token": world.token("super_admin")})
        assert signed_in.status_code == 201
