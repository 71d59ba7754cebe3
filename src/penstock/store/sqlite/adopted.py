"""An engine of the caller's on SQLite. Its connections are configured for the caller's own work, not for ours: by default they
keep a rollback journal, wait five seconds for a lock, and begin to write too late. So we open connections of our own beside
them, as for a URL, and leave the caller's as they are. Where that cannot be, we say what is missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, Engine, event
from sqlalchemy.pool import AssertionPool, SingletonThreadPool, StaticPool

from penstock.store.dialect import Adopted

SHARED = (StaticPool, SingletonThreadPool, AssertionPool)
"""Pools that are there to have one connection: another one might not see the same database."""

FULL = 2


def adopt(given: Engine, engine_beside: Callable[[Engine], Engine]) -> Adopted:
    if _in_memory(given):
        return Adopted(
            given, False, ("The database is in memory: every job is lost when the process ends. Use a file.",)
        )
    if isinstance(given.pool, SHARED):
        name = type(given.pool).__name__
        return Adopted(
            given, False,
            (f"The engine's {name} shares its connections, so Penstock has none of its own: the journal, its durability and the wait for "
             "locks are as the engine sets them, and threads can mix their transactions. Use SQLAlchemy's default pool.",),
        )  # fmt: skip
    ours = engine_beside(given)
    try:
        mode = _pragma(ours, "journal_mode")
        theirs = given.pool.recreate()
        try:
            their_mode, their_synchronous = _of_a_new_connection(theirs)
        finally:
            theirs.dispose()
    except BaseException:
        ours.dispose()
        raise
    if mode == "wal" and their_mode != "wal":
        ours.dispose()
        return Adopted(
            _careful(given), False,
            ("The engine sets another journal_mode than WAL on each of its connections, so Penstock uses them as they are: readers and "
             "the writer wait for each other, and jobs are as durable as the engine's synchronous setting. Remove that setting.",),
        )  # fmt: skip
    missing = []
    if mode != "wal":
        missing.append(
            f"The journal_mode of the database is {mode} and cannot be set to WAL: readers and the writer wait for each other. "
            "Check that the file and its directory can be written."
        )
    if their_synchronous < FULL:
        missing.append(
            "The engine sets synchronous below FULL on its connections: a job that is enqueued in a transaction of that engine can be "
            "lost when the power fails. What Penstock writes in transactions of its own is not affected."
        )
    return Adopted(ours, True, tuple(missing))


def _in_memory(engine: Engine) -> bool:
    name = engine.url.database or ""
    return name in ("", ":memory:") or "mode=memory" in name or ":memory:" in name


def _pragma(engine: Engine, name: str) -> Any:
    connection = engine.raw_connection()
    try:
        cursor = connection.cursor()
        (value,) = cursor.execute(f"PRAGMA {name}").fetchone()
        cursor.close()
        return value
    finally:
        connection.close()


def _of_a_new_connection(pool: Any) -> tuple[str, int]:
    """The journal's mode and `synchronous` as a new connection of the caller's has them. One that wants to leave WAL while ours is open
    is told that the database is locked."""
    try:
        connection = pool.connect()
    except Exception as error:
        if "locked" not in str(error):
            raise
        return "another", FULL
    try:
        cursor = connection.cursor()
        (mode,) = cursor.execute("PRAGMA journal_mode").fetchone()
        (synchronous,) = cursor.execute("PRAGMA synchronous").fetchone()
        cursor.close()
        return mode, synchronous
    finally:
        connection.close()


def _careful(given: Engine) -> Engine:
    """The caller's own connections; only our own transactions begin as ours must: a writer from the start, or a snapshot. What listens
    to the caller's engine does not hear of them, because it may begin a transaction, too."""
    careful = Engine(given.pool, given.dialect, given.url)
    event.listen(careful, "begin", _begin)
    return careful


def _begin(conn: Connection) -> None:
    driver: Any = conn.connection.driver_connection
    if driver.in_transaction:  # the engine has begun one in its own way; nothing was done in it yet
        conn.exec_driver_sql("COMMIT")
    writes = conn.get_execution_options().get("penstock_write")
    conn.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
