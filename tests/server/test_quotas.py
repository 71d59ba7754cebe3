"""Quotas and priorities through the service: defaults for every tenant, 409 and 429 that name the quota."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from penstock.core.errors import InvalidInput
from penstock.core.explain import EXPLANATIONS
from penstock.core.quota import QUOTAS, SERVICE_DEFAULTS
from penstock.core.wire.definitions import QuotaName
from penstock.server import Settings
from penstock.server.limits import stream_limit
from tests.server.support import BOOTSTRAP, World

API = "/api/v1"
MIN = -(2**31)


def problem(response: httpx.Response, status: int, quota: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert body["code"] == "quota_exceeded" and body["code"] in EXPLANATIONS
    assert body["quota"]["name"] == quota
    assert quota in body["detail"] and str(body["quota"]["limit"]) in body["detail"]
    assert body["quota"]["used"] <= body["quota"]["limit"]
    return body


def until_refused(send: Callable[[int], httpx.Response], most: int) -> tuple[int, httpx.Response]:
    """How many were taken before the first refusal, and that refusal."""
    for taken in range(most + 1):
        response = send(taken)
        if response.status_code != 201:
            return taken, response
    raise AssertionError(f"{most + 1} were taken")


def token(label: object) -> dict[str, Any]:
    return {"role": "viewer", "label": str(label)}


def trigger(label: object, event: str = "go", **more: Any) -> dict[str, Any]:
    return {
        "trigger_type": "event", "label": str(label), "event_name": event, "definition_key": "echo",
        "payload_template": {}, "dedupe_window_seconds": 0, **more,
    }  # fmt: skip


def group(jobs: int, **more: Any) -> dict[str, Any]:
    return {"mode": "parallel", "jobs": [{"definition_key": "echo", "payload": {}}] * jobs, **more}


def set_quotas(world: World, slug: str = "acme", **changes: Any) -> dict[str, Any]:
    with world.client() as admin:
        response = admin.patch(f"{API}/admin/tenants/{slug}", json=changes)
    assert response.status_code == 200, response.text
    told: dict[str, Any] = response.json()
    return told


def test_the_names_are_the_same_everywhere() -> None:
    assert set(QuotaName.__args__) == set(QUOTAS) == set(SERVICE_DEFAULTS)  # type: ignore[attr-defined]


def test_a_tenant_has_quotas_that_nobody_set(world: World) -> None:
    with world.client("tenant_admin") as admin, world.client("operator") as operator:
        tokens, refusal = until_refused(lambda n: admin.post(f"{API}/tokens", json=token(n)), 60)
        problem(refusal, 409, "tokens")
        hook = {"url": "https://example.com/"}
        webhooks, refusal = until_refused(lambda _: admin.post(f"{API}/webhooks", json=hook), 60)
        problem(refusal, 409, "webhooks")
        triggers, refusal = until_refused(lambda n: admin.post(f"{API}/jobs/triggers", json=trigger(n)), 150)
        problem(refusal, 409, "triggers")
        told = problem(operator.post(f"{API}/events", json={"name": "go", "context": {}}), 409, "jobs_per_event")
        assert operator.get(f"{API}/events").json()["items"] == []
    assert (webhooks, triggers) == (SERVICE_DEFAULTS["webhooks"], SERVICE_DEFAULTS["triggers"])
    assert tokens <= SERVICE_DEFAULTS["tokens"], "the tokens of the test itself count, too"
    assert told["quota"]["limit"] == SERVICE_DEFAULTS["jobs_per_event"]
    with world.client("tenant_admin", "bolt") as other:
        assert other.post(f"{API}/tokens", json=token("x")).status_code == 201, "another tenant has its own"


def test_the_default_tenant_is_the_operators_own(world: World) -> None:
    with world.client() as operator:
        for n in range(SERVICE_DEFAULTS["webhooks"] + 5):
            assert operator.post(f"{API}/webhooks", json={"url": f"https://example.com/{n}"}).status_code == 201
        urgent = operator.post(f"{API}/jobs", json={"definition_key": "echo", "payload": {}, "priority": MIN})
        assert urgent.status_code == 201 and urgent.json()["priority"] == MIN
    with world.client("operator", "default") as somebody:
        response = somebody.post(f"{API}/jobs", json={"definition_key": "echo", "payload": {}, "priority": MIN})
        assert response.status_code == 422, "but priorities of its tokens are bounded"


def test_what_the_operator_sets_binds(world: World) -> None:
    told = set_quotas(world, quotas={"queued_jobs": 2, "jobs_per_request": 3, "tokens": "unlimited"})
    assert told["quotas"] == {"queued_jobs": 2, "jobs_per_request": 3, "tokens": None}
    with world.client("operator") as operator, world.client("tenant_admin") as admin:
        problem(operator.post(f"{API}/groups", json=group(4)), 409, "jobs_per_request")
        problem(operator.post(f"{API}/groups", json=group(3)), 409, "queued_jobs")
        assert operator.post(f"{API}/groups", json=group(2)).status_code == 201
        told = problem(operator.post(f"{API}/jobs", json={"definition_key": "echo", "payload": {}}), 409, "queued_jobs")
        assert told["quota"] == {"name": "queued_jobs", "limit": 2, "used": 2}
        for n in range(SERVICE_DEFAULTS["tokens"] + 1):
            assert admin.post(f"{API}/tokens", json=token(n)).status_code == 201
        for path in ("/admin/tenants", "/admin/tenants/acme"):
            assert admin.get(API + path).status_code in (403, 404, 405), "a tenant does not see or set its own"
        assert admin.patch(f"{API}/admin/tenants/acme", json={"quotas": {"tokens": 1}}).status_code == 403
    with world.client() as super_admin:
        (entry,) = super_admin.get(f"{API}/admin/audit", params={"action": "tenant.change"}).json()["items"]
        assert entry["after"]["quotas"]["queued_jobs"] == 2
    set_quotas(world, quotas={"queued_jobs": "default"})
    with world.client("operator") as operator:
        assert operator.post(f"{API}/jobs", json={"definition_key": "echo", "payload": {}}).status_code == 201


@pytest.mark.parametrize("bad", [{"tokens": -1}, {"tokens": "many"}, {"nothing": 1}, {"tokens": 1.5}, {"tokens": True}])
def test_a_quota_that_cannot_be_is_refused(world: World, bad: dict[str, Any]) -> None:
    with world.client() as admin:
        for answer in (
            admin.patch(f"{API}/admin/tenants/acme", json={"quotas": bad}),
            admin.post(f"{API}/admin/tenants", json={"slug": "new", "quotas": bad}),
        ):
            assert answer.status_code == 422
            (name,) = bad
            assert all(fault["path"].startswith(f"$.quotas.{name}.") for fault in answer.json()["faults"]), answer.text


def test_a_tenant_asks_as_often_as_its_tokens_may_together(world: World) -> None:
    set_quotas(world, quotas={"requests_per_second": 3})
    clients = [world.client(role) for role in ("viewer", "operator", "tenant_admin")]
    # Each token has 500 a second of its own, and a burst of six is over after at most a few rounds, however slow the machine is
    answers = [client.get(f"{API}/jobs/summary") for _ in range(40) for client in clients]
    refused = [each for each in answers if each.status_code == 429]
    assert refused, "the sum over three tokens is bounded"
    problem(refused[0], 429, "requests_per_second")
    assert int(refused[0].headers["retry-after"]) >= 1
    with world.client("viewer", "bolt") as other:
        assert other.get(f"{API}/jobs/summary").status_code == 200
    with world.client(X_Tenant="acme") as operator:
        assert operator.get(f"{API}/jobs/summary").status_code == 200, "the operator's requests are not the tenant's"


def claim(client: httpx.Client, name: str, **more: Any) -> httpx.Response:
    return client.post(f"{API}/worker/jobs/claim", json={"worker_id": name, "queues": ["default"], **more})


def test_workers_of_a_tenant_are_bounded(world: World) -> None:
    set_quotas(world, quotas={"workers": 2})
    with world.client("worker") as worker:
        assert [claim(worker, f"w{n}").status_code for n in range(2)] == [200, 200]
        problem(claim(worker, "w2"), 409, "workers")
        assert claim(worker, "w1").status_code == 200, "those that are there go on"
    with world.client("viewer") as viewer:
        assert sorted(each["id"] for each in viewer.get(f"{API}/workers").json()["items"]) == ["w0", "w1"]


DOORS: list[Callable[[httpx.Client, int], httpx.Response]] = [
    lambda c, p: c.post(f"{API}/jobs", json={"definition_key": "echo", "payload": {}, "priority": p}),
    lambda c, p: c.post(f"{API}/groups", json=group(2, priority=p)),
    lambda c, p: c.post(f"{API}/jobs/triggers", json=trigger("t", priority=p)),
]


@pytest.mark.parametrize("door", DOORS, ids=["jobs", "groups", "triggers"])
@pytest.mark.parametrize("priority", [MIN, -1, 1001, 2**31 - 1])
def test_priorities_of_a_tenant_are_bounded(
    world: World, door: Callable[[httpx.Client, int], httpx.Response], priority: int
) -> None:
    with world.client("tenant_admin") as admin:
        response = door(admin, priority)
        assert response.status_code == 422, response.text
        assert response.json()["code"] == "priority_out_of_range"
        assert response.json()["faults"][0]["path"] == "$.priority"
        assert door(admin, 0).status_code == 201
    with world.client(X_Tenant="acme") as operator:
        assert door(operator, priority).status_code == 422, "whoever acts for the tenant"


def test_priorities_are_bounded_when_changed(world: World) -> None:
    with world.client("tenant_admin") as admin:
        job = DOORS[0](admin, 5).json()["id"]
        made = DOORS[2](admin, 5).json()["id"]
        for path, change in ((f"/jobs/{job}", {"priority": MIN}), (f"/jobs/triggers/{made}", {"priority": MIN})):
            response = admin.patch(API + path, json=change)
            assert (response.status_code, response.json()["code"]) == (422, "priority_out_of_range")
            assert admin.get(API + path).json()["priority"] == 5
        urgent = world.penstock.enqueue("echo", {}, tenant="acme", priority=-10)
        response = admin.post(f"{API}/jobs/{job}/move", json={"before": str(urgent.id)})
        assert (response.status_code, response.json()["code"]) == (422, "priority_out_of_range")
    with world.client() as operator:
        body = {"key": "own", "runner": "command", "tenant": "acme", "priority": -1}
        set_quotas(world, min_priority=0)
        response = operator.post(f"{API}/admin/jobs/definitions", json=body)
        assert (response.status_code, response.json()["code"]) == (422, "priority_out_of_range")


def test_one_tenant_cannot_starve_another_by_priority(world: World) -> None:
    """Finding 5: every priority that a tenant may ask for is one that another may ask for, too."""
    with world.client("operator") as acme, world.client("operator", "bolt") as bolt:
        assert DOORS[1](acme, MIN).status_code == 422
        assert acme.post(f"{API}/groups", json=group(50, priority=0)).status_code == 201
        assert DOORS[0](bolt, 0).status_code == 201
    served = [each.tenant_slug for each in world.penstock.queue.claim("host:1", 4)]
    assert "bolt" in served


def test_the_operator_sets_the_defaults(url: str) -> None:
    settings = Settings.from_environment({"PENSTOCK_QUOTAS": "tokens=7, triggers=unlimited"})
    found = settings.default_quotas()
    assert (found["tokens"], found["triggers"], found["webhooks"]) == (7, None, SERVICE_DEFAULTS["webhooks"])
    for bad in ("tokens", "tokens=-1", "tokns=1"):
        with pytest.raises(InvalidInput):
            Settings(bootstrap_token=BOOTSTRAP, quotas=(bad,))


def test_streams_of_a_tenant_are_bounded_by_its_quota(world: World) -> None:
    set_quotas(world, quotas={"streams": 7, "webhooks": 1})
    acme, bolt = (world.penstock.tenants.get(slug).id for slug in ("acme", "bolt"))
    for tenant_id in (acme, bolt):
        world.penstock.ground.bounds(tenant_id)
    assert stream_limit(world.penstock.ground, 100, acme) == 7
    assert stream_limit(world.penstock.ground, 100, bolt) == 100
