"""Quotas and priorities, asked before anything is written. A tenant without any costs one look into a dictionary.

Tokens, triggers and webhooks are counted exactly: who adds one holds the tenant's row until the end of the transaction. The
queue is not: a row that every enqueue of a tenant waits for would make them take turns. It is counted at most once a
second and whenever this process has added a tenth of the room that it saw, so all processes together go past the quota by
at most a tenth of that room for each process but the first, and by what is being written at the same moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

from penstock.core.errors import QuotaExceeded
from penstock.core.quota import FREE, QUOTAS
from penstock.queue.ground import Ground, Queued
from penstock.store import quotas
from penstock.store.database import Tx

COUNT_SECONDS = 1.0
REFUSE_SECONDS = 0.25
CHEAP = 1_000
"""A queue as short as this is counted for each request that would be refused. A longer one is not: who asks again and again
would have it counted again and again."""


def admit(ground: Ground, tx: Tx | None, tenant_id: UUID, jobs: int = 1, priority: int | None = None) -> None:
    """Raise if the tenant may not enqueue so many jobs in one request, or not with this priority. Without `tx`, what must be read is
    read on a connection of its own."""
    bounds = ground.bounds(tenant_id, tx)
    if bounds is FREE:
        return
    bounds.require_priority(priority)
    if jobs > 1:
        bounds.require("jobs_per_request", 0, jobs)
    require_room(ground, tx, tenant_id, jobs)


def require_room(ground: Ground, tx: Tx | None, tenant_id: UUID, jobs: int) -> None:
    """Raise QuotaExceeded if the tenant's queue is too full for so many more jobs."""
    limit = ground.bounds(tenant_id, tx).limit("queued_jobs")
    if limit is None or jobs == 0:
        return
    now, known = time.monotonic(), ground.queued.get(tenant_id)
    if known is not None:
        if now - known.at < COUNT_SECONDS and known.added + jobs <= max(0, limit - known.counted) // 10:
            ground.queued[tenant_id] = replace(known, added=known.added + jobs)
            return
        if limit > CHEAP and now - known.at < REFUSE_SECONDS and known.counted >= limit:
            raise QuotaExceeded("queued_jobs", QUOTAS["queued_jobs"], limit, known.counted, jobs)
    most = limit + 1
    counted = (
        ground.db.look(lambda own: quotas.queued(own, tenant_id, most))
        if tx is None
        else quotas.queued(tx, tenant_id, most)
    )
    fits = counted + jobs <= limit
    ground.queued[tenant_id] = Queued(counted, now, jobs if fits else 0)
    if not fits:
        raise QuotaExceeded("queued_jobs", QUOTAS["queued_jobs"], limit, counted, jobs)


def require(ground: Ground, tx: Tx, tenant_id: UUID, quota: str, count: Callable[[Tx, UUID], int]) -> None:
    """Raise QuotaExceeded unless one more fits. Exact: until this transaction ends, nobody else adds one."""
    bounds = ground.bounds(tenant_id, tx)
    if bounds.limit(quota) is not None:
        quotas.lock(tx, tenant_id)
        bounds.require(quota, count(tx, tenant_id))


def require_worker_row(ground: Ground, tx: Tx, tenant_id: UUID) -> None:
    """Raise QuotaExceeded unless one more worker of the tenant fits. Workers that are gone make room."""
    bounds = ground.bounds(tenant_id, tx)
    limit = bounds.limit("workers")
    if limit is None:
        return
    quotas.lock(tx, tenant_id)
    rows = quotas.worker_rows(tx, tenant_id)
    if rows >= limit:
        rows -= quotas.forget_stale_workers(tx, tenant_id)
    bounds.require("workers", rows)
