"""Advisory locks. Each ends with its transaction, so that none is left behind in the session of a pooler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from sqlalchemy import Connection, func, select

from penstock.store.dialect import Lock

GATE_LOCK = 5_068_337_001
"""Claims share this transaction-scoped lock, reserving takes it alone: no claim is half done when a reservation begins."""

NUMBERS = {
    Lock.GATE: GATE_LOCK,
    Lock.UPGRADE: GATE_LOCK + 1,
    Lock.SCHEDULER: GATE_LOCK + 1,  # nothing is scheduled while the tables change
    Lock.ADMIT: GATE_LOCK + 2,
    Lock.DECLARE: GATE_LOCK + 600,
}


class PostgresLocks:
    """Many write side by side, so who must be alone takes a lock."""

    many_writers: ClassVar[bool] = True
    skip_locked: ClassVar[Mapping[str, Any]] = {"skip_locked": True}

    def lock(self, conn: Connection, lock: Lock) -> None:
        conn.execute(select(func.pg_advisory_xact_lock(NUMBERS[lock])))

    def try_lock(self, conn: Connection, lock: Lock) -> bool:
        return bool(conn.scalar(select(func.pg_try_advisory_xact_lock(NUMBERS[lock]))))

    def limit_locks(self, conn: Connection, seconds: float) -> None:
        off = func.set_config("statement_timeout", "0", True)
        conn.execute(select(func.set_config("lock_timeout", f"{round(seconds * 1000)}ms", True), off))

    def lead(self, conn: Connection, holder: str, until: Any, now: Any, seconds: float) -> bool:
        """A scheduler that stops in the middle of its transaction loses it, and the lock, after a while."""
        patience = func.set_config("idle_in_transaction_session_timeout", str(round(seconds * 1000)), True)
        return bool(conn.scalar(select(func.pg_try_advisory_xact_lock(NUMBERS[Lock.SCHEDULER]), patience)))
