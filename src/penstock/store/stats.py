"""Figures for pages and metrics, each bounded: from the tallies, from the newest rows, or from what is open."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import func, select, union_all

from penstock.core.status import JobStatus
from penstock.store.database import Tx
from penstock.store.members import how_many, members
from penstock.store.rows import opened_job
from penstock.store.sealing import Codec, error_of
from penstock.store.tables import ended_as, job_view, jobs, runs, tallies, tenants, triggers
from penstock.store.waiting import Lane

NEWEST = 200
OPEN = 500


class Tally(NamedTuple):
    """Runs that ended in one minute with one outcome, in one bucket of duration; waits, with measure `wait`; or what followed
    from their end, with `retry` and `dead_letter`."""

    minute: datetime
    tenant_id: UUID
    definition_key: str
    measure: str
    bucket: int
    n: int


def tallied(tx: Tx, since: datetime, tenant_id: UUID | None = None) -> list[Tally]:
    """The tallies from this minute on, shards summed."""
    columns = (tallies.c.minute, tallies.c.tenant_id, tallies.c.definition_key, tallies.c.measure, tallies.c.bucket)
    query = select(*columns, func.sum(tallies.c.n)).where(tallies.c.minute >= since).group_by(*columns)
    if tenant_id is not None:
        query = query.where(tallies.c.tenant_id == tenant_id)
    return [Tally(row[0], row[1], row[2], row[3], int(row[4]), int(row[5])) for row in tx.rows(query)]


def summed(tx: Tx, since: datetime, before: datetime | None = None) -> list[tuple[Lane, str, int, int]]:
    """(lane, measure, bucket, n) over these minutes."""
    columns = (
        tallies.c.tenant_id, tallies.c.queue, tallies.c.definition_key, tallies.c.measure, tallies.c.bucket,
    )  # fmt: skip
    query = select(*columns, func.sum(tallies.c.n)).where(tallies.c.minute >= since).group_by(*columns)
    if before is not None:
        query = query.where(tallies.c.minute < before)
    return [(Lane(*row[:3]), row[3], int(row[4]), int(row[5])) for row in tx.rows(query)]


def depths(tx: Tx, tenant_ids: list[UUID], cap: int) -> dict[tuple[UUID, JobStatus], int]:
    """How many jobs each tenant has in each status, counted up to `cap`; one index range for each."""
    parts = [
        ((tenant_id, status), how_many(status, tenant_id, cap)) for tenant_id in tenant_ids for status in JobStatus
    ]
    found: dict[tuple[UUID, JobStatus], int] = {}
    for start in range(0, len(parts), 60):
        chunk = parts[start : start + 60]
        row = tx.run(select(*(count for _, count in chunk))).one()
        found.update({name: int(n) for (name, _), n in zip(chunk, row, strict=True)})
    return found


def enqueued_since(tx: Tx, since: datetime, cap: int) -> dict[UUID, int]:
    """How many jobs each tenant was given since, counted up to `cap` in all. Ids are UUIDv7: they start with the time."""
    first = UUID(int=int(since.timestamp() * 1000) << 80)
    newest = select(jobs.c.tenant_id).where(jobs.c.id >= first).limit(cap).subquery()
    found = tx.rows(select(newest.c.tenant_id, func.count()).group_by(newest.c.tenant_id))
    return {row[0]: int(row[1]) for row in found}


def tenant_slugs(tx: Tx, limit: int) -> dict[UUID, str]:
    """The first tenants by id, that is by age."""
    found = tx.rows(select(tenants.c.id, tenants.c.slug).order_by(tenants.c.id).limit(limit))
    return {row.id: row.slug for row in found}


class Failure(NamedTuple):
    """A job that failed or died."""

    id: UUID
    definition_key: str
    status: str
    last_error: str | None
    finished_at: datetime


def newest_failures(tx: Tx, tenant_id: UUID, limit: int, since: datetime | None = None) -> list[Failure]:
    """The newest jobs that failed or died."""
    columns = (runs.c.job_id.label("id"), jobs.c.definition_key, runs.c.job_status, runs.c.error, runs.c.finished_at)
    branches = []
    for status in (JobStatus.FAILED, JobStatus.DEAD_LETTER):
        branch = select(*columns).join(jobs, jobs.c.id == runs.c.job_id)
        branch = branch.where(runs.c.tenant_id == tenant_id, ended_as(status.value))
        if since is not None:
            branch = branch.where(runs.c.finished_at >= since)
        branches.append(select(branch.order_by(runs.c.job_id.desc()).limit(limit).subquery()))
    merged = union_all(*branches).subquery()
    return [
        Failure(row[0], row[1], row[2], tx.codec.open_text(row[3], partial(error_of, tenant_id, row[0])), row[4])
        for row in tx.rows(select(merged).order_by(merged.c.id.desc()).limit(limit))
    ]


LIGHT = tuple(
    job_view.c[name]
    for name in (
        "id", "definition_key", "queue", "status", "waits_for", "priority", "position", "source", "attempt_no", "max_attempts",
        "claimed_by", "queued_at", "scheduled_for", "started_at", "finished_at", "cancel_requested_at", "progress", "last_error",
        "group_id",
    )
)  # fmt: skip


def pulse(tx: Tx, tenant_id: UUID, also: list[UUID]) -> list[dict[str, Any]]:
    """What a live view watches: the newest jobs of each status, those that run, and those it watched before."""
    chosen: list[Any] = []
    for status in JobStatus:
        bound = OPEN if status is JobStatus.RUNNING else NEWEST
        for table, here in members(status, tenant_id):
            branch = select(table.c.job_id.label("id")).where(here).order_by(table.c.job_id.desc()).limit(bound)
            chosen.append(select(branch.subquery()))
    if also:
        chosen.append(select(jobs.c.id).where(jobs.c.tenant_id == tenant_id, jobs.c.id.in_(also)))
    ids = union_all(*chosen).subquery()
    found = tx.run(select(*LIGHT).where(tx.dialect.among(job_view.c.id, select(ids.c.id)))).mappings()
    return [_opened(dict(row), tenant_id, tx.codec) for row in found]


def _opened(row: dict[str, Any], tenant_id: UUID, codec: Codec) -> dict[str, Any]:
    opened = opened_job({**row, "tenant_id": tenant_id}, codec)
    del opened["tenant_id"]
    return opened


def slug_of(tx: Tx, tenant_id: UUID) -> dict[UUID, str]:
    return {row.id: row.slug for row in tx.rows(select(tenants.c.id, tenants.c.slug).where(tenants.c.id == tenant_id))}


def upcoming(tx: Tx, tenant_id: UUID, limit: int) -> list[Any]:
    """The next moment of each enabled schedule, soonest first: rows of id, label, definition_key, next_trigger_at."""
    query = select(triggers.c.id, triggers.c.label, triggers.c.definition_key, triggers.c.next_trigger_at).where(
        triggers.c.tenant_id == tenant_id,
        triggers.c.trigger_type == "schedule",
        triggers.c.is_enabled,
        triggers.c.deleted_at.is_(None),
        triggers.c.next_trigger_at.is_not(None),
    )
    return list(tx.rows(query.order_by(triggers.c.next_trigger_at, triggers.c.id).limit(limit)))
