"""How an idle worker hears of work: NOTIFY on PostgreSQL, `PRAGMA data_version` on SQLite. It only wakes; a claim finds.

Hearing nothing is therefore never wrong, only slow, and a worker polls beside it.
"""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from sqlalchemy import exists, or_, select, text

from penstock.core.status import JobStatus, WaitsFor
from penstock.store.database import Database, Tx
from penstock.store.dialect import Ear
from penstock.store.tables import in_status, is_claimable, jobs, waiting_for
from penstock.store.types import UtcTime

__all__ = ["Ear", "asked_to_stop", "ear", "may_claim", "seconds_to_next_due"]


def ear(db: Database, queues: Collection[str] | None = None) -> Ear:
    """The ear that fits this database, for these queues or for all."""
    return db.dialect.ear(db.engine, queues)


def may_claim(tx: Tx, tenant_id: UUID | None) -> bool:
    """Whether a claim may find something: a look before it that takes no lock. Jobs that are due, or wait for a limit, get their
    place by a claim, whoever's they are."""
    due = select(jobs.c.id).where(waiting_for(WaitsFor.TIME), jobs.c.scheduled_for <= tx.now)
    limited = select(jobs.c.id).where(waiting_for(WaitsFor.LIMIT))
    claimable = select(jobs.c.id).where(is_claimable())
    if tenant_id is not None:
        claimable = claimable.where(jobs.c.tenant_id == tenant_id)
    return bool(tx.scalar(select(or_(exists(claimable), exists(due), exists(limited)))))


def seconds_to_next_due(tx: Tx) -> float | None:
    """How long until the first job that waits for its time; None if none does."""
    query = text("SELECT scheduled_for FROM penstock_jobs WHERE waits_for = 'time' ORDER BY scheduled_for LIMIT 1")
    due = tx.scalar(query.columns(scheduled_for=UtcTime()))
    return None if due is None else float((due - tx.time()).total_seconds())


def asked_to_stop(tx: Tx, worker_id: str) -> list[UUID]:
    """The runs of this worker whose jobs were canceled while they run. Reads only what is running."""
    query = select(jobs.c.run_id).where(
        in_status(JobStatus.RUNNING), jobs.c.claimed_by == worker_id, jobs.c.cancel_requested_at.is_not(None)
    )
    return [row.run_id for row in tx.rows(query)]
