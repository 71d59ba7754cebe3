"""One worker, from claim to record."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time

import pytest
import structlog

from penstock import Config, Context, Fatal, InvalidInput, Penstock, Skip, Snooze
from penstock.core.status import JobStatus, RunStatus
from penstock.queue import observe
from tests.worker.conftest import ended, eventually, working


def test_runs_functions_and_records_their_results(app: Penstock) -> None:
    @app.job(key="add")
    def add(a: int, b: int = 1) -> int:
        return a + b

    @app.job(key="later")
    async def later(x: int) -> dict[str, int]:
        await asyncio.sleep(0.01)
        return {"x": x}

    with working(app):
        first, second = add.enqueue(a=2), later.enqueue(x=7)
        assert ended(app, first).result == 3
        assert ended(app, second).result == {"x": 7}
    (run,) = app.jobs.runs(first.id)
    assert run.status is RunStatus.SUCCEEDED
    assert run.worker_id.count(":") == 2 and run.pid
    assert app.doctor().clean


def test_drains_many_in_batches_and_in_order(app: Penstock) -> None:
    order: list[int] = []

    @app.job(key="note")
    def note(i: int) -> None:
        order.append(i)

    app.enqueue_many("note", [{"i": i} for i in range(1500)])
    with working(app, concurrency=1):
        eventually(lambda: app.jobs.summary().counts[JobStatus.SUCCEEDED] == 1500, what="the drain")
    assert order == list(range(1500))
    assert app.doctor().clean


def test_outcomes_become_statuses(app: Penstock) -> None:
    @app.job(key="odd", max_attempts=1)
    def odd(how: str) -> None:
        match how:
            case "skip":
                raise Skip("nothing new")
            case "fatal":
                raise Fatal("never again")
            case "fail":
                raise ValueError("broken")

    with working(app):
        skipped, fatal, failed = (odd.enqueue(how=how) for how in ("skip", "fatal", "fail"))
        assert ended(app, skipped).status is JobStatus.SUCCEEDED
        assert ended(app, fatal).status is JobStatus.DEAD_LETTER
        assert ended(app, failed).status is JobStatus.DEAD_LETTER
    assert app.jobs.runs(skipped.id)[0].status is RunStatus.SKIPPED
    assert app.jobs.get(fatal.id).last_error == "never again"
    assert "broken" in (app.jobs.runs(failed.id)[0].stderr_tail or "")


def test_a_snoozed_job_runs_again_as_soon_as_it_is_due(app: Penstock) -> None:
    tries: list[float] = []

    @app.job(key="not-yet", max_attempts=1)
    def not_yet() -> str:
        tries.append(time.monotonic())
        if len(tries) < 3:
            raise Snooze(0.1)
        return "done"

    with working(app):
        assert ended(app, not_yet.enqueue()).result == "done"
    assert all(later - sooner >= 0.1 for sooner, later in itertools.pairwise(tries))


def test_a_key_it_does_not_offer_is_left_for_others(app: Penstock) -> None:
    @app.job(key="mine")
    def mine() -> None: ...

    @app.job(key="theirs")
    def theirs() -> None: ...

    left = theirs.enqueue()
    with working(app, keys=["mine"]):
        ended(app, mine.enqueue())
    assert app.jobs.get(left.id).status is JobStatus.QUEUED
    assert app.jobs.get(left.id).attempt_no == 0
    with pytest.raises(InvalidInput, match=r"cannot run unheard-of.*mine.*theirs"):
        app.worker(keys=["unheard-of"])


def test_only_the_queues_it_is_given(app: Penstock) -> None:
    @app.job(key="work")
    def work() -> None: ...

    app.queues.create("slow")
    app.queues.create("fast")
    slow = app.enqueue("work", queue="slow")
    fast = app.enqueue("work", queue="fast")
    with working(app, queues=["fast"]):
        ended(app, fast)
    assert app.jobs.get(slow.id).status is JobStatus.QUEUED


def test_is_seen_while_it_works_and_gone_afterwards(app: Penstock) -> None:
    release = threading.Event()

    @app.job(key="hold")
    def hold() -> None:
        release.wait(200)

    job = hold.enqueue()
    with working(app, concurrency=3, keys=["hold"]) as worker:
        eventually(worker.flight.under_way)
        worker.presence.step()
        (seen,) = observe.present_workers(app.ground)
        assert seen["id"] == worker.id
        release.set()
        assert (seen["concurrency"], seen["running_count"], seen["keys"]) == (3, 1, ["hold"])
        ended(app, job)
    assert observe.present_workers(app.ground) == []


def test_wakes_up_for_a_new_job_without_polling(app: Penstock) -> None:
    @app.job(key="ping")
    def ping() -> None: ...

    with working(app) as worker:
        eventually(worker.pump.resting.is_set, what="rest")
        worker.pump._look_at = time.monotonic() + 3600  # nothing but the waker can help now
        assert ended(app, ping.enqueue()).status == "succeeded"


def test_wakes_up_for_a_job_that_is_to_run_now(app: Penstock) -> None:
    @app.job(key="later")
    def later() -> None: ...

    job = app.enqueue("later", delay=3600)
    with working(app) as worker:
        eventually(worker.pump.resting.is_set, what="rest")
        worker.pump._look_at = time.monotonic() + 3600  # nothing but the waker can help now
        app.jobs.run_now(job.id)
        assert ended(app, job).status == "succeeded"


def test_a_scheduled_job_starts_when_it_is_due(url: str) -> None:
    """The worker looks at the time of the next job, not only every so often."""
    with Penstock(url, config=Config(poll_seconds=3600)) as app:

        @app.job(key="soon")
        def soon() -> None: ...

        with working(app):
            job = app.enqueue("soon", delay=0.3)
            done = ended(app, job)
        assert done.started_at is not None
        assert done.started_at >= job.scheduled_for


def test_progress_is_kept_even_of_a_run_that_ends_at_once(app: Penstock) -> None:
    @app.job(key="count")
    def count(ctx: Context) -> None:
        for done in range(101):
            ctx.progress(done, 100, f"item {done}")

    with working(app):
        done = ended(app, count.enqueue())
    assert done.progress == {"done": 100, "total": 100, "message": "item 100"}


def test_a_changed_timeout_applies_to_the_next_claim(app: Penstock) -> None:
    @app.job(key="stuck", timeout=3600, max_attempts=1)
    def stuck(ctx: Context, wait: bool) -> None:
        while wait and not ctx.canceled():
            time.sleep(0.01)

    with working(app):
        ended(app, stuck.enqueue(wait=False))  # the worker has seen the old timeout
        app.define("stuck", timeout_seconds=1, max_attempts=1)
        job = ended(app, app.enqueue("stuck", {"wait": True}))
    (run,) = app.jobs.runs(job.id)
    assert run.status is RunStatus.TIMEOUT


def test_a_program_may_log_by_the_standard_library(app: Penstock) -> None:
    """structlog's loggers differ in how they are asked whether a level is on."""

    @app.job(key="ping")
    def ping() -> None: ...

    before = structlog.get_config()
    structlog.configure(
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        processors=[structlog.stdlib.render_to_log_kwargs],
    )
    try:
        with working(app):
            assert ended(app, ping.enqueue()).status == "succeeded"
    finally:
        structlog.configure(**before)
