"""Figures, exports, metrics, bulk actions, groups, reservations, queues, definitions from a file."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from penstock import Canceled, Failed, Fatal, Snoozed, Succeeded
from penstock.queue import claim
from penstock.server.metrics import Metrics
from penstock.server.series import SERIES
from tests.server.support import World


def run(world: World, tenant: str, outcomes: list[Any]) -> None:
    app = world.penstock.as_tenant(tenant)
    for _ in outcomes:
        app.enqueue("echo")
    taken = claim.claim(world.penstock.ground, "w", len(outcomes), tenant_id=app.jobs.tenant_id)
    for each, outcome in zip(taken, outcomes, strict=True):
        world.penstock.queue.finish(each, outcome)


def test_the_timeline_counts_runs_by_how_they_ended(world: World) -> None:
    run(world, "acme", [Succeeded(), Succeeded(), Failed("boom", fatal=True)])
    run(world, "bolt", [Succeeded()])
    viewer = world.client("viewer")
    line = viewer.get("/api/v1/stats/timeline", params={"minutes": 10, "step": 2}).json()
    assert len(line["items"]) == 5
    assert sum(point["succeeded"] for point in line["items"]) == 2
    assert sum(point["failed"] for point in line["items"]) == 1
    [busy] = [point for point in line["items"] if point["succeeded"] or point["failed"]][-1:]
    assert 0 <= busy["wait_p50"] <= busy["wait_p95"]
    assert viewer.get("/api/v1/stats/timeline", params={"minutes": 44640, "step": 1}).status_code == 422


def test_failures_are_grouped_by_cause(world: World) -> None:
    run(world, "acme", [Failed(f"file {n} is missing", fatal=True) for n in range(3)] + [Failed("other", fatal=True)])
    found = world.client("viewer").get("/api/v1/stats/failures").json()["items"]
    assert [(each["error"], each["count"], each["dead_letter"]) for each in found] == [
        ("file # is missing", 3, 3),
        ("other", 1, 1),
    ]


def test_metrics_tell_depth_rates_and_latency_by_tenant(world: World) -> None:
    admin = world.client()
    assert admin.get("/metrics").status_code == 200
    run(world, "acme", [Succeeded(), Failed("x", fatal=True)])
    run(world, "bolt", [Succeeded()])
    world.penstock.as_tenant("acme").enqueue("echo")

    found = scrape(admin)
    echo = ("definition_key=echo", "queue=default")
    assert found["penstock_jobs", *echo, "status=queued", "tenant=acme"] == 1
    assert found["penstock_jobs", "definition_key=", "queue=", "status=dead_letter", "tenant=acme"] == 1
    assert found["penstock_jobs", "definition_key=", "queue=", "status=queued", "tenant=bolt"] == 0
    assert found["penstock_ready_jobs", *echo, "tenant=acme"] == 1
    assert found["penstock_runs_total", "definition_key=echo", "outcome=succeeded", "queue=default", "tenant=bolt"] == 1
    assert found["penstock_run_duration_seconds_count", "tenant=acme"] == 2
    assert found["penstock_queue_latency_seconds_count", "tenant=acme"] == 2
    assert found["penstock_enqueued_per_second", "tenant=acme"] == 3 / 300
    assert ("penstock_queue_latency_recent_seconds", "quantile=0.95", "tenant=acme") in found
    assert found["penstock_oldest_queued_seconds", *echo, "tenant=acme"] >= 0
    mine = scrape(world.client("viewer", "bolt"))
    assert {label for name in mine for label in name if label.startswith("tenant=")} == {"tenant=bolt"}
    assert "penstock_workers" not in {name[0] for name in mine}
    again = scrape(admin)
    assert again["penstock_runs_total", "definition_key=echo", "outcome=succeeded", "queue=default", "tenant=bolt"] == 1


def scrape(client: Any) -> dict[tuple[str, ...], float]:
    """Every sample, by its name and its labels."""
    return {
        (sample.name, *(f"{k}={v}" for k, v in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(client.get("/metrics").text)
        for sample in family.samples
    }


def test_retries_and_dead_letters_are_counters_that_prune_leaves_alone(world: World) -> None:
    admin, acme = world.client(), world.penstock.as_tenant("acme")
    admin.get("/metrics")
    world.penstock.define("shaky", max_attempts=2)
    world.penstock.define("chained", max_attempts=2, retry_mode="chain")
    world.penstock.queues.create("side")
    acme.enqueue("shaky", queue="side")
    acme.enqueue("chained")
    for _ in range(2):
        for each in claim.claim(world.penstock.ground, "w", 10, tenant_id=acme.jobs.tenant_id):
            world.penstock.queue.finish(each, Failed("no", delay=0))
    acme.enqueue("shaky")
    for outcome in (Snoozed(0), Canceled("shutdown", by_shutdown=True)):  # neither is a retry
        [each] = claim.claim(world.penstock.ground, "w", 10, tenant_id=acme.jobs.tenant_id)
        world.penstock.queue.finish(each, outcome)
    for _ in range(2):
        found = scrape(admin)
        for name in ("penstock_retries_total", "penstock_dead_letters_total"):
            assert found[name, "definition_key=shaky", "queue=side", "tenant=acme"] == 1
            assert found[name, "definition_key=chained", "queue=default", "tenant=acme"] == 1
            assert found[name, "definition_key=shaky", "queue=default", "tenant=acme"] == 0
        world.penstock.prune(older_than=timedelta(0), statuses=["dead_letter"])
    line = world.client("viewer").get("/api/v1/stats/timeline", params={"minutes": 10}).json()
    assert sum(point["failed"] for point in line["items"]) == 4
    assert world.penstock.doctor().clean


def test_a_due_job_is_waiting_although_no_worker_is_alive(world: World) -> None:
    acme = world.penstock.as_tenant("acme")
    world.penstock.queues.create("side")
    soon = acme.enqueue("echo", scheduled_for=datetime.now(UTC) - timedelta(hours=1), queue="side")
    acme.enqueue("echo", delay=3600)
    [tried] = claim.claim(world.penstock.ground, "w", 1, tenant_id=acme.jobs.tenant_id)
    assert tried.job_id == soon.id
    world.penstock.queue.finish(tried, Failed("no", delay=0.05))
    assert acme.jobs.get(soon.id).waits_for == "time"
    seconds = 0.0
    while seconds <= 0:  # until it is due; nobody claims
        seconds = acme.jobs.summary().oldest_queued_seconds or 0.0
    labels = ("definition_key=echo", "queue=side", "tenant=acme")
    assert scrape(world.client())["penstock_oldest_queued_seconds", *labels] >= seconds
    assert scrape(world.client())["penstock_ready_jobs", *labels] == 1
    assert world.client("viewer").get("/api/v1/jobs/summary").json()["oldest_queued_age_seconds"] >= seconds


def test_the_number_of_series_is_bounded_for_each_tenant_apart(world: World) -> None:
    metrics = Metrics(world.penstock.ground, most_tenants=100, most_lanes=3)
    metrics.render()
    acme, bolt = world.penstock.as_tenant("acme"), world.penstock.as_tenant("bolt")
    for name in ("bolts", *(f"q{number}" for number in range(10))):
        world.penstock.queues.create(name)
    for number in range(10):
        acme.enqueue_many("echo", [{}] * (number + 1), queue=f"q{number}")
    bolt.enqueue("echo", queue="bolts")
    for each in claim.claim(world.penstock.ground, "w", 56):
        world.penstock.queue.finish(each, Succeeded())
    for number in range(10):
        acme.enqueue_many("echo", [{}] * (number + 1), queue=f"q{number}")
    bolt.enqueue("echo", queue="bolts")
    for _ in range(2):
        found = {family.name: family.samples for family in text_string_to_metric_families(metrics.render().decode())}
        queued = {
            sample.labels["queue"]: sample.value
            for sample in found["penstock_jobs"]
            if sample.labels["tenant"] == "acme" and sample.labels["status"] == "queued"
        }
        assert queued == {"q9": 10, "q8": 9, "q7": 8, "other": 28}
        runs = {(s.labels["tenant"], s.labels["queue"]): s.value for s in found["penstock_runs"]}
        of_acme = [n for (tenant, _), n in runs.items() if tenant == "acme"]
        assert len(of_acme) == 4 and sum(of_acme) == 55
        assert runs["bolt", "bolts"] == 1


def test_every_metric_is_in_the_reference(world: World) -> None:
    run(world, "acme", [Succeeded(), Failed("x", fatal=True)])
    world.penstock.as_tenant("acme").enqueue("echo")
    documented = (Path(__file__).parents[2] / "docs" / "reference" / "metrics.md").read_text()
    families = list(text_string_to_metric_families(world.client().get("/metrics").text))
    assert {family.name for family in families} == {name.removesuffix("_total") for name in SERIES}
    for family in families:
        name = f"{family.name}_total" if family.type == "counter" else family.name
        assert f"| `{name}` | {family.type} |" in documented
        assert {tuple(sorted(set(sample.labels) - {"le"})) for sample in family.samples} <= {
            tuple(sorted(SERIES[name].labels))
        }


def test_a_cell_of_the_export_is_never_a_formula(world: World) -> None:
    operator = world.client("operator")
    nasty = ["=1+1", "+1", "-1", "@x", "=cmd|' /C calc'!A0", 'quo"te, comma']
    for words in nasty:
        operator.post("/api/v1/jobs", json={"definition_key": "echo", "correlation_id": words})
    answer = operator.get("/api/v1/jobs/export.csv")
    assert answer.headers["content-type"].startswith("text/csv")
    assert "attachment" in answer.headers["content-disposition"]
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert len(rows) == len(nasty)
    for row in rows:
        assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r")) for cell in row.values())
    assert {row["correlation_id"].lstrip("'") for row in rows} == set(nasty)


def test_many_jobs_are_canceled_and_retried_by_filter_after_a_count(world: World) -> None:
    operator = world.client("operator")
    for n in range(5):
        operator.post("/api/v1/jobs", json={"definition_key": "echo", "correlation_id": "a" if n < 3 else "b"})
    body: dict[str, Any] = {"filter": {"correlation_id": "a"}, "dry_run": True}
    assert operator.post("/api/v1/jobs/cancel", json=body).json()["matched"] == 3
    assert operator.get("/api/v1/jobs/summary").json()["counts"]["queued"] == 5
    done = operator.post("/api/v1/jobs/cancel", json={**body, "dry_run": False}).json()
    assert (done["matched"], done["changed"], done["remaining"]) == (3, 3, False)
    again = operator.post("/api/v1/jobs/retry", json={"filter": {"status": ["canceled"]}}).json()
    assert again["changed"] == 3
    assert operator.get("/api/v1/jobs/summary").json()["counts"] == {
        "queued": 5, "running": 0, "succeeded": 0, "failed": 0, "canceled": 0, "dead_letter": 0,
    }  # fmt: skip
    actions = [each["action"] for each in world.client("tenant_admin").get("/api/v1/audit").json()["items"]]
    assert actions.count("job.cancel.bulk") == actions.count("job.retry.bulk") == 1


def test_groups_reservations_and_queues(world: World) -> None:
    operator, admin = world.client("operator"), world.client()
    group = operator.post("/api/v1/groups", json={"jobs": [{"definition_key": "echo"}] * 2, "label": "g"})
    assert group.status_code == 201, group.text
    assert operator.get("/api/v1/groups").json()["items"][0]["label"] == "g"
    assert operator.post(f"/api/v1/groups/{group.json()['id']}/cancel").json()["status"] == "canceled"
    held = operator.post("/api/v1/reservations", json={"expires_in_seconds": 60})
    assert held.status_code == 201, held.text
    assert operator.post("/api/v1/reservations", json={}).json()["code"] == "busy"
    assert len(operator.get("/api/v1/reservations").json()["items"]) == 1
    job = operator.post("/api/v1/jobs", json={"definition_key": "echo"}).json()
    assert operator.get(f"/api/v1/jobs/{job['id']}/why").json()["reason"] == "reserved"
    assert operator.delete(f"/api/v1/reservations/{held.json()['id']}").json()["status"] == "released"
    assert admin.post("/api/v1/queues/default/pause").json() == {"name": "default", "paused": True}
    assert operator.get(f"/api/v1/jobs/{job['id']}/why").json()["reason"] == "paused"
    assert admin.post("/api/v1/queues/default/resume").json()["paused"] is False
    assert operator.post("/api/v1/jobs", json={"definition_key": "echo", "queue": "made-up"}).status_code == 422
    assert "made-up" not in {each["name"] for each in admin.get("/api/v1/queues").json()["items"]}


def test_definitions_are_applied_with_their_difference(world: World) -> None:
    admin = world.client()
    wanted = {"definitions": [{"key": "echo", "timeout_seconds": 5}, {"key": "new", "tenant": "acme"}]}
    dry = admin.post("/api/v1/admin/jobs/definitions/apply", json={**wanted, "dry_run": True}).json()
    assert [(each["key"], each["action"]) for each in dry["items"]] == [("echo", "changed"), ("new", "created")]
    assert dry["items"][0]["changes"] == [{"field": "timeout_seconds", "before": 3600, "after": 5}]
    assert world.penstock.definitions.get("echo").timeout_seconds == 3600
    for expected in (["changed", "created"], ["unchanged", "unchanged"]):
        done = admin.post("/api/v1/admin/jobs/definitions/apply", json=wanted).json()
        assert [each["action"] for each in done["items"]] == expected
    world.penstock.define("old", runner="command")
    rest = admin.post("/api/v1/admin/jobs/definitions/apply", json={**wanted, "archive_others": True}).json()
    assert [(each["key"], each["action"]) for each in rest["items"] if each["action"] == "archived"] == [
        ("old", "archived")
    ]
    keys = {each["key"] for each in world.client("viewer").get("/api/v1/definitions").json()["items"]}
    assert keys == {"echo", "new"}


def test_workers_are_listed_with_stale_ones_marked(world: World) -> None:
    worker = world.client("worker")
    worker.post("/api/v1/worker/jobs/claim", json={"worker_id": "far:1:x", "hostname": "far", "keys": ["echo"]})
    [mine] = world.client("viewer").get("/api/v1/workers").json()["items"]
    assert (mine["hostname"], mine["stale"], mine["running_count"], mine["keys"]) == ("far", False, None, None)
    assert world.client("viewer", "bolt").get("/api/v1/workers").json()["items"] == []
    [all_of_it] = world.client().get("/api/v1/workers").json()["items"]
    assert all_of_it["keys"] == ["echo"]


def test_standings_of_all_tenants_for_the_operator(world: World) -> None:
    run(world, "bolt", [Failed(str(Fatal("x")), fatal=True)])
    found = {each["slug"]: each["summary"] for each in world.client().get("/api/v1/admin/stats").json()["items"]}
    assert set(found) == {"acme", "bolt", "default"}
    assert found["bolt"]["counts"]["dead_letter"] == 1


def test_a_problem_links_to_the_page_that_explains_it(world: World) -> None:
    viewer = world.client("viewer")
    refused = viewer.get("/api/v1/jobs/01890000-0000-7000-8000-000000000000").json()
    assert refused["type"] == "/help/errors/not_found"
    page = viewer.get(refused["type"], headers={"authorization": ""})
    assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
    assert "There is nothing with this id for this tenant" in page.text and "<code>--tenant</code>" in page.text
    assert viewer.get("/help/errors/nonsense").status_code == 404
