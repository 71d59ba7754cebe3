"""Delete a tenant over HTTP: closed at once, erased by the service itself, certified."""

from __future__ import annotations

from uuid import uuid4

from penstock.client.calls import Calls
from tests.server.support import World
from tests.support.tenant import left_of

API = "/api/v1"


def test_delete_a_tenant(world: World) -> None:
    admin = world.client()
    operator = world.client("operator")
    assert operator.post(f"{API}/jobs", json={"definition_key": "echo"}).status_code == 201
    tenant_id = str(world.penstock.tenants.get("acme").id)
    refused = admin.delete(f"{API}/admin/tenants/acme")
    assert refused.status_code == 422 and refused.json()["code"] == "invalid_input"
    assert admin.delete(f"{API}/admin/tenants/acme", params={"confirm": "bolt"}).status_code == 422
    assert operator.get(f"{API}/jobs").status_code == 200
    answer = admin.delete(f"{API}/admin/tenants/acme", params={"confirm": "acme"})
    assert answer.status_code == 202 and answer.json()["tenant_id"] == tenant_id
    assert operator.get(f"{API}/jobs").status_code == 401
    for _ in range(5):
        world.app.state.audit_log.step()
    done = admin.get(f"{API}/admin/deletions/{tenant_id}").json()
    assert done["state"] == "deleted" and done["certificate"]["erased"]["jobs"] == 1
    assert "bootstrap" in done["requested_by"] or "super_admin" in done["requested_by"]
    assert left_of(world.penstock, {tenant_id, "acme"}) == []
    assert admin.delete(f"{API}/admin/tenants/acme", params={"confirm": "acme"}).status_code == 404
    assert world.client("viewer", "bolt").get(f"{API}/jobs").status_code == 200
    entry = admin.get(f"{API}/admin/audit", params={"action": "tenant.delete", "operator": True}).json()["items"][0]
    assert entry["subject_id"] == tenant_id
    assert admin.post(f"{API}/admin/tenants", json={"slug": "acme"}).status_code == 201


def test_who_may_not(world: World) -> None:
    for role in ("tenant_admin", "operator", "viewer", "worker"):
        answer = world.client(role).delete(f"{API}/admin/tenants/bolt", params={"confirm": "bolt"})
        assert answer.status_code == 403
    admin = world.client()
    assert admin.delete(f"{API}/admin/tenants/default", params={"confirm": "default"}).status_code == 422
    assert admin.delete(f"{API}/admin/tenants/nobody", params={"confirm": "nobody"}).status_code == 404
    assert admin.get(f"{API}/admin/deletions/{uuid4()}").status_code == 404


def test_a_closed_tenant_stays_closed(world: World) -> None:
    admin = world.client()
    for _ in range(2):
        assert admin.delete(f"{API}/admin/tenants/acme", params={"confirm": "acme"}).status_code == 202
    assert admin.patch(f"{API}/admin/tenants/acme", json={"is_active": True}).status_code == 409
    assert admin.post(f"{API}/jobs", json={"definition_key": "echo"}, headers={"X-Tenant": "acme"}).status_code == 422
    world.app.state.audit_log.step()


def test_the_client_knows_the_calls() -> None:
    ask = Calls.delete_tenant("acme", confirm="acme")
    assert (ask.method, ask.path, dict(ask.query)) == ("DELETE", f"{API}/admin/tenants/acme", {"confirm": "acme"})
    assert Calls.deletion("x").path == f"{API}/admin/deletions/x"
