"""Who leads, for economy only: while one scheduler works, the others rest. Correctness never depends on it."""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.dialects import sqlite

from penstock.store.database import Tx
from penstock.store.tables import leaders

SCHEDULER_LOCK = 5_068_337_002


def lead_schedules(tx: Tx, holder: str, seconds: float) -> bool:
    """Whether this transaction may go through the schedules.

    PostgreSQL: an advisory lock that ends with the transaction, so it is never left behind in a pooler's session; and
    a scheduler that stops in the middle of its transaction loses it, and the lock, after a while.
    SQLite, where writers wait in line anyway: a lease, so that one of many processes does the looking.
    """
    if tx.dialect.name == "postgresql":
        patience = func.set_config("idle_in_transaction_session_timeout", str(round(seconds * 1000)), True)
        return bool(tx.scalar(select(func.pg_try_advisory_xact_lock(SCHEDULER_LOCK), patience)))
    statement = sqlite.insert(leaders).values(name="scheduler", holder=holder, expires_at=tx.lease_until(seconds))
    taken = statement.on_conflict_do_update(
        index_elements=[leaders.c.name],
        set_={"holder": holder, "expires_at": tx.lease_until(seconds)},
        where=(leaders.c.holder == holder) | (leaders.c.expires_at <= tx.lease_now),
    )
    return tx.first(taken.returning(leaders.c.name)) is not None


def resign(tx: Tx, holder: str) -> None:
    """Let another lead at once."""
    tx.run(leaders.delete().where(leaders.c.name == "scheduler", leaders.c.holder == holder))
