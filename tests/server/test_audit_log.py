"""Sign-ins, refusals, lookups across tenants and reads of secrets are in the audit, bounded, and cost no request a write."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from penstock.server import audit_log
from tests.server.support import World

API = "/api/v1"


def written(world: World, action: str, **narrowed: Any) -> list[Any]:
    world.app.state.audit_log.step()
    return world.penstock.audit.list(1000, action=action, **narrowed)


def test_sign_in_and_sign_out_are_recorded_in_the_tenants_audit(world: World) -> None:
    browser = world.bare()
    answer = browser.post(f"{API}/session", json={"token": world.token("viewer")})
    assert answer.status_code == 201
    (entry,) = written(world, "session.open")
    assert entry.tenant_id == world.penstock.tenants.get("acme").id
    assert "viewer" in entry.actor and entry.address and entry.request_id
    assert browser.delete(f"{API}/session").status_code == 204
    assert len(written(world, "session.close")) == 1


def test_a_super_admin_signs_in_on_the_operators_chain(world: World) -> None:
    assert world.bare().post(f"{API}/session", json={"token": world.token("super_admin")}).status_code == 201
    (entry,) = written(world, "session.open")
    assert entry.tenant_id is None


def test_refused_tokens_are_counted_by_address_and_minute(world: World) -> None:
    for i in range(30):
        world.bare(Authorization=f"Bearer wrong-{i}").get(f"{API}/jobs")
    (first,) = written(world, "token.refused")
    assert first.tenant_id is None and first.actor == "unknown" and first.address
    assert first.after["count"] == 30
    for i in range(20):
        world.bare(Authorization=f"Bearer wrong-{i}").get(f"{API}/jobs")
    assert len(written(world, "token.refused")) == 1, "the others wait until the minute is over"
    world.app.state.audit_log.close()
    assert [entry.after["count"] for entry in world.penstock.audit.list(action="token.refused")] == [20, 30]
    text = str(world.penstock.audit.list(action="token.refused"))
    assert "wrong-" not in text


def test_failed_sign_ins_are_recorded(world: World) -> None:
    assert world.bare().post(f"{API}/session", json={"token": "nonsense"}).status_code == 401
    assert [entry.after["count"] for entry in written(world, "session.refused")] == [1]


def test_forbidden_requests_are_in_the_tenants_own_audit(world: World) -> None:
    viewer = world.client("viewer")
    for _ in range(5):
        assert viewer.post(f"{API}/jobs", json={"definition_key": "echo"}).status_code == 403
    (entry,) = written(world, "access.refused")
    assert entry.tenant_id == world.penstock.tenants.get("acme").id
    assert entry.after["count"] == 5 and "POST" in entry.after["detail"]


def test_attackers_cannot_fill_the_table(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "MOST_KEYS", 10)
    log = world.app.state.audit_log
    for i in range(500):
        log.note(audit_log.Key("token.refused", None, "unknown", "token", f"192.0.2.{i}"))
    entries = written(world, "token.refused")
    assert len(entries) == 11
    assert sum(entry.after["count"] for entry in entries) == 500


def test_a_lookup_of_another_tenants_id_is_told_to_the_operator_alone(world: World) -> None:
    theirs = world.penstock.as_tenant("bolt").enqueue("echo")
    acme = world.client("operator")
    there = acme.get(f"{API}/jobs/{theirs.id}")
    nowhere = acme.get(f"{API}/jobs/{uuid4()}")
    assert (there.status_code, there.content) == (nowhere.status_code, nowhere.content) == (404, nowhere.content)
    (entry,) = written(world, "access.other_tenant")
    assert entry.tenant_id is None and entry.subject_type == "job" and entry.after["count"] == 1
    assert str(theirs.id) not in str(entry), "nothing of the other tenant stays behind when that is deleted"
    seen = (
        world.client("tenant_admin").get(f"{API}/audit").text
        + world.client("tenant_admin", "bolt").get(f"{API}/audit").text
    )
    assert "access.other_tenant" not in seen


def test_who_claims_without_being_a_worker_has_read_secrets(world: World) -> None:
    world.penstock.as_tenant("acme").enqueue("echo", {"password": "hunter2-hunter2"})
    body = {"worker_id": "by-hand:1", "limit": 5}
    assert len(world.client("super_admin").post(f"{API}/worker/jobs/claim", json=body).json()["items"]) == 1
    (entry,) = written(world, "secret.read")
    assert entry.tenant_id == world.penstock.tenants.get("acme").id and "super_admin" in entry.actor
    assert "hunter2" not in str(entry)
    world.penstock.as_tenant("acme").enqueue("echo")
    assert world.client("worker").post(f"{API}/worker/jobs/claim", json=body | {"worker_id": "w:1"}).status_code == 200
    assert len(written(world, "secret.read")) == 1


def test_notes_cost_no_request_a_write(world: World) -> None:
    before = len(world.penstock.audit.list())
    world.bare(Authorization="Bearer wrong").get(f"{API}/jobs")
    assert len(world.penstock.audit.list()) == before
    assert len(written(world, "token.refused")) == 1
    assert world.penstock.audit.verify().clean and world.penstock.doctor().clean


def test_changes_say_from_where_they_came(world: World) -> None:
    assert world.client("operator").post(f"{API}/jobs", json={"definition_key": "echo"}).status_code == 201
    assert world.penstock.audit.list(action="job.create")[0].address
