"""Who leads, for economy only: while one scheduler works, the others rest. Correctness never depends on it."""

from __future__ import annotations

from penstock.store.database import Tx
from penstock.store.tables import leaders


def lead_schedules(tx: Tx, holder: str, seconds: float) -> bool:
    """Whether this transaction may go through the schedules. A holder that stops in the middle of its work loses the lead after
    so many seconds."""
    return tx.dialect.lead(tx.conn, holder, tx.lease_until(seconds), tx.lease_now, seconds)


def resign(tx: Tx, holder: str) -> None:
    """Let another lead at once."""
    tx.run(leaders.delete().where(leaders.c.name == "scheduler", leaders.c.holder == holder))
