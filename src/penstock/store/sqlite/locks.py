"""Locks: none. One writes at a time, which BEGIN IMMEDIATE sees to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from sqlalchemy import Connection
from sqlalchemy.dialects.sqlite import insert

from penstock.store.dialect import Lock
from penstock.store.tables import leaders


class SqliteLocks:
    """Whoever writes is alone already."""

    many_writers: ClassVar[bool] = False
    skip_locked: ClassVar[Mapping[str, Any]] = {}

    def lock(self, conn: Connection, lock: Lock) -> None:
        """Do nothing: the write transaction is the lock."""

    def try_lock(self, conn: Connection, lock: Lock) -> bool:
        return True

    def limit_locks(self, conn: Connection, seconds: float) -> None:
        """Do nothing: there is no lock but the one that is held."""

    def lead(self, conn: Connection, holder: str, until: Any, now: Any, seconds: float) -> bool:
        """A lease, so that one of many processes does the looking."""
        statement = insert(leaders).values(name="scheduler", holder=holder, expires_at=until)
        taken = statement.on_conflict_do_update(
            index_elements=[leaders.c.name],
            set_={"holder": holder, "expires_at": until},
            where=(leaders.c.holder == holder) | (leaders.c.expires_at <= now),
        )
        return conn.execute(taken.returning(leaders.c.name)).first() is not None
