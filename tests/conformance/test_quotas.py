"""What the operator sets for a tenant binds by every door; what nobody has set binds nobody who uses the engine in a program."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from penstock import Failed, ManualClock, Penstock, Succeeded
from penstock.core.errors import Conflict, InvalidInput, PriorityOutOfRange, QuotaExceeded
from penstock.core.quota import QUOTAS
from penstock.queue.access import create_token, revoke_token

MIN, MAX = -(2**31), 2**31 - 1


@pytest.fixture
def acme(app: Penstock) -> Penstock:
    app.tenants.create("acme")
    return app.as_tenant("acme")


def refused(quota: str, call: Callable[[], Any]) -> QuotaExceeded:
    with pytest.raises(QuotaExceeded, match=quota) as caught:
        call()
    assert caught.value.quota == quota
    return caught.value


def test_a_program_that_sets_nothing_is_not_limited(app: Penstock, acme: Penstock) -> None:
    for bound in (app, acme):
        assert bound.enqueue("work", {}, priority=MIN).priority == MIN
        assert len(bound.enqueue_many("work", [{}] * 1500, priority=MAX)) == 1500
        for n in range(120):
            bound.triggers.on_event(f"t{n}", "go", "work", priority=MIN, dedupe_window_seconds=0)
        assert len(bound.emit("go").job_ids) == 120
        for n in range(60):
            create_token(app.ground, "viewer", f"v{n}", bound.tenant)


def test_the_queue_of_a_tenant_is_bounded_on_every_door(app: Penstock, acme: Penstock, clock: ManualClock) -> None:
    app.tenants.update("acme", quotas={"queued_jobs": 4})
    first = acme.enqueue("work", {}, dedupe_key="once")
    acme.enqueue("work", {}, delay=3600)
    refused("queued_jobs", lambda: acme.enqueue_many("work", [{}] * 3))
    refused("queued_jobs", lambda: acme.groups.create([("work", {})] * 3))
    acme.groups.create([("work", {})] * 2)
    error = refused("queued_jobs", lambda: acme.enqueue("work", {}))
    assert (error.limit, error.used) == (4, 4)
    assert acme.enqueue("work", {}, dedupe_key="once").id == first.id, "a second enqueue of a key is its first"
    trigger = acme.triggers.on_event("hears", "go", "work", dedupe_window_seconds=0)
    refused("queued_jobs", lambda: acme.emit("go"))
    assert acme.events.list() == [], "nothing of the event was written"
    refused("queued_jobs", lambda: acme.triggers.fire(trigger.id))
    app.enqueue_many("work", [{}] * 10)  # the tenant default is none of its business

    canceled = acme.jobs.cancel(first.id)
    acme.enqueue("work", {})
    refused("queued_jobs", lambda: acme.jobs.retry(canceled.id))
    (claim,) = app.queue.claim("host:1", 1)
    app.queue.finish(claim, Succeeded())
    assert acme.jobs.summary().counts
    clock.advance(seconds=10)


def test_a_job_that_runs_or_has_ended_makes_room(app: Penstock, acme: Penstock) -> None:
    app.tenants.update("acme", quotas={"queued_jobs": 1})
    acme.enqueue("work", {})
    refused("queued_jobs", lambda: acme.enqueue("work", {}))
    (claim,) = app.queue.claim("host:1", 1)
    acme.enqueue("work", {})
    app.queue.finish(claim, Failed("no", fatal=True))
    refused("queued_jobs", lambda: acme.enqueue("work", {}))


def test_a_schedule_without_room_is_skipped_with_the_reason(app: Penstock, acme: Penstock, clock: ManualClock) -> None:
    app.tenants.update("acme", quotas={"queued_jobs": 1})
    trigger = acme.triggers.schedule("each", "* * * * *", "work", overlap="allow")
    for _ in range(3):
        clock.advance(minutes=1)
        app.scheduler().step()
    told = [(tick.outcome, tick.reason) for tick in acme.triggers.ticks(trigger.id)]
    assert [outcome for outcome, _ in told] == ["skipped", "skipped", "fired"]
    assert "queued_jobs" in str(told[0][1])


def test_jobs_of_one_call_and_of_one_event(app: Penstock, acme: Penstock) -> None:
    app.tenants.update("acme", quotas={"jobs_per_request": 3, "jobs_per_event": 2})
    acme.enqueue_many("work", [{}] * 3)
    refused("jobs_per_request", lambda: acme.enqueue_many("work", [{}] * 4))
    refused("jobs_per_request", lambda: acme.groups.create([("work", {})] * 4))
    for n in range(3):
        acme.triggers.on_event(f"t{n}", "go" if n < 2 else "go.*", "work", dedupe_window_seconds=0)
    assert len(acme.emit("go").job_ids) == 2
    acme.triggers.on_event("t3", "go", "work", dedupe_window_seconds=0)
    refused("jobs_per_event", lambda: acme.emit("go"))


def test_tokens_triggers_and_webhooks(app: Penstock, acme: Penstock) -> None:
    app.tenants.update("acme", quotas={"tokens": 1, "triggers": 1, "webhooks": 1})
    principal, _ = create_token(app.ground, "viewer", "one", "acme")
    refused("tokens", lambda: create_token(app.ground, "viewer", "two", "acme"))
    revoke_token(app.ground, principal.id)
    create_token(app.ground, "viewer", "two", "acme")
    made = acme.triggers.on_event("one", "go", "work")
    acme.triggers.on_event("one", "went", "work")  # changes it
    refused("triggers", lambda: acme.triggers.schedule("two", "@daily", "work"))
    acme.triggers.delete(made.id)
    acme.triggers.schedule("two", "@daily", "work")
    acme.webhooks.create("https://example.com/")
    refused("webhooks", lambda: acme.webhooks.create("https://example.com/"))
    app.webhooks.create("https://example.com/")


@pytest.mark.parametrize("quota", ["tokens", "triggers", "webhooks"])
def test_counts_are_exact_when_many_add_at_once(app: Penstock, acme: Penstock, quota: str) -> None:
    """Eight threads, each with an app of its own, as eight processes would have."""
    app.tenants.update("acme", quotas={quota: 5})
    started, done = threading.Barrier(8), []

    def add(number: int) -> None:
        with Penstock(app.db.url.render_as_string(hide_password=False), clock=ManualClock()) as other:
            mine = other.as_tenant("acme")
            started.wait(60)
            for n in range(3):
                name = f"{number}-{n}"
                try:
                    match quota:
                        case "tokens":
                            create_token(other.ground, "viewer", name, "acme")
                        case "triggers":
                            mine.triggers.on_event(name, "go", "work")
                        case _:
                            mine.webhooks.create("https://example.com/")
                    done.append("made")
                except QuotaExceeded:
                    done.append("refused")

    threads = [threading.Thread(target=add, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (done.count("made"), done.count("refused")) == (5, 19)


def test_the_queue_is_bounded_when_many_enqueue_at_once(app: Penstock, acme: Penstock) -> None:
    """Past the quota by at most a tenth for each process but the first, and by what is written at the same moment."""
    processes, quota = 4, 100
    app.tenants.update("acme", quotas={"queued_jobs": quota})
    started = threading.Barrier(processes)

    def add() -> None:
        with Penstock(app.db.url.render_as_string(hide_password=False), clock=ManualClock()) as other:
            mine = other.as_tenant("acme")
            started.wait(60)
            for _ in range(quota):
                try:
                    mine.enqueue("work", {})
                except QuotaExceeded:
                    return

    threads = [threading.Thread(target=add) for _ in range(processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    queued = acme.jobs.summary().counts
    assert quota <= sum(queued.values()) <= quota + (processes - 1) * (quota // 10) + processes


def test_nothing_is_counted_for_a_tenant_without_a_quota(app: Penstock, acme: Penstock) -> None:
    statements: list[str] = []
    app.enqueue("work", {})
    acme.enqueue("work", {})
    sa.event.listen(app.db.engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    for bound in (app, acme):
        for _ in range(5):
            bound.enqueue("work", {})
            bound.enqueue_many("work", [{}, {}])
    counting = [each for each in statements if "count(" in each.lower() or "penstock_tenants.quotas" in each]
    assert len([each for each in counting if "count(" in each.lower()]) == 0
    assert len(counting) <= 4, "what is set is read every two seconds, not for each job"


def test_the_range_of_priorities_holds_on_every_door(app: Penstock, acme: Penstock) -> None:
    urgent = acme.enqueue("work", {}, priority=-5)
    app.tenants.update("acme", min_priority=0, max_priority=500)
    for bad in (-1, 501, MIN):
        for call in (
            lambda bad=bad: acme.enqueue("work", {}, priority=bad),
            lambda bad=bad: acme.enqueue_many("work", [{}], priority=bad),
            lambda bad=bad: acme.groups.create([("work", {})], priority=bad),
            lambda bad=bad: acme.triggers.on_event("t", "go", "work", priority=bad),
            lambda bad=bad: acme.triggers.schedule("t", "@daily", "work", priority=bad),
            lambda bad=bad: acme.define("own", priority=bad),
        ):
            with pytest.raises(PriorityOutOfRange, match="from 0 to 500"):
                call()
    assert acme.triggers.list() == [] and len(acme.jobs.list()) == 1
    job = acme.enqueue("work", {}, priority=0)
    trigger = acme.triggers.on_event("t", "go", "work", priority=500)
    for refuse in (
        lambda: acme.jobs.update(job.id, priority=-1),
        lambda: acme.jobs.move(job.id, before=urgent.id),
        lambda: acme.triggers.update(trigger.id, priority=501),
    ):
        with pytest.raises(PriorityOutOfRange):
            refuse()
    assert acme.jobs.update(job.id, priority=7).priority == 7
    assert app.enqueue("work", {}, priority=MIN).priority == MIN, "the operator's own tenant has no range"


def test_triggers_outside_a_lowered_range_are_clamped_not_lost(
    app: Penstock, acme: Penstock, clock: ManualClock
) -> None:
    app.define("urgent", priority=-7)
    scheduled = acme.triggers.schedule("each", "* * * * *", "work", priority=-100)
    heard = acme.triggers.on_event("hears", "go", "work", priority=900, dedupe_window_seconds=0)
    acme.triggers.on_event("operators", "go", "urgent", dedupe_window_seconds=0)
    app.tenants.update("acme", min_priority=10, max_priority=20)
    clock.advance(minutes=1)
    app.scheduler().step()
    assert [job.priority for job in acme.jobs.list(key="work")] == [10]
    acme.emit("go")
    by_key = {job.definition_key: job.priority for job in acme.jobs.list(source="event")}
    assert by_key == {"work": 20, "urgent": -7}, "what the operator chose for all tenants stays"
    assert acme.triggers.fire(scheduled.id).priority == 10
    assert acme.triggers.get(heard.id).priority == 900, "the trigger itself is as it was"
    acme.triggers.update(heard.id, enabled=False)  # a change of something else is not refused for it


def test_what_is_set_can_be_seen_changed_and_forgotten(app: Penstock, acme: Penstock) -> None:
    app.tenants.update("acme", quotas={"tokens": 5, "triggers": None, "webhooks": "unlimited"}, max_priority=100)
    found = app.tenants.get("acme")
    assert dict(found.quotas) == {"tokens": 5, "triggers": None, "webhooks": None}
    assert (found.min_priority, found.max_priority) == (None, 100)
    app.tenants.update("acme", quotas={"tokens": "default"}, max_priority=None)
    assert dict(app.tenants.get("acme").quotas) == {"triggers": None, "webhooks": None}
    made = app.tenants.create("bolt", quotas=dict.fromkeys(QUOTAS, 1), min_priority=5, max_priority=5)
    assert set(made.quotas) == set(QUOTAS)
    for bad in (
        {"quotas": {"tokens": -1}}, {"quotas": {"tokns": 1}}, {"quotas": {"tokens": "many"}}, {"quotas": [1]},
        {"quotas": {"tokens": True}}, {"min_priority": 6}, {"max_priority": 2**31}, {"min_priority": "1"},
    ):  # fmt: skip
        with pytest.raises(InvalidInput):
            app.tenants.update("bolt", **bad)  # type: ignore[arg-type]
    assert app.tenants.get("bolt") == made
    with pytest.raises(Conflict):
        app.tenants.create("bolt")
