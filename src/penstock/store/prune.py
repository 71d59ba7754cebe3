"""Forgetting, in batches: finished jobs and what belongs to them, never anything that is active."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Table, delete, func, or_, select

from penstock.core.status import TERMINAL, JobStatus
from penstock.store.database import Tx
from penstock.store.tables import (
    deliveries,
    events,
    groups,
    idempotency_keys,
    in_status,
    jobs,
    runs,
    tallies,
    tenants,
    ticks,
    trigger_fires,
    triggers,
)

BATCH = 1000


def finished_jobs(tx: Tx, before: datetime, statuses: Sequence[JobStatus], tenant_id: UUID | None = None) -> int:
    """Delete one batch of jobs that ended before a moment, with their runs. Zero when there is nothing left.

    A retry chain goes as one, by the status and the end of its last job: a chain without its end would be taken for one
    whose retry is missing. A member stays until its whole group has ended.
    """
    other = jobs.alias()
    retried = select(other.c.id).where(other.c.retry_of == jobs.c.id).exists()
    group_goes_on = (
        select(other.c.id).where(other.c.group_id == jobs.c.group_id, other.c.status.not_in(TERMINAL)).exists()
    )
    ended: list[UUID] = []
    chains: list[UUID] = []
    for tenant in [tenant_id] if tenant_id else [row.id for row in tx.rows(select(tenants.c.id))]:
        for status in statuses:
            query = (
                select(jobs.c.id, jobs.c.root_id, jobs.c.retry_of)
                .where(
                    jobs.c.tenant_id == tenant,
                    in_status(status),
                    jobs.c.finished_at < before,
                    ~retried,
                    or_(jobs.c.group_id.is_(None), ~group_goes_on),
                )
                .order_by(jobs.c.id)
                .limit(BATCH - len(ended))
            )
            for row in tx.rows(query):
                ended.append(row.id)
                if row.retry_of is not None:
                    chains.append(row.root_id)
            if len(ended) >= BATCH:
                break
    if not ended:
        return 0
    earlier = select(jobs.c.id).where(jobs.c.root_id.in_(chains), jobs.c.retry_of.is_not(None))
    doomed = {*ended, *chains, *(row.id for row in tx.rows(earlier))} if chains else set(ended)
    tx.run(delete(runs).where(runs.c.job_id.in_(doomed)))
    tx.run(delete(jobs).where(jobs.c.id.in_(doomed), jobs.c.status.in_(TERMINAL)))
    return len(doomed)


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
