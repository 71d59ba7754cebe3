"""Enqueue in the caller's transaction takes no lock that another enqueue waits for (P16)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from penstock import Conflict, ManualClock, Penstock
from tests.conformance.helpers import execute

WAITING = sa.text(
    "SELECT pid, query FROM pg_stat_activity WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0"
)

Verb = Callable[[Any], Any]


def register(app: Penstock) -> None:
    """What a web process registers. It starts no worker, and it never calls `sync_definitions`."""

    @app.job(key="mail")
    def mail(n: int = 0) -> None: ...

    @app.job(key="sms", queue="phones")
    def sms(n: int = 0) -> None: ...


@pytest.fixture
def web(app: Penstock, clock: ManualClock) -> Iterator[Penstock]:
    """A process that only enqueues, beside `app`."""
    made = Penstock(app.db.url.render_as_string(hide_password=False), clock=clock)
    register(made)
    yield made
    made.close()


@pytest.fixture
def engine(web: Penstock) -> Iterator[sa.Engine]:
    """The caller's own engine."""
    engine = sa.create_engine(web.db.url)
    yield engine
    engine.dispose()


def never_waits(watch: sa.Engine, work: Callable[[], object]) -> None:
    """Do the work, and fail as soon as any connection to the database waits for another."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    with watch.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
        while thread.is_alive():
            assert conn.execute(WAITING).all() == []
            thread.join(0.02)
    if failed:
        raise failed[0]


def verbs(app: Penstock) -> dict[str, Verb]:
    return {
        "enqueue": lambda caller: app.enqueue("mail", connection=caller),
        "enqueue_many": lambda caller: app.enqueue_many("mail", [{}] * 3, connection=caller),
        "groups.create": lambda caller: app.groups.create([("mail", {}), ("sms", {})], connection=caller),
        "emit": lambda caller: app.emit("paid", {"n": 1}, connection=caller),
        "a queue of its own": lambda caller: app.enqueue("mail", queue="phones", connection=caller),
    }


@pytest.mark.parametrize("backend", ["postgresql"], indirect=True)
@pytest.mark.parametrize("verb", ["enqueue", "enqueue_many", "groups.create", "emit", "a queue of its own"])
@pytest.mark.parametrize("before", ["nothing", "the same", "another"])
def test_of_two_open_transactions_none_waits(
    app: Penstock, web: Penstock, engine: sa.Engine, verb: str, before: str
) -> None:
    """Whatever the database says of the definitions when the two of them begin."""
    if before == "the same":
        register(app)
        app.sync_definitions()
    elif before == "another":
        app.define("mail", max_attempts=7)
        app.define("sms")
    if verb == "a queue of its own":
        app.queues.create("phones")
    if verb == "emit":
        web.triggers.on_event("a", "paid", "mail", {"n": "{{ event.n }}"}, dedupe_window_seconds=0)
    write = verbs(web)[verb]
    with engine.begin() as first, engine.begin() as second:
        write(first)
        never_waits(engine, lambda: write(second))


@pytest.mark.parametrize("backend", ["postgresql"], indirect=True)
def test_emits_that_disable_the_same_trigger_do_not_wait(app: Penstock, engine: sa.Engine) -> None:
    app.triggers.on_event("a", "paid", "work", dedupe_window_seconds=0)
    execute(app, sa.text("UPDATE penstock_definitions SET is_active = false"))
    with engine.begin() as first, engine.begin() as second:
        app.emit("paid", connection=first)
        never_waits(engine, lambda: app.emit("paid", connection=second))
    assert not app.triggers.list()[0].is_enabled


@pytest.mark.parametrize("backend", ["postgresql"], indirect=True)
@pytest.mark.parametrize("before", ["nothing", "another"])
def test_two_keys_in_opposite_order_do_not_deadlock(
    app: Penstock, web: Penstock, engine: sa.Engine, before: str
) -> None:
    if before == "another":
        app.define("mail", max_attempts=7)
        app.define("sms", max_attempts=7)
    with engine.begin() as first, engine.begin() as second:
        web.enqueue("mail", connection=first)
        never_waits(engine, lambda: web.enqueue("sms", connection=second))
        never_waits(engine, lambda: web.enqueue("sms", connection=first))
        never_waits(engine, lambda: web.enqueue("mail", connection=second))
    assert len(web.jobs.list()) == 4


@pytest.mark.parametrize("backend", ["postgresql"], indirect=True)
def test_once_a_definition_is_seen_an_enqueue_is_one_statement(web: Penstock, engine: sa.Engine) -> None:
    said: list[str] = []
    with engine.connect() as caller:
        web.enqueue("mail", connection=caller)
        caller.rollback()
        sa.event.listen(engine, "before_cursor_execute", lambda *given: said.append(given[2]))
        web.enqueue("mail", connection=caller)
        web.enqueue("mail", connection=caller)
        caller.commit()
    assert len(said) == 2
    assert all("INSERT INTO penstock_jobs" in sql for sql in said)


def test_what_a_rolled_back_transaction_defined_is_defined_again(
    app: Penstock, web: Penstock, engine: sa.Engine
) -> None:
    app.define("mail", max_attempts=7, arg_schema={"required": ["elsewhere"]})
    for ending in ("rollback", "rollback", "commit"):
        with engine.connect() as caller:
            web.enqueue("mail", {"n": 1}, connection=caller)
            getattr(caller, ending)()
    assert len(web.jobs.list()) == 1
    assert web.definitions.get("mail").arg_schema["properties"].keys() == {"n"}


@pytest.mark.parametrize("backend", ["postgresql"], indirect=True)
def test_a_snapshot_older_than_the_definition_is_told(web: Penstock, engine: sa.Engine) -> None:
    frozen = engine.execution_options(isolation_level="REPEATABLE READ")
    with frozen.connect() as caller:
        caller.execute(sa.text("SELECT 1"))
        with pytest.raises(Conflict, match="snapshot"):
            web.enqueue("mail", connection=caller)
        caller.rollback()
        web.enqueue("mail", connection=caller)
        caller.commit()
    assert len(web.jobs.list()) == 1


@pytest.mark.parametrize("backend", ["postgresql"], indirect=True)
def test_a_pool_that_is_used_up_is_not_waited_for(web: Penstock, clock: ManualClock) -> None:
    """The caller's engine has one connection, and the caller holds it."""
    engine = sa.create_engine(web.db.url, pool_size=1, max_overflow=0, pool_timeout=600)
    with Penstock(engine, clock=clock) as app:
        register(app)
        with engine.begin() as caller:
            app.enqueue("mail", connection=caller)
        assert [job.definition_key for job in app.jobs.list()] == ["mail"]
    engine.dispose()


@pytest.mark.parametrize("backend", ["postgresql"], indirect=True)
def test_the_same_dedupe_key_waits_by_its_nature(web: Penstock, engine: sa.Engine) -> None:
    """Only the first transaction's end says which job the second one gets. So it waits, and then gets the first's job."""
    found: list[Any] = []
    with engine.begin() as second:
        with engine.begin() as first:
            job = web.enqueue("mail", dedupe_key="once", connection=first)
            thread = threading.Thread(
                target=lambda: found.append(web.enqueue("mail", dedupe_key="once", connection=second))
            )
            thread.start()
            with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as watch:
                while not watch.execute(WAITING).all():
                    assert thread.is_alive()
                    time.sleep(0.02)
        thread.join()
    assert [each.id for each in found] == [job.id]
