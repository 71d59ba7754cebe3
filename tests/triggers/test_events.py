"""Events: the row and its jobs commit or vanish together, and what one trigger cannot use does not stop the others."""

from __future__ import annotations

import threading
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa

from penstock.core.cause import causing_job
from penstock.core.errors import InvalidInput, InvalidPayload, InvalidTemplate, NotFound
from penstock.core.settings.triggers import TriggerSettings
from tests.triggers.conftest import Room


def test_an_event_makes_typed_params(room: Room) -> None:
    made = room.triggers.on_event(
        "resync", "provider.folder.updated", "work",
        {"provider": "{{event.provider_id}}", "note": "folder {{event.path}}", "by": "{{emitted.name}}"}, priority=7,
    )  # fmt: skip
    event = room.events.emit("provider.folder.updated", {"provider_id": 7, "path": "/a"}, correlation_id="req-1")
    (job,) = room.app.jobs.list()
    assert job.params == {"provider": 7, "note": "folder /a", "by": "provider.folder.updated"}
    assert (job.source, job.source_ref, job.trigger_id, job.priority) == ("event", str(event.id), made.id, 7)
    assert job.correlation_id == "req-1"
    assert event.job_ids == (job.id,)
    assert room.events.get(event.id) == event
    assert room.events.list() == [event]


def test_names_match_exactly_or_by_prefix(room: Room) -> None:
    for pattern in ("a.b.c", "a.b.*", "a.*", "*", "a.b", "b.*", "a.b.c.*"):
        room.triggers.on_event(pattern, pattern, "work", {"pattern": pattern})
    event = room.events.emit("a.b.c")
    assert {each["label"] for each in event.outcomes} == {"a.b.c", "a.b.*", "a.*", "*"}


def test_what_fails_is_told_and_the_others_fire(room: Room) -> None:
    room.app.define("typed", arg_schema={"type": "object", "properties": {"n": {"type": "integer"}}})
    room.triggers.on_event("missing", "e", "work", {"a": "{{event.nothing}}"})
    room.triggers.on_event("misfit", "e", "typed", {"n": "{{event.text}}"})
    off = room.triggers.on_event("off", "e", "work")
    room.triggers.disable(off.id, "resting")
    room.triggers.on_event("good", "e", "work", {"t": "{{event.text}}"})
    event = room.events.emit("e", {"text": "x"})
    told = {each["label"]: (each["outcome"], each.get("reason", "")) for each in event.outcomes}
    assert told["missing"][0] == "error"
    assert "event.nothing" in told["missing"][1]
    assert told["misfit"][0] == "error"
    assert "$.n" in told["misfit"][1]
    assert told["off"] == ("skipped", "disabled: resting")
    assert told["good"] == ("fired", "")
    assert [job.params for job in room.app.jobs.list()] == [{"t": "x"}]
    assert room.events.get(event.id).outcomes == event.outcomes


def test_an_archived_definition_disables_the_trigger_with_the_reason(room: Room) -> None:
    from penstock.store.tables import definitions

    made = room.triggers.on_event("t", "e", "work")
    with room.app.db.write() as tx:
        tx.run(sa.update(definitions).where(definitions.c.key == "work").values(is_active=False))
    event = room.events.emit("e")
    assert event.outcomes[0]["outcome"] == "error"
    after = room.triggers.get(made.id)
    assert not after.is_enabled
    assert "archived" in str(after.disabled_reason)


def test_the_same_params_fire_once_in_the_window_whatever_became_of_the_job(room: Room) -> None:
    room.triggers.on_event("t", "e", "work", {"n": "{{event.n}}"}, dedupe_window_seconds=120)
    first = room.events.emit("e", {"n": 1, "noise": 1})
    room.run_all()
    again = room.events.emit("e", {"n": 1, "noise": 2})
    other = room.events.emit("e", {"n": 2})
    assert again.outcomes[0]["outcome"] == "deduped"
    assert UUID(again.outcomes[0]["job_id"]) == first.job_ids[0]
    assert other.outcomes[0]["outcome"] == "fired"
    room.clock.advance(seconds=121)
    assert room.events.emit("e", {"n": 1}).outcomes[0]["outcome"] == "fired"


def test_two_emits_at_once_fire_once(room: Room) -> None:
    room.triggers.on_event("t", "e", "work", {"n": "{{event.n}}"})
    told: list[str] = []
    errors: list[BaseException] = []

    def go() -> None:
        try:
            told.append(room.events.emit("e", {"n": 1}).outcomes[0]["outcome"])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=go) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sorted(told) == ["deduped"] * 7 + ["fired"]
    assert len(room.app.jobs.list()) == 1


def test_in_the_callers_transaction_it_exists_exactly_if_that_commits(room: Room) -> None:
    room.triggers.on_event("t", "e", "work", {"n": "{{event.n}}"})
    with room.app.db.engine.connect() as connection:
        event = room.events.emit("e", {"n": 1}, connection=connection)
        connection.rollback()
    assert room.app.jobs.list() == []
    with pytest.raises(NotFound):
        room.events.get(event.id)
    with room.app.db.engine.connect() as connection:
        event = room.events.emit("e", {"n": 1}, connection=connection)
        connection.commit()
    assert room.events.get(event.id).job_ids == (room.app.jobs.list()[0].id,)


def test_a_loop_of_jobs_and_events_ends(room: Room) -> None:
    room.triggers.on_event("loop", "again", "work", {"n": "{{event.n}}"})
    cause: UUID | None = None
    for number in range(TriggerSettings.event_depth + 1):
        token = causing_job.set(cause)
        event = room.events.emit("again", {"n": number})
        causing_job.reset(token)
        assert event.depth == number
        if number < TriggerSettings.event_depth:
            (cause,) = event.job_ids
    assert event.outcomes[0]["outcome"] == "skipped"
    assert "loop guard" in event.outcomes[0]["reason"]
    assert event.emitted_by == f"job:{cause}"
    assert room.events.emit("again", {"n": 99}).outcomes[0]["outcome"] == "fired"


@pytest.mark.parametrize("name", ["", " ", "a..b", ".a", "a.", "a.*", "*", "a b", "a\nb", "x" * 300, None, 5])
def test_a_bad_name_is_refused(room: Room, name: Any) -> None:
    with pytest.raises(InvalidInput):
        room.events.emit(name)
    assert room.events.list() == []


@pytest.mark.parametrize("context", [[1], "x", {"a": float("nan")}, {"a": "\0"}, {"a": {1: 2}}, {"a": "x" * 2_000_000}])
def test_a_bad_context_is_refused(room: Room, context: Any) -> None:
    with pytest.raises(InvalidPayload):
        room.events.emit("e", context)


def test_bad_triggers_are_refused(room: Room) -> None:
    with pytest.raises(InvalidTemplate):
        room.triggers.on_event("t", "e", "work", {"a": "{{tick.at}}"})
    with pytest.raises(InvalidInput):
        room.triggers.on_event("t", "e.**", "work")
    with pytest.raises(InvalidInput):
        room.triggers.preview(room.triggers.on_event("t", "e", "work").id)


def test_a_value_that_looks_like_a_template_is_only_a_value(room: Room) -> None:
    room.triggers.on_event("t", "e", "work", {"a": "{{event.a}}", "b": "say {{event.a}}"})
    room.events.emit("e", {"a": "{{tenant.id}}"})
    assert room.app.jobs.list()[0].params == {"a": "{{tenant.id}}", "b": "say {{tenant.id}}"}


def test_firing_an_event_trigger_by_hand(room: Room) -> None:
    made = room.triggers.on_event("t", "e", "work", {"n": "{{event.n}}"})
    assert room.triggers.fire(made.id, event={"n": 3}).params == {"n": 3}
    with pytest.raises(InvalidTemplate):
        room.triggers.fire(made.id)


def test_another_tenants_triggers_do_not_answer(room: Room) -> None:
    room.app.tenants.create("acme")
    acme = room.of("acme")
    acme.triggers.on_event("t", "e", "work")
    event = room.events.emit("e")
    assert event.outcomes == ()
    assert acme.app.jobs.list() == []
    with pytest.raises(NotFound):
        acme.events.get(event.id)
    assert acme.events.list() == []
