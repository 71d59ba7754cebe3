"""What a definition's schema marks as secret is masked on every door, in every version of the definition."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock import Failed, Succeeded
from penstock.core.outcomes import Evidence
from penstock.queue.shown import ClaimSecrets
from tests.server.support import World

PIN = "4711-of-the-vault"
SCHEMA = {
    "type": "object",
    "properties": {
        "code": {"type": "string", "x-secret": True, "writeOnly": True, "format": "password"},
        "nested": {
            "type": "array",
            "items": {"anyOf": [{"type": "object", "properties": {"inner": {"writeOnly": True}}}]},
        },
    },
}
PARAMS = {"code": PIN, "nested": [{"inner": PIN, "n": 1}], "open": "seen"}
SHOWN = {"code": "***", "nested": [{"inner": "***", "n": 1}], "open": "seen"}


@pytest.fixture
def vault(world: World) -> World:
    world.penstock.define("vault", runner="command", arg_schema=SCHEMA, max_attempts=1)
    return world


def enqueue(world: World, params: dict[str, Any] = PARAMS) -> dict[str, Any]:
    made = world.client("operator").post("/api/v1/jobs", json={"definition_key": "vault", "payload": params})
    assert made.status_code == 201, made.text
    return made.json()


def reported(world: World) -> dict[str, Any]:
    """A job whose worker quotes the secret in everything that it says."""
    job, worker = enqueue(world), world.client("worker")
    [claim] = worker.post("/api/v1/worker/jobs/claim", json={"worker_id": "w1"}).json()["items"]
    assert claim["payload"] == PARAMS and claim["secret_params"] == ["/code", "/nested/0/inner"]
    said = {"run_id": claim["run_id"], "stdout_tail": f"out {PIN}", "stderr_tail": f"err {PIN}"}
    beat = {**said, "progress": {"done": 1, "message": f"at {PIN}"}}
    worker.post(f"/api/v1/worker/jobs/{job['id']}/heartbeat", json=beat).raise_for_status()
    for path in ("", "/logs", "/attempts"):
        assert PIN not in world.client("viewer").get(f"/api/v1/jobs/{job['id']}{path}").text
    end = {**said, "error": f"no luck with {PIN}", "artifacts": [{"name": f"{PIN}.txt"}]}
    worker.post(f"/api/v1/worker/jobs/{job['id']}/fail", json=end).raise_for_status()
    return job


def test_every_view_of_a_job(vault: World) -> None:
    job = reported(vault)
    assert job["payload"] == SHOWN
    viewer = vault.client("viewer")
    for path in ("", "/attempts", "/chain", "/why", "/logs"):
        answer = viewer.get(f"/api/v1/jobs/{job['id']}{path}")
        assert answer.status_code == 200 and PIN not in answer.text, path
        assert "***" in answer.text, path
    for path in ("/api/v1/jobs", "/api/v1/jobs/export.csv", "/api/v1/stats/failures"):
        answer = viewer.get(path)
        assert PIN not in answer.text, path
    admin = vault.client(X_Tenant="acme")
    retried = vault.client("operator").post(f"/api/v1/jobs/{job['id']}/retry")
    assert retried.status_code == 200 and PIN not in retried.text
    assert PIN not in admin.get("/api/v1/audit").text + admin.get("/api/v1/admin/audit").text


def test_what_a_worker_reports_is_masked_before_it_is_written(vault: World) -> None:
    job = vault.penstock.as_tenant("acme").jobs.get(reported(vault)["id"])
    [run] = vault.penstock.as_tenant("acme").jobs.runs(job.id)
    written = f"{job.last_error} {run.error} {run.stdout_tail} {run.stderr_tail} {job.progress}"
    assert PIN not in written and "***" in written
    assert job.params == PARAMS, "the params stay what they are"


def test_a_result_is_masked_where_people_see_it_alone(vault: World) -> None:
    job = enqueue(vault)
    acme = vault.penstock.as_tenant("acme")
    [claim] = acme.queue.claim("w")
    acme.queue.finish(claim, Succeeded({"echo": PIN, "said": f"it is {PIN}"}, Evidence(stdout_tail=PIN)))
    answer = vault.client("viewer").get(f"/api/v1/jobs/{job['id']}").json()
    assert answer["result"] == {"echo": "***", "said": "it is ***"}
    stored = acme.jobs.get(job["id"])
    assert stored.result["echo"] == PIN
    assert acme.jobs.runs(job["id"])[0].stdout_tail == "***"
    assert PIN not in repr(stored) + repr(acme.jobs.runs(job["id"])) + repr(claim)


def test_groups(vault: World) -> None:
    operator = vault.client("operator")
    body = {"mode": "parallel", "jobs": [{"definition_key": "vault", "payload": PARAMS}] * 2}
    made = operator.post("/api/v1/groups", json=body)
    assert [job["payload"] for job in made.json()["jobs"]] == [SHOWN, SHOWN]
    id = made.json()["id"]
    texts = [operator.get("/api/v1/groups").text, operator.get(f"/api/v1/groups/{id}").text]
    assert PIN not in "".join([*texts, operator.post(f"/api/v1/groups/{id}/cancel").text])


def test_triggers_and_a_mask_that_comes_back(vault: World) -> None:
    admin = vault.client("tenant_admin")
    body = {
        "label": "t",
        "trigger_type": "schedule",
        "cron_expr": "0 2 * * *",
        "definition_key": "vault",
        "payload_template": PARAMS,
    }
    made = admin.post("/api/v1/jobs/triggers", json=body).json()
    assert made["payload_template"] == SHOWN
    edited = {**made["payload_template"], "open": "changed"}
    changed = admin.patch(f"/api/v1/jobs/triggers/{made['id']}", json={"payload_template": edited})
    assert changed.status_code == 200, changed.text
    stored = vault.penstock.as_tenant("acme").triggers.get(made["id"])
    assert stored.payload_template == {**PARAMS, "open": "changed"}
    fired = admin.post(f"/api/v1/jobs/triggers/{made['id']}/fire").json()
    assert fired["payload"] == {**SHOWN, "open": "changed"}
    assert PIN not in admin.get("/api/v1/jobs/triggers").text + admin.get("/api/v1/audit").text


def test_events_that_carry_what_becomes_a_secret(vault: World) -> None:
    admin = vault.client("tenant_admin")
    body = {"label": "e", "trigger_type": "event", "event_name": "opened", "definition_key": "vault",
            "payload_template": {"code": "{{event.value}}"}}  # fmt: skip
    admin.post("/api/v1/jobs/triggers", json=body).raise_for_status()
    made = admin.post("/api/v1/events", json={"name": "opened", "context": {"value": PIN, "n": 1}})
    assert made.status_code == 201 and made.json()["job_ids"]
    for answer in (made, admin.get("/api/v1/events"), admin.get(f"/api/v1/events/{made.json()['id']}")):
        assert PIN not in answer.text


def test_a_masked_value_that_comes_back_stays_what_it_was(vault: World) -> None:
    job, operator = enqueue(vault), vault.client("operator")
    edited = {**job["payload"], "open": "changed"}
    operator.patch(f"/api/v1/jobs/{job['id']}", json={"payload": edited}).raise_for_status()
    assert vault.penstock.as_tenant("acme").jobs.get(job["id"]).params == {**PARAMS, "open": "changed"}
    longer = {"payload": {**edited, "nested": [*edited["nested"], {"inner": "new"}]}}
    refused = operator.patch(f"/api/v1/jobs/{job['id']}", json=longer)
    assert refused.status_code == 422 and "$.nested[0].inner" in refused.json()["detail"]
    copied = operator.post("/api/v1/jobs", json={"definition_key": "vault", "payload": job["payload"]})
    assert copied.status_code == 422 and "in place of a secret" in copied.json()["detail"]


def test_a_refusal_quotes_no_secret(vault: World) -> None:
    answer = vault.client("operator").post(
        "/api/v1/jobs", json={"definition_key": "vault", "payload": {"code": [PIN], "nested": PIN}}
    )
    assert answer.status_code == 422 and "4711-of" not in json.dumps(answer.json()["faults"][0])


def test_a_mark_counts_for_old_jobs_and_is_never_lost(vault: World) -> None:
    app = vault.penstock
    app.define("vault", arg_schema={"properties": {"later": {}}})
    job = enqueue(vault, {**PARAMS, "later": "also-secret"})
    view = lambda: vault.client("viewer").get(f"/api/v1/jobs/{job['id']}").json()["payload"]  # noqa: E731
    assert view() == {**SHOWN, "later": "also-secret"}, "the marks of the first version hold on"
    app.define("vault", arg_schema={"properties": {"later": {"x-secret": True}}})
    assert view() == {**SHOWN, "later": "***"}, "a new mark hides what was there before"
    app.archive("vault")
    assert view() == {**SHOWN, "later": "***"}
    assert vault.client("viewer").get("/api/v1/jobs").json()["items"][0]["payload"] == {**SHOWN, "later": "***"}


def test_webhooks_tell_no_secret(vault: World) -> None:
    acme = vault.penstock.as_tenant("acme")
    acme.webhooks.create("https://example.com/hook")
    enqueue(vault)
    [claim] = acme.queue.claim("w", keys=["vault"])
    acme.queue.finish(claim, Failed(f"no luck with {PIN}"))
    [delivery, *_] = acme.jobs.list(key="penstock.webhook") or acme.jobs.list(source="system")
    assert delivery.params["message"]["data"]["payload"] == SHOWN
    assert PIN not in json.dumps(dict(delivery.params))


def test_a_worker_knows_the_secrets_of_its_claim(vault: World) -> None:
    enqueue(vault)
    [claim] = vault.penstock.as_tenant("acme").queue.claim("w")
    assert ClaimSecrets(vault.penstock.ground)(claim) == [PIN, PIN]
    assert PIN not in vault.client("viewer").get("/api/v1/metrics").text


def test_default_params_by_mark(vault: World) -> None:
    admin = vault.client()
    body = {"key": "d", "runner": "command", "arg_schema": SCHEMA, "default_params": PARAMS}
    made = admin.post("/api/v1/admin/jobs/definitions", json=body)
    assert made.json()["default_params"] == SHOWN
    change = {**body, "default_params": {**PARAMS, "code": "another-of-them"}}
    applied = admin.post("/api/v1/admin/jobs/definitions/apply", json={"definitions": [change]})
    assert applied.json()["items"][0]["action"] == "changed"
    told = applied.text + admin.get("/api/v1/admin/audit").text
    assert PIN not in told and "another-of-them" not in told
