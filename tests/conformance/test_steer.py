"""Steering: cancel, retry, update, move, normalise."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from penstock import (
    Canceled,
    Failed,
    IllegalTransition,
    InvalidInput,
    InvalidPayload,
    ManualClock,
    NotFound,
    Penstock,
    Succeeded,
)  # fmt: skip
from penstock.core.ids import new_id
from penstock.core.status import JobStatus
from tests.conformance.helpers import claim, claim_one, claimed_numbers, nothing_written, numbered


def bury(app: Penstock, **options: Any) -> Any:
    job = app.enqueue("work", {"n": 1}, **options)
    app.queue.finish(claim_one(app), Failed("no use", fatal=True))
    return app.jobs.get(job.id)


class TestCancel:
    def test_a_queued_job_at_once(self, app: Penstock, clock: ManualClock) -> None:
        (job,) = numbered(app, [1])
        clock.advance(1)
        ended = app.jobs.cancel(job.id)
        assert (ended.status, ended.finished_at, ended.started_at) == (JobStatus.CANCELED, clock.now(), None)
        assert ended == app.jobs.get(job.id)
        assert claim(app) == []

    def test_a_scheduled_job_and_one_behind_a_limit(self, app: Penstock) -> None:
        app.pause("work")
        for job in (app.enqueue("work", delay=60), app.enqueue("work")):
            assert app.jobs.cancel(job.id).status is JobStatus.CANCELED

    def test_a_running_one_by_request_that_is_kept_when_repeated(self, app: Penstock, clock: ManualClock) -> None:
        numbered(app, [1])
        taken = claim_one(app)
        asked_at = clock.now()
        app.jobs.cancel(taken.job_id)
        clock.advance(5)
        assert app.jobs.cancel(taken.job_id).cancel_requested_at == asked_at
        app.queue.finish(taken, Canceled())
        assert app.jobs.get(taken.job_id).status is JobStatus.CANCELED

    def test_a_request_that_met_a_retry_does_not_outlive_it(self, app: Penstock, clock: ManualClock) -> None:
        job = bury(app)
        app.jobs.retry(job.id)
        taken = claim_one(app)
        app.jobs.cancel(job.id)
        app.queue.finish(taken, Canceled())
        again = app.jobs.retry(job.id)
        assert again.cancel_requested_at is None
        assert app.queue.heartbeat(claim_one(app)) == []

    def test_what_ended_cannot_be_canceled(self, app: Penstock) -> None:
        numbered(app, [1])
        taken = claim_one(app)
        app.queue.finish(taken, Succeeded())
        with (
            nothing_written(app),
            pytest.raises(IllegalTransition, match=r"canceled because it is succeeded.*queued or running") as refused,
        ):
            app.jobs.cancel(taken.job_id)
        assert (refused.value.status, refused.value.verb) == ("succeeded", "cancel")


class TestRetry:
    def test_the_same_job_with_one_attempt_more(self, app: Penstock, clock: ManualClock) -> None:
        job = bury(app, max_attempts=1)
        clock.advance(100)
        again = app.jobs.retry(job.id)
        assert (again.id, again.status, again.attempt_no, again.max_attempts) == (job.id, JobStatus.QUEUED, 1, 2)
        assert (again.finished_at, again.scheduled_for) == (None, clock.now())
        taken = claim_one(app)
        assert (taken.job_id, taken.attempt_no) == (job.id, 2)
        app.queue.finish(taken, Succeeded())
        assert [run.status for run in app.jobs.runs(job.id)] == ["failed", "succeeded"]

    def test_in_chain_mode_a_new_job(self, app: Penstock) -> None:
        app.define("work", retry_mode="chain")
        job = bury(app, max_attempts=1)
        again = app.jobs.retry(job.id)
        assert (again.retry_of, again.root_id, again.attempt_no, again.max_attempts) == (job.id, job.id, 1, 2)
        with nothing_written(app), pytest.raises(IllegalTransition, match=str(again.id)):
            app.jobs.retry(job.id)
        app.queue.finish(claim_one(app), Failed("still", fatal=True))
        third = app.jobs.retry(again.id)
        assert [each.id for each in app.jobs.chain(third.id)] == [job.id, again.id, third.id]

    @pytest.mark.parametrize("mode", ["requeue", "chain"])
    def test_a_canceled_job_that_never_ran(self, app: Penstock, mode: str) -> None:
        app.define("work", retry_mode=mode)
        (job,) = numbered(app, [1])
        app.jobs.cancel(job.id)
        assert app.jobs.retry(job.id).id == job.id
        assert claim_one(app).attempt_no == 1

    def test_a_retry_canceled_while_it_waits_can_be_retried(self, app: Penstock, clock: ManualClock) -> None:
        (job,) = numbered(app, [1])
        app.queue.finish(claim_one(app), Failed("no"))
        app.jobs.cancel(job.id)
        assert app.doctor().clean
        app.jobs.retry(job.id)
        assert claim_one(app).attempt_no == 2

    @pytest.mark.parametrize("state", ["queued", "running", "succeeded"])
    def test_only_what_ended_badly(self, app: Penstock, state: str) -> None:
        (job,) = numbered(app, [1])
        if state != "queued":
            taken = claim_one(app)
            if state == "succeeded":
                app.queue.finish(taken, Succeeded())
        with (
            nothing_written(app),
            pytest.raises(IllegalTransition, match=f"it is {state}.*failed, dead_letter or canceled"),
        ):
            app.jobs.retry(job.id)

    @pytest.mark.parametrize("mode", ["requeue", "chain"])
    def test_not_while_its_dedupe_key_is_taken(self, app: Penstock, mode: str) -> None:
        app.define("work", retry_mode=mode)
        job = bury(app, dedupe_key="k")
        newer = app.enqueue("work", dedupe_key="k")
        with nothing_written(app), pytest.raises(IllegalTransition, match=str(newer.id)):
            app.jobs.retry(job.id)
        app.jobs.cancel(newer.id)
        assert app.jobs.retry(job.id).status is JobStatus.QUEUED


class TestUpdate:
    def test_params_are_merged_and_checked_again(self, app: Penstock) -> None:
        app.define("work", default_params={"d": 1}, arg_schema={"properties": {"n": {"type": "integer"}}})
        (job,) = numbered(app, [1])
        assert app.jobs.update(job.id, params={"n": 2}).params == {"d": 1, "n": 2}
        with nothing_written(app), pytest.raises(InvalidPayload, match=r"\$\.n"):
            app.jobs.update(job.id, params={"n": "x"})
        assert claim_one(app).params == {"d": 1, "n": 2}

    def test_priority_gives_a_new_place_at_the_end_of_it(self, app: Penstock) -> None:
        numbered(app, [1, 2], priority=5)
        (job,) = numbered(app, [3], priority=50)
        numbered(app, [4], priority=5)
        changed = app.jobs.update(job.id, priority=5)
        assert (changed.priority, changed.params) == (5, {"n": 3})
        assert claimed_numbers(app) == [1, 2, 4, 3]

    def test_a_waiting_job_keeps_waiting(self, app: Penstock, clock: ManualClock) -> None:
        job = app.enqueue("work", {"n": 1}, delay=60)
        numbered(app, [2])
        app.jobs.update(job.id, priority=1, params={"n": 9})
        assert claimed_numbers(app) == [2]
        clock.advance(60)
        assert claimed_numbers(app) == [9]

    def test_earlier_runs_keep_what_they_ran_with(self, app: Penstock, clock: ManualClock) -> None:
        (job,) = numbered(app, [1])
        for n in (2, 3):
            app.queue.finish(claim_one(app), Failed("no"))
            app.jobs.update(job.id, params={"n": n})
            clock.advance(3600)
        claim_one(app)
        assert [run.params for run in app.jobs.runs(job.id)] == [{"n": 1}, {"n": 2}, {"n": 3}]

    def test_nothing_given_is_nothing_changed(self, app: Penstock) -> None:
        (job,) = numbered(app, [1])
        with nothing_written(app):
            assert app.jobs.update(job.id) == job

    @pytest.mark.parametrize("state", ["running", "canceled"])
    def test_frozen_once_it_runs_or_ended(self, app: Penstock, state: str) -> None:
        (job,) = numbered(app, [1])
        claim(app) if state == "running" else app.jobs.cancel(job.id)
        for change in ({"params": {"n": 2}}, {"priority": 1}):
            with (
                nothing_written(app),
                pytest.raises(IllegalTransition, match=f"cannot be updated because it is {state}.*is queued"),
            ):
                app.jobs.update(job.id, **change)  # type: ignore[arg-type]


class TestMove:
    @pytest.mark.parametrize(
        ("mover", "where", "target", "expected"),
        [
            (4, "before", 1, [4, 1, 2, 3]),
            (4, "before", 3, [1, 2, 4, 3]),
            (4, "after", 1, [1, 4, 2, 3]),
            (1, "after", 4, [2, 3, 4, 1]),
            (1, "before", 3, [2, 1, 3, 4]),
            (2, "after", 1, [1, 2, 3, 4]),
            (2, "before", 2, [1, 2, 3, 4]),
            (3, "to", "top", [3, 1, 2, 4]),
            (1, "to", "top", [1, 2, 3, 4]),
            (2, "to", "bottom", [1, 3, 4, 2]),
        ],
    )
    def test_places(self, app: Penstock, mover: int, where: str, target: Any, expected: list[int]) -> None:
        made = dict(zip([1, 2, 3, 4], numbered(app, [1, 2, 3, 4]), strict=True))
        aim = target if where == "to" else made[target].id
        moved = app.jobs.move(made[mover].id, **{where: aim})
        assert moved == app.jobs.get(moved.id)
        assert claimed_numbers(app) == expected

    def test_a_used_up_gap_is_spread_again(self, app: Penstock) -> None:
        made = numbered(app, [0, 1])
        expected = [0, 1]
        for n in range(2, 30):  # a gap of 100 holds six halvings
            (job,) = numbered(app, [n])
            app.jobs.move(job.id, after=made[0].id)
            expected.insert(1, n)
        assert claimed_numbers(app) == expected

    def test_towards_the_head_again_and_again(self, app: Penstock) -> None:
        made = numbered(app, [0, 1])
        for n in range(2, 30):
            (job,) = numbered(app, [n])
            app.jobs.move(job.id, before=made[1].id)
        assert claimed_numbers(app) == [0, *range(2, 30), 1]

    def test_to_another_priority_by_its_neighbour(self, app: Penstock) -> None:
        (first, _) = numbered(app, [1, 2], priority=1)
        (job,) = numbered(app, [3], priority=100)
        assert app.jobs.move(job.id, after=first.id).priority == 1
        assert claimed_numbers(app) == [1, 3, 2]

    def test_a_tenant_reorders_only_its_own(self, app: Penstock) -> None:
        app.tenants.create("acme")
        theirs = numbered(app, [1, 2, 3], tenant="acme")
        ours = numbered(app, [11, 12, 13])
        app.jobs.move(ours[2].id, to="top")
        with nothing_written(app), pytest.raises(NotFound):
            app.jobs.move(ours[0].id, before=theirs[0].id)
        order = claimed_numbers(app)
        assert [n for n in order if n < 10] == [1, 2, 3]
        assert [n for n in order if n > 10] == [13, 11, 12]

    def test_what_has_no_place_cannot_be_moved(self, app: Penstock) -> None:
        (placed,) = numbered(app, [1])
        waiting = app.enqueue("work", delay=60)
        with nothing_written(app):
            with pytest.raises(InvalidInput, match="waits for its time"):
                app.jobs.move(waiting.id, to="top")
            with pytest.raises(InvalidInput, match="waits for its time"):
                app.jobs.move(placed.id, after=waiting.id)
            with pytest.raises(InvalidInput, match="exactly one"):
                app.jobs.move(placed.id)
            with pytest.raises(InvalidInput, match="exactly one"):
                app.jobs.move(placed.id, before=placed.id, to="top")
            with pytest.raises(InvalidInput, match="bottom, top"):
                app.jobs.move(placed.id, to="middle")
            with pytest.raises(NotFound):
                app.jobs.move(placed.id, before=new_id())

    def test_what_runs_cannot_be_moved(self, app: Penstock) -> None:
        first, second = numbered(app, [1, 2])
        claim(app)
        with nothing_written(app), pytest.raises(IllegalTransition, match="running"):
            app.jobs.move(first.id, to="bottom")
        with nothing_written(app), pytest.raises(IllegalTransition, match="running"):
            app.jobs.move(second.id, before=first.id)


def test_normalise_spreads_and_keeps_the_order(app: Penstock) -> None:
    app.tenants.create("acme")
    made = numbered(app, range(4))
    numbered(app, [9], priority=5)
    numbered(app, [100], tenant="acme")
    app.jobs.move(made[3].id, after=made[0].id)
    before = [job.params["n"] for job in sorted(app.jobs.list(), key=lambda job: (job.priority, job.position))]
    assert app.jobs.normalise(100) == 4
    assert app.jobs.normalise() == 5
    after = sorted(app.jobs.list(), key=lambda job: (job.priority, job.position))
    assert [job.params["n"] for job in after] == before == [9, 0, 3, 1, 2]
    places = [job.position for job in after if job.priority == 100]
    assert [b - a for a, b in pairwise(places)] == [100, 100, 100]
    assert app.jobs.normalise(77) == 0
