"""SQLite: one writer at a time by BEGIN IMMEDIATE, so what PostgreSQL needs locks for needs none here. Batches
travel as one JSON argument, because a statement per row costs five times as much."""

from __future__ import annotations

from typing import ClassVar

from penstock.store.dialect import UserTables
from penstock.store.sqlite.claim import SqliteClaim
from penstock.store.sqlite.close import SqliteClose
from penstock.store.sqlite.engine import SqliteEngine
from penstock.store.sqlite.explain import SqliteExplain
from penstock.store.sqlite.file import SqliteFiles
from penstock.store.sqlite.heartbeat import SqliteHeartbeat
from penstock.store.sqlite.insert import SqliteInsert
from penstock.store.sqlite.lease_clock import LeaseClock
from penstock.store.sqlite.locks import SqliteLocks
from penstock.store.sqlite.tables import SqliteTables
from penstock.store.sqlite.transaction import SqliteTransaction
from penstock.store.sqlite.types import SqliteTypes
from penstock.store.sqlite.wake import SqliteWake

__all__ = ["SqliteDialect", "dialect"]


class SqliteDialect(
    SqliteEngine, SqliteTransaction, SqliteInsert, SqliteClaim, SqliteClose, SqliteHeartbeat, SqliteWake, SqliteLocks,
    SqliteTypes, SqliteFiles, SqliteExplain,
):  # fmt: skip
    """Everything that is SQLite's own."""

    name: ClassVar[str] = "sqlite"
    user_tables: ClassVar[UserTables] = SqliteTables()
    driver_name: ClassVar[str] = "sqlite3"

    def __init__(self, injected_clock: bool = False) -> None:
        super().__init__()
        self._lease_clock = None if injected_clock else LeaseClock()

    def forget_file(self) -> None:
        super().forget_file()
        if self._lease_clock is not None:
            self._lease_clock.forget()


def dialect(*, injected_clock: bool) -> SqliteDialect:
    return SqliteDialect(injected_clock)
