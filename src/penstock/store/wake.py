"""How an idle worker hears of work: NOTIFY on PostgreSQL, `PRAGMA data_version` on SQLite. It only wakes; a claim finds.

Hearing nothing is therefore never wrong, only slow, and a worker polls beside it.
"""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from sqlalchemy import exists, or_, select

from penstock.core.status import WaitsFor
from penstock.store.database import Database, Tx
from penstock.store.dialect import Ear
from penstock.store.tables import ready, running, waiting, waiting_for

__all__ = ["Ear", "asked_to_stop", "ear", "may_claim", "seconds_to_next_due"]


def ear(db: Database, queues: Collection[str] | None = None) -> Ear:
    """The ear that fits this database, for these queues or for all."""
    return db.dialect.ear(db.engine, queues)


def may_claim(tx: Tx, tenant_id: UUID | None) -> bool:
    """Whether a claim may find something: a look before it that takes no lock. Jobs that are due, or wait for a limit, get their
    place by a claim, whoever's they are."""
    due = select(waiting.c.job_id).where(waiting_for(WaitsFor.TIME), waiting.c.until <= tx.now)
    limited = select(waiting.c.job_id).where(waiting_for(WaitsFor.LIMIT))
    claimable = select(ready.c.job_id)
    if tenant_id is not None:
        claimable = claimable.where(ready.c.tenant_id == tenant_id)
    return bool(tx.scalar(select(or_(exists(claimable), exists(due), exists(limited)))))


def seconds_to_next_due(tx: Tx) -> float | None:
    """How long until the first job that waits for its time; None if none does."""
    due = tx.scalar(select(waiting.c.until).where(waiting_for(WaitsFor.TIME)).order_by(waiting.c.until).limit(1))
    return None if due is None else float((due - tx.time()).total_seconds())


def asked_to_stop(tx: Tx, worker_id: str) -> list[UUID]:
    """The runs of this worker whose jobs were canceled while they run. Reads only what is running."""
    query = select(running.c.run_id).where(running.c.worker_id == worker_id, running.c.cancel_requested_at.is_not(None))
    return [row.run_id for row in tx.rows(query)]
