"""The database goes away while runs end, and comes back: every run is reported, and the worker goes on. Nobody is killed."""

from __future__ import annotations

import asyncio
import sys
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

import penstock.pipeline as dj
from penstock import Config, Context, Job, Penstock
from penstock.core.status import JobStatus, RunStatus
from penstock.pipeline.connection import forget_connections
from penstock.pipeline.runner import populate_job
from penstock.worker import Worker
from tests.faults.conftest import eventually
from tests.support.outage import Outage, outage_of


@pytest.fixture
def outage(backend: str, tmp_path: Path) -> Iterator[Outage]:
    with outage_of(backend, tmp_path) as made:
        yield made


@pytest.fixture
def app(outage: Outage) -> Iterator[Penstock]:
    """Leases that outlive the outage: nobody else is to report or to repeat what ends in it."""
    made = Penstock(outage.url, config=Config(lease_seconds=60.0, poll_seconds=0.3, busy_timeout=0.3))
    yield made
    made.close()


class Runs:
    """Jobs that begin, and end when they are told to."""

    def __init__(self, app: Penstock) -> None:
        self.app = app
        self.begun = threading.Semaphore(0)
        self.go = threading.Event()

    def wait(self) -> None:
        self.begun.release()
        assert self.go.wait(60)

    def all_begun(self, number: int) -> None:
        for _ in range(number):
            assert self.begun.acquire(timeout=60)


@pytest.fixture
def runs(app: Penstock) -> Runs:
    return Runs(app)


@contextmanager
def working(app: Penstock, runs: Runs) -> Iterator[Worker]:
    worker = app.worker(concurrency=8).start()
    try:
        yield worker
    finally:
        runs.go.set()
        worker.stop(grace=5)


def end_without_database(worker: Worker, runs: Runs, outage: Outage, number: int) -> None:
    """All of them end while the database is away, and the worker has tried to report them."""
    runs.all_begun(number)
    outage.begin()
    try:
        runs.go.set()
        eventually(lambda: not worker.flight.under_way(), what="the end of the runs")
        before = worker.pump.failures
        eventually(lambda: worker.pump.failures > before + 1, what="a report that fails")  # one may have been under way
    finally:
        outage.end()


def assert_all_reported(app: Penstock, worker: Worker, jobs: list[Job]) -> None:
    eventually(lambda: all(app.jobs.get(job.id).finished for job in jobs), what="the report of every run")
    assert {app.jobs.get(job.id).status for job in jobs} == {JobStatus.SUCCEEDED}
    eventually(lambda: not worker.flight.held, what="a worker with empty hands")
    assert app.doctor().clean


def test_a_run_that_said_how_far_it_is_is_reported_after_an_outage(app: Penstock, runs: Runs, outage: Outage) -> None:
    """Progress is written before the report: where that failed, the whole batch was forgotten, and extended for ever."""

    @app.job(key="step", max_attempts=1)
    def step(ctx: Context, n: int) -> int:
        runs.wait()
        ctx.progress(1, 2, "half")
        return n

    jobs = [step.enqueue(n=n) for n in range(4)]
    with working(app, runs) as worker:
        end_without_database(worker, runs, outage, len(jobs))
        assert_all_reported(app, worker, jobs)
        after = [step.enqueue(n=n) for n in range(20)]
        assert_all_reported(app, worker, after)


def test_runs_of_every_kind_are_reported_after_an_outage(
    app: Penstock, runs: Runs, outage: Outage, tmp_path: Path
) -> None:
    chart = tmp_path / "chart"
    chart.write_bytes(b"x")

    @app.job(key="plain", max_attempts=1)
    def plain() -> None:
        runs.wait()

    @app.job(key="drawing", max_attempts=1)
    def drawing(ctx: Context) -> None:
        ctx.artifact(chart, kind="early")
        runs.wait()
        ctx.artifact(chart, kind="late")
        ctx._control.report_tails("said", "and warned")

    @app.job(key="beating", max_attempts=1)
    def beating(ctx: Context) -> None:
        runs.wait()
        ctx.heartbeat()

    @app.job(key="async", max_attempts=1)
    async def waiting(ctx: Context) -> None:
        await asyncio.to_thread(runs.wait)
        ctx.progress(1, 1)

    @app.job(key="failing", max_attempts=2, retry_mode="chain", retry_policy={"base": 0.01})
    def failing(ctx: Context) -> None:
        runs.wait()
        ctx.progress(1, 2)
        if ctx.attempt == 1:
            raise ValueError("once")

    app.sync_definitions()
    group = app.groups.create([("plain", {}), ("plain", {})], mode="sequential")
    first = failing.enqueue()
    jobs = [plain.enqueue(), drawing.enqueue(), beating.enqueue(), waiting.enqueue(), *group.jobs]
    with working(app, runs) as worker:
        end_without_database(worker, runs, outage, len(jobs))  # all but the second of the group
        assert_all_reported(app, worker, jobs)
        last = eventually(lambda: (chain := app.jobs.chain(first.id))[-1].finished and chain[-1], what="the retry")
        assert (last.status, last.attempt_no) == (JobStatus.SUCCEEDED, 2)
        [run] = app.jobs.runs(jobs[1].id)
        assert [artifact["kind"] for artifact in run.artifacts] == ["early", "late"]
        assert_all_reported(app, worker, [plain.enqueue() for _ in range(20)])


@pytest.mark.parametrize("when", ["before", "inside"])
def test_an_outage_costs_a_run_with_its_own_transaction_no_attempt(
    app: Penstock, runs: Runs, outage: Outage, backend: str, when: str
) -> None:
    """Its effect happens once, in the run that could be finished."""
    if when == "inside" and backend == "sqlite":
        return  # the run itself holds the one write lock: nobody else can
    with app.db.write() as tx:
        tx.run(text("CREATE TABLE ledger (job text)"))

    @app.job(key="pay", max_attempts=1)
    def pay(ctx: Context) -> int:
        if when == "before" and ctx.attempt == 1:
            runs.wait()
        with ctx.transaction() as conn:
            conn.execute(text("INSERT INTO ledger VALUES (:job)"), {"job": str(ctx.job_id)})
            if when == "inside" and ctx.attempt == 1:
                runs.wait()
        return ctx.attempt

    jobs = [pay.enqueue() for _ in range(4)]
    with working(app, runs) as worker:
        end_without_database(worker, runs, outage, len(jobs))
        assert_all_reported(app, worker, jobs)
    for job in jobs:
        first, *_, last = app.jobs.runs(job.id)
        assert first.status is RunStatus.FAILED and last.status is RunStatus.SUCCEEDED
    with app.db.read() as tx:
        assert sorted(row.job for row in tx.rows(text("SELECT job FROM ledger"))) == sorted(str(job.id) for job in jobs)


@pytest.fixture
def tables(app: Penstock, runs: Runs, outage: Outage, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module with a table that computes itself, and waits in the middle of it."""
    with dj.config.override({"database.url": outage.url}):
        schema = dj.Schema("lab")

        @schema
        class Number(dj.Manual):
            definition = "n : int"

        @schema
        class Double(dj.Computed):
            definition = """
            -> Number
            ---
            doubled : int
            """

            def make(self, key: dict[str, int]) -> None:
                if not runs.go.is_set():
                    runs.wait()
                self.insert1({**key, "doubled": 2 * key["n"]})

        Number.insert([{"n": n} for n in range(3)])
        module = types.ModuleType("outage_lab")
        module.Double = Double  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
        yield f"{module.__name__}:Double"
        forget_connections()


def test_a_populating_job_outlives_an_outage(app: Penstock, runs: Runs, outage: Outage, tables: str) -> None:
    @app.job(key="fill", max_attempts=1)
    def fill(ctx: Context) -> dict[str, Any]:
        return populate_job({"table": tables}, ctx)

    first = fill.enqueue()
    with working(app, runs) as worker:
        runs.all_begun(1)
        outage.begin()
        try:
            runs.go.set()
            eventually(
                lambda: worker.pump.failures > 1, what="a worker that sees it"
            )  # on SQLite the run itself may wait
        finally:
            outage.end()
        eventually(lambda: app.jobs.get(first.id).finished, what="the report of the run")
        assert app.jobs.get(first.id).status is JobStatus.SUCCEEDED
        eventually(lambda: not worker.flight.held, what="a worker with empty hands")
        assert_all_reported(app, worker, [fill.enqueue() for _ in range(3)])
