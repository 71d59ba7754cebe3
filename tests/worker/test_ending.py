"""How a worker ends, and what becomes of what it held."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace

import pytest

from penstock import Context, InvalidInput, Penstock
from penstock.core.status import JobStatus, RunStatus
from tests.worker.conftest import ended, eventually, working


def test_running_work_may_end_within_the_grace(app: Penstock) -> None:
    go = threading.Event()

    @app.job(key="slow")
    def slow() -> str:
        go.wait(200)
        return "done"

    job = slow.enqueue()
    worker = app.worker().start()
    eventually(worker.flight.under_way)
    threading.Timer(0.2, go.set).start()
    worker.stop(grace=10)
    assert app.jobs.get(job.id).result == "done"


def test_what_does_not_end_is_canceled_by_shutdown_and_costs_no_attempt(app: Penstock) -> None:
    @app.job(key="endless", max_attempts=1)
    def endless(ctx: Context) -> None:
        while not ctx.canceled():
            time.sleep(0.01)

    job = endless.enqueue()
    worker = app.worker().start()
    eventually(worker.flight.under_way)
    worker.stop(grace=0.1)
    after = app.jobs.get(job.id)
    assert (after.status, after.attempt_no, after.max_attempts) == (JobStatus.QUEUED, 1, 2)
    (run,) = app.jobs.runs(job.id)
    assert (run.status, run.error) == (RunStatus.CANCELED, "the worker was shut down")
    assert app.doctor().clean


def test_within_the_grace_a_run_is_told_before_its_end(app: Penstock) -> None:
    """So that a run that takes a second or two to stop has them, and the worker is gone when its grace is over."""
    told: list[float] = []
    stopping = 0.0

    @app.job(key="endless")
    def endless(ctx: Context) -> None:
        while not ctx.canceled():
            time.sleep(0.01)
        told.append(time.monotonic() - stopping)

    endless.enqueue()
    worker = app.worker().start()
    eventually(worker.flight.under_way)
    stopping = time.monotonic()
    worker.stop(grace=4)
    assert told and told[0] >= 3.0, "it was told too early"
    assert len(app.jobs.runs(app.jobs.list()[0].id)) == 1


def test_a_stop_waits_for_nothing_longer_than_it_says(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The grace, a second for what was told to stop, three for the reports: no wait is beyond these."""
    go, waits = threading.Event(), []

    @app.job(key="deaf")
    def deaf() -> None:
        go.wait(60)

    deaf.enqueue()
    worker = app.worker(concurrency=1).start()
    eventually(worker.flight.under_way)
    real = worker._wait_for_runs

    def noted(seconds: float, hurry: bool = True) -> None:
        waits.append(seconds)
        real(seconds, hurry)

    monkeypatch.setattr(worker, "_wait_for_runs", noted)
    try:
        worker.stop(grace=0.4)
    finally:
        go.set()
    assert sum(waits) == pytest.approx(1.4)


def test_a_job_that_never_looks_is_left_behind_but_not_left_running(app: Penstock) -> None:
    app.ground.config = replace(app.config, stop_seconds=0.3)
    go = threading.Event()

    @app.job(key="deaf")
    def deaf() -> None:
        go.wait(200)

    job = deaf.enqueue()
    worker = app.worker(concurrency=1).start()
    eventually(worker.flight.under_way)
    worker.stop(grace=0)
    try:
        assert app.jobs.get(job.id).status is JobStatus.QUEUED
        assert app.jobs.runs(job.id)[0].status is RunStatus.CANCELED
    finally:
        go.set()


def test_unstarted_claims_go_back_untouched_and_in_order(app: Penstock) -> None:
    quick, hold = threading.Event(), threading.Event()
    order: list[int] = []
    buffered: list[int] = []

    @app.job(key="note")
    def note(i: int) -> None:
        buffered.append(worker.flight.held)
        if i >= 400:
            quick.set()
            hold.wait(60)
        order.append(i)

    ids = app.enqueue_many("note", [{"i": i} for i in range(1000)])
    worker = app.worker(concurrency=1, lease=60)
    worker.start()
    assert quick.wait(60)
    assert max(buffered) > 1, "there was never a buffer"
    stopping = threading.Thread(target=worker.stop, args=(60,))
    stopping.start()
    eventually(lambda: app.jobs.summary().running == 1, what="that the worker gives back what it has not started")
    hold.set()
    stopping.join(60)
    after = {job.id: job for job in app.jobs.list(limit=1000)}
    done = [after[i].status is JobStatus.SUCCEEDED for i in ids]
    assert done == sorted(done, reverse=True), "claims were given back out of order"
    returned = [after[i] for i in ids if after[i].status is JobStatus.QUEUED]
    assert len(returned) == 1000 - len(order) > 0
    assert all(job.attempt_no == 0 and job.started_at is None for job in returned)
    assert app.doctor().clean
    with working(app, concurrency=1, lease=60):
        eventually(lambda: app.jobs.summary().queued == app.jobs.summary().running == 0)
    assert order == list(range(1000)), "a restart did not resume in order"


def test_a_full_buffer_behind_a_long_job_is_given_back(app: Penstock) -> None:
    stuck, hold = threading.Event(), threading.Event()

    @app.job(key="note")
    def note(i: int) -> None:
        if i == 400:
            stuck.set()
            hold.wait(60)

    app.enqueue_many("note", [{"i": i} for i in range(600)])
    with working(app, concurrency=1):
        assert stuck.wait(60)
        eventually(lambda: app.jobs.summary().running == 1, what="giving the buffer back")
        assert app.jobs.summary().queued > 0
        hold.set()
        eventually(lambda: app.jobs.summary().queued == app.jobs.summary().running == 0)
    assert app.doctor().clean


def test_a_canceled_job_is_told_within_about_a_second(app: Penstock) -> None:
    @app.job(key="endless")
    def endless(ctx: Context) -> None:
        while not ctx.canceled():
            time.sleep(0.01)

    with working(app, lease=60):
        job = endless.enqueue()
        eventually(lambda: app.jobs.get(job.id).status is JobStatus.RUNNING)
        app.jobs.cancel(job.id)
        after = ended(app, job)
    assert after.status is JobStatus.CANCELED
    assert app.jobs.runs(job.id)[0].status is RunStatus.CANCELED


def test_a_worker_starts_once(app: Penstock) -> None:
    worker = app.worker().start()
    worker.stop()
    with pytest.raises(InvalidInput, match="started before"):
        worker.start()


def test_a_signal_for_which_the_program_has_a_handler_stays_the_programs(app: Penstock) -> None:
    heard: list[int] = []

    @app.job(key="terminate")
    def terminate() -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    def stop(number: int, _frame: object) -> None:
        heard.append(number)
        worker.ask_to_stop()

    terminate.enqueue()
    worker = app.worker(concurrency=1)
    before = signal.signal(signal.SIGTERM, stop)
    try:
        worker.run()
        assert signal.getsignal(signal.SIGTERM) is stop
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == [signal.SIGTERM]


def test_a_worker_can_leave_all_signals_alone(app: Penstock) -> None:
    found: list[object] = []

    @app.job(key="look")
    def look() -> None:
        found.extend(signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT))
        worker.ask_to_stop()

    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    look.enqueue()
    worker = app.worker(concurrency=1)
    worker.run(handle_signals=False)
    assert found == before
