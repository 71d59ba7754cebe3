"""How a transaction begins, and how a statement of the hot path runs in it: on the driver's own cursor."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from sqlalchemy import Connection

from penstock.store.dialect import HotConnection

MODE, PATIENCE, IMPATIENT = "penstock_journal_mode", "penstock_patience", "penstock_impatient"
"""What is known of a connection: its journal's mode, how long it waits for locks in milliseconds, and whether it was told not to,
because whoever writes waits for it."""


class SqliteTransaction:
    """A caller's transaction, and what runs in it."""

    @contextmanager
    def plain(self, given: Any) -> Iterator[Any]:
        before = given.text_factory
        given.text_factory = str  # there is none of a cursor's own
        try:
            yield _Plain(given)
        finally:
            given.text_factory = before

    commits_with_the_statement: ClassVar[bool] = False

    def begin_to_write(self, connection: Any) -> None:
        begin_to_write(connection)

    @contextmanager
    def in_transaction(self, conn: Connection) -> Iterator[None]:
        driver: Any = conn.connection.driver_connection
        if driver.in_transaction:
            yield
            return
        autocommit = driver.isolation_level is None or getattr(driver, "autocommit", None) is True
        # The driver would begin at the first INSERT, too late for what is read before; and a savepoint that nothing
        # surrounds is a transaction of its own, which ends with it.
        conn.exec_driver_sql("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            if autocommit and driver.in_transaction:
                conn.exec_driver_sql("ROLLBACK")
            raise
        if autocommit:
            conn.exec_driver_sql("COMMIT")


class _Plain:
    """A caller's connection whose cursors give plain tuples."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def cursor(self, *_args: Any) -> sqlite3.Cursor:
        cursor = sqlite3.Cursor(self._connection)
        cursor.row_factory = None
        return cursor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def run(conn: HotConnection, sql: str, params: Mapping[str, Any]) -> Sequence[Any]:
    """The statement on the driver's own cursor: on a local file SQLAlchemy's share would be most of the time."""
    cursor = conn.connection.cursor()
    try:
        cursor.execute(sql, params)
        return cursor.fetchall()
    finally:
        cursor.close()


def begin(conn: Connection) -> None:
    if conn.get_execution_options().get("penstock_write"):
        begin_to_write(conn.connection)
    else:
        be_patient(conn.connection)
        conn.exec_driver_sql("BEGIN")


def begin_to_write(connection: Any) -> None:
    """A deferred transaction that turns writer fails at once with BUSY_SNAPSHOT, whatever the timeout; so it is IMMEDIATE. And
    we wait ourselves: SQLite's way is to sleep the longer the longer it has waited, which leaves the file to nobody. The
    connection stays told so: each word to it gives the interpreter up, and who has it may keep it for milliseconds."""
    info = connection.info
    cursor = connection.cursor()
    try:
        if not info.get(IMPATIENT):
            cursor.execute("PRAGMA busy_timeout = 0")
            info[IMPATIENT] = True
        asked_at = time.monotonic()
        while True:
            try:
                cursor.execute("BEGIN IMMEDIATE")
                break
            except sqlite3.OperationalError as error:
                waited = time.monotonic() - asked_at
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or waited * 1000 >= info[PATIENCE]:
                    raise
            time.sleep(min(0.01, 0.0005 + waited / 20))
    finally:
        cursor.close()
        if info[MODE] != "wal":
            be_patient(connection)  # there a COMMIT too waits for others


def be_patient(connection: Any) -> None:
    """Have the connection wait for locks itself, as whoever reads expects."""
    info = connection.info
    if info.get(IMPATIENT):
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {info[PATIENCE]}")
        cursor.close()
        info[IMPATIENT] = False
