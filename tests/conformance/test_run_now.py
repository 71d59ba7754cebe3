"""A job that waits for its time or its backoff: run now, or at another time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock import Failed, IllegalTransition, InvalidInput, ManualClock, NotFound, Penstock, Succeeded
from penstock.core.ids import new_id
from penstock.core.status import JobStatus, WaitsFor
from tests.conformance.helpers import claim, claim_one, claimed_numbers, nothing_written, numbered


class TestRunNow:
    def test_a_scheduled_job_takes_its_place_behind_its_tenants_jobs(self, app: Penstock, clock: ManualClock) -> None:
        later = app.enqueue("work", {"n": 9}, delay=3600)
        numbered(app, [1, 2])
        clock.advance(5)
        job = app.jobs.run_now(later.id)
        assert (job.waits_for, job.claimable, job.scheduled_for) == (None, True, clock.now())
        assert (job.position, job.queued_at, job.created_at) == (300, later.queued_at, later.created_at)
        assert job == app.jobs.get(later.id)
        numbered(app, [3])
        assert claimed_numbers(app) == [1, 2, 9, 3]

    @pytest.mark.parametrize("mode", ["requeue", "chain"])
    def test_a_job_in_its_backoff_keeps_its_attempts_and_its_dedupe_key(
        self, app: Penstock, clock: ManualClock, mode: str
    ) -> None:
        app.define("work", retry_mode=mode, max_attempts=3, retry_policy={"base": 3600, "jitter": 0})
        first = app.enqueue("work", {"n": 1}, dedupe_key="one", correlation_id="c")
        app.queue.finish(claim_one(app), Failed("no"))
        assert claim(app) == []
        (waits,) = app.jobs.list("queued")
        app.jobs.run_now(waits.id)
        taken = claim_one(app)
        assert (taken.job_id, taken.attempt_no, taken.max_attempts) == (waits.id, 2, 3)
        now = app.jobs.get(waits.id)
        assert (now.dedupe_key, now.correlation_id, now.root_id) == ("one", "c", first.id)
        assert app.enqueue("work", dedupe_key="one").id == waits.id
        app.queue.finish(taken, Succeeded())
        assert [job.id for job in app.jobs.chain(waits.id)] == (
            [first.id] if mode == "requeue" else [first.id, waits.id]
        )

    def test_a_job_that_a_retry_took_over_from_names_the_retry(self, app: Penstock) -> None:
        app.define("work", retry_mode="chain", max_attempts=3)
        first = app.enqueue("work")
        app.queue.finish(claim_one(app), Failed("no"))
        (retry,) = app.jobs.list("queued")
        with nothing_written(app), pytest.raises(IllegalTransition, match=f"job {retry.id} retries it"):
            app.jobs.run_now(first.id)

    def test_twice_is_as_once(self, app: Penstock, clock: ManualClock) -> None:
        job = app.enqueue("work", {"n": 1}, delay=3600)
        once = app.jobs.run_now(job.id)
        clock.advance(5)
        with nothing_written(app):
            assert app.jobs.run_now(job.id) == once
        assert claimed_numbers(app) == [1]

    def test_a_job_that_is_due_and_that_no_worker_has_seen_keeps_its_time(
        self, app: Penstock, clock: ManualClock
    ) -> None:
        job = app.enqueue("work", {"n": 1}, delay=10)
        clock.advance(60)
        assert app.jobs.run_now(job.id).scheduled_for == job.scheduled_for
        assert claimed_numbers(app) == [1]

    def test_behind_a_limit_it_is_due_and_says_what_it_waits_for(self, app: Penstock) -> None:
        app.define("narrow", max_running=1)
        app.enqueue("narrow", {"n": 0})
        running = claim_one(app)
        job = app.enqueue("narrow", {"n": 1}, delay=3600)
        assert app.jobs.run_now(job.id).waits_for is WaitsFor.LIMIT
        assert "at most 1" in app.jobs.why(job.id).sentence
        with nothing_written(app):
            assert app.jobs.run_now(job.id).waits_for is WaitsFor.LIMIT
        assert claim(app) == []
        app.queue.finish(running, Succeeded())
        assert claimed_numbers(app) == [1]

    def test_while_its_definition_or_its_queue_is_paused_it_waits_for_that(self, app: Penstock) -> None:
        job = app.enqueue("work", {"n": 1}, delay=3600)
        app.pause("work")
        app.jobs.run_now(job.id)
        assert "paused" in app.jobs.why(job.id).sentence
        assert claim(app) == []
        app.resume("work")
        app.queues.pause("default")
        app.jobs.run_now(job.id)
        assert claim(app) == [] and "paused" in app.jobs.why(job.id).sentence
        app.queues.resume("default")
        assert claimed_numbers(app) == [1]

    def test_a_member_of_a_group_in_its_backoff_keeps_the_others_waiting(self, app: Penstock) -> None:
        group = app.groups.create([("work", {"n": 1}), ("work", {"n": 2})], mode="sequential")
        app.queue.finish(claim_one(app), Failed("no"))
        first, second = group.jobs
        app.jobs.run_now(first.id)
        assert claimed_numbers(app) == [1]
        assert app.jobs.get(first.id).group_id == group.id
        assert app.jobs.get(second.id).waits_for is WaitsFor.GROUP

    def test_one_that_waits_for_its_turn_in_a_group_is_refused(self, app: Penstock) -> None:
        group = app.groups.create([("work", {"n": 1}), ("work", {"n": 2})], mode="sequential")
        first, second = group.jobs
        wanted = f"waits for its turn in its group, after job {first.id}, which is queued"
        with nothing_written(app), pytest.raises(IllegalTransition, match=wanted):
            app.jobs.run_now(second.id)

    @pytest.mark.parametrize("state", ["running", "succeeded", "canceled", "dead_letter"])
    def test_what_runs_or_has_ended_is_refused_in_a_sentence(self, app: Penstock, state: str) -> None:
        (job,) = numbered(app, [1])
        if state == "canceled":
            app.jobs.cancel(job.id)
        else:
            taken = claim_one(app)
            if state != "running":
                app.queue.finish(taken, Succeeded() if state == "succeeded" else Failed("no", fatal=True))
        with nothing_written(app), pytest.raises(IllegalTransition) as refused:
            app.jobs.run_now(job.id)
        wanted = f"The job cannot be run now because it is {state}. Only a job that is queued can be run now."
        assert str(refused.value) == wanted

    def test_another_tenants_job_is_not_there(self, app: Penstock) -> None:
        app.tenants.create("acme")
        job = app.enqueue("work", delay=60)
        with nothing_written(app):
            for verb in (app.as_tenant("acme").jobs.run_now, app.jobs.run_now):
                with pytest.raises(NotFound):
                    verb(job.id if verb.__self__.tenant == "acme" else new_id())  # type: ignore[attr-defined]

    def test_each_tenant_is_still_served_in_turn(self, app: Penstock) -> None:
        app.tenants.create("acme")
        numbered(app, range(1, 6))
        mine = numbered(app, range(6, 9), delay=3600)
        theirs = app.enqueue("work", {"n": 100}, tenant="acme", delay=3600)
        for job in mine:
            app.jobs.run_now(job.id)
        app.as_tenant("acme").jobs.run_now(theirs.id)
        assert claimed_numbers(app)[:3] == [1, 100, 2]


class TestReschedule:
    def test_to_a_later_and_to_an_earlier_time(self, app: Penstock, clock: ManualClock) -> None:
        job = app.enqueue("work", {"n": 1}, delay=60)
        for seconds in (600, 30):
            due = clock.now() + timedelta(seconds=seconds)
            changed = app.jobs.update(job.id, scheduled_for=due)
            assert (changed.scheduled_for, changed.waits_for) == (due, WaitsFor.TIME)
        clock.advance(29)
        assert claim(app) == []
        clock.advance(1)
        assert claimed_numbers(app) == [1]

    def test_back_to_later_of_a_job_that_could_run(self, app: Penstock, clock: ManualClock) -> None:
        first, _ = numbered(app, [1, 2])
        due = (clock.now() + timedelta(seconds=60)).astimezone(UTC)
        assert app.jobs.update(first.id, scheduled_for=due).waits_for is WaitsFor.TIME
        assert claimed_numbers(app) == [2]
        clock.advance(60)
        assert claimed_numbers(app) == [1]

    @pytest.mark.parametrize("when", [None, datetime(2020, 1, 1, tzinfo=UTC)])
    def test_none_and_a_time_that_has_passed_mean_now(self, app: Penstock, clock: ManualClock, when: Any) -> None:
        job = app.enqueue("work", {"n": 1}, delay=3600)
        changed = app.jobs.update(job.id, scheduled_for=when)
        assert (changed.scheduled_for, changed.claimable) == (clock.now(), True)
        with nothing_written(app):
            assert app.jobs.update(job.id, scheduled_for=when) == changed
        assert claimed_numbers(app) == [1]

    def test_with_params_and_priority_in_one_change(self, app: Penstock) -> None:
        numbered(app, [1, 2])
        job = app.enqueue("work", {"n": 3}, delay=3600)
        changed = app.jobs.update(job.id, {"n": 4}, 5, None)
        assert (changed.params, changed.priority, changed.claimable) == ({"n": 4}, 5, True)
        assert claimed_numbers(app) == [4, 1, 2]

    def test_the_slot_of_a_limit_is_given_to_the_next(self, app: Penstock, clock: ManualClock) -> None:
        app.define("narrow", max_running=1)
        first, _ = (app.enqueue("narrow", {"n": n}) for n in (1, 2))
        app.queues.pause("default")
        assert claim(app) == []  # the first is let through, and waits to be claimed
        app.queues.resume("default")
        app.jobs.update(first.id, scheduled_for=clock.now() + timedelta(hours=1))
        assert claimed_numbers(app) == [2]

    def test_a_member_that_waits_for_its_turn_waits_for_both(self, app: Penstock, clock: ManualClock) -> None:
        group = app.groups.create([("work", {"n": 1}), ("work", {"n": 2})], mode="sequential")
        second = group.jobs[1]
        due = clock.now() + timedelta(hours=1)
        assert app.jobs.update(second.id, scheduled_for=due).waits_for is WaitsFor.GROUP
        app.queue.finish(claim_one(app), Succeeded())
        assert claim(app) == []
        assert app.jobs.get(second.id).waits_for is WaitsFor.TIME
        app.jobs.update(second.id, scheduled_for=None)
        assert claimed_numbers(app) == [2]

    def test_the_wait_of_a_member_for_its_time_can_be_taken_back_before_its_turn(
        self, app: Penstock, clock: ManualClock
    ) -> None:
        group = app.groups.create([("work", {"n": 1}), ("work", {"n": 2})], mode="sequential", delay=3600)
        second = group.jobs[1]
        changed = app.jobs.update(second.id, scheduled_for=None)
        assert (changed.waits_for, changed.scheduled_for) == (WaitsFor.GROUP, clock.now())

    @pytest.mark.parametrize("state", ["running", "canceled"])
    def test_frozen_once_it_runs_or_ended(self, app: Penstock, clock: ManualClock, state: str) -> None:
        (job,) = numbered(app, [1])
        claim(app) if state == "running" else app.jobs.cancel(job.id)
        for when in (None, clock.now() + timedelta(hours=1)):
            with (
                nothing_written(app),
                pytest.raises(IllegalTransition, match=f"cannot be updated because it is {state}"),
            ):
                app.jobs.update(job.id, scheduled_for=when)

    @pytest.mark.parametrize("when", ["tomorrow", 5, datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)])
    def test_only_an_aware_time_is_taken(self, app: Penstock, when: Any) -> None:
        job = app.enqueue("work", delay=60)
        with nothing_written(app), pytest.raises(InvalidInput, match="scheduled_for"):
            app.jobs.update(job.id, scheduled_for=when)

    def test_earlier_runs_stay_as_they_were(self, app: Penstock, clock: ManualClock) -> None:
        (job,) = numbered(app, [1])
        app.queue.finish(claim_one(app), Failed("no"))
        before = app.jobs.runs(job.id)
        app.jobs.update(job.id, scheduled_for=clock.now() + timedelta(hours=5))
        app.jobs.run_now(job.id)
        assert app.jobs.runs(job.id) == before
        assert app.jobs.get(job.id).status is JobStatus.QUEUED
        assert claim_one(app).attempt_no == 2
