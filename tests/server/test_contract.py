"""Seed 002's API contract: its example payloads sent as they stand there, and the answers it documents."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import select

from penstock.core.wire.definitions import NewDefinition
from penstock.queue.access import create_token
from penstock.store.tables import running
from tests.server.support import World

DEFINITION = {
    "key": "sync-dropbox",
    "description": "Sync provider updates for tenant",
    "arg_schema": {
        "type": "object",
        "properties": {"provider_id": {"type": "string", "format": "uuid"}, "path_prefix": {"type": "string"}},
        "required": ["provider_id"],
        "additionalProperties": False,
    },
    "timeout_seconds": 3600,
    "max_attempts": 3,
}
JOB = {
    "definition_key": "recompute-trained-tags",
    "payload": {"model": "siglip"},
    "priority": 100,
    "scheduled_for": "2026-02-16T10:30:00Z",
    "dedupe_key": "tenant:bcg:training:daily",
}


def test_a_definition_is_created_listed_and_changed(world: World) -> None:
    admin = world.client()
    made = admin.post("/api/v1/admin/jobs/definitions", json=DEFINITION)
    assert made.status_code == 201, made.text
    body = made.json()
    assert {name: body[name] for name in DEFINITION} == DEFINITION
    assert body["is_active"] is True
    listed = admin.get("/api/v1/admin/jobs/definitions").json()["items"]
    assert "sync-dropbox" in {each["key"] for each in listed}
    changed = admin.patch(
        f"/api/v1/admin/jobs/definitions/{body['id']}", json={"timeout_seconds": 60, "is_active": False}
    )
    assert changed.status_code == 200, changed.text
    assert (changed.json()["timeout_seconds"], changed.json()["is_active"]) == (60, False)
    refused = world.client("operator").post("/api/v1/jobs", json={"definition_key": "sync-dropbox", "payload": {}})
    assert (refused.status_code, refused.json()["code"]) == (422, "definition_archived")
    back = admin.patch(f"/api/v1/admin/jobs/definitions/{body['id']}", json={"is_active": True})
    assert back.json()["is_active"] is True


def test_a_manual_enqueue_answers_what_the_seed_shows(world: World) -> None:
    world.client().post("/api/v1/admin/jobs/definitions", json={"key": "recompute-trained-tags"})
    tenant = world.client("tenant_admin")
    made = tenant.post("/api/v1/jobs", json=JOB)
    assert made.status_code == 201, made.text
    body = made.json()
    UUID(body["id"])
    assert body["tenant_id"] == str(world.penstock.tenants.get("acme").id)
    assert (body["status"], body["definition_key"]) == ("queued", "recompute-trained-tags")
    assert datetime.fromisoformat(body["queued_at"]).tzinfo is not None
    assert datetime.fromisoformat(body["scheduled_for"]) == datetime(2026, 2, 16, 10, 30, tzinfo=UTC)
    again = tenant.post("/api/v1/jobs", json=JOB)
    assert (again.status_code, again.json()["id"]) == (200, body["id"])
    found = tenant.get(f"/api/v1/jobs/{body['id']}").json()
    columns = (
        "id tenant_id definition_id source source_ref status priority payload dedupe_key correlation_id scheduled_for "
        "queued_at started_at finished_at attempt_count max_attempts lease_expires_at claimed_by_worker last_error created_by"
    )
    assert set(columns.split()) <= set(found)


def test_a_payload_that_does_not_fit_is_refused_with_its_path(world: World) -> None:
    world.client().post("/api/v1/admin/jobs/definitions", json=DEFINITION)
    tenant = world.client("tenant_admin")
    refused = tenant.post(
        "/api/v1/jobs", json={"definition_key": "sync-dropbox", "payload": {"provider_id": "x", "y": 1}}
    )
    assert refused.status_code == 422
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.json()["code"] == "invalid_payload"
    assert "$.provider_id" in {fault["path"] for fault in refused.json()["faults"]}
    assert tenant.get("/api/v1/jobs").json()["items"] == []


def _jobs(world: World, count: int, **more: Any) -> list[str]:
    operator = world.client("operator")
    return [
        operator.post("/api/v1/jobs", json={"definition_key": "echo", "payload": {"n": n}, **more}).json()["id"]
        for n in range(count)
    ]


def test_jobs_are_listed_by_every_filter_of_the_seed(world: World) -> None:
    ids = _jobs(world, 5)
    viewer = world.client("viewer")
    world.client("operator").post(f"/api/v1/jobs/{ids[0]}/cancel")

    def listed(**query: Any) -> list[str]:
        answer = viewer.get("/api/v1/jobs", params=query)
        assert answer.status_code == 200, answer.text
        return [job["id"] for job in answer.json()["items"]]

    assert listed() == ids[::-1]
    assert listed(status="canceled") == ids[:1]
    assert listed(status=["canceled", "queued"], limit=2, offset=1) == [ids[3], ids[2]]
    assert listed(source="manual") == ids[::-1]
    assert listed(source="event") == []
    middle = viewer.get(f"/api/v1/jobs/{ids[2]}").json()["created_at"]
    assert listed(created_before=middle) == [ids[1], ids[0]]
    assert listed(created_after=middle) == [ids[4], ids[3], ids[2]]
    assert viewer.get("/api/v1/jobs", params={"limit": 10**9}).status_code == 422
    assert viewer.get("/api/v1/jobs", params={"tenant_id": "x"}).status_code == 422


def test_a_cursor_does_not_slip_when_jobs_arrive(world: World) -> None:
    ids = _jobs(world, 4)
    viewer = world.client("viewer")
    first = viewer.get("/api/v1/jobs", params={"limit": 2}).json()
    _jobs(world, 3)
    second = viewer.get("/api/v1/jobs", params={"limit": 2, "cursor": first["next_cursor"]}).json()
    assert [job["id"] for job in first["items"] + second["items"]] == ids[::-1]
    last = viewer.get("/api/v1/jobs", params={"limit": 2, "cursor": second["next_cursor"]}).json()
    assert (last["items"], last["next_cursor"]) == ([], None)
    assert viewer.get("/api/v1/jobs", params={"cursor": "nonsense"}).json()["code"] == "bad_cursor"


def test_summary_cancel_retry_attempts(world: World) -> None:
    ids = _jobs(world, 3)
    operator = world.client("operator")
    assert operator.post(f"/api/v1/jobs/{ids[0]}/cancel").json()["status"] == "canceled"
    twice = operator.post(f"/api/v1/jobs/{ids[0]}/cancel")
    assert (twice.status_code, twice.json()["code"]) == (409, "illegal_transition")
    assert operator.post(f"/api/v1/jobs/{ids[0]}/retry").json()["status"] == "queued"
    summary = operator.get("/api/v1/jobs/summary").json()
    assert summary["counts"] == {
        "queued": 3,
        "running": 0,
        "succeeded": 0,
        "failed": 0,
        "canceled": 0,
        "dead_letter": 0,
    }
    assert summary["oldest_queued_age_seconds"] >= 0
    assert summary["running_count"] == 0
    assert operator.get(f"/api/v1/jobs/{ids[0]}/attempts").json() == {"items": []}


def test_a_waiting_job_is_run_now_and_rescheduled(world: World) -> None:
    operator, admin = world.client("operator"), world.client("tenant_admin")
    body = {"definition_key": "echo", "payload": {"n": 1}, "delay_seconds": 3600}
    id = operator.post("/api/v1/jobs", json=body).json()["id"]
    path = f"/api/v1/jobs/{id}"
    moved = operator.patch(path, json={"scheduled_for": "2099-01-01T00:00:00Z"}).json()
    assert (moved["scheduled_for"], moved["waits_for"]) == ("2099-01-01T00:00:00Z", "time")
    kept = operator.patch(path, json={"priority": 7}).json()
    assert (kept["scheduled_for"], kept["priority"]) == ("2099-01-01T00:00:00Z", 7)
    for change in (
        lambda: operator.patch(path, json={"scheduled_for": None}),
        lambda: operator.post(f"{path}/run-now"),
    ):
        operator.patch(path, json={"scheduled_for": "2099-01-01T00:00:00Z"})
        now = change()
        assert now.status_code == 200, now.text
        assert (now.json()["waits_for"], now.json()["scheduled_for"] < "2099") == (None, True)
    assert operator.post(f"{path}/run-now").json() == operator.get(path).json()
    assert operator.patch(path, json={"scheduled_for": "tomorrow"}).status_code == 422
    audited = [entry for entry in admin.get("/api/v1/audit").json()["items"] if entry["action"] == "job.run_now"]
    assert audited[-1]["before"]["scheduled_for"] == "2099-01-01T00:00:00Z"
    operator.post(f"{path}/cancel")
    refused = operator.post(f"{path}/run-now")
    assert (refused.status_code, refused.json()["code"]) == (409, "illegal_transition")
    assert "because it is canceled" in refused.json()["detail"]


def test_a_body_of_defaults_may_be_left_out(world: World) -> None:
    admin, operator = world.client("tenant_admin"), world.client("operator")
    body = {"label": "t", "trigger_type": "event", "event_name": "a.b", "definition_key": "echo"}
    trigger = admin.post("/api/v1/jobs/triggers", json=body).json()["id"]
    fired = operator.post(f"/api/v1/jobs/triggers/{trigger}/fire")
    assert (fired.status_code, fired.json()["definition_key"]) == (201, "echo"), fired.text
    held = operator.post("/api/v1/reservations")
    assert held.status_code == 201, held.text
    assert operator.post("/api/v1/reservations", json=[]).status_code == 422


def test_the_seeds_definition_is_a_command(world: World) -> None:
    admin = world.client("super_admin")
    example = NewDefinition.model_config["json_schema_extra"]["examples"][0]  # type: ignore[index,call-overload]
    made = admin.post("/api/v1/admin/jobs/definitions", json=example)
    assert (made.status_code, made.json()["runner"]) == (201, "command")
    named = admin.post("/api/v1/admin/jobs/definitions", json={"key": "other", "runner": "python"})
    assert named.json()["runner"] == "python"


def test_a_worker_claims_beats_completes_and_fails_over_http(world: World) -> None:
    first, second = _jobs(world, 2)
    worker, viewer = world.client("worker"), world.client("viewer")
    claimed = worker.post("/api/v1/worker/jobs/claim", json={"worker_id": "far:1:x", "limit": 5}).json()["items"]
    assert [each["job_id"] for each in claimed] == [first, second]
    assert claimed[0]["payload"] == {"n": 0}
    beat = worker.post(
        f"/api/v1/worker/jobs/{first}/heartbeat",
        json={"run_id": claimed[0]["run_id"], "progress": {"done": 1, "total": 4}, "stdout_tail": "half"},
    )
    assert beat.status_code == 200, beat.text
    assert beat.json()["cancel_requested"] is False
    running = viewer.get(f"/api/v1/jobs/{first}").json()
    assert (running["status"], running["claimed_by_worker"], running["attempt_count"]) == ("running", "far:1:x", 1)
    assert running["progress"] == {"done": 1.0, "total": 4.0, "message": ""}
    assert viewer.get(f"/api/v1/jobs/{first}/logs").json()["stdout"] == "half"
    done = worker.post(
        f"/api/v1/worker/jobs/{first}/complete",
        json={"run_id": claimed[0]["run_id"], "result": {"ok": 1}, "exit_code": 0, "stdout_tail": "all"},
    )
    assert (done.status_code, done.json()["status"]) == (200, "succeeded")
    late = worker.post(f"/api/v1/worker/jobs/{first}/complete", json={"run_id": claimed[0]["run_id"]})
    assert (late.status_code, late.json()["code"]) == (409, "lease_lost")
    failed = worker.post(
        f"/api/v1/worker/jobs/{second}/fail", json={"run_id": claimed[1]["run_id"], "error": "broken", "fatal": True}
    )
    assert failed.json()["status"] == "dead_letter"
    attempt = viewer.get(f"/api/v1/jobs/{second}/attempts").json()["items"][0]
    assert (attempt["status"], attempt["error_text"], attempt["attempt_no"]) == ("failed", "broken", 1)
    assert viewer.get(f"/api/v1/jobs/{first}").json()["result"] == {"ok": 1}


def test_a_worker_keeps_many_runs_in_one_request(world: World) -> None:
    jobs = _jobs(world, 4)
    worker, viewer = world.client("worker"), world.client("viewer")
    taken = worker.post("/api/v1/worker/jobs/claim", json={"worker_id": "far:1:x", "limit": 4}).json()["items"]
    runs = [{"job_id": each["job_id"], "run_id": each["run_id"]} for each in taken]
    world.penstock.as_tenant("acme").jobs.cancel(UUID(jobs[1]))
    worker.post(f"/api/v1/worker/jobs/{jobs[2]}/complete", json={"run_id": runs[2]["run_id"]})
    runs[0] |= {"progress": {"done": 1, "total": 4, "message": "a\u0000b"}, "stdout_tail": "half"}
    runs[2] |= {"progress": {"done": 9}}
    before = viewer.get(f"/api/v1/jobs/{jobs[3]}").json()["lease_expires_at"]
    answer = worker.post("/api/v1/worker/jobs/heartbeat", json={"runs": runs, "lease_seconds": 600})
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert told["lease_seconds"] == 600
    assert [(each["job_id"], each["state"], each["cancel_requested"]) for each in told["items"]] == [
        (jobs[0], "extended", False), (jobs[1], "extended", True), (jobs[2], "lost", False), (jobs[3], "extended", False),
    ]  # fmt: skip
    assert viewer.get(f"/api/v1/jobs/{jobs[3]}").json()["lease_expires_at"] > before
    assert viewer.get(f"/api/v1/jobs/{jobs[0]}").json()["progress"] == {
        "done": 1.0,
        "total": 4.0,
        "message": "a\ufffdb",
    }
    assert viewer.get(f"/api/v1/jobs/{jobs[0]}/logs").json()["stdout"] == "half"
    assert viewer.get(f"/api/v1/jobs/{jobs[2]}").json()["progress"] is None


@pytest.mark.parametrize("backend", ["postgresql"])  # on SQLite there is one writer, and a heartbeat waits for its turn
def test_a_run_whose_row_is_in_use_is_neither_extended_nor_lost(world: World) -> None:
    jobs = _jobs(world, 2)
    worker, viewer = world.client("worker"), world.client("viewer")
    taken = worker.post("/api/v1/worker/jobs/claim", json={"worker_id": "far:1:x", "limit": 2}).json()["items"]
    asked = {"runs": [{"job_id": each["job_id"], "run_id": each["run_id"]} for each in taken], "lease_seconds": 600}
    before = viewer.get(f"/api/v1/jobs/{jobs[0]}").json()["lease_expires_at"]
    with world.penstock.db.write() as tx:
        tx.run(select(running.c.job_id).where(running.c.job_id == UUID(jobs[0])).with_for_update())
        told = worker.post("/api/v1/worker/jobs/heartbeat", json=asked).json()["items"]
    assert [each["state"] for each in told] == ["held", "extended"]
    assert viewer.get(f"/api/v1/jobs/{jobs[0]}").json()["lease_expires_at"] == before
    told = worker.post("/api/v1/worker/jobs/heartbeat", json=asked).json()["items"]
    assert [each["state"] for each in told] == ["extended", "extended"]


def test_an_old_run_of_a_job_is_lost_although_the_new_one_is_kept(world: World) -> None:
    [job] = _jobs(world, 1)
    worker = world.client("worker")
    [old] = worker.post("/api/v1/worker/jobs/claim", json={"worker_id": "w"}).json()["items"]
    snooze = {"run_id": old["run_id"], "error": "later", "kind": "snoozed", "delay_seconds": 0}
    assert worker.post(f"/api/v1/worker/jobs/{job}/fail", json=snooze).status_code == 200
    [new] = worker.post("/api/v1/worker/jobs/claim", json={"worker_id": "w"}).json()["items"]
    runs = [{"job_id": job, "run_id": each["run_id"]} for each in (old, new)]
    told = worker.post("/api/v1/worker/jobs/heartbeat", json={"runs": runs}).json()["items"]
    assert [each["state"] for each in told] == ["lost", "extended"]


def test_a_claim_whose_answer_was_lost_is_asked_for_again(world: World) -> None:
    jobs = _jobs(world, 3)
    worker = world.client("worker")
    asked = {"worker_id": "far:1:x", "limit": 2, "claim_id": str(uuid4())}
    first = worker.post("/api/v1/worker/jobs/claim", json=asked).json()["items"]
    again = worker.post("/api/v1/worker/jobs/claim", json={**asked, "again": True}).json()["items"]
    assert [(each["job_id"], each["run_id"]) for each in first] == [(each["job_id"], each["run_id"]) for each in again]
    assert {each["job_id"] for each in first} == set(jobs[:2])
    _, token = create_token(world.penstock.ground, "worker", "another", "acme")
    other = world.bare(Authorization=f"Bearer {token}")
    [left] = other.post("/api/v1/worker/jobs/claim", json={**asked, "again": True}).json()["items"]
    assert left["job_id"] == jobs[2]
    assert left["run_id"] not in {each["run_id"] for each in first}


def test_claims_that_were_never_started_go_back_untouched(world: World) -> None:
    jobs = _jobs(world, 2)
    worker = world.client("worker")
    taken = worker.post("/api/v1/worker/jobs/claim", json={"worker_id": "w", "limit": 2}).json()["items"]
    runs = [{"job_id": each["job_id"], "run_id": each["run_id"]} for each in taken]
    assert worker.post("/api/v1/worker/jobs/release", json={"runs": runs}).json() == {"released": 2}
    assert worker.post("/api/v1/worker/jobs/release", json={"runs": runs}).json() == {"released": 0}
    found = [world.client("viewer").get(f"/api/v1/jobs/{job}").json() for job in jobs]
    assert [(each["status"], each["attempt_count"]) for each in found] == [("queued", 0)] * 2


EVENT_TRIGGER = {
    "label": "Resync on folder change",
    "trigger_type": "event",
    "event_name": "provider.folder.updated",
    "definition_key": "sync-dropbox",
    "payload_template": {"provider_id": "{{event.provider_id}}", "path_prefix": "{{event.folder_path}}"},
    "dedupe_window_seconds": 120,
}
SCHEDULE_TRIGGER = {
    "label": "Nightly provider sync",
    "trigger_type": "schedule",
    "cron_expr": "0 2 * * *",
    "timezone": "America/New_York",
    "definition_key": "sync-dropbox",
    "payload_template": {"path_prefix": "/"},
}


def test_triggers_of_the_seed_are_created_listed_changed_and_deleted(world: World) -> None:
    world.client().post("/api/v1/admin/jobs/definitions", json=DEFINITION)
    tenant = world.client("tenant_admin")
    event = tenant.post("/api/v1/jobs/triggers", json=EVENT_TRIGGER)
    schedule = tenant.post("/api/v1/jobs/triggers", json=SCHEDULE_TRIGGER)
    for made, given in ((event, EVENT_TRIGGER), (schedule, SCHEDULE_TRIGGER)):
        assert made.status_code == 201, made.text
        assert {name: made.json()[name] for name in given} == given
    assert {each["label"] for each in tenant.get("/api/v1/jobs/triggers").json()["items"]} == {
        EVENT_TRIGGER["label"],
        SCHEDULE_TRIGGER["label"],
    }
    path = f"/api/v1/jobs/triggers/{schedule.json()['id']}"
    moved = tenant.patch(path, json={"cron_expr": "30 3 * * *", "is_enabled": False})
    assert (moved.json()["cron_expr"], moved.json()["is_enabled"]) == ("30 3 * * *", False)
    stale = tenant.patch(path, json={"label": "x", "version": schedule.json()["version"]})
    assert (stale.status_code, stale.json()["code"]) == (409, "conflict")
    preview = tenant.get(f"{path}/preview", params={"count": 10}).json()
    assert len(preview["items"]) == 10
    assert {each["local"][11:16] for each in preview["items"]} == {"03:30"}
    assert tenant.delete(path).status_code == 204
    assert tenant.get(path).status_code == 404
    twice = tenant.post("/api/v1/jobs/triggers", json=EVENT_TRIGGER)
    assert (twice.status_code, twice.json()["code"]) == (409, "conflict")


def test_an_event_makes_the_jobs_of_its_triggers(world: World) -> None:
    world.client().post("/api/v1/admin/jobs/definitions", json=DEFINITION)
    tenant = world.client("tenant_admin")
    tenant.post("/api/v1/jobs/triggers", json=EVENT_TRIGGER)
    context = {"provider_id": "6f46a1d8-6e2b-4ecf-8b46-9ec2e6a37f09", "folder_path": "/photos"}
    event = tenant.post("/api/v1/events", json={"name": "provider.folder.updated", "context": context})
    assert event.status_code == 201, event.text
    [job_id] = event.json()["job_ids"]
    job = tenant.get(f"/api/v1/jobs/{job_id}").json()
    assert (job["source"], job["source_ref"]) == ("event", event.json()["id"])
    assert job["payload"] == {"provider_id": context["provider_id"], "path_prefix": "/photos"}
    again = tenant.post("/api/v1/events", json={"name": "provider.folder.updated", "context": context}).json()
    assert (again["job_ids"], again["outcomes"][0]["outcome"]) == ([], "deduped")


def test_a_commands_params_are_checked_where_its_file_is_known(world: World, tmp_path: Path) -> None:
    file = tmp_path / "commands.toml"
    file.write_text('[commands.echo]\nargv = ["no-such-program", "--n={n?}"]\nstdin = "{notes?}"\n')
    world.penstock.use_commands(file)
    operator = world.client("operator")
    refused = operator.post("/api/v1/jobs", json={"definition_key": "echo", "payload": {"n": "a\nb"}})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_payload")
    assert "U+000A" in refused.json()["faults"][0]["message"] and refused.json()["faults"][0]["path"].endswith("n")
    taken = operator.post("/api/v1/jobs", json={"definition_key": "echo", "payload": {"n": 1, "notes": "a\nb"}})
    assert taken.status_code == 201, taken.text
