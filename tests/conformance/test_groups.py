"""Groups: sequential and parallel, what a dead member means, retries and cancels within them."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import (
    Canceled,
    Claim,
    Failed,
    Group,
    InvalidInput,
    ManualClock,
    NotFound,
    Penstock,
    Skipped,
    Succeeded,
    UnknownDefinition,
)  # fmt: skip
from penstock.core.ids import new_id
from penstock.core.status import GroupStatus
from tests.conformance.helpers import claim, claim_one, claimed_numbers, nothing_written, numbered


def group_of(app: Penstock, size: int, mode: str = "sequential", on_failure: str = "stop") -> Group:
    return app.groups.create([("work", {"n": n}) for n in range(1, size + 1)], mode=mode, on_failure=on_failure)


def shape(app: Penstock, group: Group) -> tuple[str, list[str]]:
    now = app.groups.get(group.id)
    return str(now.status), [str(job.status) for job in now.jobs]


def die(app: Penstock, taken: Claim) -> None:
    app.queue.finish(taken, Failed("no", fatal=True))


def test_a_sequential_group_runs_one_after_the_other(app: Penstock) -> None:
    group = group_of(app, 3)
    assert [job.group_position for job in group.jobs] == [1, 2, 3]
    assert (group.status, group.mode, group.on_failure) == (GroupStatus.QUEUED, "sequential", "stop")
    for n in (1, 2, 3):
        (taken,) = claim(app, 9)
        assert (taken.params["n"], taken.group_id) == (n, group.id)
        assert shape(app, group)[0] == "running"
        app.queue.finish(taken, Succeeded() if n != 2 else Skipped())
    assert shape(app, group) == ("completed", ["succeeded"] * 3)


def test_a_parallel_group_runs_at_once(app: Penstock) -> None:
    group = group_of(app, 3, "parallel")
    taken = claim(app, 9)
    assert [each.params["n"] for each in taken] == [1, 2, 3]
    die(app, taken[0])
    assert shape(app, group)[0] == "running"
    app.queue.finish_many([(each, Succeeded()) for each in taken[1:]])
    assert shape(app, group) == ("partial", ["dead_letter", "succeeded", "succeeded"])


@pytest.mark.parametrize(
    ("on_failure", "ends", "rest"),
    [("stop", "partial", "canceled"), ("continue", "partial", "succeeded"), ("skip", "completed", "succeeded")],
)
def test_a_dead_member(app: Penstock, on_failure: str, ends: str, rest: str) -> None:
    group = group_of(app, 3, on_failure=on_failure)
    app.queue.finish(claim_one(app), Succeeded())
    die(app, claim_one(app))
    taken = claim(app, 9)
    assert len(taken) == (0 if on_failure == "stop" else 1)
    for each in taken:
        app.queue.finish(each, Succeeded())
    assert shape(app, group) == (ends, ["succeeded", "dead_letter", rest])
    if on_failure == "stop":
        assert app.groups.get(group.id).jobs[2].last_error == "predecessor failed"


@pytest.mark.parametrize("mode", ["requeue", "chain"])
def test_a_group_waits_for_the_end_of_a_retry_chain(app: Penstock, clock: ManualClock, mode: str) -> None:
    app.define("work", retry_mode=mode)
    group = group_of(app, 2)
    app.queue.finish(claim_one(app), Failed("once"))
    assert claim(app, 9) == []
    _, members = shape(app, group)
    assert len(members) == 2
    assert members[0] == "queued"
    clock.advance(60)
    (taken,) = claim(app, 9)
    assert (taken.params["n"], taken.group_id) == (1, group.id)
    app.queue.finish(taken, Succeeded())
    assert claimed_numbers(app) == [2]
    assert shape(app, group) == ("running", ["succeeded", "running"])


@pytest.mark.parametrize("mode", ["requeue", "chain"])
def test_retrying_a_dead_member_revives_those_canceled_because_of_it(app: Penstock, mode: str) -> None:
    app.define("work", retry_mode=mode)
    group = group_of(app, 3)
    first = claim_one(app)
    die(app, first)
    assert shape(app, group) == ("partial", ["dead_letter", "canceled", "canceled"])
    app.jobs.retry(first.job_id)
    assert shape(app, group)[1] == ["queued", "queued", "queued"]
    for n in (1, 2, 3):
        (taken,) = claim(app, 9)
        assert taken.params["n"] == n
        app.queue.finish(taken, Succeeded())
    assert shape(app, group) == ("completed", ["succeeded"] * 3)


@pytest.mark.parametrize("mode", ["requeue", "chain"])
def test_a_retried_member_waits_for_its_turn_again(app: Penstock, mode: str) -> None:
    app.define("work", retry_mode=mode)
    group = group_of(app, 3)
    first = claim_one(app)
    second = group.jobs[1]
    app.jobs.cancel(second.id)
    app.jobs.retry(second.id)
    assert claim(app, 9) == []
    assert app.doctor().clean
    app.queue.finish(first, Succeeded())
    assert claimed_numbers(app, 9) == [2]


@pytest.mark.parametrize("mode", ["requeue", "chain"])
def test_a_member_the_group_went_past(app: Penstock, clock: ManualClock, mode: str) -> None:
    """Retried while a later member is under way it waits for that one's end; those that wait, wait for it."""
    app.define("work", retry_mode=mode)
    group = group_of(app, 3, on_failure="continue")
    first = claim_one(app)
    die(app, first)
    second = claim_one(app)
    app.jobs.retry(first.job_id)
    assert claim(app, 9) == []
    assert app.doctor().clean
    app.recover()
    assert claim(app, 9) == []
    app.queue.finish(second, Succeeded())
    again = claim(app, 9)
    assert [each.params["n"] for each in again] == [1]
    assert app.doctor().clean
    app.queue.finish(again[0], Succeeded())
    again = claim(app, 9)
    assert [each.params["n"] for each in again] == [3]
    app.queue.finish(again[0], Succeeded())
    assert shape(app, group)[0] == "completed"


def test_canceling_a_group(app: Penstock) -> None:
    group = group_of(app, 3)
    taken = claim_one(app)
    app.groups.cancel(group.id)
    assert shape(app, group) == ("running", ["running", "canceled", "canceled"])
    assert app.queue.heartbeat(taken) == [taken]
    app.queue.finish(taken, Canceled())
    assert shape(app, group) == ("canceled", ["canceled"] * 3)
    assert app.groups.cancel(group.id).status is GroupStatus.CANCELED


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
def test_canceling_a_group_before_it_starts(app: Penstock, mode: str) -> None:
    group = group_of(app, 3, mode)
    assert app.groups.cancel(group.id).status is GroupStatus.CANCELED
    assert claim(app, 9) == []
    assert shape(app, group) == ("canceled", ["canceled"] * 3)


@pytest.mark.parametrize(("on_failure", "runs"), [("stop", []), ("continue", [2])])
def test_canceling_the_first_member(app: Penstock, on_failure: str, runs: list[int]) -> None:
    group = group_of(app, 2, on_failure=on_failure)
    app.jobs.cancel(group.jobs[0].id)
    assert claimed_numbers(app, 9) == runs


def test_a_scheduled_group_starts_at_its_time(app: Penstock, clock: ManualClock) -> None:
    group = app.groups.create([("work", {"n": 1}), ("work", {"n": 2})], delay=60, priority=3, label="nightly")
    assert (group.label, {job.priority for job in group.jobs}) == ("nightly", {3})
    assert claim(app, 9) == []
    clock.advance(300)
    numbered(app, [7])
    (first, other) = claim(app, 9)
    assert (first.params["n"], other.params["n"]) == (1, 7)
    clock.advance(20)
    app.queue.finish(first, Succeeded())
    assert app.doctor().clean  # the next member was let go just now; it is not overdue
    assert claimed_numbers(app, 9) == [2]


def test_a_member_behind_a_limit(app: Penstock) -> None:
    app.define("work", max_running=1)
    numbered(app, [9])
    group_of(app, 2)
    taken = claim_one(app)
    assert claim(app, 9) == []
    app.queue.finish(taken, Succeeded())
    assert claimed_numbers(app, 9) == [1]


def test_bad_groups_write_nothing(app: Penstock) -> None:
    with nothing_written(app):
        with pytest.raises(InvalidInput, match="at least one"):
            app.groups.create([])
        with pytest.raises(InvalidInput, match="parallel, sequential"):
            app.groups.create([("work", {})], mode="both")
        with pytest.raises(InvalidInput, match="continue, skip, stop"):
            app.groups.create([("work", {})], on_failure="explode")
        with pytest.raises(UnknownDefinition):
            app.groups.create([("work", {}), ("unknown", {})])
        with pytest.raises(NotFound):
            app.groups.get(new_id())
        with pytest.raises(NotFound):
            app.groups.cancel(new_id())


def test_groups_are_listed_newest_first(app: Penstock) -> None:
    made = [group_of(app, 1).id for _ in range(3)]
    assert [group.id for group in app.groups.list()] == made[::-1]
    assert [group.id for group in app.groups.list(limit=1, offset=1)] == [made[1]]
    for wrong in ({"limit": 0}, {"limit": -1}, {"offset": -1}):
        with pytest.raises(InvalidInput):
            app.groups.list(**wrong)


@pytest.mark.parametrize(
    "wrong", [["work", {}], [["work"]], [[]], [("work", {}, {"priority": 1})], ["work"], [{"key": "work"}], [None]]
)
def test_a_member_that_is_not_a_pair_is_told_plainly(app: Penstock, wrong: Any) -> None:
    with pytest.raises(InvalidInput, match=r"Job 1 of the group is .*; expected a pair of a key and its params"):
        app.groups.create(wrong)
    assert app.groups.list() == []
