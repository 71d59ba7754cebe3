"""What a tenant has of what is counted: each count bounded by an index range."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import Executable, delete, func, or_, select

from penstock.core.quota import FREE, Bounds, own_bounds
from penstock.core.status import JobStatus
from penstock.store.database import Tx
from penstock.store.members import how_many
from penstock.store.tables import principals, tenants, workers
from penstock.store.types import json_object

STALE_SECONDS = 60.0


def bounds(tx: Tx, tenant_id: UUID) -> Bounds:
    """What is set for a tenant."""
    row = tx.first(
        select(tenants.c.quotas, tenants.c.min_priority, tenants.c.max_priority).where(tenants.c.id == tenant_id)
    )
    return FREE if row is None else own_bounds(json_object(row[0]), row[1], row[2])


def lock(tx: Tx, tenant_id: UUID) -> None:
    """Have those who add to what is counted take turns, until the transaction ends. Enqueues and claims do not wait for it: the
    lock is weaker than one that a foreign key would wait for. SQLite has one writer anyway."""
    tx.run(select(tenants.c.id).where(tenants.c.id == tenant_id).with_for_update(key_share=True))


def tokens(tx: Tx, tenant_id: UUID) -> int:
    """Tokens that are neither revoked nor expired. People who sign in by an identity provider have none."""
    valid = or_(principals.c.expires_at.is_(None), principals.c.expires_at > tx.now)
    mine = principals.c.tenant_id == tenant_id, principals.c.revoked_at.is_(None), principals.c.issuer.is_(None), valid
    return _count(tx, select(func.count()).select_from(principals).where(*mine))


def queued(tx: Tx, tenant_id: UUID, cap: int) -> int:
    """Jobs that wait or are ready, counted up to `cap`."""
    return _count(tx, select(how_many(JobStatus.QUEUED, tenant_id, cap)))


def worker_rows(tx: Tx, tenant_id: UUID) -> int:
    """Rows of the tenant's own workers, whether they are alive or not."""
    return _count(tx, select(func.count()).select_from(workers).where(workers.c.tenant_id == tenant_id))


def forget_stale_workers(tx: Tx, tenant_id: UUID) -> int:
    """Remove the rows of the tenant's own workers that have stopped or were not seen for a minute."""
    gone = or_(workers.c.stopped_at.is_not(None), workers.c.last_seen_at <= tx.later(-STALE_SECONDS))
    return tx.count(delete(workers).where(workers.c.tenant_id == tenant_id, gone))


def _count(tx: Tx, query: Executable) -> int:
    return int(tx.scalar(query))
