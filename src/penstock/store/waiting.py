"""What waits and could run: since when, and how much of it in each queue and of each key.

A job is ready when it is claimable, or when its time has come although no worker has given it its place yet: workers do
that with their claims, so while none is alive nobody does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import ColumnElement, and_, case, func, or_, select, type_coerce

from penstock.core.status import JobStatus, WaitsFor
from penstock.store.database import Tx
from penstock.store.tables import in_status, is_claimable, jobs, queues, waiting_for
from penstock.store.types import UtcTime

LOOKED_AT = 10_000
"""How many rows one look reads at most."""
READ_AT_MOST = 200_000
"""How many rows the looks of one scrape read at most, together."""


def is_due(tx: Tx) -> ColumnElement[bool]:
    """Whether its time has come although it still waits for it."""
    return and_(waiting_for(WaitsFor.TIME), jobs.c.scheduled_for <= tx.now)


def ready_at(tx: Tx) -> ColumnElement[datetime]:
    """Since when a job that is ready could have run."""
    return tx.dialect.greatest(jobs.c.queued_at, jobs.c.scheduled_for)


def oldest_ready_at(tx: Tx, tenant_id: UUID) -> datetime | None:
    """Return since when the tenant's longest-waiting ready job could have run.

    Three looks, each bounded and by an index: the oldest job, the one that has been due for longest, and the first place
    of each priority. The first alone would miss a job that was enqueued long ahead of its time.
    """
    mine = jobs.c.tenant_id == tenant_id
    ready, at = or_(is_claimable(), is_due(tx)).label("ready"), ready_at(tx).label("at")
    oldest = select(ready, at).where(mine, in_status(JobStatus.QUEUED)).order_by(jobs.c.id).limit(LOOKED_AT).subquery()
    overdue = select(jobs.c.tenant_id, at).where(is_due(tx)).order_by(jobs.c.scheduled_for, jobs.c.id)
    long_due = overdue.limit(LOOKED_AT).subquery()
    looks = (
        select(oldest.c.at).where(oldest.c.ready).limit(1).scalar_subquery(),
        select(long_due.c.at).where(long_due.c.tenant_id == tenant_id).limit(1).scalar_subquery(),
        _first_places(tx, tenant_id),
    )
    return min((found for found in tx.run(select(*looks)).one() if found is not None), default=None)


def _first_places(tx: Tx, tenant_id: UUID) -> ColumnElement[datetime]:
    """The longest wait among the jobs in the first place of each priority; the priorities by hops through the index."""
    mine = and_(is_claimable(), jobs.c.tenant_id == tenant_id)
    hops = select(func.min(jobs.c.priority).label("priority")).where(mine).cte("hops", recursive=True)
    further = select(func.min(jobs.c.priority)).where(mine, jobs.c.priority > hops.c.priority).scalar_subquery()
    hops = hops.union_all(select(further).where(hops.c.priority.is_not(None)))
    first = select(ready_at(tx)).where(mine, jobs.c.priority == hops.c.priority).order_by(jobs.c.position).limit(1)
    longest = select(func.min(first.correlate(hops).scalar_subquery())).select_from(hops)
    return type_coerce(longest.scalar_subquery(), UtcTime())


class Lane(NamedTuple):
    """Where jobs wait: whose, in which queue, of which key."""

    tenant_id: UUID
    queue: str
    definition_key: str


class Depth(NamedTuple):
    """How many jobs of a lane are queued, how many of them are ready, and since when the longest-waiting one is."""

    queued: int = 0
    ready: int = 0
    oldest: datetime | None = None


def depths(tx: Tx, tenant_ids: Sequence[UUID]) -> dict[Lane, Depth]:
    """Return the depth of each lane, from bounded looks: at each tenant's oldest jobs, at the front of each queue and at
    what has been due for longest. A lane is missed only where all three are full of others."""
    found: dict[Lane, Depth] = {}
    if tenant_ids:
        most = max(100, min(LOOKED_AT, READ_AT_MOST // len(tenant_ids)))
        for tenant_id in tenant_ids:
            oldest = _some(tx).where(jobs.c.tenant_id == tenant_id, in_status(JobStatus.QUEUED)).order_by(jobs.c.id)
            _merge(found, _counted(tx, oldest.limit(most)))
    front: dict[Lane, Depth] = {}
    names = [row.name for row in tx.rows(select(queues.c.name))]
    most = max(100, min(LOOKED_AT, READ_AT_MOST // max(1, len(names))))
    order = (jobs.c.priority, jobs.c.position, jobs.c.queued_at, jobs.c.id)
    for name in names:
        _add(front, _counted(tx, _some(tx).where(is_claimable(), jobs.c.queue == name).order_by(*order).limit(most)))
    overdue = _some(tx).where(is_due(tx)).order_by(jobs.c.scheduled_for, jobs.c.id)
    _add(front, _counted(tx, overdue.limit(LOOKED_AT)))
    _merge(found, front.items())
    return found


def _some(tx: Tx) -> Any:
    ready = or_(is_claimable(), is_due(tx))
    return select(jobs.c.tenant_id, jobs.c.queue, jobs.c.definition_key, ready.label("ready"), ready_at(tx).label("at"))


def _counted(tx: Tx, some: Any) -> list[tuple[Lane, Depth]]:
    rows = some.subquery()
    lane = (rows.c.tenant_id, rows.c.queue, rows.c.definition_key)
    when_ready = case((rows.c.ready, rows.c.at))
    query = select(*lane, func.count(), func.count(when_ready), func.min(when_ready)).group_by(*lane)
    return [(Lane(*row[:3]), Depth(int(row[3]), int(row[4]), row[5])) for row in tx.rows(query)]


def _add(found: dict[Lane, Depth], more: Iterable[tuple[Lane, Depth]]) -> None:
    """Different jobs of the same lane: together."""
    for lane, depth in more:
        before = found.get(lane, Depth())
        found[lane] = Depth(before.queued + depth.queued, before.ready + depth.ready, _sooner(before, depth))


def _merge(found: dict[Lane, Depth], more: Iterable[tuple[Lane, Depth]]) -> None:
    """The same jobs seen otherwise: whichever look saw more."""
    for lane, depth in more:
        before = found.get(lane, Depth())
        found[lane] = Depth(max(before.queued, depth.queued), max(before.ready, depth.ready), _sooner(before, depth))


def _sooner(one: Depth, other: Depth) -> datetime | None:
    return min((each.oldest for each in (one, other) if each.oldest is not None), default=None)


def running(tx: Tx) -> dict[Lane, int]:
    """How many jobs of each lane run: as many rows as the workers hold."""
    lane = (jobs.c.tenant_id, jobs.c.queue, jobs.c.definition_key)
    query = select(*lane, func.count()).where(in_status(JobStatus.RUNNING)).group_by(*lane)
    return {Lane(*row[:3]): int(row[3]) for row in tx.rows(query)}
