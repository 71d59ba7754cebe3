"""Secrets are masked on every door, whoever wrote them and whoever reports them."""

from __future__ import annotations

import json

from tests.server.support import World

SECRET = "OperatorsOwn-4711"
SCHEMA = {
    "type": "object",
    "properties": {"api_key": {"type": "string"}, "seed": {"type": "string", "x-secret": True, "default": SECRET}},
}
DEFINITION = {"key": "opkey", "runner": "command", "arg_schema": SCHEMA, "default_params": {"api_key": SECRET, "n": 1}}


def test_defaults_of_a_definition_are_masked_for_everyone(world: World) -> None:
    admin = world.client()
    made = admin.post("/api/v1/admin/jobs/definitions", json=DEFINITION).json()
    assert made["default_params"] == {"api_key": "***", "n": 1}
    for role in ("super_admin", "tenant_admin", "viewer"):
        listed = world.client(role, X_Tenant="acme").get("/api/v1/definitions")
        assert "opkey" in listed.text and SECRET not in listed.text
    assert SECRET not in admin.get("/api/v1/admin/audit").text


def test_a_masked_default_that_comes_back_stays_what_it_was(world: World) -> None:
    admin = world.client()
    made = admin.post("/api/v1/admin/jobs/definitions", json=DEFINITION).json()
    edited = {"default_params": {**made["default_params"], "n": 2}, "arg_schema": made["arg_schema"]}
    admin.patch(f"/api/v1/admin/jobs/definitions/{made['id']}", json=edited).raise_for_status()
    [stored] = [each for each in world.penstock.definitions.list() if each.key == "opkey"]
    assert stored.default_params == {"api_key": SECRET, "n": 2}
    assert stored.arg_schema == SCHEMA


def test_the_difference_of_an_applied_file_is_masked(world: World) -> None:
    admin = world.client()
    admin.post("/api/v1/admin/jobs/definitions", json=DEFINITION).raise_for_status()
    changed = {**DEFINITION, "default_params": {"api_key": "Another-0815"}}
    answer = admin.post("/api/v1/admin/jobs/definitions/apply", json={"definitions": [changed]})
    assert answer.json()["items"][0]["action"] == "changed"
    assert SECRET not in answer.text and "Another-0815" not in answer.text
    assert "Another-0815" not in admin.get("/api/v1/admin/audit").text


def test_what_a_worker_reports_is_masked_by_the_service(world: World) -> None:
    operator, worker = world.client("operator"), world.client("worker")
    payload = {"password": "hunter2-and-more", "n": 1}
    job = operator.post("/api/v1/jobs", json={"definition_key": "echo", "payload": payload}).json()
    [claim] = worker.post("/api/v1/worker/jobs/claim", json={"worker_id": "w1"}).json()["items"]
    told = {
        "run_id": claim["run_id"],
        "error": "no luck with hunter2-and-more",
        "stdout_tail": "hello hunter2-and-more",
    }
    worker.post(f"/api/v1/worker/jobs/{job['id']}/fail", json=told).raise_for_status()
    for path in (f"/api/v1/jobs/{job['id']}", f"/api/v1/jobs/{job['id']}/attempts", "/api/v1/jobs"):
        answer = world.client("viewer").get(path)
        assert "hunter2-and-more" not in answer.text
        assert "***" in json.dumps(answer.json())
