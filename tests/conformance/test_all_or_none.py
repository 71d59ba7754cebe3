"""What is enqueued together is written whole or not at all, in the caller's transaction too, whatever changes meanwhile (P16)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from penstock import Config, Conflict, InvalidPayload, ManualClock, Penstock
from penstock.store import failpoints

BUMP = sa.text("UPDATE penstock_definitions SET version = version + 1 WHERE key = 'work'")


@pytest.fixture
def engine(app: Penstock) -> Iterator[sa.Engine]:
    engine = sa.create_engine(app.db.url)
    yield engine
    engine.dispose()


@pytest.fixture
def small_chunks(app: Penstock) -> None:
    app.ground.config = replace(app.config, enqueue_batch=10)


def again_and_again(change: Callable[[], object]) -> Callable[[], None]:
    def changed() -> None:
        change()
        failpoints.arm("enqueue.after", changed)

    return changed


def numbers(app: Penstock) -> list[Any]:
    return sorted(job.params["n"] for job in app.jobs.list(limit=1000))


@pytest.mark.parametrize("after", [0, 1, 2])
@pytest.mark.usefixtures("small_chunks")
def test_a_definition_that_changes_midway_is_read_again(app: Penstock, engine: sa.Engine, after: int) -> None:
    """The change is planted after a chunk, on the caller's own connection: SQLite lets nobody else write meanwhile."""
    with engine.begin() as caller, failpoints.armed("enqueue.after", lambda: caller.execute(BUMP), skip=after):
        ids = app.enqueue_many("work", [{"n": n} for n in range(35)], connection=caller)
    assert numbers(app) == list(range(35))
    assert [app.jobs.get(id).params["n"] for id in ids] == list(range(35))


@pytest.mark.parametrize("backend", ["postgresql"], indirect=True)
@pytest.mark.parametrize("joined", [True, False])
def test_a_rolling_deploy_in_the_middle_of_many(
    app: Penstock, engine: sa.Engine, clock: ManualClock, joined: bool
) -> None:
    """Another process writes its signature between the first five thousand and the rest, which are checked against it."""
    deployed = Penstock(app.db.url.render_as_string(hide_password=False), clock=clock)
    app.define("work", arg_schema={"required": ["n"]})

    def deploy() -> None:
        deployed.define("work", default_params={"new": True})

    many = [{"n": n} for n in range(Config.enqueue_batch + 2)]
    with failpoints.armed("enqueue.after", deploy):
        if joined:
            with engine.begin() as caller:
                ids = app.enqueue_many("work", many, connection=caller)
        else:
            ids = app.enqueue_many("work", many)
    deployed.close()
    assert app.jobs.summary().queued == len(ids) == Config.enqueue_batch + 2
    assert all(app.jobs.get(id).params["new"] for id in (ids[0], ids[-1]))


@pytest.mark.usefixtures("small_chunks")
def test_a_definition_that_never_rests_leaves_nothing(app: Penstock, engine: sa.Engine) -> None:
    with engine.begin() as caller:
        kept = app.enqueue("work", {"n": -1}, connection=caller)
        changing = again_and_again(lambda: caller.execute(BUMP))
        with failpoints.armed("enqueue.after", changing), pytest.raises(Conflict, match="kept changing; none"):
            app.enqueue_many("work", [{"n": n} for n in range(35)], connection=caller)
    assert [job.id for job in app.jobs.list()] == [kept.id]


@pytest.mark.usefixtures("small_chunks")
def test_what_is_undone_and_written_again_is_still_the_callers(app: Penstock, engine: sa.Engine) -> None:
    """SQLite's outermost savepoint is a transaction: to release it would commit."""
    with engine.connect() as caller, failpoints.armed("enqueue.after", lambda: caller.execute(BUMP)):
        app.enqueue_many("work", [{"n": n} for n in range(35)], connection=caller)
        caller.rollback()
        app.groups.create([("work", {"n": 1})], connection=caller)
        caller.rollback()
        app.emit("paid", connection=caller)
        caller.rollback()
    assert app.jobs.list() == app.groups.list() == app.events.list() == []


@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.usefixtures("small_chunks")
def test_wrong_params_far_behind_leave_nothing(app: Penstock, engine: sa.Engine, joined: bool) -> None:
    app.define("work", arg_schema={"properties": {"n": {"type": "integer"}}})
    many = [{"n": n} for n in range(30)] + [{"n": "wrong"}]
    with engine.begin() as caller:
        options = {"connection": caller} if joined else {}
        with pytest.raises(InvalidPayload):
            app.enqueue_many("work", many, **options)
    assert app.jobs.list() == []


def test_a_group_whose_definition_changes_is_read_again(app: Penstock, engine: sa.Engine) -> None:
    app.define("other")
    with engine.begin() as caller:
        app.enqueue("work", {"n": 0}, connection=caller)  # both are remembered from here on
        app.enqueue("other", {"n": 1}, connection=caller)
        with failpoints.armed("group.after_insert", lambda: caller.execute(BUMP)):
            group = app.groups.create([("work", {"n": 2}), ("other", {"n": 3})], connection=caller)
    assert [job.params["n"] for job in app.groups.get(group.id).jobs] == [2, 3]
    assert numbers(app) == [0, 1, 2, 3]


def test_a_group_whose_definition_never_rests_leaves_nothing(app: Penstock, engine: sa.Engine) -> None:
    app.define("other")

    with engine.begin() as caller:

        def change() -> None:
            caller.execute(BUMP)
            failpoints.arm("group.after_insert", change)

        with failpoints.armed("group.after_insert", change), pytest.raises(Conflict, match="none of them"):
            app.groups.create([("work", {"n": 2}), ("other", {"n": 3})], connection=caller)
    assert app.jobs.list() == app.groups.list() == []


def test_an_event_whose_definition_changes_still_starts_its_job(app: Penstock, engine: sa.Engine) -> None:
    app.triggers.on_event("a", "paid", "work", {"n": "{{ event.n }}"})
    with engine.begin() as caller, failpoints.armed("enqueue.before", lambda: caller.execute(BUMP)):
        event = app.emit("paid", {"n": 5}, connection=caller)
    assert [outcome["outcome"] for outcome in event.outcomes] == ["fired"]
    assert [str(job.id) for job in app.jobs.list()] == [event.outcomes[0]["job_id"]]
    assert numbers(app) == [5]
