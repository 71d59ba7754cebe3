"""The facts behind "why is it not running?"."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import case, func, or_, select

from penstock.core.nouns import Job
from penstock.core.status import JobStatus
from penstock.store.database import Tx
from penstock.store.tables import jobs, queues, ready, running, waiting, workers


def running_of(
    tx: Tx, *, definition_id: UUID | None = None, tenant_id: UUID | None = None, most: int = 5
) -> list[UUID]:
    """Jobs that hold the slots, longest first."""
    query = select(running.c.job_id).order_by(running.c.started_at, running.c.job_id).limit(most)
    if definition_id is not None:
        query = query.where(running.c.definition_id == definition_id)
    if tenant_id is not None:
        query = query.where(running.c.tenant_id == tenant_id)
    return [row.job_id for row in tx.rows(query)]


def queue_paused(tx: Tx, name: str) -> bool:
    return bool(tx.scalar(select(queues.c.paused).where(queues.c.name == name)))


def offering(tx: Tx, job: Job, seen_within: float) -> list[str]:
    """Workers lately seen that would take this job: the operator's, and those of its own tenant."""
    queue, key = job.queue, job.definition_key
    query = select(workers).where(
        workers.c.stopped_at.is_(None),
        workers.c.last_seen_at > tx.later(-seen_within),
        or_(workers.c.tenant_id.is_(None), workers.c.tenant_id == job.tenant_id),
    )
    return [
        row["id"]
        for row in tx.run(query).mappings()
        if (not row["queues"] or queue in row["queues"]) and (row["keys"] is None or key in row["keys"])
    ]


def ahead(tx: Tx, job: Job, cap: int = 10_000) -> int:
    """How many claimable jobs of its queue come first (counted up to `cap`)."""
    before = (
        select(ready.c.job_id)
        .where(
            ready.c.queue == job.queue,
            (ready.c.priority < job.priority)
            | ((ready.c.priority == job.priority) & (ready.c.position < job.position)),
        )
        .limit(cap)
    )
    return int(tx.scalar(select(func.count()).select_from(before.subquery())))


def predecessor(tx: Tx, job: Job) -> Any:
    """The member of its group that it waits for."""
    runs_now, is_ready, waits = (
        select(table.c.job_id).where(table.c.tenant_id == jobs.c.tenant_id, table.c.job_id == jobs.c.id).exists()
        for table in (running, ready, waiting)
    )
    status = case((runs_now, JobStatus.RUNNING.value), else_=JobStatus.QUEUED.value)
    query = (
        select(jobs.c.id, status.label("status"), jobs.c.group_position)
        .where(jobs.c.group_id == job.group_id, jobs.c.group_position < (job.group_position or 0))
        .where(or_(runs_now, is_ready, waits))
        .order_by(jobs.c.group_position.desc())
        .limit(1)
    )
    return tx.first(query)
