"""Ticks: one row for each decided moment of a schedule, under a key that allows no second."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import select

from penstock.core.reach import TickRecord
from penstock.store import failpoints
from penstock.store.database import Tx
from penstock.store.tables import ticks

_FIELDS = tuple(TickRecord.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class NewTick:
    trigger_id: UUID
    tenant_id: UUID
    tick_at: datetime
    outcome: str
    reason: str | None
    job_id: UUID | None


def add(tx: Tx, new: Sequence[NewTick]) -> set[tuple[UUID, datetime]]:
    """Write them; answers the trigger and moment of those that were not there before."""
    now = tx.time()
    rows = [
        {
            "trigger_id": tick.trigger_id,
            "tick_at": tick.tick_at,
            "tenant_id": tick.tenant_id,
            "outcome": tick.outcome,
            "reason": tick.reason,
            "job_id": tick.job_id,
            "created_at": now,
        }
        for tick in new
    ]
    statement = tx.insert(ticks).on_conflict_do_nothing().returning(ticks.c.trigger_id, ticks.c.tick_at)
    written = {(row.trigger_id, row.tick_at) for row in tx.rows(statement, rows)}
    failpoints.reach("tick.after_insert")
    return written


def listed(tx: Tx, tenant_id: UUID, trigger_id: UUID, limit: int, before: datetime | None = None) -> list[TickRecord]:
    """Newest first."""
    query = select(*(ticks.c[name] for name in _FIELDS)).where(
        ticks.c.trigger_id == trigger_id, ticks.c.tenant_id == tenant_id
    )
    if before is not None:
        query = query.where(ticks.c.tick_at < before)
    return [TickRecord(*row) for row in tx.rows(query.order_by(ticks.c.tick_at.desc()).limit(limit))]
