"""Sign-in with OpenID Connect under attack: replies, tokens and documents that no honest provider sends."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from penstock.core.access import Outcome
from penstock.core.errors import InvalidInput
from penstock.core.explain import EXPLANATIONS
from penstock.server import Settings, create_app, fetching
from penstock.store.tables import sessions
from tests.server.signing import HOME, Browser, asked
from tests.server.support import World, served
from tests.support.issuer import Issuer, issuing

SECRET = "the secret of the client, long enough for HMAC"
LOGOUT = {"http://schemas.openid.net/event/backchannel-logout": {}}


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with issuing() as found:
        yield found


@pytest.fixture
def settings(issuer: Issuer) -> Settings:
    return Settings(
        public_url=HOME, oidc_issuer=issuer.url, oidc_client_id="penstock", oidc_client_secret=SECRET,
        oidc_role_map="staff=operator@acme", threads=2,
    )  # fmt: skip


@pytest.fixture
def browser(world: World) -> Browser:
    return Browser(world)


def grant(issuer: Issuer, sent: dict[str, str], **claims: Any) -> None:
    """Let the token endpoint give an ID token for what the browser was sent with."""
    token = issuer.sign(issuer.claims(**{"nonce": sent["nonce"], "groups": ["staff"], **claims}))
    issuer.token_reply = lambda form: (200, {"id_token": token, "access_token": "a", "token_type": "Bearer"})


def come_back(browser: Browser, sent: dict[str, str], **query: Any) -> httpx.Response:
    given = {"code": "c", "state": sent["state"], **query}
    return browser.get("/api/v1/sign-in/oidc/callback", params={k: v for k, v in given.items() if v is not None})


def nobody(world: World, browser: Browser, answer: httpx.Response, status: int) -> None:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"].startswith("text/html")
    assert "You are not signed in" in answer.text
    assert not any(each.startswith("penstock_session=") for each in answer.headers.get_list("set-cookie"))
    assert browser.session() is None
    with world.penstock.db.read() as tx:
        assert tx.rows(sessions.select()) == []


def test_the_attacked_flow_works_when_nothing_is_wrong(world: World, browser: Browser, issuer: Issuer) -> None:
    sent = asked(browser.begin())
    grant(issuer, sent)
    done = come_back(browser, sent, session_state="x", authuser="0", hd="example.com")
    assert (done.status_code, done.headers["location"]) == (303, f"{HOME}/"), done.text
    [form] = issuer.forms
    challenge = base64.urlsafe_b64encode(_sha256(form["code_verifier"])).decode().rstrip("=")
    assert challenge == sent["code_challenge"]
    assert form["redirect_uri"] == sent["redirect_uri"] == f"{HOME}/api/v1/sign-in/oidc/callback"
    assert "client_secret" not in form
    me = browser.session()
    assert me is not None
    assert (me["role"], me["tenant"], me["label"]) == ("operator", "acme", "oidc:ann")


def _sha256(text: str) -> bytes:
    import hashlib

    return hashlib.sha256(text.encode()).digest()


def _unsigned(issuer: Issuer, claims: dict[str, Any]) -> str:
    return jwt.encode(claims, None, "none", headers={"kid": "k1"})


def _public_as_secret(issuer: Issuer, claims: dict[str, Any]) -> str:
    public = issuer.key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    header = {"alg": "HS256", "typ": "JWT", "kid": "k1"}
    import hashlib
    import hmac

    parts = [base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=") for each in (header, claims)]
    signature = hmac.digest(public, b".".join(parts), hashlib.sha256)
    return b".".join([*parts, base64.urlsafe_b64encode(signature).rstrip(b"=")]).decode()


def _of_a_stranger(issuer: Issuer, claims: dict[str, Any]) -> str:
    return issuer.sign(claims, ec.generate_private_key(ec.SECP256R1()))


def _with_its_own_key(issuer: Issuer, claims: dict[str, Any]) -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    header = {"jwk": Issuer.jwk(key, "k1"), "jku": "http://127.0.0.1:1/", "kid": "k1"}
    return jwt.encode(claims, key, "ES256", headers=header)


def _tampered(issuer: Issuer, claims: dict[str, Any]) -> str:
    head, _, tail = issuer.sign({**claims, "sub": "somebody"}).split(".")
    return f"{head}.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.{tail}"


FORGED: dict[str, Callable[[Issuer, dict[str, Any]], str]] = {
    "alg none": _unsigned,
    "HS256 by the public key": _public_as_secret,
    "HS256 by the client's secret": lambda issuer, claims: issuer.sign(claims, SECRET, "HS256"),
    "a stranger's key": _of_a_stranger,
    "a key of its own": _with_its_own_key,
    "an unknown key": lambda issuer, claims: issuer.sign(claims, kid="k9"),
    "tampered": _tampered,
    "no token": lambda issuer, claims: "",
    "no jwt": lambda issuer, claims: "a.b.c",
    "too long": lambda issuer, claims: issuer.sign({**claims, "padding": "x" * 20_000}),
}


@pytest.mark.parametrize("how", FORGED)
def test_an_id_token_that_the_provider_did_not_sign_is_refused(
    world: World, browser: Browser, issuer: Issuer, how: str
) -> None:
    sent = asked(browser.begin())
    token = FORGED[how](issuer, issuer.claims(nonce=sent["nonce"], groups=["staff"]))
    issuer.token_reply = lambda form: (200, {"id_token": token, "access_token": "a", "token_type": "Bearer"})
    nobody(world, browser, come_back(browser, sent), 403)


NOW = int(time.time())
WRONG: dict[str, dict[str, Any]] = {
    "no nonce": {"nonce": None}, "another nonce": {"nonce": "of-somebody-else"}, "a list as nonce": {"nonce": ["x"]},
    "another audience": {"aud": "other"}, "no audience": {"aud": None},
    "several audiences without azp": {"aud": ["penstock", "other"]},
    "another azp": {"aud": ["penstock", "other"], "azp": "other"}, "azp of another for ours": {"azp": "other"},
    "another issuer": {"iss": "https://evil.test"}, "no issuer": {"iss": None},
    "expired": {"exp": NOW - 3600, "iat": NOW - 7200}, "no exp": {"exp": None}, "exp as text": {"exp": "tomorrow"},
    "no iat": {"iat": None}, "issued in the future": {"iat": NOW + 7200, "exp": NOW + 7500},
    "not yet valid": {"nbf": NOW + 7200}, "no subject": {"sub": None}, "an empty subject": {"sub": ""},
    "a long subject": {"sub": "x" * 300}, "a wrong at_hash": {"at_hash": "AAAAAAAAAAAAAAAAAAAAAA"},
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_an_id_token_that_is_not_for_this_sign_in_is_refused(
    world: World, browser: Browser, issuer: Issuer, what: str
) -> None:
    told: list[Outcome] = []
    world.app.state.gate.listeners.append(told.append)
    sent = asked(browser.begin())
    grant(issuer, sent, **WRONG[what])
    nobody(world, browser, come_back(browser, sent), 403)
    assert told[0].kind == "session.refused"
    assert told[0].detail.startswith("sign_in_untrusted")


def test_a_reply_with_another_state_never_reaches_the_provider(world: World, issuer: Issuer) -> None:
    world.app.state.gate._refused.burst = 1e9
    for state in ("wrong", "", None, "é", "\u0000", ["twice"]):
        browser = Browser(world)
        sent = asked(browser.begin())
        grant(issuer, sent)
        given = [sent["state"], sent["state"]] if state == ["twice"] else state
        nobody(world, browser, come_back(browser, sent, state=given), 400)
    begun = asked(Browser(world).begin())
    for cookie in (None, "rubbish", "x" * 5000, "A" * 43 + ".W10=", "A" * 43 + ".!!", "A" * 43 + ".bnVsbA=="):
        browser = Browser(world)
        if cookie is not None:
            browser.client.cookies.set("penstock_sign_in", cookie, domain="127.0.0.1")
        nobody(world, browser, come_back(browser, begun), 400)
    assert issuer.forms == []


def test_a_reply_is_used_once_even_if_the_provider_gives_again(world: World, browser: Browser, issuer: Issuer) -> None:
    sent = asked(browser.begin())
    grant(issuer, sent)
    cookies = dict(browser.client.cookies)
    assert come_back(browser, sent).status_code == 303
    assert "penstock_sign_in" not in browser.client.cookies, "the cookie goes with the first use"
    again = Browser(world)
    for name, value in cookies.items():
        again.client.cookies.set(name, value, domain="127.0.0.1")
    answer = come_back(again, sent)
    assert (answer.status_code, again.session()) == (400, None)
    with world.penstock.db.read() as tx:
        assert len(tx.rows(sessions.select())) == 1


def test_a_reply_of_another_provider_is_refused_before_its_code_is_sent_on(
    world: World, browser: Browser, issuer: Issuer
) -> None:
    sent = asked(browser.begin())
    grant(issuer, sent)
    nobody(world, browser, come_back(browser, sent, iss="https://evil.test"), 403)
    assert issuer.forms == []
    issuer.metadata["authorization_response_iss_parameter_supported"] = True
    strict = World(world.penstock, create_app(world.penstock, world.app.state.settings), world.loop)
    browser = Browser(strict)
    sent = asked(browser.begin())
    grant(issuer, sent)
    nobody(strict, browser, come_back(browser, sent), 403)
    assert issuer.forms == []
    sent = asked(browser.begin())
    grant(issuer, sent)
    assert come_back(browser, sent, iss=issuer.url).status_code == 303


@pytest.mark.parametrize(
    "place",
    [
        "https://evil.test", "//evil.test", "/\\evil.test", "\\\\evil.test", "/\t/evil.test", "javascript:alert(1)",
        "/api/v1/session", "http:evil.test", "/%0d%0aset-cookie:a=b\r\n", "@evil.test", "/x#@evil.test", "/" + "a" * 3000,
    ],
)  # fmt: skip
def test_nobody_is_led_off_the_site(browser: Browser, issuer: Issuer, place: str) -> None:
    sent = asked(browser.begin(return_to=place))
    grant(issuer, sent)
    done = come_back(browser, sent)
    assert (done.status_code, done.headers["location"]) == (303, f"{HOME}/")


def test_a_cookie_that_was_changed_leads_nobody_off_the_site(browser: Browser, issuer: Issuer) -> None:
    sent = asked(browser.begin())
    grant(issuer, sent)
    secret = browser.client.cookies["penstock_sign_in"].partition(".")[0]
    evil = base64.urlsafe_b64encode(json.dumps(["//evil.test", None]).encode()).decode()
    browser.client.cookies.clear()
    browser.client.cookies.set("penstock_sign_in", f"{secret}.{evil}", domain="127.0.0.1")
    assert come_back(browser, sent).headers["location"] == f"{HOME}/"


def test_the_host_header_is_not_believed(world: World) -> None:
    answer = world.bare(Host="evil.test").get("/api/v1/sign-in/oidc")
    assert asked(answer.headers["location"])["redirect_uri"] == f"{HOME}/api/v1/sign-in/oidc/callback"
    assert world.bare(Host="evil.test").get("/api/v1/sign-in").json()["openid"]["url"].startswith(HOME)


def test_what_a_provider_says_is_shown_as_text(world: World, browser: Browser) -> None:
    sent = asked(browser.begin())
    answer = come_back(
        browser, sent, code=None, error="access_denied", error_description="<script>alert(1)</script> & more"
    )
    nobody(world, browser, answer, 403)
    assert "access_denied: &lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in answer.text
    sent = asked(browser.begin())
    answer = come_back(browser, sent, code=None, error="x" * 400)
    assert "something that cannot be shown" in answer.text
    stranger = come_back(Browser(world), sent, code=None, error="access_denied", error_description="Call 0900-EVIL")
    assert (stranger.status_code, "EVIL" in stranger.text) == (400, False), "only who began is told"


def test_a_name_cannot_pass_for_another_subject(world: World, browser: Browser, issuer: Issuer) -> None:
    sent = asked(browser.begin())
    grant(issuer, sent, sub="eve", name="x) oidc:ann (Ann\u202e\x07", email="ann@example.com", email_verified=False)
    assert come_back(browser, sent).status_code == 303
    me = browser.session()
    assert me is not None
    assert str(me["label"]) == "oidc:eve (x) oidc:ann (Ann\ufffd\ufffd)"


def test_without_a_browser_the_problem_is_a_document(world: World, issuer: Issuer) -> None:
    plain = world.bare(Accept="application/json")
    answer = plain.get("/api/v1/sign-in/oidc/callback")
    assert (answer.status_code, answer.json()["code"]) == (400, "sign_in_expired")
    assert "sign_in_expired" in EXPLANATIONS


def test_guessing_at_replies_is_throttled(world: World) -> None:
    world.app.state.gate._refused.burst = 5
    world.app.state.gate._refused.rate = 1e-6
    answers = [Browser(world).get("/api/v1/sign-in/oidc/callback?state=x&code=y").status_code for _ in range(8)]
    assert answers[:3] == [400] * 3
    assert answers[-1] == 429


@pytest.mark.parametrize("fault", ["huge", "another issuer", "http endpoint", "no keys", "no S256", "text", "status"])
def test_a_discovery_document_that_cannot_be_trusted(
    world: World, browser: Browser, issuer: Issuer, fault: str
) -> None:
    good = issuer.discovery()
    replies: dict[str, tuple[int, Any]] = {
        "huge": (200, {**good, "padding": "x" * fetching.MAX_BYTES}), "another issuer": (200, {**good, "issuer": "https://evil.test"}),
        "http endpoint": (200, {**good, "token_endpoint": "http://evil.test/token"}), "no keys": (200, {**good, "jwks_uri": None}),
        "no S256": (200, {**good, "code_challenge_methods_supported": ["plain"]}), "text": (200, b"<html>"), "status": (404, good),
    }  # fmt: skip
    issuer.replies["/.well-known/openid-configuration"] = lambda: replies[fault]
    nobody(world, browser, browser.get("/api/v1/sign-in/oidc"), 503)


def test_keys_that_are_too_many_or_too_large_sign_nobody_in(world: World, browser: Browser, issuer: Issuer) -> None:
    for reply in ((200, {"keys": [Issuer.jwk(issuer.key, "k1")] * 5000}), (200, {"keys": [{"pad": "x" * 300_000}]})):
        issuer.replies["/jwks"] = lambda reply=reply: reply
        sent = asked(browser.begin())
        grant(issuer, sent)
        nobody(world, browser, come_back(browser, sent), 503)
        world.app.state.sign_ins.provider._keys._cached._failure = None


def test_a_slow_provider_holds_nobody_up(world: World, issuer: Issuer) -> None:
    """More sign-ins wait for the provider than there are threads; a request with a token does not wait."""
    begun = [Browser(world) for _ in range(6)]
    sent = [asked(each.begin()) for each in begun]
    issuer.held = threading.Event()
    issuer.asked.clear()
    token = world.token("viewer")
    with served(world) as address, ThreadPoolExecutor(6) as pool:

        def returning(browser: Browser, state: str) -> httpx.Response:
            cookies = {"penstock_sign_in": browser.client.cookies["penstock_sign_in"]}
            with httpx.Client(cookies=cookies, timeout=60, headers={"accept": "text/html"}) as client:
                return client.get(f"{address}/api/v1/sign-in/oidc/callback", params={"state": state, "code": "c"})

        waiting = [pool.submit(returning, each, given["state"]) for each, given in zip(begun, sent, strict=True)]
        assert issuer.asked.wait(120)
        with httpx.Client(base_url=address, headers={"authorization": f"Bearer {token}"}, timeout=60) as client:
            assert client.get("/api/v1/jobs").status_code == 200
        assert not any(each.done() for each in waiting), "they still wait for the provider"
        issuer.held.set()
        assert {each.result(60).status_code for each in waiting} == {403}


def test_only_so_many_sign_ins_wait_at_once(world: World, browser: Browser, issuer: Issuer) -> None:
    sent = asked(browser.begin())
    grant(issuer, sent)
    world.app.state.sign_ins._waiting = 32
    nobody(world, browser, come_back(browser, sent), 503)
    assert issuer.forms == []


def test_the_provider_ends_sessions_by_itself(world: World, issuer: Issuer) -> None:
    ann, bob, cat = Browser(world), Browser(world), Browser(world)
    for browser, subject, sid in ((ann, "ann", "s1"), (bob, "bob", "s2"), (cat, "cat", "s3")):
        sent = asked(browser.begin())
        grant(issuer, sent, sub=subject, sid=sid)
        assert come_back(browser, sent).status_code == 303

    def tell(**claims: Any) -> int:
        token = issuer.sign(issuer.claims(**{"events": LOGOUT, "jti": "j", **claims}))
        answer = world.bare().post("/api/v1/sign-in/oidc/back-channel-logout", data={"logout_token": token})
        return answer.status_code

    for wrong in (
        {"aud": "other"}, {"iss": "https://evil.test"}, {"events": {}}, {"events": None}, {"nonce": "n"}, {"jti": None},
        {"sub": None}, {"iat": NOW - 7200, "exp": NOW - 3600}, {"iat": NOW - 86_400}, {"sub": 7}, {"iat": None},
    ):  # fmt: skip
        assert tell(**wrong) == 400, wrong
    assert (
        world.bare().post("/api/v1/sign-in/oidc/back-channel-logout", data={"logout_token": "a.b.c"}).status_code == 400
    )
    assert world.bare().post("/api/v1/sign-in/oidc/back-channel-logout").status_code == 400
    assert [each.session() is None for each in (ann, bob, cat)] == [False, False, False]
    assert tell(sub=None, sid="s1", jti="j1") == 200
    assert [each.session() is None for each in (ann, bob, cat)] == [True, False, False]
    assert tell(sub="bob", jti="j2") == 200
    assert [each.session() is None for each in (ann, bob, cat)] == [True, True, False]
    sent = asked(bob.begin())
    grant(issuer, sent, sub="bob", sid="s4")
    assert come_back(bob, sent).status_code == 303
    assert tell(sub="bob", jti="j2") == 200
    assert bob.session() is not None, "a logout token that is sent again ends nothing new"


def test_it_is_set_up_safely_or_not_at_all(settings: Settings) -> None:
    for name, wrong in (
        ("oidc_issuer", "http://id.example.com"), ("oidc_issuer", "ftp://id.example.com"), ("oidc_issuer", "id.example.com"),
        ("oidc_issuer", "https://user@id.example.com"), ("oidc_issuer", "https://id.example.com?x=1"),
        ("oidc_issuer", "https://id.example.com#x"), ("oidc_issuer", "http://127.0.0.1.evil.test"), ("oidc_issuer", "https://["),
        ("public_url", "http://jobs.example.com"), ("public_url", "jobs.example.com"), ("public_url", None),
        ("oidc_client_id", None), ("oidc_scopes", ("email",)), ("oidc_userinfo", "yes"), ("oidc_session_seconds", 0),
        ("oidc_role_map", "staff=king"), ("oidc_role_map", "staff=worker@acme"), ("oidc_role_map", "staff=super_admin@acme"),
        ("oidc_role_map", "staff"), ("oidc_role_map", "staff=viewer@"), ("oidc_role_map", "{"), ("oidc_role_map", '{"a": 1}'),
    ):  # fmt: skip
        with pytest.raises(InvalidInput, match=name):
            replace(settings, **{name: wrong})
    assert SECRET not in repr(settings)
    good = replace(settings, oidc_role_map='{"cn=ops,dc=acme": "operator@acme"}', oidc_issuer="https://id.example.com/")
    assert good.oidc_role_map


def test_where_it_is_not_set_up_nothing_is_offered(world: World) -> None:
    bare = World(world.penstock, create_app(world.penstock, Settings()), world.loop)
    assert bare.bare().get("/api/v1/sign-in").json() == {"openid": None}
    for path in ("", "/callback?state=x&code=y", "/sign-out"):
        answer = bare.bare().get(f"/api/v1/sign-in/oidc{path}")
        assert (answer.status_code, answer.json()["code"]) == (404, "sign_in_not_configured")


def test_under_tls_the_cookies_are_ones_that_no_other_host_can_set(world: World, settings: Settings) -> None:
    secure = replace(settings, public_url="https://jobs.example.com")
    tls = World(world.penstock, create_app(world.penstock, secure), world.loop)
    answer = tls.bare().get("/api/v1/sign-in/oidc")
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("__Host-penstock_sign_in=")
    assert {"secure", "httponly", "path=/", "samesite=lax", "max-age=600"} <= {
        part.strip().lower() for part in cookie.split(";")
    }
