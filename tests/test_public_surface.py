"""The names users and checks rely on (DESIGN, "The public surface"): exported, callable, with these parameters."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import penstock
from penstock import ManualClock, Penstock

EXPORTED = {
    "ApiError", "AsyncClient", "Busy", "Canceled", "Claim", "Client", "Config", "Conflict", "Context", "DatabaseError", "Definition", "DefinitionArchived",
    "Failed", "Fatal", "Group", "Health", "IllegalTransition", "InvalidInput", "InvalidPayload", "Job", "KeyMissing", "KeyRing", "LeaseLost",
    "ManualClock", "NaiveDatetime", "NotFound", "Penstock", "PenstockError", "Reservation", "Run", "Skip", "Skipped",
    "Snooze", "Snoozed", "Succeeded", "Tenant", "TimedOut", "UnknownDefinition", "UnknownTenant", "Why",
}  # fmt: skip


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Penstock]:
    path = tmp_path_factory.mktemp("surface") / "jobs.db"
    with Penstock(f"sqlite:///{path}", clock=ManualClock()) as made:
        yield made


def test_exactly_the_promised_names_are_exported() -> None:
    assert set(penstock.__all__) == EXPORTED
    for name in EXPORTED:
        assert inspect.getdoc(getattr(penstock, name)), f"{name} has no docstring"
    assert penstock.__version__


PARAMETERS: list[tuple[str, set[str]]] = [
    ("job", {"key", "timeout"}),
    ("enqueue", {"key", "params", "tenant", "connection"}),
    ("enqueue_many", {"key", "many", "tenant", "connection"}),
    ("define", {"key"}),
    ("archive", {"key"}),
    ("pause", {"key"}),
    ("resume", {"key"}),
    ("tenants.create", {"slug", "name", "timezone", "weight", "max_running"}),
    ("as_tenant", {"slug"}),
    ("jobs.get", {"id"}),
    ("jobs.list", {"status", "source", "limit", "offset", "created_after", "created_before"}),
    ("jobs.summary", set()),
    ("jobs.runs", {"id"}),
    ("jobs.why", {"id"}),
    ("jobs.cancel", {"id"}),
    ("jobs.retry", {"id"}),
    ("jobs.run_now", {"id"}),
    ("jobs.update", {"id", "params", "priority", "scheduled_for"}),
    ("jobs.move", {"id", "before", "after", "to"}),
    ("groups.create", {"jobs", "mode", "on_failure"}),
    ("groups.get", {"id"}),
    ("groups.cancel", {"id"}),
    ("reserve", {"wait", "expires_in"}),
    ("triggers.schedule", {"params", "timezone"}),
    ("triggers.on_event", set()),
    ("triggers.fire", set()),
    ("triggers.preview", {"n", "after"}),
    ("emit", {"connection"}),
    ("worker", set()),
    ("recover", set()),
    ("doctor", set()),
    ("prune", set()),
    ("queue.claim", {"worker", "limit"}),
    ("queue.heartbeat", {"claims"}),
    ("queue.finish", {"claim", "outcome"}),
    ("queues.pause", {"name"}),
    ("queues.resume", {"name"}),
]


@pytest.mark.parametrize(("path", "parameters"), PARAMETERS, ids=[path for path, _ in PARAMETERS])
def test_the_surface_is_as_designed(app: Penstock, path: str, parameters: set[str]) -> None:
    found: Any = app
    for name in path.split("."):
        found = getattr(found, name)
    assert callable(found)
    assert parameters <= set(inspect.signature(found).parameters)


def test_the_designs_own_example(app: Penstock) -> None:
    @app.job(key="resize", max_attempts=3, timeout=60)
    def resize(image_id: int, width: int = 800) -> dict[str, int]:
        return {"image_id": image_id, "width": width}

    job = resize.enqueue(image_id=7)
    app.tenants.create("acme", name="Acme", timezone="UTC", weight=1, max_running=None)
    app.enqueue("resize", {"image_id": 7}, tenant="acme", priority=10, dedupe_key="d", correlation_id="c")
    assert len(app.enqueue_many("resize", [{"image_id": i} for i in range(10)])) == 10
    app.define(
        "sync-dropbox", runner="command", arg_schema={}, default_params={}, timeout_seconds=3600, max_attempts=3,
        retry_mode="chain",
    )  # fmt: skip
    app.archive("sync-dropbox")
    claims = app.queue.claim(worker="host:1", limit=10)
    assert [each.tenant_slug for each in claims[:2]] == ["acme", "default"]  # the lower number goes first
    assert app.queue.heartbeat(claims) == []
    app.queue.finish(claims[1], penstock.Succeeded(resize(**claims[1].params)))
    assert app.jobs.get(job.id).result == {"image_id": 7, "width": 800}
    assert app.doctor().clean
