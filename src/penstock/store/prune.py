"""Forgetting, in batches: finished jobs and what belongs to them, never anything that is active."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Table, and_, delete, exists, func, or_, select

from penstock.core.status import JobStatus, RetryMode, WaitsFor
from penstock.store.database import Tx
from penstock.store.tables import (
    deliveries,
    ended_as,
    events,
    groups,
    idempotency_keys,
    jobs,
    moves_in_group,
    ready,
    running,
    runs,
    tallies,
    tenants,
    ticks,
    trigger_fires,
    triggers,
    waiting,
    waiting_for,
)

BATCH = 1000
FIRST = UUID(int=0)


def with_history(tx: Tx, tenant_id: UUID | None = None) -> list[UUID]:
    """The tenants to go through."""
    return [tenant_id] if tenant_id else [row.id for row in tx.rows(select(tenants.c.id).order_by(tenants.c.id))]


def finished_jobs(
    tx: Tx, tenant_id: UUID, status: JobStatus, before: datetime, after: UUID = FIRST
) -> tuple[int, UUID | None]:
    """Of a tenant's jobs that ended so, look at the next `BATCH` after an id, and delete those that ended before a moment, with their
    runs. Returns how many went, and the id to go on from; None when there is nothing left.

    Ids grow with time, so a page of jobs that were all made after that moment is the last one: what is younger is not read.
    A retry chain goes as one, by the status and the end of its last job: a chain without its end would be taken for one
    whose retry is missing. A member stays until its whole group has ended.
    """
    retry = jobs.alias()
    retried = and_(
        jobs.c.retry_mode == RetryMode.CHAIN, select(retry.c.id).where(retry.c.retry_of == jobs.c.id).exists()
    )
    query = (
        select(
            jobs.c.id, jobs.c.root_id, jobs.c.retry_of, jobs.c.created_at, (runs.c.finished_at < before).label("old"),
            or_(retried, _group_goes_on()).label("needed"),
        )
        .join(jobs, jobs.c.id == runs.c.job_id)
        .where(runs.c.tenant_id == tenant_id, ended_as(status), runs.c.job_id > after)
        .order_by(runs.c.job_id)
        .limit(BATCH)
        .with_for_update(of=[jobs, runs], **tx.dialect.skip_locked)
    )  # fmt: skip
    page = tx.rows(query)
    going = [row for row in page if row.old and not row.needed]
    chains = [row.root_id for row in going if row.retry_of is not None]
    doomed = {row.id for row in going} | set(chains)
    if chains:
        earlier = select(jobs.c.id).where(jobs.c.root_id.in_(chains), jobs.c.retry_of.is_not(None))
        doomed |= {row.id for row in tx.rows(earlier)}
    if doomed:
        tx.run(delete(runs).where(runs.c.job_id.in_(doomed)))
        tx.run(delete(jobs).where(jobs.c.id.in_(doomed)))
    is_last = len(page) < BATCH or all(row.created_at >= before for row in page)
    return len(doomed), None if is_last else page[-1].id


def _group_goes_on() -> ColumnElement[bool]:
    """Whether the group of a job has a member that has not ended. Each condition as its index has it."""
    ours = (
        (waiting, waiting_for(WaitsFor.GROUP)),
        (waiting, moves_in_group()),
        (ready, ready.c.group_id.is_not(None)),
        (running, running.c.group_id.is_not(None)),
    )
    return and_(
        jobs.c.group_id.is_not(None),
        or_(*(exists().where(table.c.group_id == jobs.c.group_id, member) for table, member in ours)),
    )


def old_rows(tx: Tx, before: datetime) -> dict[str, int]:
    """Delete what only tells of the past: ticks, events, deliveries, tallies and used idempotency keys."""
    told: tuple[tuple[Table, Any], ...] = (
        (ticks, ticks.c.created_at),
        (events, events.c.created_at),
        (deliveries, deliveries.c.created_at),
        (tallies, tallies.c.minute),
        (idempotency_keys, idempotency_keys.c.created_at),
    )
    removed = {}
    for table, moment in told:
        query = delete(table).where(moment < before)
        if table is ticks:
            # The newest tick of a trigger says what was handled; it stays.
            newest = (
                select(func.max(ticks.c.tick_at).label("at"), ticks.c.trigger_id)
                .group_by(ticks.c.trigger_id)
                .subquery()
            )
            query = query.where(
                ~select(newest.c.at)
                .where(newest.c.trigger_id == ticks.c.trigger_id, newest.c.at == ticks.c.tick_at)
                .exists()
            )
        removed[table.name.removeprefix("penstock_")] = tx.count(query)
    window_ends = tx.dialect.add_seconds(trigger_fires.c.fired_at, triggers.c.dedupe_window_seconds)
    needed = select(triggers.c.id).where(triggers.c.id == trigger_fires.c.trigger_id, window_ends >= before).exists()
    removed["trigger_fires"] = tx.count(delete(trigger_fires).where(trigger_fires.c.fired_at < before, ~needed))
    member = select(jobs.c.id).where(jobs.c.group_id == groups.c.id).exists()
    removed["groups"] = tx.count(delete(groups).where(groups.c.created_at < before, ~member))
    return removed
