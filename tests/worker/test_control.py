"""What a run says and is told: its own transaction, its lease, its reports."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from sqlalchemy import text

from penstock import Context, Failed, Penstock, Succeeded
from penstock.core.nouns import Claim
from penstock.core.outcomes import Evidence, Outcome
from penstock.core.status import JobStatus
from penstock.run.context import Control
from penstock.store import failpoints
from penstock.worker import Worker
from penstock.worker.flight import Flight
from penstock.worker.heartbeat import Guard
from tests.worker.conftest import ended, eventually, working


@pytest.fixture
def ledger(app: Penstock) -> Penstock:
    with app.db.write() as tx:
        tx.run(text("CREATE TABLE ledger (job text)"))
    return app


def entries(app: Penstock) -> int:
    with app.db.read() as tx:
        return int(tx.scalar(text("SELECT count(*) FROM ledger")))


def test_an_effect_and_its_completion_commit_together(ledger: Penstock) -> None:
    @ledger.job(key="pay", max_attempts=3, retry_policy={"base": 0.01})
    def pay(ctx: Context) -> str:
        with ctx.transaction() as conn:
            conn.execute(text("INSERT INTO ledger VALUES (:job)"), {"job": str(ctx.job_id)})
        if ctx.attempt < 3:
            raise ValueError("after the insert")
        return "paid"

    with working(ledger):
        job = pay.enqueue()
        after = ended(ledger, job)
    assert (after.status, after.result, after.attempt_no) == (JobStatus.SUCCEEDED, "paid", 3)
    assert entries(ledger) == 1
    assert ledger.doctor().clean


def test_an_effect_of_a_run_that_lost_its_lease_is_undone(ledger: Penstock) -> None:
    inside, go = threading.Event(), threading.Event()

    @ledger.job(key="pay")
    def pay(ctx: Context) -> None:
        inside.set()
        go.wait(200)
        with ctx.transaction() as conn:
            conn.execute(text("INSERT INTO ledger VALUES ('x')"))

    job = pay.enqueue()
    with working(ledger) as worker:
        assert inside.wait(120)
        (control,) = worker.flight.under_way()
        ledger.queue.finish(control.claim, Failed("taken over", fatal=True))
        go.set()
        eventually(lambda: not worker.flight.runs)
    assert ledger.jobs.get(job.id).last_error == "taken over"
    assert entries(ledger) == 0


def test_a_commit_whose_reply_is_lost_still_counts_once(ledger: Penstock) -> None:
    @ledger.job(key="pay", max_attempts=3, retry_policy={"base": 0.01})
    def pay(ctx: Context) -> None:
        with ctx.transaction() as conn:
            conn.execute(text("INSERT INTO ledger VALUES ('x')"))
            if ctx.attempt == 1:
                failpoints.arm("commit.after", "timeout")

    try:
        with working(ledger):
            job = pay.enqueue()
            eventually(lambda: failpoints._armed and entries(ledger), what="the commit")
            failpoints.disarm()
            assert ended(ledger, job).status is JobStatus.SUCCEEDED
    finally:
        failpoints.disarm()
    assert entries(ledger) == 1
    assert len(ledger.jobs.runs(job.id)) == 1


class _Says:
    """A runner that reports what it is told to."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome

    keys = frozenset({"say"})

    def run(self, claim: Claim, control: Control) -> Outcome:
        return self._outcome

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        (Failed("nul \x00 inside", evidence=Evidence(stderr_tail="and \x00 here")), "nul \ufffd inside"),
        (Failed("half \ud800 a pair"), "half ? a pair"),
        (Succeeded({"at": object()}), "could not be written"),
        (Succeeded(float("nan")), "could not be written"),
    ],
)
def test_an_outcome_that_cannot_be_written_ends_its_own_run_only(app: Penstock, outcome: Outcome, error: str) -> None:
    app.define("say", max_attempts=1)
    jobs = [app.enqueue("say") for _ in range(3)]
    worker = Worker(app.ground, [_Says(outcome)]).start()
    try:
        for job in jobs:
            after = ended(app, job)
            assert after.status is JobStatus.DEAD_LETTER
            assert error in (after.last_error or "")
    finally:
        worker.stop(grace=1)
    assert app.doctor().clean


def test_the_guard_stops_what_could_not_be_renewed_in_time(app: Penstock) -> None:
    @app.job(key="endless")
    def endless(ctx: Context) -> None:
        while not ctx.canceled():
            time.sleep(0.01)

    job = endless.enqueue()
    with working(app, lease=60) as worker:
        control = eventually(lambda: next(iter(worker.flight.under_way()), None))
        guard = Guard(worker.flight, 60, one_writer=False)
        guard.step()
        assert not control.canceled.is_set()
        control.renewed_at -= 52
        guard.step()
        assert control.canceled.is_set() and control.by_shutdown
        # Its attempt is given back, so that the next run may begin at once.
        first = eventually(lambda: next((run for run in app.jobs.runs(job.id) if run.finished_at is not None), None))
    assert "could not be renewed" in str(first.error)


def test_the_guard_spares_all_while_a_job_holds_the_one_write_lock() -> None:
    class Held:
        holds_transaction, renewed_at = True, 0.0

        def cancel(self, *_args: object, **_options: object) -> None:
            raise AssertionError("canceled")

    flight = Flight()
    flight.runs.add(Held())  # type: ignore[arg-type]
    Guard(flight, 1, one_writer=True).step()


def test_tails_and_artifacts_show_while_the_run_goes_on(app: Penstock, tmp_path: Path) -> None:
    go = threading.Event()
    made = tmp_path / "chart.png"
    made.write_bytes(b"x" * 10)

    @app.job(key="draw")
    def draw(ctx: Context) -> None:
        ctx.progress(1, 2, "half")
        ctx.artifact(made, kind="chart")
        ctx._control.report_tails("out so far", "err so far")
        go.wait(200)

    with working(app):
        job = draw.enqueue()
        try:
            eventually(lambda: (app.jobs.get(job.id).progress or {}).get("message") == "half")
            (run,) = app.jobs.runs(job.id)
            assert (run.stdout_tail, run.stderr_tail) == ("out so far", "err so far")
            assert [a["name"] for a in run.artifacts] == ["chart.png"]
        finally:
            go.set()
        ended(app, job)
    (run,) = app.jobs.runs(job.id)
    assert [(a["name"], a["size"], a["kind"]) for a in run.artifacts] == [("chart.png", 10, "chart")]


def test_a_jobs_own_heartbeat_extends_its_lease(app: Penstock) -> None:
    go, done = threading.Event(), threading.Event()

    @app.job(key="beat")
    def beat(ctx: Context) -> None:
        go.wait(200)
        ctx.heartbeat()
        done.wait(120)

    job = beat.enqueue()
    with working(app, lease=60):
        eventually(lambda: app.jobs.get(job.id).status is JobStatus.RUNNING)
        before = app.jobs.get(job.id).lease_expires_at
        assert before is not None
        time.sleep(1.1)  # it is heard at most once a second
        go.set()
        eventually(lambda: (app.jobs.get(job.id).lease_expires_at or before) > before)
        done.set()
        ended(app, job)
