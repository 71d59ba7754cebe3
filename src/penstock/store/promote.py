"""What waits becomes claimable: by time, and by a slot of a limit. Run at the head of every claim, under its lock; and for
one job when a person changes its time."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Select, and_, bindparam, case, func, literal, or_, select, tuple_, union_all, update

from penstock.core.chance import chance
from penstock.core.position import place, step
from penstock.core.status import JobStatus, WaitsFor
from penstock.store import jobs as job_rows
from penstock.store.database import Tx
from penstock.store.dialect import Lock
from penstock.store.tables import definitions, holds_slot, in_status, is_claimable, jobs, tenants, waiting_for

BATCH = 1000
MAX_SCOPES = 500


def due(tx: Tx) -> int:
    """Give every job whose time has come its place at the end of its tenant's queue, or its wait for a slot."""
    query = (
        _waiting_for_time()
        .where(jobs.c.scheduled_for <= tx.now)
        .order_by(jobs.c.scheduled_for, jobs.c.queued_at, jobs.c.id)
        .limit(BATCH)
        .with_for_update(of=jobs, **tx.dialect.skip_locked)
    )
    found = tx.rows(query)
    _promote(tx, found)
    return len(found)


def run_now(tx: Tx, tenant_id: UUID, job_id: UUID) -> None:
    """Let a job that waits for its time be due now, and give it its place or its wait for a slot, as `due` does. The caller
    holds the job's lock; a job that waits for anything else is left as it is."""
    ours = and_(jobs.c.id == job_id, jobs.c.tenant_id == tenant_id, waiting_for(WaitsFor.TIME))
    tx.run(update(jobs).where(ours, jobs.c.scheduled_for > tx.now).values(scheduled_for=tx.now))
    _promote(tx, tx.rows(_waiting_for_time().where(ours)))


def postpone(tx: Tx, tenant_id: UUID, job_id: UUID, until: datetime) -> None:
    """Let a queued job wait for this time. It loses its place or its slot, if it had one; a member of a group that waits for
    its turn waits for both."""
    ours = and_(jobs.c.id == job_id, jobs.c.tenant_id == tenant_id, jobs.c.status == JobStatus.QUEUED)
    its_turn = waiting_for(WaitsFor.GROUP)
    queue = tx.scalar(
        update(jobs)
        .where(ours)
        .values(
            scheduled_for=until,
            claimable=False,
            slot=False,
            waits_for=case((its_turn, WaitsFor.GROUP), else_=WaitsFor.TIME),
        )
        .returning(jobs.c.queue)
    )
    if queue is not None:
        tx.dialect.wake(tx.conn, [queue])  # a slot may be free


def _waiting_for_time() -> Select[Any]:
    limited = or_(
        tenants.c.is_active.is_(False),
        tenants.c.max_running.is_not(None),
        definitions.c.max_running.is_not(None),
        definitions.c.paused.is_(True),
    )
    return (
        select(
            jobs.c.id,
            jobs.c.tenant_id,
            jobs.c.priority,
            jobs.c.queue,
            tenants.c.weight,
            limited.label("limited"),
        )
        .join(tenants, tenants.c.id == jobs.c.tenant_id)
        .outerjoin(definitions, definitions.c.id == jobs.c.definition_id)
        .where(waiting_for(WaitsFor.TIME))
    )


def _promote(tx: Tx, found: Sequence[Any]) -> None:
    limited = [row for row in found if row.limited]
    if limited:
        tx.run(update(jobs).where(jobs.c.id.in_([row.id for row in limited])).values(waits_for=WaitsFor.LIMIT))
    _give_places(tx, [row for row in found if not row.limited], slot=False)


def _give_places(tx: Tx, found: Sequence[Any], *, slot: bool) -> None:
    """Make them claimable, in the order given, each behind its tenant's last."""
    if not found:
        return
    next_place: dict[tuple[UUID, int], int] = {}
    changes = []
    for row in found:
        at = (row.tenant_id, row.priority)
        if at not in next_place:
            largest = job_rows.largest_position(tx, *at)
            next_place[at] = place(largest, job_rows.smallest_position(tx, row.priority), row.weight)
        changes.append({"job_id": row.id, "place": next_place[at]})
        next_place[at] += step(row.weight)
    tx.run(
        update(jobs)
        .where(jobs.c.id == bindparam("job_id"), jobs.c.status == "queued")
        .values(claimable=True, waits_for=None, position=bindparam("place"), slot=slot),
        changes,
    )
    tx.dialect.wake(tx.conn, [row.queue for row in found])


def admit(tx: Tx) -> int:
    """Let jobs behind a limit through as far as its slots allow. One process at a time; the others pass by."""
    if not tx.try_lock(Lock.ADMIT):
        return 0
    waiting = _waiting_scopes(tx)
    if not waiting:
        return 0
    taken_by_definition, taken_by_tenant = _taken(tx)
    tenants_waiting = Counter(scope.definition_id for scope in waiting)
    chance.shuffle(waiting)  # no tenant is always first
    admitted = 0
    for scope in waiting:
        free = BATCH if scope.tenant_active and not scope.paused else 0
        if scope.definition_limit is not None:
            left = scope.definition_limit - taken_by_definition[scope.definition_id]
            # An equal share for each tenant that waits, so that none takes every slot.
            free = min(free, left, math.ceil(left / tenants_waiting[scope.definition_id]))
            tenants_waiting[scope.definition_id] -= 1
        if scope.tenant_limit is not None:
            free = min(free, scope.tenant_limit - taken_by_tenant[scope.tenant_id])
        if free <= 0:
            continue
        chosen = _first_waiting(tx, scope, free)
        taken_by_definition[scope.definition_id] += len(chosen)
        taken_by_tenant[scope.tenant_id] += len(chosen)
        _give_places(tx, chosen, slot=scope.definition_limit is not None or scope.tenant_limit is not None)
        admitted += len(chosen)
    return admitted


def _first_waiting(tx: Tx, scope: Any, most: int) -> Sequence[Any]:
    return tx.rows(
        select(jobs.c.id, jobs.c.tenant_id, jobs.c.priority, jobs.c.queue, tenants.c.weight)
        .join(tenants, tenants.c.id == jobs.c.tenant_id)
        .where(
            waiting_for(WaitsFor.LIMIT),
            jobs.c.definition_key == scope.definition_key,
            jobs.c.tenant_id == scope.tenant_id,
            jobs.c.definition_id.is_not_distinct_from(scope.definition_id),
        )
        .order_by(jobs.c.priority, jobs.c.queued_at, jobs.c.id)
        .limit(most)
        .with_for_update(of=jobs, **tx.dialect.skip_locked)
    )


def _waiting_scopes(tx: Tx) -> list[Any]:
    """The (definition, tenant) pairs with something waiting, by hops through the index: never by reading what waits."""
    pair = tuple_(jobs.c.definition_key, jobs.c.tenant_id)
    query = (
        select(
            jobs.c.definition_key,
            jobs.c.tenant_id,
            jobs.c.definition_id,
            definitions.c.max_running.label("definition_limit"),
            definitions.c.paused,
            tenants.c.max_running.label("tenant_limit"),
            tenants.c.is_active.label("tenant_active"),
        )
        .join(tenants, tenants.c.id == jobs.c.tenant_id)
        .outerjoin(definitions, definitions.c.id == jobs.c.definition_id)
        .where(waiting_for(WaitsFor.LIMIT))
        .order_by(jobs.c.definition_key, jobs.c.tenant_id)
        .limit(1)
    )
    found: list[Any] = []
    at = tx.first(query)
    while at is not None and len(found) < MAX_SCOPES:
        found.append(at)
        at = tx.first(
            query.where(pair > tuple_(literal(at.definition_key), literal(at.tenant_id, jobs.c.tenant_id.type)))
        )
    return found


def _taken(tx: Tx) -> tuple[defaultdict[UUID | None, int], defaultdict[UUID, int]]:
    """Slots in use: what runs, and what was let through and waits to be claimed. One statement, one snapshot."""
    running = select(jobs.c.definition_id, jobs.c.tenant_id).where(in_status(JobStatus.RUNNING))
    let_through = select(jobs.c.definition_id, jobs.c.tenant_id).where(and_(holds_slot(), is_claimable()))
    both = union_all(running, let_through).subquery()
    query = select(both.c.definition_id, both.c.tenant_id, func.count()).group_by(
        both.c.definition_id, both.c.tenant_id
    )
    by_definition: defaultdict[UUID | None, int] = defaultdict(int)
    by_tenant: defaultdict[UUID, int] = defaultdict(int)
    for definition_id, tenant_id, number in tx.rows(query):
        by_definition[definition_id] += number
        by_tenant[tenant_id] += number
    return by_definition, by_tenant
