"""Tokens, sessions, cross-site requests, limits, the audit."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from penstock import Penstock
from penstock.core.access import digest, is_well_formed, new_token
from penstock.core.errors import InvalidInput
from penstock.queue.access import create_token, ensure_bootstrap, revoke_token, sign_in_code
from penstock.server import Settings, create_app
from penstock.server.limits import Buckets
from penstock.store.tables import metadata, principals
from tests.server.support import BOOTSTRAP, Loop, World


def test_a_token_is_shown_once_and_kept_as_a_hash(world: World) -> None:
    admin = world.client()
    made = admin.post("/api/v1/admin/tokens", json={"tenant": "acme", "role": "viewer", "label": "ann"})
    assert made.status_code == 201, made.text
    token = made.json()["token"]
    assert token.startswith(f"pst_{made.json()['prefix']}_")
    assert is_well_formed(token)
    assert world.bare(Authorization=f"Bearer {token}").get("/api/v1/session").json()["tenant"] == "acme"
    for path in ("/api/v1/admin/tokens", "/api/v1/admin/audit"):
        assert token not in admin.get(path).text
    with world.penstock.db.read() as tx:
        assert digest(token) in set(tx.run(principals.select()).scalars("token_hash"))
        for table in metadata.sorted_tables:
            assert token not in repr(tx.rows(table.select())), table.name
    used = next(each for each in admin.get("/api/v1/admin/tokens").json()["items"] if each["id"] == made.json()["id"])
    assert used["last_used_at"] is not None


def test_a_revoked_token_is_worth_nothing_at_once(world: World) -> None:
    admin = world.client("tenant_admin")
    made = admin.post("/api/v1/tokens", json={"role": "viewer", "label": "ann"}).json()
    ann = world.bare(Authorization=f"Bearer {made['token']}")
    assert ann.get("/api/v1/jobs").status_code == 200
    assert admin.delete(f"/api/v1/tokens/{made['id']}").json()["revoked_at"] is not None
    assert ann.get("/api/v1/jobs").status_code == 401


def test_a_token_revoked_by_another_process_ends_within_a_second(world: World) -> None:
    now = 100.0
    world.app.state.gate.clock = lambda: now
    principal, token = create_token(world.penstock.ground, "viewer", "ann", "acme")
    ann = world.bare(Authorization=f"Bearer {token}")
    assert ann.get("/api/v1/jobs").status_code == 200
    revoke_token(world.penstock.ground, principal.id)
    now += 1
    assert ann.get("/api/v1/jobs").status_code == 401


def test_a_tenant_admin_makes_tokens_of_its_own_tenant_only(world: World) -> None:
    admin = world.client("tenant_admin")
    assert admin.post("/api/v1/tokens", json={"role": "super_admin", "label": "me"}).status_code == 422
    assert admin.post("/api/v1/tokens", json={"role": "viewer", "label": "x", "tenant": "bolt"}).status_code == 422
    made = admin.post("/api/v1/tokens", json={"role": "viewer", "label": "x"}).json()
    assert made["tenant"] == "acme"
    assert {each["tenant"] for each in admin.get("/api/v1/tokens").json()["items"]} == {"acme"}


def test_the_operators_own_token_is_the_first_super_admin(world: World) -> None:
    me = world.bare(Authorization=f"Bearer {BOOTSTRAP}").get("/api/v1/session").json()
    assert (me["role"], me["label"]) == ("super_admin", "bootstrap")
    ensure_bootstrap(world.penstock.ground, "another token entirely")
    world.app.state.gate.forget()
    assert world.bare(Authorization=f"Bearer {BOOTSTRAP}").get("/api/v1/session").status_code == 401
    assert world.bare(Authorization="Bearer another token entirely").get("/api/v1/session").status_code == 200
    with pytest.raises(InvalidInput, match="at least 20"):
        Settings(bootstrap_token="nineteen characters")


def test_a_bootstrap_token_with_our_mark_works_or_is_refused_at_start(world: World) -> None:
    with pytest.raises(InvalidInput, match=r"begins with pst_.*checksum"):
        Settings(bootstrap_token="pst_my_own_secret_of_forty_characters_000")
    token, _ = new_token()
    ensure_bootstrap(world.penstock.ground, Settings(bootstrap_token=token).bootstrap_token or "")
    world.app.state.gate.forget()
    me = world.bare(Authorization=f"Bearer {token}").get("/api/v1/session").json()
    assert (me["role"], me["label"]) == ("super_admin", "bootstrap")
    _, viewer = create_token(world.penstock.ground, "viewer", "reader", "acme")
    with pytest.raises(InvalidInput, match="has the role viewer"):
        ensure_bootstrap(world.penstock.ground, viewer)


def test_a_session_needs_its_csrf_token_for_changes(world: World) -> None:
    page = world.bare()
    signed_in = page.post("/api/v1/session", json={"token": world.token("operator")})
    assert signed_in.status_code == 201, signed_in.text
    cookie = signed_in.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    csrf = signed_in.json()["csrf_token"]
    assert page.get("/api/v1/jobs").status_code == 200
    assert page.get("/api/v1/session").json()["csrf_token"] == csrf
    body = {"definition_key": "echo"}
    for headers in (
        {},
        {"x-csrf-token": "wrong"},
        {"x-csrf-token": csrf, "origin": "http://evil.test"},
        {"x-csrf-token": csrf, "origin": "null"},
        {"x-csrf-token": csrf, "sec-fetch-site": "cross-site"},
        {"x-csrf-token": csrf, "sec-fetch-site": "same-site"},
    ):
        refused = page.post("/api/v1/jobs", json=body, headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (403, "csrf"), headers
    good = {"x-csrf-token": csrf, "origin": "http://penstock.test", "sec-fetch-site": "same-origin"}
    assert page.post("/api/v1/jobs", json=body, headers=good).status_code == 201
    assert len(page.get("/api/v1/jobs").json()["items"]) == 1
    assert page.delete("/api/v1/session").status_code == 204
    page.cookies.set("penstock_session", signed_in.cookies["penstock_session"], domain="penstock.test")
    assert page.get("/api/v1/jobs").status_code == 401


def test_a_session_ends_with_its_token(world: World) -> None:
    principal, token = create_token(world.penstock.ground, "viewer", "ann", "acme")
    page = world.bare()
    page.post("/api/v1/session", json={"token": token})
    assert page.get("/api/v1/jobs").status_code == 200
    world.client().delete(f"/api/v1/admin/tokens/{principal.id}")
    assert page.get("/api/v1/jobs").status_code == 401


def test_signing_in_across_sites_or_with_rubbish_is_refused(world: World) -> None:
    page = world.bare()
    crossed = page.post(
        "/api/v1/session", json={"token": world.token("viewer")}, headers={"origin": "http://evil.test"}
    )
    assert crossed.status_code == 403
    form = page.post("/api/v1/session", content=b'{"token": "x"}', headers={"content-type": "text/plain"})
    assert form.status_code == 415
    assert page.post("/api/v1/session", json={"token": "pst_no"}).status_code == 401
    assert "set-cookie" not in page.post("/api/v1/session", json={"token": "nonsense"}).headers


def test_a_sign_in_code_works_once(world: World) -> None:
    principal, _ = create_token(world.penstock.ground, "super_admin", "console")
    code = sign_in_code(world.penstock.ground, principal.id)
    assert world.bare(Authorization=f"Bearer {code}").get("/api/v1/jobs").status_code == 401
    assert world.bare(Cookie=f"penstock_session={code}").get("/api/v1/jobs").status_code == 401
    first, second = world.bare(), world.bare()
    assert first.post("/api/v1/session", json={"token": code}).json()["role"] == "super_admin"
    assert second.post("/api/v1/session", json={"token": code}).status_code == 401
    late = sign_in_code(world.penstock.ground, principal.id, seconds=-1)
    assert second.post("/api/v1/session", json={"token": late}).status_code == 401


def test_too_many_requests_are_slowed_down(url: str, loop: Loop) -> None:
    with Penstock(url) as penstock:
        world = World(penstock, create_app(penstock, Settings(rate_limit=0.5)), loop)
        one, other = (
            world.client(),
            world.bare(Authorization=f"Bearer {create_token(penstock.ground, 'super_admin', 'x')[1]}"),
        )
        answers = [one.get("/api/v1/jobs") for _ in range(4)]
        assert [answer.status_code for answer in answers[:1]] == [200]
        limited = [answer for answer in answers if answer.status_code == 429]
        assert limited
        assert int(limited[0].headers["retry-after"]) >= 1
        assert other.get("/api/v1/jobs").status_code == 200
        world.app.state.gate._refused = Buckets(1, 5, clock=lambda: 0.0)
        guesses = [world.bare(Authorization=f"Bearer guess-{n}").get("/api/v1/jobs").status_code for n in range(7)]
        assert guesses == [401] * 5 + [429] * 2
        assert world.bare().post("/api/v1/session", json={"token": "guess"}).status_code == 429


def test_a_body_that_is_too_large_is_not_read(url: str, loop: Loop) -> None:
    with Penstock(url) as penstock:
        world = World(penstock, create_app(penstock, Settings(max_body_bytes=1000)), loop)
        body = json.dumps({"definition_key": "x" * 2000}).encode()
        for headers in ({}, {"content-length": "0"}, {"transfer-encoding": "chunked"}):
            answer = world.client().post(
                "/api/v1/jobs", content=body, headers={"content-type": "application/json", **headers}
            )
            assert answer.status_code in (400, 413), answer.text
        packed = world.client().post("/api/v1/jobs", content=b"x", headers={"content-encoding": "gzip"})
        assert packed.status_code == 415


def test_every_change_is_in_the_audit_with_before_and_after(world: World) -> None:
    operator, admin = world.client("operator"), world.client("tenant_admin")
    job = operator.post("/api/v1/jobs", json={"definition_key": "echo"}, headers={"x-request-id": "my-request"}).json()
    operator.patch(f"/api/v1/jobs/{job['id']}", json={"priority": 3})
    operator.post(f"/api/v1/jobs/{job['id']}/cancel")
    entries = admin.get("/api/v1/audit", params={"subject_id": job["id"]}).json()["items"]
    assert [entry["action"] for entry in entries] == ["job.cancel", "job.change", "job.create"]
    assert (entries[1]["before"]["priority"], entries[1]["after"]["priority"]) == (100, 3)
    assert (entries[0]["before"], entries[0]["after"]) == ({"status": "queued"}, {"status": "canceled"})
    assert entries[2]["request_id"] == "my-request"
    assert all("operator of acme" in entry["actor"] for entry in entries)
    refused = operator.post(f"/api/v1/jobs/{job['id']}/cancel")
    assert refused.status_code == 409
    assert len(admin.get("/api/v1/audit", params={"subject_id": job["id"]}).json()["items"]) == 3
    assert world.client("tenant_admin", "bolt").get("/api/v1/audit").json()["items"] == []


def test_a_create_sent_again_answers_what_it_answered(world: World) -> None:
    operator = world.client("operator")
    key = {"idempotency-key": "abc"}
    first = operator.post("/api/v1/jobs", json={"definition_key": "echo"}, headers=key)
    again = operator.post("/api/v1/jobs", json={"definition_key": "echo"}, headers=key)
    assert (again.status_code, again.json()) == (first.status_code, first.json())
    assert again.headers["idempotency-replayed"] == "true"
    other = operator.post("/api/v1/jobs", json={"definition_key": "echo", "priority": 1}, headers=key)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    assert len(operator.get("/api/v1/jobs").json()["items"]) == 1
    bad = operator.post("/api/v1/jobs", json={"definition_key": "nothing"}, headers={"idempotency-key": "later"})
    assert bad.status_code == 422
    world.penstock.define("nothing", runner="command")
    assert (
        operator.post(
            "/api/v1/jobs", json={"definition_key": "nothing"}, headers={"idempotency-key": "later"}
        ).status_code
        == 201
    )
    theirs = world.client("operator", "bolt").post("/api/v1/jobs", json={"definition_key": "echo"}, headers=key)
    assert theirs.json()["id"] != first.json()["id"]
    admin = world.client("tenant_admin")
    made = [admin.post("/api/v1/tokens", json={"role": "viewer", "label": "x"}, headers=key).json() for _ in range(2)]
    assert made[0]["id"] == made[1]["id"]
    assert (made[0]["token"] is None, made[1]["token"]) == (False, None)


def _keys(tmp_path: Path) -> tuple[Any, Path]:
    private = ec.generate_private_key(ec.SECP256R1())
    public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(private.public_key()))
    file = tmp_path / "jwks.json"
    file.write_text(json.dumps({"keys": [{**public, "kid": "k1", "use": "sig", "alg": "ES256"}]}))
    return private, file


def test_a_jwt_of_the_right_issuer_is_a_principal(url: str, loop: Loop, tmp_path: Path) -> None:
    private, file = _keys(tmp_path)
    settings = Settings(jwt_issuer="https://id.test", jwt_audience="penstock", jwt_jwks=str(file))
    with Penstock(url) as penstock:
        penstock.tenants.create("acme")
        world = World(penstock, create_app(penstock, settings), loop)
        good = {
            "iss": "https://id.test", "aud": "penstock", "sub": "ann", "role": "operator", "tenant": "acme",
            "iat": datetime.now(UTC), "exp": datetime.now(UTC) + timedelta(minutes=5),
        }  # fmt: skip

        def status(claims: dict[str, Any], key: Any = private, algorithm: str = "ES256") -> int:
            token = jwt.encode(claims, key, algorithm, headers={"kid": "k1"})
            return world.bare(Authorization=f"Bearer {token}").get("/api/v1/jobs").status_code

        assert status(good) == 200
        assert status({**good, "role": "worker"}) == 403
        end = datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=5)
        admin = jwt.encode({**good, "role": "tenant_admin", "exp": end}, private, "ES256", headers={"kid": "k1"})
        made = world.bare(Authorization=f"Bearer {admin}").post("/api/v1/tokens", json={"role": "viewer", "label": "v"})
        assert made.status_code == 201, made.text
        assert datetime.fromisoformat(made.json()["expires_at"]) == end  # it ends with the JWT that created it
        stranger = ec.generate_private_key(ec.SECP256R1())
        assert status(good, stranger) == 401
        assert status(good, "a secret that is long enough for HMAC", "HS256") == 401
        assert status(good, None, "none") == 401
        for wrong in (
            {"iss": "https://evil.test"}, {"aud": "other"}, {"exp": datetime.now(UTC) - timedelta(hours=1)},
            {"tenant": "nobody"}, {"tenant": None}, {"role": "king"}, {"role": ["operator"]}, {"exp": 10**30},
        ):  # fmt: skip
            assert status({**good, **wrong}) == 401, wrong
        for missing in ("exp", "iat", "sub", "role", "tenant"):
            assert status({name: value for name, value in good.items() if name != missing}) == 401, missing
