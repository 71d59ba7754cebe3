"""Finishing: every outcome, in both retry modes, fenced; and finish-and-claim in one commit."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa

from penstock import (
    Canceled,
    Failed,
    IllegalTransition,
    InvalidPayload,
    LeaseLost,
    ManualClock,
    Penstock,
    Skipped,
    Snoozed,
    Succeeded,
    TimedOut,
)  # fmt: skip
from penstock.core.outcomes import Evidence, Outcome
from penstock.core.status import JobStatus, RetryMode, RunStatus
from penstock.core.webhook import DELIVERY_KEY
from penstock.queue import claim as claiming
from penstock.queue.record import report_of
from penstock.store import claims
from penstock.store.tables import runs, tallies
from tests.conformance.helpers import WORKER, claim, claim_one, execute, fetch, nothing_written, numbered

MODES = [RetryMode.REQUEUE, RetryMode.CHAIN]


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest, app: Penstock) -> RetryMode:
    app.define("work", retry_mode=request.param)
    return RetryMode(request.param)


ENDINGS: list[tuple[Outcome, RunStatus, JobStatus]] = [
    (Succeeded({"rows": 3}), RunStatus.SUCCEEDED, JobStatus.SUCCEEDED),
    (Succeeded(), RunStatus.SUCCEEDED, JobStatus.SUCCEEDED),
    (Skipped("nothing new"), RunStatus.SKIPPED, JobStatus.SUCCEEDED),
    (Failed("bad data", fatal=True), RunStatus.FAILED, JobStatus.DEAD_LETTER),
    (Canceled("stopped"), RunStatus.CANCELED, JobStatus.CANCELED),
]


@pytest.mark.parametrize(("outcome", "run_status", "job_status"), ENDINGS, ids=lambda value: str(value)[:20])
def test_outcomes_that_end_the_job(
    app: Penstock, clock: ManualClock, mode: RetryMode, outcome: Outcome, run_status: RunStatus, job_status: JobStatus
) -> None:
    (job,) = numbered(app, [1])
    taken = claim_one(app)
    clock.advance(2)
    app.queue.finish(taken, outcome)
    ended = app.jobs.get(job.id)
    (run,) = app.jobs.runs(job.id)
    assert (ended.status, run.status) == (job_status, run_status)
    assert ended.finished_at == run.finished_at == clock.now()
    assert (ended.started_at, ended.lease_expires_at, ended.claimable) == (taken.started_at, None, False)
    assert ended.result == (outcome.result if isinstance(outcome, Succeeded) else None)
    assert ended.last_error == run.error
    assert claim(app) == []
    assert len(app.jobs.list()) == 1


RETRIED: list[tuple[Outcome, RunStatus, float]] = [
    (Failed("oops"), RunStatus.FAILED, 10),
    (Failed("oops", delay=3), RunStatus.FAILED, 3),
    (TimedOut(), RunStatus.TIMEOUT, 10),
    (Canceled("worker stops", by_shutdown=True), RunStatus.CANCELED, 0),
    (Failed("no process", blameless=True), RunStatus.FAILED, 10),
    (Failed("no process", blameless=True, delay=3), RunStatus.FAILED, 3),
    (Snoozed(7, "later"), RunStatus.SKIPPED, 7),
]


@pytest.mark.parametrize(("outcome", "run_status", "delay"), RETRIED, ids=lambda value: str(value)[:20])
def test_outcomes_that_are_tried_again(
    app: Penstock, clock: ManualClock, mode: RetryMode, outcome: Outcome, run_status: RunStatus, delay: float
) -> None:
    job = app.enqueue("work", {"n": 1}, dedupe_key="k", correlation_id="c", priority=4)
    app.queue.finish(claim_one(app), outcome)
    first = app.jobs.get(job.id)
    assert [run.status for run in app.jobs.runs(job.id)] == [run_status]
    again = app.jobs.chain(job.id)[-1]
    if mode is RetryMode.CHAIN:
        assert (first.status, again.retry_of, again.root_id) == (JobStatus.FAILED, job.id, job.id)
        assert app.jobs.runs(again.id) == []
    else:
        assert again.id == job.id
    assert (again.status, again.waits_for) == (JobStatus.QUEUED, "time")
    assert again.scheduled_for == clock.now() + timedelta(seconds=delay)
    assert (again.priority, again.params, again.dedupe_key, again.correlation_id) == (4, {"n": 1}, "k", "c")
    assert again.attempt_no == 1
    free = isinstance(outcome, Snoozed | Canceled) or (isinstance(outcome, Failed) and outcome.blameless)
    assert again.max_attempts == (4 if free else 3)
    if delay:
        clock.advance(delay - 0.001)
        assert claim(app) == []
        clock.advance(0.001)
    second = claim_one(app)
    assert (second.job_id, second.attempt_no) == (again.id, 2)
    assert app.jobs.get(again.id).scheduled_for == again.scheduled_for, "when this attempt was due"
    app.queue.finish(second, Succeeded("done"))
    assert app.jobs.get(again.id).result == "done"


def test_attempts_end_in_dead_letter(app: Penstock, clock: ManualClock, mode: RetryMode) -> None:
    (job,) = numbered(app, [1])
    for attempt in (1, 2, 3):
        taken = claim_one(app)
        assert taken.attempt_no == attempt
        app.queue.finish(taken, Failed(f"no {attempt}"))
        clock.advance(3600)
    assert claim(app) == []
    chain = app.jobs.chain(job.id)
    dead = chain[-1]
    assert (dead.status, dead.attempt_no, dead.last_error) == (JobStatus.DEAD_LETTER, 3, "no 3")
    if mode is RetryMode.CHAIN:
        assert [each.status for each in chain] == ["failed", "failed", "dead_letter"]
        assert [each.retry_of for each in chain] == [None, chain[0].id, chain[1].id]
        assert [[run.attempt_no for run in app.jobs.runs(each.id)] for each in chain] == [[1], [2], [3]]
    else:
        assert [run.error for run in app.jobs.runs(job.id)] == ["no 1", "no 2", "no 3"]


def test_backoff_grows(app: Penstock, clock: ManualClock) -> None:
    app.enqueue("work", max_attempts=5)
    waits = []
    for _ in range(4):
        taken = claim_one(app)
        app.queue.finish(taken, Failed("no"))
        waits.append((app.jobs.get(taken.job_id).scheduled_for - clock.now()).total_seconds())
        clock.advance(10_000)
    assert waits == [10, 20, 40, 80]


@pytest.mark.parametrize(
    ("outcome", "run_status", "job_status"),
    [
        (Failed("no"), RunStatus.FAILED, JobStatus.CANCELED),
        (TimedOut(), RunStatus.TIMEOUT, JobStatus.CANCELED),
        (Failed("no", fatal=True), RunStatus.FAILED, JobStatus.CANCELED),
        (Snoozed(5), RunStatus.CANCELED, JobStatus.CANCELED),
        (Canceled("as asked"), RunStatus.CANCELED, JobStatus.CANCELED),
        (Canceled("stop", by_shutdown=True), RunStatus.CANCELED, JobStatus.CANCELED),
        (Succeeded(1), RunStatus.SUCCEEDED, JobStatus.SUCCEEDED),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_cancel_request_means_no_retry(
    app: Penstock, outcome: Outcome, run_status: RunStatus, job_status: JobStatus
) -> None:
    (job,) = numbered(app, [1])
    taken = claim_one(app)
    app.jobs.cancel(job.id)
    app.queue.finish(taken, outcome)
    assert app.jobs.get(job.id).status is job_status
    assert [run.status for run in app.jobs.runs(job.id)] == [run_status]


def test_what_a_run_leaves_behind(app: Penstock) -> None:
    numbered(app, [1])
    taken = claim_one(app)
    left = Evidence(
        exit_code=3, stdout_tail="out é", stderr_tail="err", artifacts=[{"path": "a.csv", "bytes": 3}], log_path="x.log"
    )
    app.queue.finish(taken, Failed("exit 3", fatal=True, evidence=left))
    (run,) = app.jobs.runs(taken.job_id)
    assert (run.exit_code, run.stdout_tail, run.stderr_tail, run.log_path) == (3, "out é", "err", "x.log")
    assert run.artifacts == ({"path": "a.csv", "bytes": 3},)
    with app.db.write() as tx:
        assert claims.append_artifacts(tx, taken.job_id, taken.run_id, [{"path": "b.csv"}])
    assert [each["path"] for each in app.jobs.runs(taken.job_id)[0].artifacts] == ["a.csv", "b.csv"]


def test_progress_and_tails_only_while_it_is_ours(app: Penstock) -> None:
    numbered(app, [1])
    taken = claim_one(app)
    with app.db.write() as tx:
        assert claims.report_progress(tx, taken.job_id, taken.run_id, {"done": 1, "of": 2})
        assert claims.report_tails(tx, taken.job_id, taken.run_id, "hello", None)
    assert app.jobs.get(taken.job_id).progress == {"done": 1, "of": 2}
    assert app.jobs.runs(taken.job_id)[0].stdout_tail == "hello"
    app.queue.finish(taken, Succeeded())
    assert app.jobs.runs(taken.job_id)[0].stdout_tail == "hello"
    with nothing_written(app), app.db.write() as tx:
        assert not claims.report_progress(tx, taken.job_id, taken.run_id, {"done": 2})
        assert not claims.report_tails(tx, taken.job_id, taken.run_id, "late", None)


@pytest.mark.parametrize(
    "error", ["a\0b", "half \ud83d pair", "\0", "x" * 200_000], ids=["nul", "surrogate", "only nul", "long"]
)
def test_whatever_a_job_says_can_be_stored(app: Penstock, error: str) -> None:
    """A job's words must never keep its run from being closed."""
    (job,) = numbered(app, [1])
    left = Evidence(stdout_tail=error, stderr_tail=error, artifacts=[{"name": error}], log_path="l\0g")
    app.queue.finish(claim_one(app), Failed(error, fatal=True, evidence=left))
    ended = app.jobs.get(job.id)
    assert ended.status is JobStatus.DEAD_LETTER
    assert ended.last_error and "\0" not in ended.last_error


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -5.0, 1e300])
@pytest.mark.parametrize("kind", ["snooze", "delay"])
def test_no_delay_keeps_a_run_from_being_closed(app: Penstock, clock: ManualClock, seconds: float, kind: str) -> None:
    (job,) = numbered(app, [1])
    app.queue.finish(claim_one(app), Snoozed(seconds) if kind == "snooze" else Failed("no", delay=seconds))
    again = app.jobs.get(job.id)
    assert again.status is JobStatus.QUEUED
    assert clock.now() <= again.scheduled_for <= clock.now() + timedelta(days=365)


class TestFence:
    """P3: a run already closed, or whose lease passed on, changes nothing."""

    @pytest.mark.parametrize("late", [Succeeded(2), Failed("late"), Snoozed(1), Canceled(), Skipped(), TimedOut()])
    def test_a_late_report_changes_nothing(self, app: Penstock, clock: ManualClock, late: Outcome) -> None:
        numbered(app, [1])
        taken = claim_one(app)
        app.queue.finish(taken, Succeeded(1))
        clock.advance(1)
        with nothing_written(app), pytest.raises(LeaseLost) as lost:
            app.queue.finish(taken, late)
        assert lost.value.run_ids == (taken.run_id,)

    @pytest.mark.parametrize("late", [Succeeded(2), Failed("late")])
    def test_a_zombie_cannot_touch_the_next_run(self, app: Penstock, clock: ManualClock, late: Outcome) -> None:
        numbered(app, [1])
        zombie = claim_one(app)
        clock.advance(31)
        app.recover()
        clock.advance(5)
        fresh = claim_one(app)
        assert fresh.job_id == zombie.job_id
        with nothing_written(app), pytest.raises(LeaseLost):
            app.queue.finish(zombie, late)
        app.queue.finish(fresh, Succeeded("fresh"))
        assert app.jobs.get(fresh.job_id).result == "fresh"
        assert [run.status for run in app.jobs.runs(fresh.job_id)] == ["failed", "succeeded"]

    def test_an_expired_lease_that_nobody_took_may_still_finish(self, app: Penstock, clock: ManualClock) -> None:
        numbered(app, [1])
        taken = claim_one(app)
        clock.advance(3600)
        app.queue.finish(taken, Succeeded())
        assert app.jobs.get(taken.job_id).status is JobStatus.SUCCEEDED

    def test_a_batch_names_those_lost_and_keeps_the_rest(self, app: Penstock) -> None:
        numbered(app, range(4))
        taken = claim(app, 4)
        app.queue.finish(taken[1], Succeeded())
        outcomes: list[Outcome] = [Succeeded(0), Succeeded(1), Failed("no"), Skipped()]
        assert app.queue.finish_many(list(zip(taken, outcomes, strict=True))) == {taken[1].run_id}
        assert [str(app.jobs.get(each.job_id).status) for each in taken] == [
            "succeeded", "succeeded", "queued", "succeeded",
        ]  # fmt: skip
        assert app.queue.finish_many([]) == set()

    def test_one_run_twice_in_a_batch_counts_once(self, app: Penstock) -> None:
        numbered(app, [1])
        taken = claim_one(app)
        app.queue.finish_many([(taken, Succeeded(1)), (taken, Succeeded(1))])
        assert app.jobs.get(taken.job_id).result == 1
        found = fetch(app, sa.select(sa.func.sum(tallies.c.n)).where(tallies.c.measure == "succeeded"))
        assert found[0][0] == 1


def test_finish_and_claim_in_one_commit(app: Penstock) -> None:
    numbered(app, range(4))
    first, second = claim(app, 2)
    app.queue.finish(second, Succeeded())
    lost: set[Any] = set()
    reports = [report_of(first, Succeeded("one")), report_of(second, Succeeded("two"))]
    taken = claiming.claim(app.ground, WORKER, 5, reports=reports, lost=lost)
    assert [each.params["n"] for each in taken] == [2, 3]
    assert lost == {second.run_id}
    assert app.jobs.get(first.job_id).result == "one"


def test_a_batch_of_successes_that_touch_nobody_of_members_of_a_group_and_of_one_that_was_lost(app: Penstock) -> None:
    """What nothing follows from is written on a shorter way; each must find its own."""
    plain = numbered(app, range(3))
    group = app.groups.create([("work", {"n": n}) for n in (3, 4)], mode="sequential")
    taken = claim(app, 4)
    assert [each.params["n"] for each in taken] == [0, 1, 2, 3]
    app.queue.finish(taken[2], Succeeded())
    lost = app.queue.finish_many([(each, Succeeded(each.params["n"])) for each in taken])
    assert lost == {taken[2].run_id}
    assert [app.jobs.get(job.id).result for job in plain] == [0, 1, None]
    assert claim_one(app).params["n"] == 4
    assert app.groups.get(group.id).status == "running"


def test_a_success_of_which_a_webhook_is_to_know_is_told(app: Penstock) -> None:
    app.webhooks.create("https://example.com/", ["job.run.completed"])
    numbered(app, [1])
    app.queue.finish(claim_one(app), Succeeded())
    assert [job.definition_key for job in app.jobs.list(("queued",))] == [DELIVERY_KEY]


@pytest.mark.parametrize("hindrance", [None, "group", "webhook", "lost"])
def test_a_success_is_closed_whomever_it_touches_and_only_if_it_is_ours(app: Penstock, hindrance: str | None) -> None:
    if hindrance == "group":
        app.groups.create([("work", {})], mode="parallel")
    else:
        numbered(app, [1])
    if hindrance == "webhook":
        app.webhooks.create("https://example.com/")
    taken = claim_one(app)
    run_id = uuid4() if hindrance == "lost" else taken.run_id
    lost = app.queue.finish_many([(taken._replace(run_id=run_id), Succeeded({"n": 1}))])
    assert lost == ({run_id} if hindrance == "lost" else set())
    assert app.jobs.get(taken.job_id).result == (None if hindrance == "lost" else {"n": 1})


def test_a_result_that_is_not_json_is_refused_and_the_run_stays_open(app: Penstock) -> None:
    numbered(app, [1])
    taken = claim_one(app)
    for wrong in (object(), {"x": float("nan")}, "nul \0", {1: 2}, "x" * 1_100_000):
        with nothing_written(app), pytest.raises(InvalidPayload, match="result"):
            app.queue.finish(taken, Succeeded(wrong))
    app.queue.finish(taken, Succeeded({"fine": True}))


@pytest.mark.parametrize("result", [None, False, 0, "", [], {}, "text", 1.5, [1, {"a": None}]])
def test_results_come_back_as_they_were(app: Penstock, result: Any) -> None:
    numbered(app, [1])
    taken = claim_one(app)
    app.queue.finish(taken, Succeeded(result))
    assert app.jobs.get(taken.job_id).result == result
    assert type(app.jobs.get(taken.job_id).result) is type(result)


def test_three_crashes_are_poison(app: Penstock, clock: ManualClock, mode: RetryMode) -> None:
    job = app.enqueue("work", max_attempts=100)
    for _ in range(3):
        claim_one(app)
        clock.advance(31)
        assert app.recover().abandoned == 1
        clock.advance(2)
    dead = app.jobs.chain(job.id)[-1]
    assert dead.status is JobStatus.DEAD_LETTER
    assert "poison" in (dead.last_error or "")


def test_a_failure_between_crashes_starts_the_count_again(app: Penstock, clock: ManualClock, mode: RetryMode) -> None:
    job = app.enqueue("work", max_attempts=100)
    for crash in (True, True, False, True, True):
        taken = claim_one(app)
        if crash:
            clock.advance(31)
            app.recover()
        else:
            app.queue.finish(taken, Failed("an ordinary failure"))
        clock.advance(10_000)
    assert app.jobs.chain(job.id)[-1].status is JobStatus.QUEUED


def test_only_a_running_job_can_be_finished(app: Penstock) -> None:
    """The row itself refuses what no code should try: half a run, or the end of a job in a way that is none."""
    (job,) = numbered(app, [1])
    ended = {
        "job_id": job.id, "tenant_id": job.tenant_id, "finished_at": job.created_at, "attempt_no": 1, "max_attempts": 3,
        "job_status": "canceled",
    }  # fmt: skip
    for wrong in ({"status": "succeeded"}, {"id": job.id}, {"job_status": None}, {"job_status": "queued"}):
        with pytest.raises(sa.exc.IntegrityError):
            execute(app, sa.insert(runs).values({**ended, **wrong}))
    with pytest.raises(IllegalTransition):
        app.jobs.retry(job.id)
