"""What waits becomes claimable: by time, and by a slot of a limit. Run at the head of every claim, under its lock; and for
one job when a person changes its time."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Select, and_, func, literal, or_, select, tuple_, union_all, update

from penstock.core.chance import chance
from penstock.core.position import place, step
from penstock.core.status import WaitsFor
from penstock.store import edits, states
from penstock.store import jobs as job_rows
from penstock.store.database import Tx
from penstock.store.dialect import Lock
from penstock.store.tables import definitions, holds_slot, ready, running, tenants, waiting, waiting_for

BATCH = 1000
MAX_SCOPES = 500


def due(tx: Tx) -> int:
    """Give every job whose time has come its place at the end of its tenant's queue, or its wait for a slot."""
    query = (
        _waiting_for_time()
        .where(waiting.c.until <= tx.now)
        .order_by(waiting.c.until, waiting.c.queued_at, waiting.c.job_id)
        .limit(BATCH)
        .with_for_update(of=waiting, **tx.dialect.skip_locked)
    )
    found = tx.rows(query)
    _promote(tx, found)
    return len(found)


def run_now(tx: Tx, tenant_id: UUID, job_id: UUID) -> None:
    """Let a job that waits for its time be due now, and give it its place or its wait for a slot, as `due` does. The caller
    holds the job; one that waits for anything else is left as it is."""
    ours = and_(waiting.c.job_id == job_id, waiting.c.tenant_id == tenant_id, waiting_for(WaitsFor.TIME))
    if tx.count(update(waiting).where(ours, waiting.c.until > tx.now).values(until=tx.now)):
        edits.set_time(tx, job_id, tx.now)
    _promote(tx, tx.rows(_waiting_for_time().where(ours)))


def postpone(tx: Tx, tenant_id: UUID, job_id: UUID, until: datetime) -> None:
    """Let a queued job wait for this time. It loses its place or its slot, if it had one; a member of a group that waits for
    its turn waits for both. The caller holds the job."""
    for table in (waiting, ready):
        here = select(table.c.queue).where(table.c.job_id == job_id, table.c.tenant_id == tenant_id)
        queue = tx.scalar(here)
        if queue is None:
            continue
        edits.set_time(tx, job_id, until)
        if table is ready or tx.scalar(here.where(~waiting_for(WaitsFor.GROUP))) is not None:
            states.wait(tx, table, [job_id], WaitsFor.TIME, until)
        tx.dialect.wake(tx.conn, [queue])  # a slot may be free
        return


def _waiting_for_time() -> Select[Any]:
    limited = or_(
        tenants.c.is_active.is_(False),
        tenants.c.max_running.is_not(None),
        definitions.c.max_running.is_not(None),
        definitions.c.paused.is_(True),
    )
    return (
        select(
            waiting.c.job_id,
            waiting.c.tenant_id,
            waiting.c.priority,
            waiting.c.queue,
            tenants.c.weight,
            limited.label("limited"),
        )
        .join(tenants, tenants.c.id == waiting.c.tenant_id)
        .outerjoin(definitions, definitions.c.id == waiting.c.definition_id)
        .where(waiting_for(WaitsFor.TIME))
    )


def _promote(tx: Tx, found: Sequence[Any]) -> None:
    states.wait(tx, waiting, [row.job_id for row in found if row.limited], WaitsFor.LIMIT)
    _give_places(tx, [row for row in found if not row.limited], slot=False)


def _give_places(tx: Tx, found: Sequence[Any], *, slot: bool) -> None:
    """Make them ready, in the order given, each behind its tenant's last."""
    if not found:
        return
    next_place: dict[tuple[UUID, int], int] = {}
    places = []
    for row in found:
        at = (row.tenant_id, row.priority)
        if at not in next_place:
            largest = job_rows.largest_position(tx, *at)
            next_place[at] = place(largest, job_rows.smallest_position(tx, row.priority), row.weight)
        places.append((row.tenant_id, row.job_id, next_place[at]))
        next_place[at] += step(row.weight)
    states.make_ready(tx, places, slot=slot)
    tx.dialect.wake(tx.conn, [row.queue for row in found])


def admit(tx: Tx) -> int:
    """Let jobs behind a limit through as far as its slots allow. One process at a time; the others pass by."""
    if not tx.try_lock(Lock.ADMIT):
        return 0
    scopes = _waiting_scopes(tx)
    if not scopes:
        return 0
    taken_by_definition, taken_by_tenant = _taken(tx)
    tenants_waiting = Counter(scope.definition_id for scope in scopes)
    chance.shuffle(scopes)  # no tenant is always first
    admitted = 0
    for scope in scopes:
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
        select(waiting.c.job_id, waiting.c.tenant_id, waiting.c.priority, waiting.c.queue, tenants.c.weight)
        .join(tenants, tenants.c.id == waiting.c.tenant_id)
        .where(
            waiting_for(WaitsFor.LIMIT),
            waiting.c.definition_key == scope.definition_key,
            waiting.c.tenant_id == scope.tenant_id,
            waiting.c.definition_id.is_not_distinct_from(scope.definition_id),
        )
        .order_by(waiting.c.priority, waiting.c.queued_at, waiting.c.job_id)
        .limit(most)
        .with_for_update(of=waiting, **tx.dialect.skip_locked)
    )


def _waiting_scopes(tx: Tx) -> list[Any]:
    """The (definition, tenant) pairs with something waiting, by hops through the index: never by reading what waits."""
    pair = tuple_(waiting.c.definition_key, waiting.c.tenant_id)
    query = (
        select(
            waiting.c.definition_key,
            waiting.c.tenant_id,
            waiting.c.definition_id,
            definitions.c.max_running.label("definition_limit"),
            definitions.c.paused,
            tenants.c.max_running.label("tenant_limit"),
            tenants.c.is_active.label("tenant_active"),
        )
        .join(tenants, tenants.c.id == waiting.c.tenant_id)
        .outerjoin(definitions, definitions.c.id == waiting.c.definition_id)
        .where(waiting_for(WaitsFor.LIMIT))
        .order_by(waiting.c.definition_key, waiting.c.tenant_id)
        .limit(1)
    )
    found: list[Any] = []
    at = tx.first(query)
    while at is not None and len(found) < MAX_SCOPES:
        found.append(at)
        at = tx.first(
            query.where(pair > tuple_(literal(at.definition_key), literal(at.tenant_id, waiting.c.tenant_id.type)))
        )
    return found


def _taken(tx: Tx) -> tuple[defaultdict[UUID | None, int], defaultdict[UUID, int]]:
    """Slots in use: what runs, and what was let through and waits to be claimed. One statement, one snapshot."""
    under_way = select(running.c.definition_id, running.c.tenant_id)
    let_through = select(ready.c.definition_id, ready.c.tenant_id).where(holds_slot())
    both = union_all(under_way, let_through).subquery()
    query = select(both.c.definition_id, both.c.tenant_id, func.count()).group_by(
        both.c.definition_id, both.c.tenant_id
    )
    by_definition: defaultdict[UUID | None, int] = defaultdict(int)
    by_tenant: defaultdict[UUID, int] = defaultdict(int)
    for definition_id, tenant_id, number in tx.rows(query):
        by_definition[definition_id] += number
        by_tenant[tenant_id] += number
    return by_definition, by_tenant
