"""Forgetting: by age and status, in batches, never what is active, never half of what is read as one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from penstock import Failed, InvalidInput, ManualClock, Penstock, Succeeded
from penstock.store import prune
from tests.conformance.helpers import claim, claim_one, everything, nothing_written, numbered

DAY = timedelta(days=1)


def test_only_what_ended_long_ago(app: Penstock, clock: ManualClock) -> None:
    app.define("work", timeout_seconds=3 * 86400)  # one of them runs for days
    old = numbered(app, range(3))
    for taken in claim(app, 2):
        app.queue.finish(taken, Succeeded())
    (running,) = claim(app, 1)
    clock.advance(days=2)
    app.queue.heartbeat(running)
    numbered(app, [9])
    app.queue.finish(claim_one(app), Succeeded())
    waiting = app.enqueue("work", delay=60)
    assert app.prune(DAY)["jobs"] == 2
    left = {job.id for job in app.jobs.list()}
    assert {running.job_id, waiting.id} < left and len(left) == 3
    assert old[0].id not in left
    assert app.prune(DAY)["jobs"] == 0


def test_by_status(app: Penstock, clock: ManualClock) -> None:
    numbered(app, range(3))
    first, second, third = claim(app, 3)
    app.queue.finish(first, Succeeded())
    app.queue.finish(second, Failed("no", fatal=True))
    app.queue.finish(third, Failed("no", fatal=True))
    clock.advance(days=2)
    assert app.prune(DAY, ["succeeded"])["jobs"] == 1
    assert app.prune(DAY, ["canceled"])["jobs"] == 0
    assert app.prune(DAY, ["dead_letter"])["jobs"] == 2


def test_more_than_one_batch(app: Penstock, clock: ManualClock) -> None:
    ids = app.enqueue_many("work", [{}] * 1_500)
    for _ in range(2):
        app.queue.finish_many([(taken, Succeeded()) for taken in claim(app, 1000)])
    clock.advance(days=2)
    assert app.prune(DAY)["jobs"] == len(ids)
    assert app.jobs.list() == []


@pytest.mark.parametrize("statuses", [None, ["succeeded"], ["failed"], ["failed", "succeeded"]])
def test_a_retry_chain_is_forgotten_as_one(app: Penstock, clock: ManualClock, statuses: list[str] | None) -> None:
    """Its first job must not go while its last is there, and recovery must not revive what has ended."""
    app.define("work", retry_mode="chain")
    (job,) = numbered(app, [1])
    app.queue.finish(claim_one(app), Failed("one", delay=0))
    app.queue.finish(claim_one(app), Failed("two", delay=3 * 86400.0))
    clock.advance(days=2)
    assert app.prune(DAY, statuses)["jobs"] == 0  # the chain goes on
    clock.advance(days=2)
    app.queue.finish(claim_one(app), Succeeded())
    assert app.prune(DAY, statuses)["jobs"] == 0  # it has just ended
    assert len(app.jobs.chain(job.id)) == 3
    clock.advance(days=2)
    pruned = app.prune(DAY, statuses)["jobs"]
    assert pruned == (0 if statuses == ["failed"] else 3)
    assert len(app.jobs.list()) == 3 - pruned
    assert app.recover().total == 0


def test_a_group_stays_until_all_of_it_has_ended(app: Penstock, clock: ManualClock) -> None:
    group = app.groups.create([("work", {}), ("work", {})])
    app.queue.finish(claim_one(app), Succeeded())
    clock.advance(days=2)
    assert app.prune(DAY)["jobs"] == 0
    app.queue.finish(claim_one(app), Succeeded())
    clock.advance(days=2)
    assert app.prune(DAY)["jobs"] == 2
    assert group.id not in [each.id for each in app.groups.list()]


def test_a_tenant_prunes_its_own(app: Penstock, clock: ManualClock) -> None:
    app.tenants.create("acme")
    for tenant in ("acme", "default"):
        app.enqueue("work", tenant=tenant)
    app.queue.finish_many([(taken, Succeeded()) for taken in claim(app, 2)])
    clock.advance(days=2)
    assert app.as_tenant("acme").prune(DAY) == {"jobs": 1}
    assert len(app.jobs.list()) == 1


def test_bad_requests_forget_nothing(app: Penstock, clock: ManualClock) -> None:
    numbered(app, [1])
    app.queue.finish(claim_one(app), Succeeded())
    clock.advance(days=90)
    with nothing_written(app):
        for statuses in (["queued"], ["running"], ["unheard-of"]):
            with pytest.raises(InvalidInput):
                app.prune(DAY, statuses)
        with pytest.raises(InvalidInput):
            app.prune(-DAY)
    assert app.prune()["jobs"] == 1


def test_page_by_page_through_the_jobs_of_every_tenant(
    app: Penstock, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs of every attempt go with their job, whoever's jobs lie between, and what cannot go yet keeps nothing else."""
    monkeypatch.setattr(prune, "BATCH", 3)
    app.tenants.create("acme")
    app.define("work", max_attempts=3, timeout_seconds=3 * 86400)
    for n in range(8):
        numbered(app, [n], tenant="acme" if n % 2 else "default")
    for taken in claim(app, 8):
        app.queue.finish(taken, Failed("once", delay=0))
    *taken, late = claim(app, 8)
    for each in taken:
        app.queue.finish(each, Succeeded())
    clock.advance(days=2)
    app.queue.heartbeat(late)
    app.queue.finish(late, Succeeded())
    assert app.prune(DAY)["jobs"] == 7
    left = everything(app)
    assert [len(left[name]) for name in ("penstock_jobs", "penstock_runs")] == [1, 2]
    assert app.doctor().clean


def test_what_is_young_is_not_read(app: Penstock, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids grow with time: the first page without a job from before the moment is the last."""
    monkeypatch.setattr(prune, "BATCH", 3)
    numbered(app, range(2))
    app.queue.finish_many([(taken, Succeeded()) for taken in claim(app, 2)])
    clock.advance(days=2)
    numbered(app, range(30))
    app.queue.finish_many([(taken, Succeeded()) for taken in claim(app, 30)])
    pages = []
    real = prune.finished_jobs

    def counted(tx: Any, **given: Any) -> Any:
        pages.append(given["status"])
        return real(tx, **given)

    monkeypatch.setattr(prune, "finished_jobs", counted)
    assert app.prune(DAY)["jobs"] == 2
    assert pages.count("succeeded") == 2
