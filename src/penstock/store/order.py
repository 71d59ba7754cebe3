"""The places of one tenant's waiting jobs at one priority."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import and_, bindparam, func, or_, select, update

from penstock.core.nouns import Job
from penstock.core.position import GAP
from penstock.store.database import Tx
from penstock.store.jobs import smallest_position
from penstock.store.tables import jobs, ready

_KEY = (ready.c.position, ready.c.queued_at, ready.c.job_id)


def _lane(tenant_id: UUID, priority: int) -> Any:
    return and_(ready.c.tenant_id == tenant_id, ready.c.priority == priority)


def put(tx: Tx, job: Job, position: int, priority: int) -> None:
    """Put a job that is ready at this place. The caller holds it."""
    here = and_(ready.c.tenant_id == job.tenant_id, ready.c.job_id == job.id)
    tx.run(update(ready).where(here).values(position=position, priority=priority))
    if priority != job.priority:
        tx.run(update(jobs).where(jobs.c.id == job.id).values(priority=priority))


def edge(tx: Tx, tenant_id: UUID, priority: int, *, first: bool, but: UUID) -> int | None:
    """The first or last place of the tenant's own jobs, leaving one out."""
    column = ready.c.position.asc() if first else ready.c.position.desc()
    query = select(ready.c.position).where(_lane(tenant_id, priority), ready.c.job_id != but).order_by(column).limit(1)
    value: int | None = tx.scalar(query)
    return value


def neighbour(tx: Tx, other: Job, but: UUID, *, before: bool) -> int | None:
    """The place of the tenant's own job next to `other`, on the side asked for."""
    here = (other.position, other.queued_at, other.id)
    position, queued_at, id_ = _KEY
    if before:
        beyond = or_(
            position < here[0],
            and_(position == here[0], or_(queued_at < here[1], and_(queued_at == here[1], id_ < here[2]))),
        )
        order = [position.desc(), queued_at.desc(), id_.desc()]
    else:
        beyond = or_(
            position > here[0],
            and_(position == here[0], or_(queued_at > here[1], and_(queued_at == here[1], id_ > here[2]))),
        )
        order = [position.asc(), queued_at.asc(), id_.asc()]
    query = select(position).where(_lane(other.tenant_id, other.priority), id_ != but, beyond).order_by(*order).limit(1)
    value: int | None = tx.scalar(query)
    return value


def normalise(tx: Tx, tenant_id: UUID, priority: int) -> int:
    """Spread the tenant's places evenly again, from its first on, keeping their order. One transaction."""
    ids = [
        (row.job_id, row.position)
        for row in tx.rows(
            select(ready.c.job_id, ready.c.position).where(_lane(tenant_id, priority)).order_by(*_KEY).with_for_update()
        )
    ]
    if not ids:
        return 0
    start = ids[0][1]
    changes = [{"whose": job_id, "place": start + GAP * index} for index, (job_id, _) in enumerate(ids)]
    tx.run(
        update(ready)
        .where(ready.c.tenant_id == tenant_id, ready.c.job_id == bindparam("whose"))
        .values(position=bindparam("place")),
        changes,
    )
    return len(ids)


def priorities(tx: Tx, tenant_id: UUID) -> list[int]:
    query = select(ready.c.priority).where(ready.c.tenant_id == tenant_id).distinct().order_by(ready.c.priority)
    return [row.priority for row in tx.rows(query)]


def catch_up(tx: Tx, queue: str) -> None:
    """Before a paused queue opens: what waits in it begins at the clock, in its order, as whoever was away does. Else its
    old places would all go before what the others have now."""
    here = and_(ready.c.queue == queue)
    firsts = select(ready.c.priority, func.min(ready.c.position).label("first")).where(here).group_by(ready.c.priority)
    for row in tx.rows(firsts):
        behind = (smallest_position(tx, row.priority) or 0) - row.first
        if behind > 0:
            moved = update(ready).where(here, ready.c.priority == row.priority)
            tx.run(moved.values(position=ready.c.position + behind))
