"""The job table: refresh, the five statuses and the transitions between them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import penstock.pipeline as dj
from penstock.core.clock import ManualClock
from penstock.store.database import Database
from tests.pipeline.lab import Lab


class Holder:
    """What Schema takes as an app: anything with a Database."""

    def __init__(self, db: Database) -> None:
        self.db = db


@pytest.fixture
def timed(db: Database) -> Lab:
    """A lab on a clock that the test moves."""
    return Lab(dj.Schema("lab", Holder(db)))


def counts(**changed: int) -> dict[str, int]:
    return {"added": 0, "removed": 0, "orphaned": 0, "re_pended": 0, "reprioritised": 0, **changed}


def test_the_table_is_named_keyed_and_hidden(lab: Lab) -> None:
    jobs = lab.FilteredImage.jobs
    assert jobs.table_name == "~~filtered_image"
    assert jobs.primary_key == ["subject_id", "image_id"]
    assert lab.schema.list_tables() == ["subject", "image", "__filtered_image"]
    assert [job.target.table_name for job in lab.schema.jobs] == ["__filtered_image"]


def test_refresh_adds_what_is_missing_once(lab: Lab) -> None:
    lab.fill()
    assert lab.FilteredImage.jobs.refresh() == counts(added=6)
    assert lab.FilteredImage.jobs.refresh() == counts()
    assert lab.FilteredImage.jobs.progress() == {
        "pending": 6, "reserved": 0, "success": 0, "error": 0, "ignore": 0, "total": 6,
    }  # fmt: skip
    assert (lab.FilteredImage.jobs & "priority = 5").fetch("KEY") == lab.FilteredImage.jobs.keys()


def test_refresh_of_a_part_leaves_the_rest(lab: Lab) -> None:
    lab.fill()
    assert lab.FilteredImage.jobs.refresh(lab.Subject & 'priority="urgent"', priority=0)["added"] == 2
    assert {row["subject_id"] for row in lab.FilteredImage.jobs.pending} == {1}


def test_refresh_with_a_priority_gives_it_to_keys_already_pending(lab: Lab) -> None:
    lab.fill()
    lab.FilteredImage.jobs.refresh()
    assert lab.FilteredImage.jobs.refresh({"subject_id": 2}, priority=0) == counts(reprioritised=2)
    assert len(lab.FilteredImage.jobs & "priority = 0") == 2
    assert lab.FilteredImage.jobs.refresh() == counts()
    assert len(lab.FilteredImage.jobs & "priority = 0") == 2


def test_refresh_removes_stale_jobs_only_when_old(timed: Lab, clock: ManualClock) -> None:
    timed.fill()
    jobs = timed.FilteredImage.jobs
    jobs.refresh()
    (timed.Image & {"subject_id": 3}).delete()
    assert jobs.refresh() == counts()
    clock.advance(hours=2)
    assert jobs.refresh({"subject_id": 1}) == counts(removed=2)
    assert len(jobs.pending) == 4


def test_a_restricted_refresh_touches_no_reservation(timed: Lab, clock: ManualClock) -> None:
    timed.fill()
    jobs = timed.FilteredImage.jobs
    jobs.refresh()
    assert jobs.reserve(timed.key(2))
    assert jobs.refresh({"subject_id": 1}, stale_timeout=0) == counts()
    assert jobs.reserved.fetch("KEY") == [timed.key(2)]


def test_refresh_drops_pending_jobs_whose_result_is_there(lab: Lab) -> None:
    lab.fill()
    lab.FilteredImage.jobs.refresh()
    lab.FilteredImage.populate({"subject_id": 1})
    assert lab.FilteredImage.jobs.refresh() == counts(removed=2)


def test_reserve_takes_only_what_is_pending_and_due(timed: Lab, clock: ManualClock) -> None:
    timed.fill()
    jobs = timed.FilteredImage.jobs
    assert jobs.reserve(timed.key(1)) is False
    jobs.refresh(delay=60)
    assert jobs.reserve(timed.key(1)) is False
    clock.advance(61)
    assert jobs.reserve(timed.key(1)) is True
    assert jobs.reserve(timed.key(1)) is False
    row = jobs.reserved.fetch1()
    assert row["status"] == "reserved" and row["reserved_time"] == clock.now()
    assert row["host"] and row["pid"] > 0 and row["user"]


def test_complete_deletes_or_keeps(lab: Lab) -> None:
    lab.fill()
    jobs = lab.FilteredImage.jobs
    jobs.refresh()
    assert jobs.reserve(lab.key(1))
    jobs.complete(lab.key(1), duration=2.5)
    assert lab.key(1) not in jobs
    dj.config["jobs.keep_completed"] = True
    assert jobs.reserve(lab.key(2))
    jobs.complete(lab.key(2), duration=2.5)
    row = jobs.completed.fetch1()
    assert (row["status"], row["duration"]) == ("success", 2.5)
    assert row["completed_time"] >= row["reserved_time"]


def test_error_keeps_message_and_whole_stack(lab: Lab) -> None:
    lab.fill()
    jobs = lab.FilteredImage.jobs
    jobs.refresh()
    assert jobs.reserve(lab.key(1))
    jobs.error(lab.key(1), "x" * 5000, "stack " * 5000)
    row = jobs.errors.fetch1()
    assert row["error_message"] == "x" * 2047
    assert row["error_stack"] == "stack " * 5000


@pytest.mark.parametrize("verb", ["complete", "error"])
def test_illegal_transitions_raise_and_write_nothing(lab: Lab, verb: str) -> None:
    lab.fill()
    jobs = lab.FilteredImage.jobs
    jobs.refresh()
    arguments = ("it broke",) if verb == "error" else ()
    before = jobs.to_dicts()
    with pytest.raises(dj.JobTransitionError, match="it is pending, and must be reserved"):
        getattr(jobs, verb)(lab.key(1), *arguments)
    assert jobs.to_dicts() == before
    jobs.ignore(lab.key(1))
    with pytest.raises(dj.JobTransitionError, match="it is ignore"):
        getattr(jobs, verb)(lab.key(1), *arguments)
    assert jobs.reserve(lab.key(1)) is False


def test_reserved_and_done_jobs_cannot_be_ignored(lab: Lab) -> None:
    lab.fill()
    dj.config["jobs.keep_completed"] = True
    jobs = lab.FilteredImage.jobs
    jobs.refresh()
    jobs.reserve(lab.key(1))
    with pytest.raises(dj.JobTransitionError, match="reserved"):
        jobs.ignore(lab.key(1))
    jobs.complete(lab.key(1))
    with pytest.raises(dj.JobTransitionError, match="success"):
        jobs.ignore(lab.key(1))


def test_a_stale_worker_changes_nothing(timed: Lab, clock: ManualClock) -> None:
    timed.fill()
    jobs = timed.FilteredImage.jobs
    jobs.refresh()
    assert jobs.reserve(timed.key(1))
    late = dict(jobs._state.tokens)
    clock.advance(3600)
    assert jobs.refresh()["orphaned"] == 1
    assert jobs.reserve(timed.key(1))
    current = jobs.reserved.fetch1()
    jobs._state.tokens.update(late)
    for report in (lambda: jobs.complete(timed.key(1)), lambda: jobs.error(timed.key(1), "late")):
        jobs._state.tokens.update(late)
        with pytest.raises(dj.ReservationLost):
            report()
    assert jobs.reserved.fetch1() == current


def test_ignore_works_on_keys_not_queued_and_is_respected(lab: Lab) -> None:
    lab.fill()
    jobs = lab.FilteredImage.jobs
    jobs.ignore(lab.key(1))
    assert jobs.refresh()["added"] == 5
    lab.FilteredImage.populate(reserve_jobs=True)
    assert lab.key(1) not in lab.FilteredImage
    assert jobs.ignored.fetch("KEY") == [lab.key(1)]
    jobs.ignored.delete()
    assert jobs.refresh()["added"] == 1


def test_a_key_must_be_whole(lab: Lab) -> None:
    with pytest.raises(dj.QueryError, match="'image_id' is missing"):
        lab.FilteredImage.jobs.reserve({"subject_id": 1})


def test_bad_arguments_are_refused(lab: Lab) -> None:
    jobs = lab.FilteredImage.jobs
    for priority in (-1, 2.5, True, "high"):
        with pytest.raises(dj.PipelineError, match="priority takes"):
            jobs.refresh(priority=priority)
    with pytest.raises(dj.PipelineError, match="not both"):
        jobs.refresh(delay=5, scheduled_time=datetime.now(UTC))
    with pytest.raises(dj.RestrictionError):
        jobs.refresh("no_such = 1")


def test_schedule_by_time_or_delay(timed: Lab, clock: ManualClock) -> None:
    timed.fill()
    jobs = timed.FilteredImage.jobs
    jobs.refresh({"subject_id": 1}, scheduled_time=clock.now() + timedelta(hours=2))
    jobs.refresh({"subject_id": 2}, delay=3 * 3600)
    timed.FilteredImage.populate({"subject_id": [1, 2][0]}, reserve_jobs=True, refresh=False)
    assert len(timed.FilteredImage) == 0
    clock.advance(hours=2)
    timed.FilteredImage.populate(reserve_jobs=True, refresh=False)
    assert {row["subject_id"] for row in timed.FilteredImage} == {1}


def test_a_naive_time_is_local(lab: Lab) -> None:
    lab.fill(1, 1)
    tonight = datetime.now() + timedelta(hours=3)  # noqa: DTZ005 - as the seed writes it
    lab.FilteredImage.jobs.refresh(scheduled_time=tonight)
    stored = lab.FilteredImage.jobs.fetch1("scheduled_time")
    assert stored == tonight.astimezone(UTC)


def test_a_killed_worker_returns_within_its_lease_and_is_remembered(timed: Lab, clock: ManualClock) -> None:
    timed.fill(1, 1)
    dj.config["jobs.lease_seconds"] = 100
    jobs = timed.FilteredImage.jobs
    jobs.refresh()
    with timed.schema.connection.transaction as tx:
        jobs.store.reserve(tx, timed.key(1), "dead", _nobody(), 100)
    clock.advance(99)
    assert jobs.refresh()["orphaned"] == 0
    clock.advance(2)
    assert "vanished" in jobs.why(timed.key(1))
    assert jobs.refresh()["orphaned"] == 1
    assert jobs.pending.fetch1("attempts") == 1
    assert "vanished" in jobs.history(timed.key(1))[0]["error_message"]


def test_a_key_that_takes_down_its_workers_becomes_an_error(timed: Lab, clock: ManualClock) -> None:
    timed.fill(1, 1)
    dj.config["jobs.max_crashes"] = 2
    jobs = timed.FilteredImage.jobs
    jobs.refresh()
    for _ in range(2):
        with timed.schema.connection.transaction as tx:
            assert jobs.store.reserve(tx, timed.key(1), "dead", _nobody(), 1)
        clock.advance(5)
        jobs.refresh()
    assert "vanished" in jobs.errors.fetch1("error_message")


def test_orphan_timeout_goes_by_the_time_of_reservation(timed: Lab, clock: ManualClock) -> None:
    timed.fill(1, 2)
    dj.config["jobs.lease_seconds"] = 10_000
    jobs = timed.FilteredImage.jobs
    jobs.refresh()
    with timed.schema.connection.transaction as tx:
        jobs.store.reserve(tx, timed.key(1, 1), "a", _nobody(), 10_000)
    clock.advance(500)
    with timed.schema.connection.transaction as tx:
        jobs.store.reserve(tx, timed.key(1, 2), "b", _nobody(), 10_000)
    assert jobs.refresh()["orphaned"] == 0
    assert jobs.refresh(orphan_timeout=300)["orphaned"] == 1
    assert jobs.reserved.fetch("KEY") == [timed.key(1, 2)]


def test_success_is_pended_again_when_its_result_is_gone(lab: Lab) -> None:
    lab.fill(1, 2)
    dj.config["jobs.keep_completed"] = True
    lab.FilteredImage.populate(reserve_jobs=True)
    assert lab.FilteredImage.jobs.refresh() == counts()
    (lab.FilteredImage & lab.key(1)).delete()
    assert lab.FilteredImage.jobs.refresh() == counts(re_pended=1)
    assert lab.FilteredImage.jobs.pending.fetch("KEY") == [lab.key(1)]


def test_error_history_survives_clearing(lab: Lab) -> None:
    lab.fill(2, 1)
    lab.broken = {2}
    lab.FilteredImage.populate(reserve_jobs=True, suppress_errors=True)
    lab.FilteredImage.jobs.errors.delete()
    assert len(lab.FilteredImage.jobs) == 0
    past = lab.FilteredImage.jobs.history(lab.key(2))
    assert [row["error_message"] for row in past] == ["ValueError: subject 2 moved"]
    assert "moved" in past[0]["error_stack"] and past[0]["attempt"] == 1
    assert lab.FilteredImage.jobs.history(lab.key(1)) == []


def test_why_says_what_keeps_a_key(lab: Lab) -> None:
    lab.fill(2, 2)
    lab.broken = {2}
    jobs = lab.FilteredImage.jobs
    assert "not in the key source" in jobs.why(lab.key(9))
    assert "not queued" in jobs.why(lab.key(1))
    jobs.refresh()
    assert "pending at priority 5, behind 0 more urgent jobs" in jobs.why(lab.key(1))
    jobs.reserve(lab.key(1))
    assert "is at it since" in jobs.why(lab.key(1))
    jobs.ignore(lab.key(1, 2))
    assert "is ignored" in jobs.why(lab.key(1, 2))
    lab.FilteredImage.populate(reserve_jobs=True, suppress_errors=True)
    assert "subject 2 moved" in jobs.why(lab.key(2))
    jobs.complete(lab.key(1))
    lab.FilteredImage.populate(lab.key(1))
    assert "there already" in jobs.why(lab.key(1))


def test_versions_are_recorded(lab: Lab) -> None:
    lab.fill(1, 3)
    jobs = lab.FilteredImage.jobs
    jobs.refresh()
    dj.config["jobs.version"] = "1.2.3"
    jobs.reserve(lab.key(1))
    assert jobs.reserved.fetch1("version") == "1.2.3"
    dj.config["jobs.version"] = "git"
    jobs.reserve(lab.key(1, 2))
    version: Any = (jobs & lab.key(1, 2)).fetch1("version")
    assert version == "" or len(version) >= 7


def test_the_job_table_goes_with_its_table_and_follows_its_key(lab: Lab) -> None:
    lab.fill(2, 1)
    lab.FilteredImage.jobs.refresh()
    lab.FilteredImage.drop()
    schema, Subject = lab.schema, lab.Subject

    @schema
    class FilteredImage(dj.Computed):
        definition = """
        -> Subject
        ---
        filtered_image : <blob>
        """

    assert FilteredImage.jobs.primary_key == ["subject_id"]
    assert FilteredImage.jobs.refresh()["added"] == 2
    assert Subject.children() == ["lab.image", "lab.__filtered_image"]


def test_a_job_table_with_another_key_is_made_again(lab: Lab) -> None:
    lab.fill(1, 1)
    store = lab.FilteredImage.jobs.store
    from sqlalchemy import text

    name = '"lab.~~filtered_image"' if lab.schema.connection.backend == "sqlite" else 'lab."~~filtered_image"'
    with lab.schema.connection.transaction as tx:
        tx.run(text(f"ALTER TABLE {name} DROP COLUMN version"))
        assert store.ensure(tx) is True
    assert lab.FilteredImage.jobs.refresh()["added"] == 1


def _nobody() -> Any:
    from penstock.store.pipeline.jobs import Identity

    return Identity("nobody", "crashed-node", 1, "")
