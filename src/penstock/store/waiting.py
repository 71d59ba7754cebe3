"""What waits and could run: since when, and how much of it in each queue and of each key.

A job is ready when it can be claimed, or when its time has come although no worker has given it its place yet: workers do
that with their claims, so while none is alive nobody does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import ColumnElement, Table, and_, case, func, select, true, type_coerce, union_all

from penstock.core.status import WaitsFor
from penstock.store import states
from penstock.store.database import Tx
from penstock.store.tables import queues, ready, waiting, waiting_for
from penstock.store.tables import running as running_table
from penstock.store.types import UtcTime

LOOKED_AT = 10_000
"""How many rows one look reads at most."""
READ_AT_MOST = 200_000
"""How many rows the looks of one scrape read at most, together."""


def is_due(tx: Tx) -> ColumnElement[bool]:
    """Whether its time has come although it still waits for it."""
    return and_(waiting_for(WaitsFor.TIME), waiting.c.until <= tx.now)


def oldest_ready_at(tx: Tx, tenant_id: UUID) -> datetime | None:
    """Return since when the tenant's longest-waiting ready job could have run.

    Three looks, each bounded and by an index: the oldest ready job, the one that has been due for longest, and the first
    place of each priority. The first alone would miss a job that was enqueued long ahead of its time.
    """
    oldest = select(ready.c.ready_at).where(ready.c.tenant_id == tenant_id).order_by(ready.c.job_id).limit(1)
    overdue = select(waiting.c.tenant_id, states.ready_since(tx, waiting).label("at")).where(is_due(tx))
    long_due = overdue.order_by(waiting.c.until, waiting.c.job_id).limit(LOOKED_AT).subquery()
    looks = (
        oldest.scalar_subquery(),
        select(long_due.c.at).where(long_due.c.tenant_id == tenant_id).limit(1).scalar_subquery(),
        _first_places(tenant_id),
    )
    return min((found for found in tx.run(select(*looks)).one() if found is not None), default=None)


def _first_places(tenant_id: UUID) -> ColumnElement[datetime]:
    """The longest wait among the jobs in the first place of each priority; the priorities by hops through the index."""
    mine = and_(ready.c.tenant_id == tenant_id)
    hops = select(func.min(ready.c.priority).label("priority")).where(mine).cte("hops", recursive=True)
    further = select(func.min(ready.c.priority)).where(mine, ready.c.priority > hops.c.priority).scalar_subquery()
    hops = hops.union_all(select(further).where(hops.c.priority.is_not(None)))
    first = (
        select(ready.c.ready_at).where(mine, ready.c.priority == hops.c.priority).order_by(ready.c.position).limit(1)
    )
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
            looks = (_some(tx, t).where(t.c.tenant_id == tenant_id).order_by(t.c.job_id) for t in (ready, waiting))
            _merge(found, _counted(tx, *(look.limit(most) for look in looks)))
    front: dict[Lane, Depth] = {}
    names = [row.name for row in tx.rows(select(queues.c.name))]
    most = max(100, min(LOOKED_AT, READ_AT_MOST // max(1, len(names))))
    order = (ready.c.priority, ready.c.position, ready.c.queued_at, ready.c.job_id)
    for name in names:
        _add(front, _counted(tx, _some(tx, ready).where(ready.c.queue == name).order_by(*order).limit(most)))
    overdue = _some(tx, waiting).where(is_due(tx)).order_by(waiting.c.until, waiting.c.job_id)
    _add(front, _counted(tx, overdue.limit(LOOKED_AT)))
    _merge(found, front.items())
    return found


def _some(tx: Tx, table: Table) -> Any:
    """Jobs of `ready`, or of `waiting`: where they wait, and since when they could run if they could."""
    is_ready, at = (true(), ready.c.ready_at) if table is ready else (is_due(tx), states.ready_since(tx, waiting))
    lane = (table.c.tenant_id, table.c.queue, table.c.definition_key)
    return select(*lane, is_ready.label("ready"), at.label("at"))


def _counted(tx: Tx, *looks: Any) -> list[tuple[Lane, Depth]]:
    found: Any = union_all(*(select(look.subquery()) for look in looks)) if len(looks) > 1 else looks[0]
    rows = found.subquery()
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
    lane = (running_table.c.tenant_id, running_table.c.queue, running_table.c.definition_key)
    return {Lane(*row[:3]): int(row[3]) for row in tx.rows(select(*lane, func.count()).group_by(*lane))}
