"""Claims: order P5, queues, keys, tenants, due jobs, leases, fences."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest

from penstock import Claim, LeaseLost, ManualClock, Penstock, Succeeded
from penstock.core.status import JobStatus, RunStatus
from penstock.queue import claim as claiming
from penstock.store import claims
from tests.conformance.helpers import WORKER, claim, claim_one, claimed_numbers, everything, numbered


def test_a_claim_carries_everything_a_worker_needs(app: Penstock, clock: ManualClock) -> None:
    job = app.enqueue("work", {"n": 1}, correlation_id="c", trace={"traceparent": "t"})
    clock.advance(5)
    taken = claim_one(app)
    assert taken == Claim(
        job_id=job.id, run_id=taken.run_id, tenant_id=job.tenant_id, tenant_slug="default",
        definition_id=job.definition_id, key="work", queue="default", params={"n": 1}, attempt_no=1, max_attempts=3,
        retry_mode=job.retry_mode, root_id=job.id, group_id=None, worker_id=WORKER, started_at=clock.now(),
        lease_expires_at=clock.now() + timedelta(seconds=app.config.lease_seconds), trace={"traceparent": "t"},
        correlation_id="c", timeout_seconds=3600,
    )  # fmt: skip


def test_job_and_run_appear_together(app: Penstock, clock: ManualClock) -> None:
    job = app.enqueue("work", {"n": 1})
    taken = claim_one(app)
    running = app.jobs.get(job.id)
    assert (running.status, running.run_id, running.claimed_by) == (JobStatus.RUNNING, taken.run_id, WORKER)
    assert (running.started_at, running.attempt_no) == (clock.now(), 1)
    (run,) = app.jobs.runs(job.id)
    assert (run.id, run.status, run.attempt_no, run.worker_id) == (taken.run_id, RunStatus.RUNNING, 1, WORKER)
    assert (run.params, run.definition_id, run.finished_at) == ({"n": 1}, job.definition_id, None)


def test_lower_priority_numbers_first_then_arrival(app: Penstock) -> None:
    numbered(app, [1, 2], priority=100)
    numbered(app, [3], priority=5)
    numbered(app, [4], priority=-1)
    numbered(app, [5], priority=100)
    assert claimed_numbers(app) == [4, 3, 1, 2, 5]


def test_the_limit_is_kept_and_the_order_goes_on(app: Penstock) -> None:
    numbered(app, range(5))
    assert claimed_numbers(app, 2) == [0, 1]
    assert claimed_numbers(app, 2) == [2, 3]
    assert claimed_numbers(app, 2) == [4]
    assert claim(app, 2) == []
    assert claim(app, 0) == []


def test_only_the_queues_asked_for(app: Penstock) -> None:
    app.queues.create("a")
    app.queues.create("b")
    numbered(app, [1, 2], queue="a")
    numbered(app, [3], queue="b")
    numbered(app, [4])
    assert claim(app, 9, queues=[]) == []
    assert claim(app, 9, queues=["unheard-of"]) == []
    assert claimed_numbers(app, queues=["b"]) == [3]
    assert claimed_numbers(app, queues=["a", "default"]) == [1, 2, 4]


def test_order_holds_across_queues(app: Penstock) -> None:
    app.queues.create("a")
    app.queues.create("b")
    for n, queue, priority in ((1, "a", 9), (2, "b", 1), (3, "a", 1), (4, "b", 9)):
        numbered(app, [n], queue=queue, priority=priority)
    assert claimed_numbers(app) == [2, 3, 1, 4]


def test_only_the_keys_offered(app: Penstock) -> None:
    app.define("other")
    numbered(app, [1])
    numbered(app, [2], key="other")
    assert claim(app, 9, keys=[]) == []
    assert claimed_numbers(app, keys=["other", "unheard-of"]) == [2]
    assert claimed_numbers(app, keys=["work"]) == [1]


def test_a_claim_for_one_tenant(app: Penstock) -> None:
    acme = app.tenants.create("acme")
    numbered(app, [1])
    numbered(app, [2], tenant="acme")
    (taken,) = claiming.claim(app.ground, WORKER, 9, tenant_id=acme.id)
    assert (taken.params["n"], taken.tenant_slug) == (2, "acme")


def test_due_jobs_take_their_place_when_due(app: Penstock, clock: ManualClock) -> None:
    late = app.enqueue("work", {"n": 1}, scheduled_for=clock.now() + timedelta(seconds=60))
    soon = app.enqueue("work", {"n": 2}, scheduled_for=clock.now() + timedelta(seconds=30))
    assert claim(app) == []
    assert (late.position, soon.position) == (0, 0)
    clock.advance(29.999)
    assert claim(app) == []
    numbered(app, [3])
    clock.advance(60)
    numbered(app, [4])
    # Yesterday's promise does not jump today's queue; among the due, the earlier moment goes first.
    assert claimed_numbers(app) == [3, 4, 2, 1]


def test_a_due_job_of_better_priority_goes_first(app: Penstock, clock: ManualClock) -> None:
    app.enqueue("work", {"n": 1}, delay=10, priority=1)
    numbered(app, [2])
    clock.advance(10)
    assert claimed_numbers(app) == [1, 2]


def test_nothing_runs_twice(app: Penstock) -> None:
    numbered(app, range(20))
    taken = claim(app, 15) + claim(app, 15)
    assert len({c.job_id for c in taken}) == len({c.run_id for c in taken}) == len(taken) == 20


class TestPause:
    def test_a_paused_queue_holds_everything_back(self, app: Penstock) -> None:
        app.queues.create("b")
        numbered(app, [1])
        numbered(app, [2], queue="b")
        app.queues.pause("default")
        assert app.queues.list() == {"default": True, "b": False}
        numbered(app, [3])
        assert claimed_numbers(app) == [2]
        app.queues.resume("default")
        assert claimed_numbers(app) == [1, 3]

    def test_a_paused_definition_holds_its_jobs_back(self, app: Penstock, clock: ManualClock) -> None:
        app.define("other")
        numbered(app, [1], key="other")
        due = app.enqueue("other", {"n": 2}, delay=5)
        assert app.pause("other").paused
        numbered(app, [3], key="other")
        numbered(app, [4])
        clock.advance(10)
        assert claimed_numbers(app) == [4]
        assert app.jobs.get(due.id).status is JobStatus.QUEUED
        assert not app.resume("other").paused
        assert sorted(claimed_numbers(app)) == [1, 2, 3]

    def test_pausing_twice_changes_nothing_more(self, app: Penstock) -> None:
        numbered(app, [1])
        app.pause("work")
        before = everything(app)
        app.pause("work")
        assert everything(app) == before

    def test_what_runs_when_paused_runs_on(self, app: Penstock) -> None:
        (job,) = numbered(app, [1])
        taken = claim_one(app)
        app.pause("work")
        app.queues.pause("default")
        app.queue.heartbeat(taken)
        app.queue.finish(taken, Succeeded())
        assert app.jobs.get(job.id).status is JobStatus.SUCCEEDED

    def test_a_claim_given_back_while_paused_stays_back(self, app: Penstock) -> None:
        numbered(app, [1])
        taken = claim(app)
        app.pause("work")
        assert app.queue.release(taken) == 1
        assert claim(app) == []
        app.resume("work")
        assert claimed_numbers(app) == [1]


class TestHeartbeat:
    def test_it_extends_every_lease_of_the_batch(self, app: Penstock, clock: ManualClock) -> None:
        numbered(app, range(3))
        taken = claim(app, 3, lease_seconds=10)
        clock.advance(8)
        assert app.queue.heartbeat(taken) == []
        for each in taken:
            until = app.jobs.get(each.job_id).lease_expires_at
            assert until == clock.now() + timedelta(seconds=app.config.lease_seconds)
        assert app.queue.heartbeat(taken[0], lease_seconds=5) == []
        assert app.jobs.get(taken[0].job_id).lease_expires_at == clock.now() + timedelta(seconds=5)

    def test_it_tells_who_was_asked_to_stop(self, app: Penstock, clock: ManualClock) -> None:
        numbered(app, range(2))
        first, second = claim(app, 2)
        asked = app.jobs.cancel(first.job_id)
        assert (asked.status, asked.cancel_requested_at) == (JobStatus.RUNNING, clock.now())
        assert app.queue.heartbeat([first, second]) == [first]

    def test_a_lost_lease_is_told_and_the_others_are_kept(self, app: Penstock, clock: ManualClock) -> None:
        numbered(app, range(2))
        first, second = claim(app, 2)
        app.queue.finish(first, Succeeded())
        clock.advance(20)
        with pytest.raises(LeaseLost) as lost:
            app.queue.heartbeat([first, second])
        assert lost.value.run_ids == (first.run_id,)
        assert app.jobs.get(second.job_id).lease_expires_at == clock.now() + timedelta(seconds=30)

    def test_another_run_of_the_same_job_is_not_extended(self, app: Penstock, clock: ManualClock) -> None:
        numbered(app, [1])
        old = claim_one(app)
        clock.advance(31)
        app.recover()
        clock.advance(10)
        new = claim_one(app)
        assert new.job_id == old.job_id and new.run_id != old.run_id
        before = everything(app)
        with pytest.raises(LeaseLost):
            app.queue.heartbeat(old)
        assert everything(app) == before

    def test_of_two_runs_of_one_job_the_old_one_is_lost(self, app: Penstock, clock: ManualClock) -> None:
        numbered(app, [1])
        old = claim_one(app)
        clock.advance(31)
        app.recover()
        clock.advance(10)
        new = claim_one(app)
        with pytest.raises(LeaseLost) as lost:
            app.queue.heartbeat([old, new])
        assert lost.value.run_ids == (old.run_id,)

    def test_nothing_held_is_nothing_lost(self, app: Penstock) -> None:
        assert app.queue.heartbeat([]) == []


class TestRelease:
    def test_it_is_as_if_never_claimed(self, app: Penstock) -> None:
        numbered(app, [1, 2])
        before = {id: app.jobs.get(id) for id in [job.id for job in app.jobs.list()]}
        taken = claim(app, 2)
        assert app.queue.release(taken) == 2
        assert {id: app.jobs.get(id) for id in before} == before
        assert all(not app.jobs.runs(id) for id in before)
        assert claimed_numbers(app) == [1, 2]

    def test_what_is_no_longer_ours_stays_as_it_is(self, app: Penstock) -> None:
        numbered(app, [1])
        taken = claim_one(app)
        app.queue.finish(taken, Succeeded())
        before = everything(app)
        assert app.queue.release([taken]) == 0
        assert app.queue.release([]) == 0
        assert everything(app) == before

    def test_earlier_runs_are_kept(self, app: Penstock, clock: ManualClock) -> None:
        from penstock import Failed

        (job,) = numbered(app, [1])
        started = claim_one(app).started_at
        app.queue.finish(claim_held(app, job.id), Failed("no"))
        clock.advance(60)
        app.queue.release(claim(app))
        again = app.jobs.get(job.id)
        assert (again.attempt_no, again.started_at, again.claimable) == (1, started, True)
        assert [run.error for run in app.jobs.runs(job.id)] == ["no"]


def claim_held(app: Penstock, job_id: object) -> Claim:
    from penstock.store import claims

    with app.db.read() as tx:
        run_id = app.jobs.get(str(job_id)).run_id
        assert run_id is not None
        (held,) = claims.held(tx, [run_id])
        return held


def test_held_claims_are_found_by_their_runs(app: Penstock) -> None:
    """What a worker asks whose COMMIT was not answered."""
    (job,) = numbered(app, [1])
    taken = claim_one(app)
    assert claim_held(app, job.id) == taken


def test_a_run_id_of_nobody_is_lost(app: Penstock) -> None:
    numbered(app, [1])
    taken = claim_one(app)
    with pytest.raises(LeaseLost):
        app.queue.finish(taken._replace(run_id=uuid4()), Succeeded())
    assert app.jobs.get(taken.job_id).status is JobStatus.RUNNING


def test_params_arrive_as_they_were_given_however_long(app: Penstock) -> None:
    app.define("work")
    odd = 'quote " backslash \\ tab \t line \n separator \u2028 accent é smile \U0001f600 control \x01'
    given = [{"n": 1}, {"text": odd}, {"long": odd * 200}, {}, {"longer": "x" * 500_000, odd: [odd, None, 1.5]}]
    app.enqueue_many("work", given)
    assert [claim.params for claim in app.queue.claim("w:1", 10)] == given


def test_a_claim_carries_the_timeout_as_it_is_now(app: Penstock) -> None:
    numbered(app, range(3))
    app.define("work", timeout_seconds=50)
    assert claim_one(app).timeout_seconds == 50
    app.define("work", timeout_seconds=7)
    first = claim_one(app)
    assert first.timeout_seconds == 7
    with app.db.read() as tx:
        assert [each.timeout_seconds for each in claims.held(tx, [first.run_id])] == [7]
    app.enqueue("nowhere-defined", {}, adhoc=True)
    assert [each.timeout_seconds for each in claim(app, 5)] == [7, None]
