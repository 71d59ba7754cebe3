"""Tokens end with the token that created them, hand on no more than they have, and get new secrets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import httpx
import pytest

from penstock import Penstock
from penstock.core.access import Principal, Role
from penstock.core.clock import ManualClock
from penstock.core.errors import Conflict, ExceedsParent, InvalidInput
from penstock.core.limits import Limits
from penstock.queue.access import (
    create_in,
    create_token,
    ensure_bootstrap,
    get_token,
    parent_of,
    revoke_token,
    rotate_token,
)
from penstock.queue.sign_in import Visit, sign_in
from penstock.server import Settings, create_app
from penstock.store import principals
from tests.server.support import BOOTSTRAP, Loop, World


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def timed(url: str, loop: Loop, clock: ManualClock) -> Iterator[World]:
    """A service whose clock the test holds."""
    with Penstock(url, clock=clock) as penstock:
        penstock.tenants.create("acme")
        app = create_app(penstock, Settings())
        app.state.gate.clock = lambda: clock.now().timestamp()
        yield World(penstock, app, loop)


def holding(world: World, token: str) -> httpx.Client:
    return world.bare(Authorization=f"Bearer {token}")


def child(client: httpx.Client, role: str = "tenant_admin", **more: Any) -> dict[str, Any]:
    made = client.post("/api/v1/tokens", json={"role": role, "label": "child", **more})
    assert made.status_code == 201, made.text
    found: dict[str, Any] = made.json()
    return found


def parse(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_a_child_does_not_outlive_its_parent(timed: World, clock: ManualClock) -> None:
    end = clock.now() + timedelta(hours=1)
    parent, token = create_token(timed.penstock.ground, "tenant_admin", "ann", "acme", end)
    ann = holding(timed, token)
    made = child(ann)
    assert (parse(made["expires_at"]), made["parent_id"]) == (end, str(parent.id))
    earlier = child(ann, expires_at=(end - timedelta(minutes=1)).isoformat())
    assert parse(earlier["expires_at"]) == end - timedelta(minutes=1)
    late = {"role": "viewer", "label": "v", "expires_at": (end + timedelta(seconds=1)).isoformat()}
    refused = ann.post("/api/v1/tokens", json=late)
    assert (refused.status_code, refused.json()["code"]) == (403, "exceeds_parent")
    assert "Leave it out" in refused.json()["detail"]
    clock.advance(hours=1)
    assert holding(timed, made["token"]).get("/api/v1/jobs").status_code == 401


def test_revoking_a_token_revokes_everything_that_came_from_it(world: World) -> None:
    ground = world.penstock.ground
    root, token = create_token(ground, "tenant_admin", "ann", "acme")
    first = child(holding(world, token))
    second = child(holding(world, first["token"]))
    leaf = child(holding(world, second["token"]), "viewer")
    other = child(world.client("tenant_admin"), "viewer")
    tree = [token, first["token"], second["token"], leaf["token"]]
    assert sign_in(ground, leaf["token"], Visit(3600)) is not None
    assert [holding(world, each).get("/api/v1/jobs").status_code for each in tree] == [200] * 4
    admin = world.client("tenant_admin")
    assert admin.get(f"/api/v1/tokens/{root.id}").json()["descendants"] == 3
    done = admin.delete(f"/api/v1/tokens/{first['id']}").json()
    assert (done["revoked_tokens"], done["ended_sessions"]) == (3, 1)
    assert [holding(world, each).get("/api/v1/jobs").status_code for each in tree] == [200, 401, 401, 401]
    assert holding(world, other["token"]).get("/api/v1/jobs").status_code == 200
    assert admin.get(f"/api/v1/tokens/{root.id}").json()["descendants"] == 0
    again = admin.delete(f"/api/v1/tokens/{first['id']}").json()
    assert (again["revoked_tokens"], again["revoked_at"]) == (0, done["revoked_at"])


def test_a_tree_revoked_by_another_process_ends_within_a_second(timed: World, clock: ManualClock, url: str) -> None:
    root, token = create_token(timed.penstock.ground, "tenant_admin", "ann", "acme")
    leaf = child(holding(timed, token), "viewer")
    ann = holding(timed, leaf["token"])
    assert ann.get("/api/v1/jobs").status_code == 200
    with Penstock(url, clock=clock) as elsewhere:
        assert revoke_token(elsewhere.ground, root.id).tokens == 2
    clock.advance(1)
    assert ann.get("/api/v1/jobs").status_code == 401


def test_a_token_that_is_created_while_its_tree_is_revoked_does_not_survive(world: World, backend: str) -> None:
    db, ground = world.penstock.db, world.penstock.ground
    root, _ = create_token(ground, "tenant_admin", "root", "acme")
    middle, _ = create_token(ground, "tenant_admin", "middle", "acme", parent=root.id)
    asked = Limits(Role.VIEWER, root.tenant_id)
    revoked: list[int] = []
    with db.write() as tx:
        made, _ = create_in(ground, tx, "late", asked, parent_of(tx, middle.id), None)
        revoking = threading.Thread(target=lambda: revoked.append(revoke_token(ground, root.id).tokens))
        revoking.start()
        if backend == "postgresql":
            _await_lock(world)
    revoking.join(60)
    assert revoked == [3]
    assert get_token(ground, made.id)[0].revoked_at is not None


def _await_lock(world: World) -> None:
    """Until somebody waits for a lock: the revocation, for the parent's row."""
    waiting = threading.Event()
    for _ in range(3000):
        with world.penstock.db.read() as tx:
            if tx.conn.exec_driver_sql("SELECT count(*) FROM pg_locks WHERE NOT granted").scalar():
                return
        waiting.wait(0.02)
    raise AssertionError("the revocation did not wait for the parent's lock")


def test_no_orphan_survives_a_race_of_many(world: World) -> None:
    ground = world.penstock.ground
    root, _ = create_token(ground, "tenant_admin", "root", "acme")
    parents: list[UUID] = [root.id]
    ready, ended = threading.Barrier(5), threading.Event()

    def create() -> None:
        ready.wait()
        while True:
            try:
                made, _ = create_token(ground, "tenant_admin", "child", "acme", parent=parents[-1])
            except ExceedsParent:
                if ended.is_set():
                    return
                continue
            parents.append(made.id)

    creating = [threading.Thread(target=create) for _ in range(4)]
    for each in creating:
        each.start()
    ready.wait()
    while len(parents) < 10:
        ended.wait(0.01)
    revoke_token(ground, root.id)
    ended.set()
    for each in creating:
        each.join(60)
    with world.penstock.db.read() as tx:
        left = [each for each in principals.listed(tx, root.tenant_id, 1000) if each.label in ("root", "child")]
    assert len(left) == len(parents) >= 10
    assert all(each.revoked_at is not None for each in left)


def test_nothing_is_created_under_a_token_that_is_over(timed: World, clock: ManualClock) -> None:
    ground = timed.penstock.ground
    gone, _ = create_token(ground, "tenant_admin", "gone", "acme")
    revoke_token(ground, gone.id)
    old, _ = create_token(ground, "tenant_admin", "old", "acme", clock.now() + timedelta(minutes=1))
    clock.advance(minutes=2)
    for parent in (gone, old):
        with pytest.raises(ExceedsParent):
            create_token(ground, "viewer", "v", "acme", parent=parent.id)


def test_a_child_may_no_more_than_its_parent(world: World) -> None:
    _, token = create_token(
        world.penstock.ground, "tenant_admin", "ann", "acme", scopes=["tokens:write", "jobs:read"], keys=["report.*"],
        addresses=["127.0.0.0/8"],
    )  # fmt: skip
    ann = holding(world, token)
    heir = child(ann, "viewer")
    assert (heir["scopes"], heir["keys"], heir["addresses"]) == (
        ["jobs:read", "tokens:write"], ["report.*"], ["127.0.0.0/8"],
    )  # fmt: skip
    for wider in (
        {"scopes": ["jobs:write"]}, {"keys": ["*"]}, {"keys": ["echo"]}, {"keys": ["report.daily", "other"]},
        {"addresses": ["0.0.0.0/0"]}, {"addresses": ["::/0"]},
    ):  # fmt: skip
        refused = ann.post("/api/v1/tokens", json={"role": "viewer", "label": "v", **wider})
        assert (refused.status_code, refused.json()["code"]) == (403, "exceeds_parent"), wider
    child(ann, "viewer", keys=["report.daily", "report.x*"], addresses=["127.0.0.1"], scopes=["jobs:read"])
    without, plain = create_token(world.penstock.ground, "tenant_admin", "bob", "acme", scopes=["jobs:read"])
    assert without.scopes == ("jobs:read",)
    assert holding(world, plain).post("/api/v1/tokens", json={"role": "viewer", "label": "v"}).status_code == 403


def test_a_rotated_token_keeps_what_it_is_and_its_old_secret_for_a_day(timed: World, clock: ManualClock) -> None:
    admin = timed.client("tenant_admin")
    made = child(admin)
    leaf = child(holding(timed, made["token"]), "viewer")
    rotated = admin.post(f"/api/v1/tokens/{made['id']}/rotate", json={}).json()
    assert rotated["id"] == made["id"]
    assert rotated["token"] != made["token"]
    assert rotated["token"].startswith(f"pst_{rotated['prefix']}_")
    assert parse(rotated["previous_expires_at"]) == clock.now() + timedelta(days=1)
    every = [holding(timed, each["token"]) for each in (made, rotated, leaf)]
    assert [each.get("/api/v1/jobs").status_code for each in every] == [200, 200, 200]
    clock.advance(days=1)
    assert [each.get("/api/v1/jobs").status_code for each in every] == [401, 200, 200]


def test_a_rotation_without_overlap_ends_the_old_secret_and_the_sessions(world: World) -> None:
    ground = world.penstock.ground
    principal, token = create_token(ground, "viewer", "ann", "acme")
    opened = sign_in(ground, token, Visit(3600))
    assert opened is not None
    page = world.bare(Cookie=f"penstock_session={opened.secret}")
    admin = world.client("tenant_admin")
    assert page.get("/api/v1/jobs").status_code == holding(world, token).get("/api/v1/jobs").status_code == 200
    rotated = admin.post(f"/api/v1/tokens/{principal.id}/rotate", json={"overlap_seconds": 0}).json()
    assert page.get("/api/v1/jobs").status_code == holding(world, token).get("/api/v1/jobs").status_code == 401
    assert holding(world, rotated["token"]).get("/api/v1/jobs").status_code == 200
    assert rotated["token"] not in admin.get("/api/v1/audit").text
    twice = admin.post(f"/api/v1/tokens/{principal.id}/rotate", json={"overlap_seconds": 600}).json()
    thrice = admin.post(f"/api/v1/tokens/{principal.id}/rotate", json={"overlap_seconds": 600}).json()
    statuses = [holding(world, each["token"]).get("/api/v1/jobs").status_code for each in (rotated, twice, thrice)]
    assert statuses == [401, 200, 200]


def test_a_rotation_gives_nobody_more_than_they_have(timed: World, clock: ManualClock) -> None:
    ground = timed.penstock.ground
    wide, _ = create_token(ground, "tenant_admin", "wide", "acme")
    for limits in ({"scopes": ["tokens:write"]}, {"keys": ["a*"]}, {"expires_at": clock.now() + timedelta(hours=1)}):
        own, token = create_token(ground, "tenant_admin", "narrow", "acme", **limits)
        narrow = holding(timed, token)
        refused = narrow.post(f"/api/v1/tokens/{wide.id}/rotate", json={})
        assert (refused.status_code, refused.json()["code"]) == (403, "exceeds_parent"), limits
        assert narrow.post(f"/api/v1/tokens/{own.id}/rotate", json={}).status_code == 200
    gone, _ = create_token(ground, "viewer", "gone", "acme")
    revoke_token(ground, gone.id)
    with pytest.raises(Conflict):
        rotate_token(ground, gone.id)


def test_another_bootstrap_token_revokes_nothing_that_came_from_the_one_before(world: World) -> None:
    ground = world.penstock.ground
    operator = holding(world, BOOTSTRAP)
    made = operator.post("/api/v1/admin/tokens", json={"role": "viewer", "label": "v", "tenant": "acme"}).json()
    first = operator.get("/api/v1/session").json()["principal_id"]
    assert made["parent_id"] == first
    refused = operator.post(f"/api/v1/admin/tokens/{first}/rotate", json={})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_input")
    assert sign_in(ground, BOOTSTRAP, Visit(3600)) is not None
    for _ in range(2):  # and starting twice with it changes nothing
        replaced = ensure_bootstrap(ground, "another token entirely")
        assert str(replaced.id) == first
    world.app.state.gate.forget()
    assert operator.get("/api/v1/session").status_code == 401
    assert holding(world, made["token"]).get("/api/v1/jobs").status_code == 200
    assert holding(world, "another token entirely").get("/api/v1/sessions").json()["items"] == []
    with pytest.raises(InvalidInput, match="was revoked"):
        ensure_bootstrap(ground, BOOTSTRAP)


def test_where_a_token_was_used_last_is_shown(world: World) -> None:
    made = child(world.client("tenant_admin"), "viewer")
    holding(world, made["token"]).get("/api/v1/jobs")
    shown = world.client("tenant_admin").get(f"/api/v1/tokens/{made['id']}").json()
    assert shown["last_used_at"] is not None
    assert shown["last_used_address"] == "127.0.0.1"


def test_the_parent_of_a_token_is_a_principal(world: World) -> None:
    parent, token = create_token(world.penstock.ground, "tenant_admin", "ann", "acme")
    made = child(holding(world, token), "viewer")
    found, count = get_token(world.penstock.ground, UUID(made["id"]))
    assert isinstance(found, Principal)
    assert (found.parent_id, count) == (parent.id, 0)
