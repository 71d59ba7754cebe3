"""No call made for one tenant reads or changes anything of another, nor learns that it exists."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from penstock import Succeeded
from penstock.queue import claim
from penstock.queue.access import create_token
from tests.server.support import World
from tests.server.table import ROUTES, STREAMS, address

SECRET = "bolts-own-words"


def busy(world: World, tenant: str, words: str) -> None:
    """One of everything, with words that must not be seen elsewhere."""
    app = world.penstock.as_tenant(tenant)
    for n in range(3):
        app.enqueue("echo", {"words": words, "n": n}, correlation_id=words, dedupe_key=f"{words}-{n}")
    [taken, *_] = claim.claim(world.penstock.ground, f"worker-{words}", 3, tenant_id=app.jobs.tenant_id)
    world.penstock.queue.finish(taken, Succeeded({"words": words}))
    app.triggers.on_event(words, f"{words}.happened", "echo", {"words": words})
    app.triggers.schedule(f"nightly {words}", "0 2 * * *", "echo")
    app.groups.create([("echo", {"words": words})], label=words)
    app.emit(f"{words}.happened", {"words": words})
    app.webhooks.create(f"https://example.com/{words}", description=words)
    create_token(world.penstock.ground, "viewer", words, tenant)
    admin = world.client("tenant_admin", tenant)
    admin.post("/api/v1/jobs", json={"definition_key": "echo", "payload": {"words": words}})
    client = world.client("worker", tenant)
    client.post("/api/v1/worker/jobs/claim", json={"worker_id": f"far-{words}"})


def everything(client: httpx.Client) -> dict[str, Any]:
    """What a tenant's administrator can read without knowing an id."""
    found = {}
    for (method, path), route in ROUTES.items():
        if method != "GET" or "{" in path or (method, path) in STREAMS or route.need in (None, "admin", "work"):
            continue
        answer = client.get(address(path, route))
        assert answer.status_code == 200, (path, answer.text)
        found[path] = answer.text
    return found


def test_lists_counts_search_export_and_metrics_tell_nothing_of_others(world: World) -> None:
    acme = world.client("tenant_admin", "acme")
    acme.get("/api/v1/jobs")
    before = everything(acme)
    busy(world, "bolt", SECRET)
    after = everything(acme)
    for path, text in after.items():
        assert SECRET not in text, path
        assert str(world.penstock.tenants.get("bolt").id) not in text, path
        assert "bolt" not in text, path
    moving = {"/api/v1/stats/timeline", "/api/v1/audit", "/api/v1/tokens", "/api/v1/workers", "/metrics"}
    same = set(before) - moving
    assert {path: before[path] for path in same} == {path: after[path] for path in same}
    for query in (
        {"search": SECRET},
        {"correlation_id": SECRET},
        {"definition_key": "*"},
        {"search": "%"},
        {"search": "_"},
    ):
        assert acme.get("/api/v1/jobs", params=query).json()["items"] == []


def test_two_tenants_do_not_interfere(world: World) -> None:
    """Whatever bolt does, acme's own answers are the same, but for ids and times."""
    busy(world, "acme", "mine")
    acme = world.client("tenant_admin", "acme")
    before = {path: acme.get(path).json() for path in ("/api/v1/jobs", "/api/v1/jobs/triggers", "/api/v1/groups")}
    counts = acme.get("/api/v1/jobs/summary").json()["counts"]
    busy(world, "bolt", SECRET)
    bolt = world.client("tenant_admin", "bolt")
    for job in bolt.get("/api/v1/jobs").json()["items"]:
        bolt.post(f"/api/v1/jobs/{job['id']}/cancel")
    bolt.post("/api/v1/jobs/cancel", json={"filter": {}})
    assert {path: acme.get(path).json() for path in before} == before
    assert acme.get("/api/v1/jobs/summary").json()["counts"] == counts


def test_names_of_others_can_be_taken(world: World) -> None:
    busy(world, "bolt", SECRET)
    acme = world.client("tenant_admin", "acme")
    job = acme.post("/api/v1/jobs", json={"definition_key": "echo", "dedupe_key": f"{SECRET}-1"})
    assert job.status_code == 201
    trigger = {"label": SECRET, "trigger_type": "event", "event_name": "a.b", "definition_key": "echo"}
    assert acme.post("/api/v1/jobs/triggers", json=trigger).status_code == 201
    world.penstock.as_tenant("bolt").define("only-bolts", runner="command")
    theirs = acme.post("/api/v1/jobs", json={"definition_key": "only-bolts"})
    unknown = acme.post("/api/v1/jobs", json={"definition_key": "only-nobody"})
    assert theirs.status_code == unknown.status_code == 422
    assert theirs.text.replace("bolts", "nobody") == unknown.text


def test_a_cursor_of_another_tenant_shows_ones_own_jobs(world: World) -> None:
    busy(world, "bolt", SECRET)
    theirs = world.client("viewer", "bolt").get("/api/v1/jobs", params={"limit": 1}).json()["next_cursor"]
    acme = world.client("operator", "acme")
    acme.post("/api/v1/jobs", json={"definition_key": "echo"})
    answer = acme.get("/api/v1/jobs", params={"cursor": theirs})
    assert answer.json()["items"] == []
    assert SECRET not in answer.text


def test_ids_of_others_in_bodies_are_unknown(world: World) -> None:
    theirs = world.penstock.as_tenant("bolt").enqueue("echo")
    acme = world.client("tenant_admin", "acme")
    mine = acme.post("/api/v1/jobs", json={"definition_key": "echo"}).json()["id"]
    for field in ("before", "after"):
        stolen = acme.post(f"/api/v1/jobs/{mine}/move", json={field: str(theirs.id)})
        made_up = acme.post(f"/api/v1/jobs/{mine}/move", json={field: str(uuid4())})
        assert (stolen.status_code, stolen.content) == (404, made_up.content)
    for filter in ({"ids": [str(theirs.id)]}, {"group_id": str(uuid4())}):
        done = acme.post("/api/v1/jobs/cancel", json={"filter": filter})
        assert done.json() == {"matched": 0, "changed": 0, "refused": 0, "remaining": False, "dry_run": False}
    assert world.penstock.as_tenant("bolt").jobs.get(theirs.id).status == "queued"


def test_the_tenant_comes_from_the_token_alone(world: World) -> None:
    busy(world, "bolt", SECRET)
    for role in ("tenant_admin", "operator", "viewer"):
        for header in ("bolt", "nobody"):
            refused = world.client(role, "acme", X_Tenant=header).get("/api/v1/jobs")
            assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
        assert world.client(role, "acme", X_Tenant="acme").get("/api/v1/jobs").status_code == 200
        named = world.client(role, "acme", X_Tenant_Id="bolt").get("/api/v1/jobs")
        assert named.json()["items"] == []
    admin = world.client(X_Tenant="bolt").get("/api/v1/jobs")
    assert SECRET in admin.text
    assert world.client(X_Tenant="nobody").get("/api/v1/jobs").json()["code"] == "unknown_tenant"
    two = httpx.Headers([("authorization", f"Bearer {world.token('viewer')}")] * 2)
    assert world.bare().get("/api/v1/jobs", headers=two).status_code == 401


def test_a_shut_out_tenant_is_out_at_once(world: World) -> None:
    viewer = world.client("viewer", "acme")
    assert viewer.get("/api/v1/jobs").status_code == 200
    world.client().patch("/api/v1/admin/tenants/acme", json={"is_active": False})
    assert viewer.get("/api/v1/jobs").status_code == 401
    world.client().patch("/api/v1/admin/tenants/acme", json={"is_active": True})
    assert viewer.get("/api/v1/jobs").status_code == 200


def test_a_workers_token_is_bound_to_its_tenant_and_queues(world: World) -> None:
    world.penstock.define("fast", runner="command", queue="fast")
    acme = world.penstock.as_tenant("acme")
    slow, fast = acme.enqueue("echo"), acme.enqueue("fast")
    theirs = world.penstock.as_tenant("bolt").enqueue("fast")
    _, token = create_token(world.penstock.ground, "worker", "fast lane", "acme", queues=["fast"])
    worker = world.bare(Authorization=f"Bearer {token}")
    assert worker.post("/api/v1/worker/jobs/claim", json={"worker_id": "w", "queues": ["default"]}).status_code == 403
    taken = worker.post("/api/v1/worker/jobs/claim", json={"worker_id": "w", "limit": 10}).json()["items"]
    assert [each["job_id"] for each in taken] == [str(fast.id)]
    [held] = world.penstock.queue.claim("elsewhere", 1, queues=["default"])
    assert held.job_id == slow.id
    for job_id, run_id in ((slow.id, held.run_id), (theirs.id, uuid4())):
        report = worker.post(f"/api/v1/worker/jobs/{job_id}/complete", json={"run_id": str(run_id)})
        assert (report.status_code, report.json()["code"]) == (404, "not_found")
    wrong = worker.post(f"/api/v1/worker/jobs/{fast.id}/complete", json={"run_id": str(held.run_id)})
    assert (wrong.status_code, wrong.json()["code"]) == (409, "lease_lost")
    assert acme.jobs.get(fast.id).status == "running"


def test_a_batch_stops_at_the_wall_and_does_not_tell_what_is_behind_it(world: World) -> None:
    world.penstock.define("fast", runner="command", queue="fast")
    acme, bolt = world.penstock.as_tenant("acme"), world.penstock.as_tenant("bolt")
    mine, slow, theirs = acme.enqueue("fast"), acme.enqueue("echo"), bolt.enqueue("fast")
    runs = {each.job_id: each.run_id for each in world.penstock.queue.claim("w", 10)}
    _, token = create_token(world.penstock.ground, "worker", "fast lane", "acme", queues=["fast"])
    worker = world.bare(Authorization=f"Bearer {token}")

    def asked(job_id: UUID, run_id: UUID) -> dict[str, Any]:
        return {"job_id": str(job_id), "run_id": str(run_id), "progress": {"done": 1}, "stdout_tail": "x"}

    unknown = uuid4(), uuid4()
    pairs = [(mine.id, runs[mine.id]), (slow.id, runs[slow.id]), (theirs.id, runs[theirs.id]), unknown]
    before = [acme.jobs.get(slow.id), bolt.jobs.get(theirs.id)]
    told = worker.post("/api/v1/worker/jobs/heartbeat", json={"runs": [asked(*pair) for pair in pairs]}).json()["items"]
    assert told == [
        {"job_id": str(job_id), "run_id": str(run_id), "state": state, "cancel_requested": False}
        for (job_id, run_id), state in zip(pairs, ["extended", "lost", "lost", "lost"], strict=True)
    ]
    foreign = [{"job_id": str(job_id), "run_id": str(run_id)} for job_id, run_id in pairs[1:]]
    assert worker.post("/api/v1/worker/jobs/release", json={"runs": foreign}).json() == {"released": 0}
    assert [acme.jobs.get(slow.id), bolt.jobs.get(theirs.id)] == before
    assert acme.jobs.get(mine.id).progress == {"done": 1.0, "total": None, "message": ""}


@pytest.mark.parametrize("value", ["' OR 1=1 --", "%", "\\", "a\u0000b", "x" * 300, "*" * 100])
def test_filters_are_values_never_statements(world: World, value: str) -> None:
    busy(world, "bolt", SECRET)
    acme = world.client("viewer", "acme")
    for name in ("search", "definition_key", "queue", "correlation_id", "status", "source"):
        answer = acme.get("/api/v1/jobs", params={name: value})
        assert answer.status_code in (200, 422), answer.text
        assert SECRET not in answer.text


def test_secrets_in_payloads_are_masked_and_survive_an_edit(world: World) -> None:
    operator = world.client("operator")
    made = operator.post(
        "/api/v1/jobs",
        json={
            "definition_key": "echo",
            "payload": {"password": "hunter2hunter2", "n": 1, "list": [{"token": "abcdef123"}]},
        },
    ).json()
    assert made["payload"] == {"password": "***", "n": 1, "list": [{"token": "***"}]}
    path = f"/api/v1/jobs/{made['id']}"
    edited = operator.patch(path, json={"payload": {**made["payload"], "n": 2}}).json()
    assert edited["payload"]["n"] == 2
    stored = world.penstock.as_tenant("acme").jobs.get(made["id"]).params
    assert stored == {"password": "hunter2hunter2", "n": 2, "list": [{"token": "abcdef123"}]}
    listed = operator.get("/api/v1/jobs").text + operator.get("/api/v1/jobs/export.csv").text
    assert "hunter2" not in listed
    assert "hunter2" not in world.client("tenant_admin").get("/api/v1/audit").text
