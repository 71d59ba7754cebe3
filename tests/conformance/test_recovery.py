"""Recovery: every row of seed 004 §4.5, planted; idempotent; only what is over or dead."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from penstock import Failed, ManualClock, Penstock, Succeeded
from penstock.core.status import JobStatus, RetryMode
from penstock.queue import recover as recovering
from penstock.store import recovery
from penstock.store.tables import jobs, runs
from tests.conformance.helpers import claim, claim_one, claimed_numbers, everything, execute, numbered


@pytest.fixture(params=list(RetryMode))
def mode(request: pytest.FixtureRequest, app: Penstock) -> RetryMode:
    app.define("work", retry_mode=request.param)
    return RetryMode(request.param)


def recover_twice(app: Penstock) -> Any:
    """P11: the second time finds nothing and changes nothing."""
    found = app.recover()
    after = everything(app)
    assert app.recover().total == 0
    assert everything(app) == after
    return found


def retried(app: Penstock, job_id: Any, mode: RetryMode) -> None:
    chain = app.jobs.chain(job_id)
    assert chain[-1].status is JobStatus.QUEUED
    assert chain[-1].attempt_no == 1
    assert len(chain) == (2 if mode is RetryMode.CHAIN else 1)


def test_queued_jobs_are_left_alone(app: Penstock, clock: ManualClock, mode: RetryMode) -> None:
    numbered(app, range(3))
    app.enqueue("work", {"n": 9}, delay=60)
    before = everything(app)
    clock.advance(31)
    assert app.recover().total == 0
    assert everything(app) == before
    assert claimed_numbers(app) == [0, 1, 2]


def test_running_without_a_run(app: Penstock, mode: RetryMode) -> None:
    (job,) = numbered(app, [1])
    taken = claim_one(app)
    execute(app, sa.delete(runs).where(runs.c.id == taken.run_id))
    assert not app.doctor().clean
    assert recover_twice(app).without_run == 1
    (run,) = app.jobs.runs(job.id)
    assert (run.status, run.attempt_no) == ("failed", 1)
    assert "crash recovery" in (run.error or "")
    retried(app, job.id, mode)


def test_running_with_an_open_run(app: Penstock, clock: ManualClock, mode: RetryMode) -> None:
    (job,) = numbered(app, [1])
    claim_one(app)
    assert recover_twice(app).total == 0  # its lease is good
    clock.advance(30)
    assert recover_twice(app).abandoned == 1
    (run,) = app.jobs.runs(job.id)
    assert (run.status, run.finished_at) == ("failed", clock.now())
    assert "host:1 vanished and its lease expired" in (run.error or "")
    retried(app, job.id, mode)


@pytest.mark.parametrize(
    ("run_status", "job_status"),
    [
        ("succeeded", "succeeded"), ("skipped", "succeeded"), ("canceled", "canceled"), ("failed", "queued"),
        ("timeout", "queued"),
    ],
)  # fmt: skip
def test_running_with_an_ended_run(
    app: Penstock, clock: ManualClock, mode: RetryMode, run_status: str, job_status: str
) -> None:
    (job,) = numbered(app, [1])
    taken = claim_one(app)
    ended_at = clock.advance(3)
    execute(
        app,
        sa.update(runs).where(runs.c.id == taken.run_id).values(status=run_status, finished_at=ended_at, error="why"),
    )
    assert not app.doctor().clean
    assert recover_twice(app).finishing == 1
    (run,) = app.jobs.runs(job.id)
    assert run.status == run_status
    assert app.jobs.chain(job.id)[-1].status == job_status


def test_a_run_whose_job_moved_on(app: Penstock, mode: RetryMode) -> None:
    (job,) = numbered(app, [1])
    taken = claim_one(app)
    app.queue.finish(taken, Succeeded())
    execute(app, sa.update(runs).where(runs.c.id == taken.run_id).values(status="running", finished_at=None))
    assert recover_twice(app).stray_runs == 1
    assert app.jobs.get(job.id).status is JobStatus.SUCCEEDED
    execute(app, sa.update(runs).where(runs.c.id == taken.run_id).values(status="succeeded", error=None))


def test_runs_without_a_job_are_removed(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seed 004 §5.2. They are looked for in pages, so that no statement is long however many runs there are."""
    monkeypatch.setattr(recovery, "SCANNED", 3)
    kept, lost = numbered(app, range(4)), numbered(app, range(4, 9))
    for taken in claim(app, 9):
        app.queue.finish(taken, Succeeded())
    assert recover_twice(app).orphan_runs == 0
    execute(app, sa.delete(jobs).where(jobs.c.id.in_([job.id for job in lost])))
    assert [violation.check for violation in app.doctor().violations] == ["run without a job"]
    assert recovering.recover(app.ground).total == 0, "a worker's start does not go through history"
    assert recover_twice(app).orphan_runs == 5
    assert app.doctor().clean
    assert [len(app.jobs.runs(job.id)) for job in kept] == [1] * 4


def test_a_failed_job_whose_retry_was_never_written(app: Penstock) -> None:
    app.define("work", retry_mode="chain")
    (job,) = numbered(app, [1])
    app.queue.finish(claim_one(app), Failed("no"))
    retry = app.jobs.chain(job.id)[1]
    execute(app, sa.delete(jobs).where(jobs.c.id == retry.id))
    assert not app.doctor().clean
    assert recover_twice(app).retries == 1
    assert [each.status for each in app.jobs.chain(job.id)] == ["failed", "queued"]
    assert claim_one(app).attempt_no == 2


def test_a_group_whose_next_member_was_never_let_go(app: Penstock) -> None:
    group = app.groups.create([("work", {"n": 1}), ("work", {"n": 2})])
    app.queue.finish(claim_one(app), Succeeded())
    execute(app, sa.update(jobs).where(jobs.c.id == group.jobs[1].id).values(waits_for="group"))
    assert claim(app) == []
    assert recover_twice(app).groups == 1
    assert claimed_numbers(app) == [2]


def test_the_last_attempt_goes_to_dead_letter(app: Penstock, clock: ManualClock, mode: RetryMode) -> None:
    job = app.enqueue("work", max_attempts=1)
    claim_one(app)
    clock.advance(31)
    recover_twice(app)
    assert app.jobs.get(job.id).status is JobStatus.DEAD_LETTER


def test_a_worker_known_to_be_dead_is_not_waited_for(app: Penstock) -> None:
    from penstock.queue.identity import process_identity

    host, _, boot = process_identity().split(":")
    numbered(app, [1, 2, 3])
    app.queue.claim(f"{host}:999999:{boot}", 1)
    alive = app.queue.claim(process_identity(), 1)
    elsewhere = app.queue.claim("otherhost:1:x", 1)
    assert recover_twice(app).abandoned == 1
    app.queue.heartbeat([*alive, *elsewhere])


def test_the_dead_are_found_among_many_that_live(app: Penstock) -> None:
    from penstock.queue.identity import process_identity

    host, _, boot = process_identity().split(":")
    app.enqueue_many("work", [{"n": n} for n in range(601)])
    app.queue.claim(process_identity(), 600)
    app.queue.claim(f"{host}:999999:{boot}", 1)
    assert app.recover().abandoned == 1


def test_more_than_one_batch(app: Penstock, clock: ManualClock) -> None:
    app.enqueue_many("work", [{"n": n} for n in range(1_100)])
    claim(app, 1000)
    claim(app, 100)
    clock.advance(31)
    assert recover_twice(app).abandoned == 1_100


def test_keeping_house_closes_expired_leases_only(app: Penstock, clock: ManualClock) -> None:
    numbered(app, [1, 2])
    claim(app, 1, lease_seconds=10)
    claim(app, 1, lease_seconds=100)
    clock.advance(20)
    assert recovering.keep_house(app.ground) == 1
    assert recovering.keep_house(app.ground) == 0


def test_a_job_asked_to_stop_is_not_tried_again(app: Penstock, clock: ManualClock, mode: RetryMode) -> None:
    (job,) = numbered(app, [1])
    claim_one(app)
    app.jobs.cancel(job.id)
    clock.advance(31)
    recover_twice(app)
    assert [each.status for each in app.jobs.chain(job.id)] == ["canceled"]
