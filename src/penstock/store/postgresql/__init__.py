"""PostgreSQL: many writers, so claims skip what others hold, and one round trip does a whole batch. A batch travels
as one JSON argument. No session state: everything here is safe behind a transaction pooler."""

from __future__ import annotations

from typing import Any, ClassVar

from penstock.store.dialect import UserTables
from penstock.store.postgresql.claim import PostgresClaim
from penstock.store.postgresql.close import PostgresClose
from penstock.store.postgresql.engine import PostgresEngine
from penstock.store.postgresql.explain import PostgresExplain
from penstock.store.postgresql.heartbeat import PostgresHeartbeat
from penstock.store.postgresql.insert import PostgresInsert
from penstock.store.postgresql.locks import PostgresLocks
from penstock.store.postgresql.tables import PostgresTables
from penstock.store.postgresql.transaction import PostgresTransaction
from penstock.store.postgresql.types import PostgresTypes
from penstock.store.postgresql.wake import PostgresWake

__all__ = ["PostgresDialect", "dialect"]


class PostgresDialect(
    PostgresEngine, PostgresTransaction, PostgresInsert, PostgresClaim, PostgresClose, PostgresHeartbeat, PostgresWake,
    PostgresLocks, PostgresTypes, PostgresExplain,
):  # fmt: skip
    """Everything that is PostgreSQL's own."""

    name: ClassVar[str] = "postgresql"
    user_tables: ClassVar[UserTables] = PostgresTables()
    driver_name: ClassVar[str] = "psycopg"

    def check_file(self, connection: Any) -> None:
        """Do nothing: the files are the server's."""

    def check_known_file(self) -> None:
        """Do nothing: the files are the server's."""

    def forget_file(self) -> None:
        """Do nothing: the files are the server's."""


def dialect(*, injected_clock: bool) -> PostgresDialect:
    return PostgresDialect()
