"""Recovery: every row of seed 004 §4.5, planted; idempotent; only what is over or dead."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from penstock import Failed, ManualClock, Penstock, Succeeded
from penstock.core.status import JobStatus, RetryMode
from penstock.queue import recover as recovering
from penstock.store import recovery
from penstock.store.tables import dedupe, jobs, ready, running, runs, waiting
from tests.conformance.helpers import claim, claim_one, claimed_numbers, everything, execute, fetch, numbered


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
    """Its row in `running` is its run: without it the job is in no state."""
    (job,) = numbered(app, [1])
    taken = claim_one(app)
    execute(app, sa.delete(running).where(running.c.run_id == taken.run_id))
    assert [violation.check for violation in app.doctor().violations] == ["job that is in no state and has not ended"]
    assert recovering.recover(app.ground).total == 0, "a worker's start does not go through history"
    assert recover_twice(app).without_run == 1
    (run,) = app.jobs.runs(job.id)
    assert (run.status, run.attempt_no) == ("failed", 1)
    assert "crash recovery" in (run.error or "")
    retried(app, job.id, mode)
    assert app.doctor().clean


def test_a_lost_job_goes_on_with_its_attempts(app: Penstock) -> None:
    app.define("work", max_attempts=2)
    (job,) = numbered(app, [1])
    app.queue.finish(claim_one(app), Failed("no", delay=60))
    execute(app, sa.delete(waiting))
    assert recover_twice(app).without_run == 1
    assert [(run.attempt_no, run.status) for run in app.jobs.runs(job.id)] == [(1, "failed"), (2, "failed")]
    assert app.jobs.get(job.id).status is JobStatus.DEAD_LETTER
    assert app.doctor().clean


def test_a_lost_job_whose_last_run_succeeded_has_ended(app: Penstock) -> None:
    job = app.enqueue("work", dedupe_key="k")
    app.queue.finish(claim_one(app), Succeeded({"a": 1}))
    execute(app, sa.update(runs).values(job_status=None))
    assert recover_twice(app).without_run == 1
    assert app.jobs.get(job.id).status is JobStatus.SUCCEEDED
    assert app.jobs.get(job.id).result == {"a": 1}
    assert app.doctor().clean


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
    closed = sa.insert(runs).values(
        job_id=job.id, tenant_id=taken.tenant_id, attempt_no=1, max_attempts=taken.max_attempts, id=taken.run_id,
        worker_id=taken.worker_id, started_at=taken.started_at, finished_at=ended_at, status=run_status, error="why",
    )  # fmt: skip
    execute(app, closed)
    assert not app.doctor().clean
    assert recover_twice(app).finishing == 1
    (run,) = app.jobs.runs(job.id)
    assert run.status == run_status
    assert app.jobs.chain(job.id)[-1].status == job_status
    assert app.doctor().clean


def states_of(app: Penstock, job_id: Any) -> list[str]:
    return [
        table.name.removeprefix("penstock_")
        for table in (waiting, ready, running)
        if fetch(app, sa.select(table.c.job_id).where(table.c.job_id == job_id))
    ]


def copy_to(app: Penstock, target: sa.Table, source: sa.Table, job_id: Any, **values: Any) -> None:
    """Put a job into a second state, as nothing in the engine does."""
    (row,) = fetch(app, sa.select(source).where(source.c.job_id == job_id))
    carried = {name: value for name, value in row._mapping.items() if name in target.c}
    execute(app, sa.insert(target).values({**carried, **values}))


def test_an_open_run_of_a_job_that_has_ended(app: Penstock, clock: ManualClock, mode: RetryMode) -> None:
    (job,) = numbered(app, [1])
    taken = claim_one(app)
    (row,) = fetch(app, sa.select(running))
    app.queue.finish(taken, Succeeded())
    execute(app, sa.insert(running).values(dict(row._mapping)))
    assert not app.doctor().clean
    assert recover_twice(app).stray_runs == 1
    assert app.jobs.get(job.id).status is JobStatus.SUCCEEDED
    assert states_of(app, job.id) == []
    assert [run.status for run in app.jobs.runs(job.id)] == ["succeeded"]
    assert app.doctor().clean


def test_an_open_run_of_a_job_that_is_not_there(app: Penstock, clock: ManualClock) -> None:
    (job,) = numbered(app, [1])
    claim_one(app)
    execute(app, sa.delete(jobs).where(jobs.c.id == job.id))
    clock.advance(31)
    assert recover_twice(app).stray_runs == 1
    assert app.doctor().clean


def test_a_job_that_runs_and_can_be_claimed(app: Penstock) -> None:
    (job,) = numbered(app, [1])
    taken = claim_one(app)
    copy_to(app, ready, running, job.id, attempt_no=0)
    assert [violation.check for violation in app.doctor().violations] == ["job in two states at once"]
    assert recover_twice(app).second_states == 1
    assert states_of(app, job.id) == ["running"]
    app.queue.finish(taken, Succeeded())
    assert app.doctor().clean


def test_a_job_that_waits_and_can_be_claimed(app: Penstock, clock: ManualClock) -> None:
    """The careful one of the two holds: it does not start before its time."""
    (job,) = numbered(app, [1])
    copy_to(app, waiting, ready, job.id, reason="time", until=clock.now() + timedelta(minutes=1))
    assert recover_twice(app).stray_states == 1
    assert states_of(app, job.id) == ["waiting"]
    assert claim(app) == []
    clock.advance(60)
    assert claimed_numbers(app) == [1]


def test_places_of_jobs_that_have_ended_or_are_not_there(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "SCANNED", 2)
    app.tenants.create("acme")
    ended, gone, *_ = numbered(app, range(3))
    numbered(app, [8, 9], tenant="acme")
    (row,) = fetch(app, sa.select(ready).where(ready.c.job_id == ended.id))
    app.jobs.cancel(ended.id)
    execute(app, sa.insert(ready).values(dict(row._mapping)))
    execute(app, sa.delete(jobs).where(jobs.c.id == gone.id))
    assert not app.doctor().clean
    assert recover_twice(app).stray_states == 2
    assert app.doctor().clean
    assert sorted(claimed_numbers(app)) == [2, 8, 9]


def test_dedupe_keys_of_nobody_and_keys_that_were_lost(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "SCANNED", 2)
    done = app.enqueue("work", dedupe_key="done")
    app.queue.finish(claim_one(app), Succeeded())
    held = [app.enqueue("work", dedupe_key=f"held {n}") for n in range(4)]
    claim_one(app)
    execute(app, sa.delete(dedupe).where(dedupe.c.job_id.in_([held[0].id, held[3].id])))
    execute(app, sa.insert(dedupe).values(tenant_id=done.tenant_id, dedupe_key="done", job_id=done.id))
    assert len(app.doctor().violations) == 2
    assert recover_twice(app).dedupe_keys == 3
    assert app.doctor().clean
    assert app.enqueue("work", dedupe_key="done").id != done.id
    assert app.enqueue("work", dedupe_key="held 0").id == held[0].id


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
    execute(app, sa.delete(waiting).where(waiting.c.job_id == retry.id))
    execute(app, sa.delete(jobs).where(jobs.c.id == retry.id))
    assert not app.doctor().clean
    assert recover_twice(app).retries == 1
    assert [each.status for each in app.jobs.chain(job.id)] == ["failed", "queued"]
    assert claim_one(app).attempt_no == 2


def test_a_group_whose_next_member_was_never_let_go(app: Penstock) -> None:
    group = app.groups.create([("work", {"n": 1}), ("work", {"n": 2})])
    app.queue.finish(claim_one(app), Succeeded())
    execute(app, sa.update(waiting).values(reason="group", until=None, group_position=group.jobs[1].group_position))
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
