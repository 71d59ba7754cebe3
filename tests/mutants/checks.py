"""A compact set of checks of the engine's promises. Each takes a fresh app and its clock; each passes on the product, and
every deliberate bug of `bugs.py` makes at least one of them fail."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import text

from penstock import (
    Busy,
    Canceled,
    Claim,
    DefinitionArchived,
    Failed,
    IllegalTransition,
    InvalidPayload,
    LeaseLost,
    ManualClock,
    NotFound,
    Penstock,
    Skipped,
    Snoozed,
    Succeeded,
)
from penstock.core.status import GroupStatus, JobStatus
from penstock.core.webhook import DELIVERY_KEY
from penstock.queue.claim import claim_ready, make_ready
from penstock.store import failpoints
from penstock.store.failpoints import InjectedError
from tests.kills.test_lost_replies import disconnected_once

Check = Callable[[Penstock, ManualClock], None]
CHECKS: list[Check] = []


def check(function: Check) -> Check:
    CHECKS.append(function)
    return function


def clean(app: Penstock) -> None:
    assert app.doctor().violations == ()


def number_of(app: Penstock, what: str) -> int:
    with app.db.read() as tx:
        return int(tx.scalar(text(f"SELECT count(*) FROM {what}")))


@check
def claims_follow_the_order(app: Penstock, clock: ManualClock) -> None:
    app.define("work")
    low = app.enqueue("work", priority=200).id
    a, b, c = app.enqueue_many("work", [{}] * 3)
    urgent = app.enqueue("work", priority=1).id
    app.jobs.move(c, to="top")
    assert [claim.job_id for claim in app.queue.claim("w:1", 2)] == [urgent, c]
    assert [claim.job_id for claim in app.queue.claim("w:1", 10)] == [a, b, low]


@check
def places_spread_evenly_keep_their_order(app: Penstock, clock: ManualClock) -> None:
    app.define("work")
    a, b, c = app.enqueue_many("work", [{}] * 3)
    app.jobs.move(c, before=a)
    app.jobs.normalise()
    assert [claim.job_id for claim in app.queue.claim("w:1", 10)] == [c, a, b]


@check
def a_job_runs_once_and_its_run_is_closed_with_it(app: Penstock, clock: ManualClock) -> None:
    app.define("work")
    job = app.enqueue("work")
    [claim] = app.queue.claim("w:1", 5)
    clean(app)
    assert app.queue.claim("w:2", 5) == []
    app.queue.heartbeat(claim)
    app.queue.finish(claim, Succeeded({"n": 1}))
    clean(app)
    assert app.jobs.get(job.id).result == {"n": 1}
    for late in (
        lambda: app.queue.finish(claim, Failed("late")),
        lambda: app.queue.finish(claim, Succeeded("late")),
        lambda: app.queue.heartbeat(claim),
    ):
        with pytest.raises(LeaseLost):
            late()
    assert app.jobs.get(job.id).result == {"n": 1}
    clean(app)


@check
def a_stale_run_changes_nothing(app: Penstock, clock: ManualClock) -> None:
    app.define("work", max_attempts=9)
    job = app.enqueue("work")
    [stale] = app.queue.claim("w:1", 1, lease_seconds=10)
    clock.advance(5)
    assert app.recover().abandoned == 0, "rescued although its lease was good"
    clock.advance(6)
    assert app.recover().abandoned == 1
    clock.advance(2)
    [fresh] = app.queue.claim("w:2", 1, lease_seconds=10)
    before = app.jobs.get(job.id).lease_expires_at
    clock.advance(1)
    for late in (lambda: app.queue.finish(stale, Succeeded("late")), lambda: app.queue.heartbeat(stale)):
        with pytest.raises(LeaseLost):
            late()
    assert app.jobs.get(job.id).status is JobStatus.RUNNING
    assert app.jobs.get(job.id).lease_expires_at == before
    app.queue.finish(fresh, Succeeded("fresh"))
    assert app.jobs.get(job.id).result == "fresh"
    clean(app)


@check
def attempts_are_counted_and_end(app: Penstock, clock: ManualClock) -> None:
    app.define("work", max_attempts=2, retry_policy={"base": 100, "jitter": 0})
    job = app.enqueue("work")
    app.queue.finish(app.queue.claim("w:1", 1)[0], Failed("no"))
    clock.advance(99)
    assert app.queue.claim("w:1", 1) == [], "retried before its backoff was over"
    clock.advance(2)
    [second] = app.queue.claim("w:1", 1)
    assert second.attempt_no == 2
    app.queue.finish(second, Failed("no"))
    assert app.jobs.get(job.id).status is JobStatus.DEAD_LETTER
    assert [run.attempt_no for run in app.jobs.runs(job.id)] == [1, 2]
    clean(app)


@check
def a_chain_has_one_retry_written_with_the_failure(app: Penstock, clock: ManualClock) -> None:
    app.define("work", max_attempts=2, retry_mode="chain")
    job = app.enqueue("work")
    [claim] = app.queue.claim("w:1", 1)
    with failpoints.armed("finish.before_retry", "error"), pytest.raises(InjectedError):
        app.queue.finish(claim, Failed("no", delay=0))
    clean(app)
    app.queue.finish(claim, Failed("no", delay=0))
    clean(app)
    first, second = app.jobs.chain(job.id)
    assert (first.status, second.status) == (JobStatus.FAILED, JobStatus.QUEUED)
    with pytest.raises(IllegalTransition):
        app.jobs.retry(job.id)


@check
def a_claim_is_whole_or_not_at_all(app: Penstock, clock: ManualClock) -> None:
    app.define("work")
    app.enqueue("work")
    if app.db.name == "sqlite":
        with failpoints.armed("claim.after_running", "error"), pytest.raises(InjectedError):
            app.queue.claim("w:1", 1)
        clean(app)
    [claim] = app.queue.claim("w:1", 1)
    if app.db.name == "sqlite":
        with failpoints.armed("finish.after_running", "error"), pytest.raises(InjectedError):
            app.queue.finish(claim, Succeeded())
        clean(app)
    app.queue.finish(claim, Succeeded())
    clean(app)


@check
def a_poison_job_is_buried(app: Penstock, clock: ManualClock) -> None:
    app.define("work", max_attempts=50)
    job = app.enqueue("work")
    for _ in range(3):
        clock.advance(5)
        assert len(app.queue.claim("w:1", 1, lease_seconds=1)) == 1
        clock.advance(5)
        app.recover()
    assert app.jobs.get(job.id).status is JobStatus.DEAD_LETTER
    clean(app)


def _take(app: Penstock, limit: int, starting: int) -> list[Claim]:
    """Claim as a worker does, of which only some begin at once."""
    return claim_ready(app.ground, make_ready(app.ground, "w:1", limit, starting=starting)).claims()


@check
def a_crash_is_charged_to_what_had_begun(app: Penstock, clock: ManualClock) -> None:
    app.define("work")
    for n in range(4):
        app.enqueue("work", {"n": n})
    assert len(_take(app, 4, starting=1)) == 4
    clock.advance(31)
    recovered = app.recover()
    assert (recovered.abandoned, recovered.given_back) == (1, 3)
    assert sorted((job.params["n"], job.attempt_no) for job in app.jobs.list()) == [(0, 1), (1, 0), (2, 0), (3, 0)]
    assert [len(app.jobs.runs(job.id)) for job in sorted(app.jobs.list(), key=lambda job: job.id)] == [1, 0, 0, 0]
    clean(app)


@check
def a_suspect_runs_apart_until_it_has_ended_well(app: Penstock, clock: ManualClock) -> None:
    app.define("work", max_attempts=5)
    first = app.enqueue("work", {"n": 1})
    _take(app, 1, starting=0)
    clock.advance(31)
    app.recover()
    app.enqueue("work", {"n": 2})
    [suspect] = _take(app, 2, starting=2)
    assert (suspect.job_id, suspect.suspicion) == (first.id, 1)
    app.queue.finish(suspect, Failed("by itself", delay=0))
    both = _take(app, 2, starting=2)
    assert [claim.suspicion for claim in both] == [0, 0]
    app.queue.finish_many([(claim, Succeeded()) for claim in both])
    clean(app)


@check
def an_interruption_costs_no_attempt_within_a_bound(app: Penstock, clock: ManualClock) -> None:
    app.define("work", max_attempts=1)
    job = app.enqueue("work")
    for _ in range(app.config.max_interruptions):
        app.queue.finish(app.queue.claim("w:1", 1)[0], Canceled("shutdown", by_shutdown=True))
        assert app.jobs.get(job.id).status is JobStatus.QUEUED
    app.queue.finish(app.queue.claim("w:1", 1)[0], Canceled("shutdown", by_shutdown=True))
    assert app.jobs.get(job.id).status is JobStatus.DEAD_LETTER
    clean(app)


@check
def a_dedupe_key_makes_one_of_two(app: Penstock, clock: ManualClock) -> None:
    app.define("work", max_attempts=3)
    app.tenants.create("other")
    first = app.enqueue("work", dedupe_key="k")
    assert app.enqueue("work", dedupe_key="k").id == first.id
    assert app.enqueue("work", dedupe_key="k", tenant="other").id != first.id
    for claim in app.queue.claim("w:1", 5):
        app.queue.finish(claim, Failed("no", delay=0))
    assert app.enqueue("work", dedupe_key="k").id == first.id, "it is tried again"
    clean(app)
    for claim in app.queue.claim("w:1", 5):
        app.queue.finish(claim, Succeeded())
    assert app.enqueue("work", dedupe_key="k").id != first.id
    clean(app)


@check
def a_cancel_stops_what_waits_and_asks_what_runs(app: Penstock, clock: ManualClock) -> None:
    app.define("work", max_attempts=3)
    runs, waits = app.enqueue_many("work", [{}] * 2)
    [claim] = app.queue.claim("w:1", 1)
    assert app.jobs.cancel(waits).status is JobStatus.CANCELED
    assert app.jobs.cancel(runs).status is JobStatus.RUNNING
    clean(app)
    assert app.queue.heartbeat(claim) == [claim]
    app.queue.finish(claim, Failed("stopped", delay=0))
    assert app.jobs.get(runs).status is JobStatus.CANCELED
    clock.advance(60)
    assert app.queue.claim("w:1", 5) == []
    clean(app)


@check
def what_ended_well_is_not_retried_and_what_runs_is_not_changed(app: Penstock, clock: ManualClock) -> None:
    app.define("work")
    job = app.enqueue("work", {"n": 1})
    [claim] = app.queue.claim("w:1", 1)
    for change in (lambda: app.jobs.update(job.id, params={"n": 2}), lambda: app.jobs.move(job.id, to="top")):
        with pytest.raises(IllegalTransition):
            change()
    app.queue.finish(claim, Succeeded())
    for change in (lambda: app.jobs.retry(job.id), lambda: app.jobs.cancel(job.id)):
        with pytest.raises(IllegalTransition):
            change()
    assert app.jobs.get(job.id).params == {"n": 1}


@check
def earlier_runs_keep_the_params_they_ran_with(app: Penstock, clock: ManualClock) -> None:
    app.define("work", max_attempts=3)
    job = app.enqueue("work", {"n": 1})
    app.queue.finish(app.queue.claim("w:1", 1)[0], Failed("no", delay=100))
    app.jobs.update(job.id, params={"n": 2})
    assert [run.params for run in app.jobs.runs(job.id)] == [{"n": 1}]


@check
def a_snooze_uses_no_attempt_up_and_a_skip_is_no_failure(app: Penstock, clock: ManualClock) -> None:
    app.define("work", max_attempts=1)
    job = app.enqueue("work")
    for _ in range(3):
        app.queue.finish(app.queue.claim("w:1", 1)[0], Snoozed(10))
        clock.advance(11)
    app.queue.finish(app.queue.claim("w:1", 1)[0], Skipped("nothing to do"))
    assert app.jobs.get(job.id).status is JobStatus.SUCCEEDED
    clean(app)


@check
def a_shutdown_gives_the_job_back(app: Penstock, clock: ManualClock) -> None:
    app.define("work", max_attempts=2)
    job = app.enqueue("work")
    app.queue.finish(app.queue.claim("w:1", 1)[0], Canceled("shutdown", by_shutdown=True))
    assert app.jobs.get(job.id).status is JobStatus.QUEUED
    [claim] = app.queue.claim("w:1", 1)
    assert app.queue.release([claim]) == 1
    assert app.jobs.get(job.id).attempt_no == 1
    assert len(app.queue.claim("w:1", 1)) == 1
    clean(app)


@check
def a_scheduled_job_waits_for_its_time(app: Penstock, clock: ManualClock) -> None:
    app.define("work")
    app.enqueue("work", {"n": 2}, delay=60)
    app.enqueue("work", {"n": 1}, delay=5)
    assert app.queue.claim("w:1", 5) == []
    for number, wait in ((1, 6), (2, 55)):
        clock.advance(wait)
        assert [claim.params for claim in app.queue.claim("w:1", 5)] == [{"n": number}]
    clean(app)


@check
def limits_hold_and_free_their_slots(app: Penstock, clock: ManualClock) -> None:
    app.define("two", max_running=2)
    app.define("free")
    app.tenants.create("small", max_running=1)
    app.enqueue_many("two", [{}] * 5)
    app.enqueue_many("free", [{}] * 3, tenant="small")
    first = app.queue.claim("w:1", 10)
    assert sorted(claim.key for claim in first) == ["free", "two", "two"]
    assert app.queue.claim("w:2", 10) == []
    clean(app)
    app.queue.finish_many([(claim, Succeeded()) for claim in first])
    second = app.queue.claim("w:1", 10)
    assert sorted(claim.key for claim in second) == ["free", "two", "two"]
    app.queue.finish_many([(claim, Skipped("nothing to do")) for claim in second])
    assert sorted(claim.key for claim in app.queue.claim("w:1", 10)) == ["free", "two"]


@check
def a_slot_goes_with_its_job(app: Penstock, clock: ManualClock) -> None:
    app.define("one", max_running=1)
    first, _ = app.enqueue_many("one", [{}] * 2)
    [claim] = app.queue.claim("w:1", 5)
    assert claim.job_id == first
    assert app.queue.release([claim]) == 1
    assert app.jobs.get(first).waits_for is None, "what was let through waits for a slot again"
    assert [claim.job_id for claim in app.queue.claim("w:1", 5)] == [first]
    clean(app)


@check
def what_is_paused_waits(app: Penstock, clock: ManualClock) -> None:
    app.define("work")
    app.enqueue("work")
    app.queues.pause("default")
    assert app.queue.claim("w:1", 1) == []
    app.queues.resume("default")
    app.pause("work")
    assert app.queue.claim("w:1", 1) == []
    app.resume("work")
    assert len(app.queue.claim("w:1", 1)) == 1


@check
def a_worker_gets_only_the_keys_and_queues_it_offers(app: Penstock, clock: ManualClock) -> None:
    app.define("a")
    app.define("b", queue="other")
    app.enqueue("a")
    app.enqueue("b")
    assert app.queue.claim("w:1", 5, keys=["b"], queues=["default"]) == []
    assert [claim.key for claim in app.queue.claim("w:1", 5, keys=["b"])] == ["b"]
    assert [claim.key for claim in app.queue.claim("w:1", 5, queues=["default"])] == ["a"]


@check
def a_reservation_keeps_the_tenant_to_itself(app: Penstock, clock: ManualClock) -> None:
    app.define("work")
    app.tenants.create("other")
    with app.reserve(expires_in=60):
        app.enqueue("work")
        app.enqueue("work", tenant="other")
        assert [claim.tenant_slug for claim in app.queue.claim("w:1", 5)] == ["other"]
        with pytest.raises(Busy), app.reserve():
            pass
        clean(app)
        clock.advance(61)
        assert len(app.queue.claim("w:1", 5)) == 1  # it has expired
        with pytest.raises(Busy), app.reserve():
            pass  # something runs


@check
def a_sequential_group_goes_in_order_and_stops(app: Penstock, clock: ManualClock) -> None:
    app.define("work", max_attempts=2, retry_mode="chain")
    group = app.groups.create([("work", {"n": n}) for n in range(3)])
    [first] = app.queue.claim("w:1", 5)
    app.queue.finish(first, Failed("once", delay=0))
    app.recover()
    [again] = app.queue.claim("w:1", 5)
    assert again.params == {"n": 0}, "the chain's retry is still the first member"
    app.queue.finish(again, Succeeded())
    [second] = app.queue.claim("w:1", 5)
    app.queue.finish(second, Failed("for good", fatal=True))
    assert app.queue.claim("w:1", 5) == []
    ended = app.groups.get(group.id)
    assert ended.status is GroupStatus.PARTIAL
    assert ended.jobs[-1].status is JobStatus.CANCELED
    clean(app)
    app.jobs.retry(second.job_id)
    [revived] = app.queue.claim("w:1", 5)
    app.queue.finish(revived, Succeeded())
    [last] = app.queue.claim("w:1", 5)
    assert last.params == {"n": 2}, "a member that was tried again and went well stops nobody"
    clean(app)


@check
def a_parallel_group_ends_with_its_last_member(app: Penstock, clock: ManualClock) -> None:
    app.define("work")
    group = app.groups.create([("work", {})] * 2, mode="parallel")
    one, two = app.queue.claim("w:1", 5)
    app.queue.finish(one, Succeeded())
    assert app.groups.get(group.id).status is GroupStatus.RUNNING
    app.queue.finish(two, Succeeded())
    assert app.groups.get(group.id).status is GroupStatus.COMPLETED


@check
def a_webhook_is_told_of_a_success(app: Penstock, clock: ManualClock) -> None:
    app.define("work")
    app.enqueue("work")
    app.webhooks.create("https://example.com/")
    app.queue.finish(app.queue.claim("w:1", 1)[0], Succeeded())
    assert number_of(app, f"penstock_jobs WHERE definition_key = '{DELIVERY_KEY}'") == 1


@check
def tenants_see_nothing_of_each_other(app: Penstock, clock: ManualClock) -> None:
    app.define("work")
    app.tenants.create("other")
    job = app.enqueue("work")
    other = app.as_tenant("other")
    for reach in (other.jobs.get, other.jobs.cancel, other.jobs.runs, other.jobs.why, other.jobs.chain):
        with pytest.raises(NotFound):
            reach(job.id)
    assert other.jobs.list() == []
    assert other.jobs.summary().queued == 0


@check
def tenants_take_turns(app: Penstock, clock: ManualClock) -> None:
    app.define("work")
    app.tenants.create("heavy", weight=2)
    app.enqueue_many("work", [{}] * 20)
    app.enqueue_many("work", [{}] * 20, tenant="heavy")
    served = [claim.tenant_slug for claim in app.queue.claim("w:1", 12)]
    assert 7 <= served.count("heavy") <= 9
    app.tenants.create("late")
    app.enqueue("work", tenant="late")
    assert "late" in [claim.tenant_slug for claim in app.queue.claim("w:1", 4)]


@check
def payloads_are_merged_and_checked(app: Penstock, clock: ManualClock) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    app.define("work", arg_schema=schema, default_params={"n": 1, "m": 2})
    assert app.jobs.get(app.enqueue("work", {"m": 3}).id).params == {"n": 1, "m": 3}
    with pytest.raises(InvalidPayload):
        app.enqueue("work", {"n": "x"})
    assert number_of(app, "penstock_jobs") == 1


@check
def an_archived_definition_takes_nothing_whatever_is_remembered(app: Penstock, clock: ManualClock) -> None:
    app.define("work")
    app.enqueue("work")
    with Penstock(app.db.engine, clock=clock) as elsewhere:
        elsewhere.archive("work")
    with pytest.raises(DefinitionArchived):
        app.enqueue("work")
    assert number_of(app, "penstock_jobs") == 1


@check
def a_job_in_the_callers_transaction_goes_with_it(app: Penstock, clock: ManualClock) -> None:
    app.define("work")
    app.enqueue("work")
    with app.db.engine.connect() as conn:
        app.enqueue("work", connection=conn)
        conn.rollback()
    assert number_of(app, "penstock_jobs") == 1


@check
def a_lost_reply_makes_no_ghost_and_no_double(app: Penstock, clock: ManualClock) -> None:
    app.define("work")
    with disconnected_once("commit.after"):
        app.enqueue("work")
    with disconnected_once("commit.after"):
        app.enqueue_many("work", [{}] * 2)
    assert number_of(app, "penstock_jobs") == 3
    with disconnected_once("commit.after"):
        claims = app.queue.claim("w:1", 2)
    assert len(claims) == number_of(app, "penstock_running") == 2
    with disconnected_once("commit.after"):
        assert app.queue.finish_many([(claim, Succeeded()) for claim in claims]) == set()
    clean(app)


@check
def recovery_mends_what_cannot_be(app: Penstock, clock: ManualClock) -> None:
    app.define("work", max_attempts=5)
    app.define("chained", max_attempts=5, retry_mode="chain")
    app.enqueue_many("work", [{}] * 4)
    lost, finishing, ended, twice = app.queue.claim("w:1", 4)
    superseded = app.enqueue("chained")
    app.queue.finish(app.queue.claim("w:1", 1)[0], Failed("no", delay=3600))
    keyless = app.enqueue("work", dedupe_key="k", delay=3600)
    done = app.enqueue("work", dedupe_key="done")
    app.queue.finish(app.queue.claim("w:1", 1)[0], Succeeded())
    retry = app.jobs.chain(superseded.id)[1]
    for statement in PLANTED:
        for name, value in {
            "lost": lost.job_id, "finishing": finishing.job_id, "ended": ended.job_id, "twice": twice.job_id, "done": done.id,
            "keyless": keyless.id, "retry": retry.id,
        }.items():  # fmt: skip
            statement = statement.replace(f":{name}", f"'{value}'")
        with app.db.write() as tx:
            tx.run(text(statement))
    found = app.recover()
    assert (found.without_run, found.finishing, found.stray_runs, found.second_states) == (1, 1, 1, 1)
    assert (found.retries, found.dedupe_keys, found.stray_states, found.total) == (1, 2, 1, 8)
    assert app.recover().total == 0
    assert len(app.jobs.chain(superseded.id)) == 2
    assert app.jobs.get(finishing.job_id).status is JobStatus.SUCCEEDED
    clean(app)


_RUN = (
    "INSERT INTO penstock_runs (job_id, tenant_id, attempt_no, max_attempts, id, started_at, finished_at, status, job_status, worker_id)"
    " SELECT job_id, tenant_id, attempt_no, max_attempts, run_id, started_at, started_at, 'succeeded', {}, worker_id"
    " FROM penstock_running WHERE job_id = "
)
_READY = (
    "INSERT INTO penstock_ready (job_id, tenant_id, queued_at, ready_at, position, priority, attempt_no, max_attempts, crashes, interruptions,"
    " suspect, slot, queue, definition_key, definition_id) SELECT {}, tenant_id, queued_at, queued_at, 100, priority, 0, max_attempts, 0, 0,"
    " false, false, queue, definition_key, definition_id FROM penstock_running WHERE job_id = :twice"
)
PLANTED = (
    "DELETE FROM penstock_running WHERE job_id = :lost",
    _RUN.format("NULL") + ":finishing",
    _RUN.format("'succeeded'") + ":ended",
    _READY.format(":twice"),
    _READY.format(":done"),
    "DELETE FROM penstock_waiting WHERE job_id = :retry",
    "DELETE FROM penstock_jobs WHERE id = :retry",
    "DELETE FROM penstock_dedupe WHERE job_id = :keyless",
    "INSERT INTO penstock_dedupe (tenant_id, dedupe_key, job_id) SELECT tenant_id, 'done', id FROM penstock_jobs WHERE id = :done",
)
"""What cannot be: a job in no state, a run both open and closed, an open run of a job that has ended, a job in two states, a place of a
job that has ended, a missing retry, and dedupe keys that are not where they should be."""


@check
def pruning_never_touches_what_is_active(app: Penstock, clock: ManualClock) -> None:
    app.define("work")
    app.enqueue_many("work", [{}] * 3)
    done, _running = app.queue.claim("w:1", 2)
    app.queue.finish(done, Succeeded())
    clock.advance(days=400)
    assert app.prune()["jobs"] == 1
    assert number_of(app, "penstock_jobs") == 2
    assert number_of(app, "penstock_runs") == 0
