"""Reservations: a tenant's next slot, held for work outside the queue. The partial unique index holds that there is one."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from sqlalchemy import func, not_, or_, select, update
from sqlalchemy.sql import ColumnElement

from penstock.core.ids import new_id
from penstock.core.nouns import Reservation
from penstock.store import failpoints, rows
from penstock.store.database import WRONG_CLOCK_SECONDS, Tx
from penstock.store.dialect import Lock
from penstock.store.tables import reservations
from penstock.store.tables import running as open_runs


def take(tx: Tx, tenant_id: UUID, reserved_by: str, expires_in: float) -> Reservation | None:
    """Become the one active reservation, or None if there is one. No claim is half done while this is written."""
    tx.lock(Lock.GATE)
    expire(tx, tenant_id)
    statement = (
        tx.insert(reservations)
        .values(
            id=new_id(), tenant_id=tenant_id, reserved_by=reserved_by, reserved_at=tx.now, expires_at=tx.later(expires_in),
            status="active",
        )
        .on_conflict_do_nothing()
        .returning(reservations)
    )  # fmt: skip
    row = tx.run(statement).mappings().first()
    failpoints.reach("reserve.after_insert")
    return rows.reservation(row) if row else None


def active(tx: Tx, tenant_id: UUID) -> Reservation | None:
    query = select(reservations).where(
        reservations.c.tenant_id == tenant_id, reservations.c.status == "active", not_(_over(tx))
    )
    row = tx.run(query).mappings().first()
    return rows.reservation(row) if row else None


def running(tx: Tx, tenant_id: UUID) -> int:
    query = select(func.count()).where(open_runs.c.tenant_id == tenant_id)
    return int(tx.scalar(query))


def release(tx: Tx, reservation_id: UUID) -> bool:
    """End it. False if its time was over already."""
    tx.run(
        update(reservations)
        .where(
            reservations.c.id == reservation_id, reservations.c.status == "active", reservations.c.expires_at <= tx.now
        )
        .values(status="expired", ended_at=tx.now)
    )
    return bool(
        tx.count(
            update(reservations)
            .where(reservations.c.id == reservation_id, reservations.c.status == "active")
            .values(status="released", ended_at=tx.now)
        )
    )


def _over(tx: Tx) -> ColumnElement[bool]:
    # One from the future was made while the clock was wrong, and would last until that time comes.
    return or_(reservations.c.expires_at <= tx.now, reservations.c.reserved_at > tx.later(WRONG_CLOCK_SECONDS))


def expire(tx: Tx, tenant_id: UUID | None = None, is_dead: Callable[[str], bool] | None = None) -> int:
    """End those whose time is over, and those whose process is known to be dead."""
    query = select(reservations.c.id, reservations.c.reserved_by, _over(tx).label("over")).where(
        reservations.c.status == "active"
    )
    if tenant_id is not None:
        query = query.where(reservations.c.tenant_id == tenant_id)
    gone = [row.id for row in tx.rows(query) if row.over or (is_dead is not None and is_dead(row.reserved_by))]
    if not gone:
        return 0
    return tx.count(
        update(reservations)
        .where(reservations.c.id.in_(gone), reservations.c.status == "active")
        .values(status="expired", ended_at=tx.now)
    )
