"""Schedules on real databases: each due moment is one job, or a row that says why not."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock import Failed
from penstock.core.errors import (
    Conflict,
    DatabaseError,
    DefinitionArchived,
    InvalidInput,
    InvalidPayload,
    InvalidSchedule,
    InvalidTemplate,
    NotFound,
    UnknownDefinition,
)
from penstock.store import failpoints, leaders, triggers
from penstock.triggers import ticking
from penstock.triggers.scheduler import Scheduler
from tests.triggers.conftest import Room


def outcomes(room: Room, id: Any) -> list[tuple[str, str]]:
    return [(t.tick_at.strftime("%d %H:%M"), t.outcome) for t in reversed(room.triggers.ticks(id, 1000))]


def test_a_due_moment_becomes_one_job_with_merged_params(room: Room) -> None:
    room.app.define("report", default_params={"depth": 1, "format": "pdf"}, priority=70)
    made = room.triggers.schedule(
        "nightly", "0 2 * * *", "report", {"depth": 2, "day": "{{tick.date}}", "who": "{{tenant.slug}}"},
        timezone="America/New_York",
    )  # fmt: skip
    assert made.next_trigger_at == datetime(2026, 1, 1, 7, tzinfo=UTC)
    assert room.scheduler.step() == 0
    room.clock.set(datetime(2026, 1, 1, 7, 0, 3, tzinfo=UTC))
    assert room.scheduler.step() == 1
    assert room.scheduler.step() == 0
    (job,) = room.app.jobs.list()
    assert job.params == {"depth": 2, "format": "pdf", "day": "2026-01-01", "who": "default"}
    assert (job.source, job.trigger_id, job.priority) == ("schedule", made.id, 70)
    assert job.tick_at == datetime(2026, 1, 1, 7, tzinfo=UTC)
    after = room.triggers.get(made.id)
    assert after.last_triggered_at == job.tick_at
    assert after.next_trigger_at == datetime(2026, 1, 2, 7, tzinfo=UTC)
    (tick,) = room.triggers.ticks(made.id)
    assert (tick.outcome, tick.job_id) == ("fired", job.id)


def test_the_zone_is_the_tenants_unless_given(room: Room) -> None:
    room.app.tenants.create("acme", timezone="Asia/Kathmandu")
    acme = room.of("acme")
    assert acme.triggers.schedule("t", "0 6 * * *", "work").next_trigger_at == datetime(2026, 1, 1, 0, 15, tzinfo=UTC)
    assert acme.triggers.schedule("u", "0 6 * * *", "work", timezone="UTC").timezone == "UTC"
    assert room.triggers.schedule("t", "0 6 * * *", "work").timezone == "UTC"


def test_the_triggers_priority_wins(room: Room) -> None:
    room.triggers.schedule("t", "* * * * *", "work", priority=5)
    room.clock.advance(minutes=1)
    room.scheduler.step()
    assert room.app.jobs.list()[0].priority == 5


def test_catch_up_after_downtime(room: Room) -> None:
    made = {
        policy: room.triggers.schedule(policy, "0 * * * *", "work", catch_up=policy, catch_up_window_seconds=3 * 3600)
        for policy in ("skip", "latest", "all")
    }
    room.clock.advance(hours=5, minutes=30)
    room.scheduler.step()
    assert outcomes(room, made["all"].id) == [
        ("01 01:00", "skipped"), ("01 03:00", "fired"), ("01 04:00", "fired"), ("01 05:00", "fired"),
    ]  # fmt: skip
    assert [outcome for _, outcome in outcomes(room, made["latest"].id)] == ["skipped", "skipped", "skipped", "fired"]
    assert {outcome for _, outcome in outcomes(room, made["skip"].id)} == {"skipped"}
    assert all(tick.reason for tick in room.triggers.ticks(made["skip"].id))


def test_nothing_fires_for_the_time_before_the_trigger_existed(room: Room) -> None:
    room.clock.advance(days=3, seconds=17)
    made = room.triggers.schedule("t", "* * * * *", "work", catch_up="all")
    room.clock.advance(minutes=2)
    room.scheduler.step()
    assert all(tick.tick_at > made.created_at for tick in room.triggers.ticks(made.id))
    assert len(room.triggers.ticks(made.id)) == 2


def test_a_disabled_schedule_records_its_skips_and_does_not_catch_them_up(room: Room) -> None:
    made = room.triggers.schedule("t", "0 * * * *", "work", catch_up="all")
    room.triggers.disable(made.id, "holiday")
    room.clock.advance(hours=2)
    room.scheduler.step()
    assert [(t.outcome, t.reason) for t in room.triggers.ticks(made.id)] == [("skipped", "disabled: holiday")] * 2
    room.clock.advance(hours=2)
    enabled = room.triggers.enable(made.id)
    assert enabled.next_trigger_at == datetime(2026, 1, 1, 5, tzinfo=UTC)
    room.clock.advance(hours=1)
    room.scheduler.step()
    assert [outcome for _, outcome in outcomes(room, made.id)] == ["skipped"] * 4 + ["fired"]


def test_an_archived_definition_disables_its_schedules_and_names_them(room: Room) -> None:
    made = room.triggers.schedule("nightly", "0 * * * *", "work")
    archived = room.app.archive("work")
    assert archived.disabled_triggers == ("nightly",)
    after = room.triggers.get(made.id)
    assert not after.is_enabled
    assert "archived" in str(after.disabled_reason)
    room.clock.advance(hours=1)
    room.scheduler.step()
    (tick,) = room.triggers.ticks(made.id)
    assert tick.outcome == "skipped"
    assert "archived" in str(tick.reason)
    with pytest.raises(DefinitionArchived):
        room.triggers.enable(made.id)
    with pytest.raises(DefinitionArchived):
        room.triggers.fire(made.id)


def test_a_definition_archived_behind_our_back_gives_an_error_tick_and_disables(room: Room) -> None:
    import sqlalchemy as sa

    from penstock.store.tables import definitions

    made = room.triggers.schedule("t", "0 * * * *", "work")
    with room.app.db.write() as tx:
        tx.run(sa.update(definitions).where(definitions.c.key == "work").values(is_active=False))
    room.clock.advance(hours=1)
    room.scheduler.step()
    (tick,) = room.triggers.ticks(made.id)
    assert tick.outcome == "error"
    assert "archived" in str(tick.reason)
    after = room.triggers.get(made.id)
    assert not after.is_enabled
    assert "archived" in str(after.disabled_reason)
    assert room.app.jobs.list() == []


def test_params_that_no_longer_fit_give_an_error_tick(room: Room) -> None:
    made = room.triggers.schedule("t", "0 * * * *", "work", {"a": 1})
    room.app.define("work", arg_schema={"type": "object", "properties": {"a": {"type": "string"}}})
    room.clock.advance(hours=1)
    room.scheduler.step()
    (tick,) = room.triggers.ticks(made.id)
    assert tick.outcome == "error"
    assert "$.a" in str(tick.reason)
    assert room.triggers.get(made.id).is_enabled


def test_overlap_skip(room: Room) -> None:
    made = room.triggers.schedule("t", "0 * * * *", "work", overlap="skip")
    room.clock.advance(hours=1)
    room.scheduler.step()
    room.clock.advance(hours=1)
    room.scheduler.step()
    assert room.run_all() == 1
    room.clock.advance(hours=1)
    room.scheduler.step()
    assert [outcome for _, outcome in outcomes(room, made.id)] == ["fired", "skipped", "fired"]


def test_overlap_buffer_one_waits_for_the_running_job(room: Room) -> None:
    made = room.triggers.schedule("t", "0 * * * *", "work", overlap="buffer_one", catch_up="skip")
    room.clock.advance(hours=1)
    room.scheduler.step()
    room.clock.advance(hours=2)
    assert room.scheduler.step() == 0
    assert room.run_all() == 1
    room.clock.advance(seconds=1)
    room.scheduler.step()
    assert outcomes(room, made.id) == [("01 01:00", "fired"), ("01 02:00", "skipped"), ("01 03:00", "fired")]


def test_overlap_cancel_running(room: Room) -> None:
    made = room.triggers.schedule("t", "0 * * * *", "work", overlap="cancel_running")
    room.clock.advance(hours=1)
    room.scheduler.step()
    room.clock.advance(hours=1)
    room.scheduler.step()
    newest, oldest = room.app.jobs.list()
    assert (str(oldest.status), str(newest.status)) == ("canceled", "queued")
    (claim,) = room.app.queue.claim("host:1", 1)
    room.clock.advance(seconds=1)
    room.clock.set(datetime(2026, 1, 1, 3, tzinfo=UTC))
    room.app.queue.heartbeat(claim)
    room.scheduler.step()
    assert room.app.jobs.get(claim.job_id).cancel_requested_at is not None
    assert [outcome for _, outcome in outcomes(room, made.id)] == ["fired"] * 3
    room.app.queue.finish(claim, Failed("stopped"))


def test_jitter_delays_the_job_and_not_the_tick(room: Room) -> None:
    made = room.triggers.schedule("t", "0 * * * *", "work", jitter_seconds=600)
    room.clock.advance(hours=1)
    room.scheduler.step()
    (job,) = room.app.jobs.list()
    assert job.tick_at == datetime(2026, 1, 1, 1, tzinfo=UTC)
    assert job.tick_at < job.scheduled_for <= job.tick_at + timedelta(seconds=600)
    assert room.app.queue.claim("host:1") == []
    room.clock.advance(minutes=10)
    assert len(room.app.queue.claim("host:1")) == 1
    assert len(room.triggers.ticks(made.id)) == 1


def test_the_dedupe_window_spans_moments(room: Room) -> None:
    made = room.triggers.schedule("t", "* * * * *", "work", dedupe_window_seconds=150)
    for _ in range(4):
        room.clock.advance(minutes=1)
        room.scheduler.step()
        room.run_all()
    assert [outcome for _, outcome in outcomes(room, made.id)] == ["fired", "skipped", "skipped", "fired"]


def test_a_change_applies_to_the_next_moment_and_not_to_jobs_made(room: Room) -> None:
    made = room.triggers.schedule("t", "0 * * * *", "work", {"n": 1})
    room.clock.advance(hours=1)
    room.scheduler.step()
    room.triggers.update(made.id, params={"n": 2}, cron="*/30 * * * *")
    assert [job.params for job in room.app.jobs.list()] == [{"n": 1}]
    room.clock.advance(minutes=30)
    room.scheduler.step()
    assert [job.params for job in room.app.jobs.list()] == [{"n": 2}, {"n": 1}]


def test_a_moment_due_under_the_old_schedule_is_told_before_it_changes(room: Room) -> None:
    made = room.triggers.schedule("t", "0 * * * *", "work")
    room.clock.advance(hours=1, minutes=5)
    room.triggers.update(made.id, cron="30 * * * *")
    assert outcomes(room, made.id) == [("01 01:00", "fired")]


def test_scheduling_the_same_label_again_changes_it_or_is_refused(room: Room) -> None:
    first = room.triggers.schedule("t", "0 * * * *", "work")
    same = room.triggers.schedule("t", "0 * * * *", "work")
    assert same == first
    room.triggers.disable(first.id)
    changed = room.triggers.schedule("t", "5 * * * *", "work")
    assert (changed.id, changed.cron_expr, changed.is_enabled) == (first.id, "5 * * * *", False)
    with pytest.raises(Conflict):
        room.triggers.schedule("t", "0 * * * *", "work", replace=False)
    with pytest.raises(Conflict):
        room.triggers.on_event("t", "a.b", "work")


def test_firing_by_hand(room: Room) -> None:
    made = room.triggers.schedule("t", "0 0 1 1 *", "work", {"at": "{{tick.date}}", "n": 1})
    room.triggers.disable(made.id)
    job = room.triggers.fire(made.id, {"n": 2}, created_by="ann")
    assert job.params == {"at": "2026-01-01", "n": 2}
    assert (job.source, job.trigger_id, job.tick_at, job.created_by) == ("manual", made.id, None, "ann")


def test_preview_and_deletion(room: Room) -> None:
    made = room.triggers.schedule("t", "0 9 * * MON", "work", timezone="Europe/London")
    assert [m.isoformat() for m in room.triggers.preview(made.id, 2)] == [
        "2026-01-05T09:00:00+00:00",
        "2026-01-12T09:00:00+00:00",
    ]
    assert room.triggers.preview_cron("0 0 * * *", "UTC", 1) == [datetime(2026, 1, 2, tzinfo=UTC)]
    room.triggers.delete(made.id)
    with pytest.raises(NotFound):
        room.triggers.get(made.id)
    with pytest.raises(NotFound):
        room.triggers.delete(made.id)
    room.clock.advance(days=30)
    assert room.scheduler.step() == 0
    assert room.triggers.schedule("t", "0 9 * * MON", "work").id != made.id


def test_a_lost_update_is_refused(room: Room) -> None:
    made = room.triggers.get(room.triggers.schedule("t", "0 * * * *", "work").id)
    changed = room.triggers.update(made.id, if_version=made.version, priority=3)
    assert changed.priority == 3
    with pytest.raises(Conflict, match="changed meanwhile"):
        room.triggers.update(made.id, if_version=made.version, priority=4)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"cron": "61 * * * *"}, InvalidSchedule),
        ({"cron": "0 0 31 2 *"}, InvalidSchedule),
        ({"timezone": "Mars/Olympus"}, InvalidSchedule),
        ({"key": "nothing"}, UnknownDefinition),
        ({"params": {"a": "{{env.HOME}}"}}, InvalidTemplate),
        ({"params": {"a": "{{event.id}}"}}, InvalidTemplate),
        ({"params": {"a": "{{tick.nothing}}"}}, InvalidTemplate),
        ({"params": {"n": "text"}}, InvalidPayload),
        ({"params": [1]}, InvalidPayload),
        ({"label": ""}, InvalidInput),
        ({"catch_up": "some"}, InvalidInput),
        ({"overlap": "maybe"}, InvalidInput),
        ({"jitter_seconds": -1}, InvalidInput),
        ({"catch_up_window_seconds": 10**9}, InvalidInput),
        ({"colour": "red"}, InvalidInput),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(room: Room, given: dict[str, Any], error: type[Exception]) -> None:
    room.app.define("typed", arg_schema={"type": "object", "properties": {"n": {"type": "integer"}}})
    values: dict[str, Any] = {"label": "t", "cron": "0 * * * *", "key": "typed"} | given
    with pytest.raises(error):
        room.triggers.schedule(**values)
    assert room.triggers.list() == []
    made = room.triggers.schedule("t", "0 * * * *", "typed")
    with pytest.raises(error):
        room.triggers.update(made.id, **given)
    assert room.triggers.get(made.id) == made


def test_tenants_do_not_see_or_reach_each_others_triggers(room: Room) -> None:
    room.app.tenants.create("acme")
    acme = room.of("acme")
    acme.app.define("theirs")
    theirs = acme.triggers.schedule("t", "0 * * * *", "theirs")
    mine = room.triggers.schedule("t", "0 * * * *", "work")
    assert [t.id for t in room.triggers.list()] == [mine.id]
    with pytest.raises(UnknownDefinition):
        room.triggers.schedule("u", "0 * * * *", "theirs")
    with pytest.raises(UnknownDefinition):
        room.triggers.update(mine.id, key="theirs")
    for call in (
        room.triggers.get,
        room.triggers.fire,
        room.triggers.enable,
        room.triggers.delete,
        room.triggers.ticks,
    ):
        with pytest.raises(NotFound):
            call(theirs.id)
    room.clock.advance(hours=1)
    room.scheduler.step()
    assert [job.definition_key for job in acme.app.jobs.list()] == ["theirs"]
    assert [job.definition_key for job in room.app.jobs.list()] == ["work"]


def test_an_inactive_tenants_moments_are_skipped(room: Room) -> None:
    room.app.tenants.create("acme")
    acme = room.of("acme")
    made = acme.triggers.schedule("t", "0 * * * *", "work")
    room.app.tenants.update("acme", is_active=False)
    room.clock.advance(hours=1)
    room.scheduler.step()
    (tick,) = acme.triggers.ticks(made.id)
    assert tick.reason == "disabled: its tenant is inactive"


def test_five_schedulers_at_once_write_each_tick_once(room: Room) -> None:
    for number in range(40):
        room.triggers.schedule(f"t{number}", "* * * * *", "work", catch_up="all")
    room.clock.advance(minutes=10)
    written: list[int] = []
    errors: list[BaseException] = []

    def go() -> None:
        try:
            written.append(Scheduler(room.app.ground).step())
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=go) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    room.clock.advance(seconds=20)
    written.append(Scheduler(room.app.ground).step())
    assert sum(written) == 400
    assert room.app.jobs.summary().queued == 400


def test_a_transaction_that_dies_leaves_no_tick_without_its_job(room: Room) -> None:
    room.triggers.schedule("t", "* * * * *", "work")
    room.clock.advance(minutes=1)
    for point in ("tick.after_insert", "enqueue.after", "commit.before"):
        with failpoints.armed(point, "error"), pytest.raises(failpoints.InjectedError):
            room.scheduler.step()
        assert room.app.jobs.list() == []
    assert room.scheduler.step() == 1
    assert len(room.app.jobs.list()) == 1


def test_a_clock_that_jumps_back_fires_nothing_twice(room: Room) -> None:
    made = room.triggers.schedule("t", "* * * * *", "work", catch_up="all")
    start = room.clock.now()
    room.clock.advance(minutes=5)
    room.scheduler.step()
    room.clock.set(start + timedelta(minutes=2))
    assert room.scheduler.step() == 0
    room.clock.set(start + timedelta(minutes=6))
    assert room.scheduler.step() == 1
    assert len(room.triggers.ticks(made.id)) == 6
    room.clock.advance(minutes=10)
    room.run_all()


def test_a_leader_that_stalls_does_not_stop_the_others_for_long(room: Room, backend: str) -> None:
    made = room.triggers.schedule("t", "* * * * *", "work")
    room.clock.advance(minutes=1)
    if backend == "sqlite":
        room.app.db.transact(lambda tx: leaders.lead_schedules(tx, "another", 10))
        assert room.scheduler.step() == 0
        room.clock.advance(seconds=10)
        assert room.scheduler.step() == 1
    else:
        with room.app.db.write() as stalled:
            assert leaders.lead_schedules(stalled, "another", 10)
            assert room.scheduler.step() == 0
            room.clock.advance(seconds=16)
            assert room.scheduler.step() == 1
    assert len(room.triggers.ticks(made.id)) == 1


def test_a_scheduler_stopped_in_its_transaction_loses_it_and_its_locks(room: Room, backend: str) -> None:
    if backend == "sqlite":
        return  # there, whoever holds the one write lock holds it
    room.triggers.schedule("t", "* * * * *", "work")
    room.clock.advance(minutes=1)
    with pytest.raises(DatabaseError), room.app.db.write() as stalled:
        assert leaders.lead_schedules(stalled, "another", 0.05)
        assert triggers.due(stalled, True, 10) != []
        waited = threading.Event()
        for _ in range(1000):
            if room.scheduler.step() == 1:
                break
            waited.wait(0.01)
        triggers.any_due(stalled)
    assert len(room.app.jobs.list()) == 1


def test_more_schedules_than_a_page_are_decided_even_behind_held_ones(room: Room) -> None:
    scheduler = Scheduler(room.app.ground)
    held = [room.triggers.schedule(f"held {n}", "* * * * *", "work", overlap="buffer_one") for n in range(4)]
    room.clock.advance(minutes=1)
    scheduler.step()
    other = room.triggers.schedule("other", "* * * * *", "work")
    room.clock.advance(minutes=2)
    with room.app.db.write() as tx:
        cursor, pages = None, 0
        while True:
            _, cursor = ticking.page(room.app.ground, tx, True, cursor, size=2)
            pages += 1
            if cursor is None:
                break
    assert pages == 3
    assert len(room.triggers.ticks(other.id)) == 2
    assert all(len(room.triggers.ticks(trigger.id)) == 1 for trigger in held)


def test_the_thread_steps_by_itself_and_stops(room: Room) -> None:
    made = room.triggers.schedule("t", "* * * * *", "work")
    room.clock.advance(minutes=1)
    scheduler = Scheduler(room.app.ground, poll_seconds=0.01)
    scheduler.start()
    try:
        deadline = threading.Event()
        for _ in range(1000):
            if room.triggers.ticks(made.id):
                break
            deadline.wait(0.01)
    finally:
        scheduler.stop()
    assert len(room.triggers.ticks(made.id)) == 1
