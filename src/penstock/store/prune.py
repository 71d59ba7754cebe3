"""Forgetting, in batches: finished jobs and what belongs to them, never anything that is active."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Table, and_, case, delete, exists, func, or_, select

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

    Ids grow with time: a page is a range of them, and one whose jobs were all made after that moment is the last, so what is
    younger is not read. A retry chain goes as one, by the status and the end of its last job: a chain without its end would be taken
    for one whose retry is missing. A member stays until its whole group has ended.
    """
    ended = and_(runs.c.tenant_id == tenant_id, ended_as(status), runs.c.job_id > after)
    page = _look(tx, ended, before)
    if page is None:
        return 0, None
    here = and_(ended, runs.c.job_id <= page.last)
    removed = 0
    if page.old:
        old = and_(here, runs.c.finished_at < before, ~_group_goes_on())
        removed = _remove_plain(tx, here, old) + _remove_chains(tx, old)
    is_last = page.number < BATCH or page.oldest >= before
    return removed, None if is_last else page.last


def _look(tx: Tx, ended: ColumnElement[bool], before: datetime) -> Any:
    """The next page: its last id, how many jobs it has, how many of them ended before the moment, and when the oldest was made."""
    page = (
        select(runs.c.job_id, case((runs.c.finished_at < before, 1), else_=0).label("old"), jobs.c.created_at)
        .join(jobs, jobs.c.id == runs.c.job_id)
        .where(ended)
        .order_by(runs.c.job_id)
        .limit(BATCH)
        .subquery()
    )
    facts = (
        page.c.job_id.label("last"),
        func.count().over().label("number"),
        func.sum(page.c.old).over().label("old"),
        func.min(page.c.created_at).over().label("oldest"),
    )
    return tx.first(select(*facts).order_by(page.c.job_id.desc()).limit(1))


def _remove_plain(tx: Tx, here: ColumnElement[bool], old: ColumnElement[bool]) -> int:
    """Delete jobs that are in no chain, and what they leave behind. No id leaves the database. One that is begun again by hand
    at this moment is passed by."""
    doomed = (
        select(runs.c.job_id)
        .join(jobs, jobs.c.id == runs.c.job_id)
        .where(old, jobs.c.retry_mode != RetryMode.CHAIN)
        .with_for_update(of=runs, **tx.dialect.skip_locked)
    )
    removed = tx.count(delete(jobs).where(tx.dialect.among(jobs.c.id, doomed)))
    if removed:
        left = select(runs.c.job_id).where(here, ~exists().where(jobs.c.id == runs.c.job_id)).correlate(None)
        tx.run(delete(runs).where(tx.dialect.among(runs.c.job_id, left)))
    return removed


def _remove_chains(tx: Tx, old: ColumnElement[bool]) -> int:
    """Delete the chains that end with one of these jobs."""
    retry = jobs.alias()
    query = (
        select(jobs.c.id, jobs.c.root_id, jobs.c.retry_of)
        .join(runs, runs.c.job_id == jobs.c.id)
        .where(
            old,
            jobs.c.retry_mode == RetryMode.CHAIN,
            ~select(retry.c.id).where(retry.c.retry_of == jobs.c.id).exists(),
        )
        .with_for_update(of=[jobs, runs], **tx.dialect.skip_locked)
    )
    ends = tx.rows(query)
    chains = [row.root_id for row in ends if row.retry_of is not None]
    doomed = {row.id for row in ends} | set(chains)
    if chains:
        earlier = select(jobs.c.id).where(jobs.c.root_id.in_(chains), jobs.c.retry_of.is_not(None))
        doomed |= {row.id for row in tx.rows(earlier)}
    if doomed:
        tx.run(delete(runs).where(runs.c.job_id.in_(doomed)))
        tx.run(delete(jobs).where(jobs.c.id.in_(doomed)))
    return len(doomed)


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
