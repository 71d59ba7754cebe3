"""Whatever fails while a run is reported, given back or taken in: the run is reported later, or left to recovery. None is
forgotten, and none is held for ever."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest
from sqlalchemy import select

from penstock import Context, Penstock
from penstock.core.nouns import Claim
from penstock.core.outcomes import Succeeded
from penstock.core.status import JobStatus
from penstock.store import failpoints
from penstock.store.tables import running
from penstock.worker.control import RunControl
from penstock.worker.flight import Flight
from penstock.worker.heartbeat import Heartbeater
from penstock.worker.reporter import Reporter
from tests.worker import conftest
from tests.worker.conftest import working

eventually = partial(conftest.eventually, seconds=60.0)
ended = partial(conftest.ended, seconds=60.0)
LEASE = 60.0


def control_of(app: Penstock, claim: Claim, reporter: Reporter, beats: Heartbeater) -> RunControl:
    return RunControl(claim, 60.0, app.ground, 0.0, reporter.touched, beats.beat)


@pytest.fixture
def held(app: Penstock) -> tuple[RunControl, Flight, Heartbeater, Reporter]:
    """One run in a worker's hands."""
    app.define("work")
    app.enqueue("work")
    [claim] = app.queue.claim("w:1", 1, lease_seconds=1.0)
    flight = Flight()
    beats, reporter = Heartbeater(app.ground, "w:1", flight, LEASE), Reporter(app.ground)
    control = control_of(app, claim, reporter, beats)
    flight.expect(1)
    flight.board([control], instead_of=1)
    return control, flight, beats, reporter


@pytest.mark.parametrize("seam", ["finish.before", "worker.before_report", "commit.before"])
@pytest.mark.parametrize("action", ["error", "timeout"])
def test_a_report_that_fails_is_made_again(app: Penstock, seam: str, action: str) -> None:
    begun, go = threading.Semaphore(0), threading.Event()

    @app.job(key="step", max_attempts=1)
    def step(ctx: Context) -> None:
        begun.release()
        assert go.wait(60)
        ctx.progress(1, 2)

    with working(app, lease=LEASE) as worker:
        jobs = [step.enqueue() for _ in range(4)]
        for _ in jobs:
            assert begun.acquire(timeout=30)
        with failpoints.armed(seam, action):
            go.set()
            eventually(lambda: not worker.flight.under_way(), what="the end of the runs")
            before = worker.pump.failures
            eventually(lambda: worker.pump.failures > before + 1 or not worker.flight.held, what="reports that fail")
        for job in jobs:
            assert ended(app, job).status is JobStatus.SUCCEEDED
        eventually(lambda: not worker.flight.held, what="empty hands")
    assert app.doctor().clean


def test_progress_that_the_database_refuses_does_not_keep_the_run_from_ending(app: Penstock) -> None:
    """Half a surrogate pair is no text; PostgreSQL says so, SQLite does not mind."""

    @app.job(key="odd", max_attempts=1)
    def odd(ctx: Context) -> str:
        ctx.progress(1, 2, "\ud800")
        return "done"

    @app.job(key="even", max_attempts=1)
    def even(ctx: Context) -> str:
        ctx.progress(1, 2, "half")
        return "done"

    jobs = [job.enqueue() for job in (odd, even, odd, even)]
    with working(app) as worker:
        assert [ended(app, job).result for job in jobs] == ["done"] * 4
        eventually(lambda: not worker.flight.held, what="empty hands")


def test_an_executor_outlives_whatever_ends_a_run(app: Penstock) -> None:
    @app.job(key="step", max_attempts=5, retry_policy={"base": 0.01})
    def step() -> str:
        return "done"

    with working(app, concurrency=1) as worker:
        with failpoints.armed("worker.after_run", "error"):
            job = step.enqueue()
            eventually(lambda: app.jobs.runs(job.id) and app.jobs.runs(job.id)[0].error, what="a run that failed")
        assert ended(app, job).result == "done"
        eventually(lambda: not worker.flight.held, what="empty hands")


def test_an_ended_run_that_cannot_be_reported_is_not_extended_for_ever(app: Penstock, held: Any) -> None:
    control, _, beats, _ = held
    before = app.jobs.get(control.claim.job_id).lease_expires_at
    control.end(Succeeded())
    beats._beat_at = 0.0
    beats.step()
    extended = app.jobs.get(control.claim.job_id).lease_expires_at
    assert extended > before, "a run that has just ended is about to be reported"
    control.ended_at -= LEASE
    beats._beat_at = 0.0
    beats.step()
    assert app.jobs.get(control.claim.job_id).lease_expires_at == extended
    assert control.abandoned


def test_artifacts_wait_until_they_are_written(app: Penstock, held: Any) -> None:
    control, _, _, reporter = held
    control.add_artifact({"name": "first"})
    control.report_progress(1, 2, "half")
    with failpoints.armed("commit.before", "error"), pytest.raises(failpoints.InjectedError):
        reporter.step()
    control.add_artifact({"name": "second"})
    reporter.step()
    reporter.touched(control)
    reporter.step()
    [run] = app.jobs.runs(control.claim.job_id)
    assert [artifact["name"] for artifact in run.artifacts] == ["first", "second"]
    assert app.jobs.get(control.claim.job_id).progress == {"done": 1, "total": 2, "message": "half"}


def test_claims_that_cannot_be_given_back_stay_and_run(app: Penstock) -> None:
    """They are out of the buffer while they are given back: where that fails, they must not be held without being run."""
    stuck, go = threading.Event(), threading.Event()

    @app.job(key="note", max_attempts=1)
    def note(i: int) -> None:
        if i == 400:
            failpoints.arm("commit.before", "error")
            stuck.set()
            assert go.wait(60)

    app.enqueue_many("note", [{"i": i} for i in range(600)])
    try:
        with working(app, concurrency=1, lease=LEASE) as worker:
            assert stuck.wait(120)
            eventually(lambda: worker.pump.failures > 1, what="failing to give back")
            failpoints.disarm()
            go.set()
            eventually(lambda: app.jobs.summary().counts[JobStatus.SUCCEEDED] == 600, what="the end of all")
            eventually(lambda: not worker.flight.held, what="empty hands")
    finally:
        failpoints.disarm()
    assert app.doctor().clean


@pytest.mark.parametrize("backend", ["postgresql"])  # on SQLite there is one writer, and a heartbeat waits for its turn
def test_a_lease_that_was_passed_by_is_neither_renewed_nor_lost(app: Penstock, held: Any) -> None:
    control, _flight, beats, _reporter = held
    beats.extend([control])
    renewed_at = control.renewed_at
    with app.db.write() as tx:
        tx.run(select(running.c.job_id).where(running.c.job_id == control.claim.job_id).with_for_update())
        beats.extend([control])
        assert control.renewed_at == renewed_at
        assert not control.lost
    beats.extend([control])
    assert control.renewed_at > renewed_at
