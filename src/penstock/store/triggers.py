"""Triggers: written, read, changed, and found when they are due or their event is named. The tenant comes first, always."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from sqlalchemy import func, insert, literal, literal_column, or_, select, tuple_, union_all, update

from penstock.core.ids import new_id
from penstock.core.outside import steady
from penstock.core.quota import FREE, Bounds, own_bounds
from penstock.core.reach import Trigger
from penstock.core.schedule import Facts
from penstock.store.database import Tx
from penstock.store.sealing import Codec, template_of
from penstock.store.tables import jobs, ready, running, runs, tenants, triggers, waiting
from penstock.store.types import Id, UtcTime, json_object

_FIELDS = tuple(Trigger.__dataclass_fields__)
_COLUMNS = [triggers.c[name] for name in _FIELDS]
# Written out, not bound: the partial indexes are found by it.
_SCHEDULES = triggers.c.trigger_type == literal_column("'schedule'")
_EVENTS = triggers.c.trigger_type == literal_column("'event'")
_ALIVE = triggers.c.deleted_at.is_(None)
_ENABLED: Any = literal_column("penstock_triggers.is_enabled")
_DISABLED: Any = literal_column("NOT penstock_triggers.is_enabled")
RECENT = 50
"""Jobs of one trigger looked at for the end of the last one."""


def add(tx: Tx, tenant_id: UUID, values: Mapping[str, Any]) -> Trigger:
    trigger_id = steady(("trigger", tenant_id, values["label"]), new_id)
    statement = insert(triggers).values(
        id=trigger_id,
        tenant_id=tenant_id,
        version=1,
        created_at=tx.now,
        updated_at=tx.now,
        **_sealed(tx, values, tenant_id, trigger_id),
    )
    return _trigger(tx.run(statement.returning(*_COLUMNS)).mappings().one(), tx.codec)


def get(tx: Tx, tenant_id: UUID, trigger_id: UUID, *, lock: bool = False) -> Trigger | None:
    query = select(*_COLUMNS).where(triggers.c.id == trigger_id, triggers.c.tenant_id == tenant_id, _ALIVE)
    row = tx.run(query.with_for_update() if lock else query).mappings().first()
    return _trigger(row, tx.codec) if row else None


def by_label(tx: Tx, tenant_id: UUID, label: str) -> Trigger | None:
    query = select(*_COLUMNS).where(triggers.c.tenant_id == tenant_id, triggers.c.label == label, _ALIVE)
    row = tx.run(query).mappings().first()
    return _trigger(row, tx.codec) if row else None


def count(tx: Tx, tenant_id: UUID) -> int:
    return int(tx.scalar(select(func.count()).select_from(triggers).where(triggers.c.tenant_id == tenant_id, _ALIVE)))


def listed(tx: Tx, tenant_id: UUID, trigger_type: str | None, limit: int, offset: int) -> list[Trigger]:
    """By label."""
    query = select(*_COLUMNS).where(triggers.c.tenant_id == tenant_id, _ALIVE)
    if trigger_type is not None:
        query = query.where(triggers.c.trigger_type == trigger_type)
    found = tx.run(query.order_by(triggers.c.label).limit(limit).offset(offset)).mappings()
    return [_trigger(row, tx.codec) for row in found]


def change(tx: Tx, tenant_id: UUID, trigger_id: UUID, values: Mapping[str, Any]) -> Trigger:
    statement = (
        update(triggers)
        .where(triggers.c.id == trigger_id, triggers.c.tenant_id == tenant_id)
        .values(**_sealed(tx, values, tenant_id, trigger_id), version=triggers.c.version + 1, updated_at=tx.now)
    )
    return _trigger(tx.run(statement.returning(*_COLUMNS)).mappings().one(), tx.codec)


def delete(tx: Tx, tenant_id: UUID, trigger_id: UUID) -> bool:
    """Its ticks and jobs stay, and go on naming it."""
    statement = update(triggers).where(triggers.c.id == trigger_id, triggers.c.tenant_id == tenant_id, _ALIVE)
    values = {"is_enabled": False, "deleted_at": tx.now, "updated_at": tx.now, "next_trigger_at": None}
    return tx.count(statement.values(**values)) == 1


def answering(tx: Tx, tenant_id: UUID, names: Sequence[str]) -> list[Trigger]:
    """The event triggers of these names, disabled ones too, in the order in which they are locked."""
    query = select(*_COLUMNS).where(
        _EVENTS, _ALIVE, triggers.c.tenant_id == tenant_id, triggers.c.event_name.in_(names)
    )
    return [_trigger(row, tx.codec) for row in tx.run(query.order_by(triggers.c.id)).mappings()]


@dataclass(frozen=True, slots=True)
class Due:
    """A schedule with a moment to decide, whether its tenant takes jobs, and what the operator has set for that tenant."""

    trigger: Trigger
    tenant_slug: str
    tenant_active: bool
    bounds: Bounds = FREE


Cursor = tuple[datetime, UUID]


def any_due(tx: Tx) -> bool:
    """Whether there is anything to do: what a scheduler asks before it takes a lock."""
    return any(tx.first(query.limit(1)) is not None for query in (_due(tx, True), _due(tx, False)))


def due(tx: Tx, enabled: bool, limit: int, after: Cursor | None = None) -> list[Due]:
    """Schedules whose next moment has come, oldest first, held until the transaction ends. Another scheduler that
    works on some of them at this moment keeps those."""
    query = _due(tx, enabled).join(tenants, tenants.c.id == triggers.c.tenant_id)
    bounds = (tenants.c.quotas, tenants.c.min_priority, tenants.c.max_priority)
    query = query.with_only_columns(*_COLUMNS, tenants.c.slug, tenants.c.is_active, *bounds)
    if after is not None:
        reached = tuple_(literal(after[0], UtcTime()), literal(after[1], Id()))
        query = query.where(tuple_(triggers.c.next_trigger_at, triggers.c.id) > reached)
    query = query.order_by(triggers.c.next_trigger_at, triggers.c.id).limit(limit)
    found = tx.run(query.with_for_update(of=triggers, **tx.dialect.skip_locked)).mappings()
    return [
        Due(_trigger(row, tx.codec), row["slug"], row["is_active"], own_bounds(*(row[c] for c in bounds)))
        for row in found
    ]


def _due(tx: Tx, enabled: bool) -> Any:
    wanted = _ENABLED if enabled else _DISABLED
    return select(triggers.c.id).where(_SCHEDULES, _ALIVE, wanted, triggers.c.next_trigger_at <= tx.now)


def next_due_at(tx: Tx) -> datetime | None:
    """The first moment not yet decided."""
    value: datetime | None = tx.scalar(
        select(triggers.c.next_trigger_at)
        .where(_SCHEDULES, _ALIVE, _ENABLED)
        .order_by(triggers.c.next_trigger_at)
        .limit(1)
    )
    return value


def facts(tx: Tx, ids: Sequence[UUID]) -> dict[UUID, Facts]:
    """How many jobs of each schedule are active, and when its last one ended."""
    if not ids:
        return {}
    alive = union_all(*(select(t.c.trigger_id).where(t.c.trigger_id.in_(ids)) for t in _ACTIVE)).subquery()
    counted = select(alive.c.trigger_id, func.count()).group_by(alive.c.trigger_id)
    active = {row[0]: int(row[1]) for row in tx.rows(counted)}
    recent = select(jobs.c.id).where(jobs.c.trigger_id == triggers.c.id).order_by(jobs.c.id.desc()).limit(RECENT)
    last_end = select(func.max(runs.c.finished_at)).where(
        runs.c.job_status.is_not(None), runs.c.job_id.in_(recent.correlate(triggers))
    )
    ended = select(triggers.c.id, last_end.correlate(triggers).scalar_subquery()).where(triggers.c.id.in_(ids))
    return {row[0]: Facts(active=active.get(row[0], 0), busy_until=row[1]) for row in tx.rows(ended)}


_ACTIVE = (waiting, ready, running)


def active_jobs(tx: Tx, trigger_id: UUID) -> list[UUID]:
    """What `cancel_running` cancels."""
    alive = union_all(*(select(t.c.job_id).where(t.c.trigger_id == trigger_id) for t in _ACTIVE)).subquery()
    return [row.job_id for row in tx.rows(select(alive.c.job_id).order_by(alive.c.job_id))]


@dataclass(frozen=True, slots=True)
class Advance:
    """Where a schedule stands after a decision."""

    trigger_id: UUID
    next_at: datetime
    fired_at: datetime | None


def advance(tx: Tx, moves: Sequence[Advance]) -> None:
    """Most schedules that were due together are due together again: one statement for each pair of moments."""
    groups: dict[tuple[datetime, datetime | None], list[UUID]] = {}
    for move in moves:
        groups.setdefault((move.next_at, move.fired_at), []).append(move.trigger_id)
    for (next_at, fired_at), ids in groups.items():
        values: dict[str, Any] = {"next_trigger_at": next_at}
        if fired_at is not None:
            values["last_triggered_at"] = fired_at
        tx.run(update(triggers).where(triggers.c.id.in_(ids)).values(**values))


def disable(tx: Tx, ids: Sequence[UUID], reason: str) -> None:
    """Disable them. One that another transaction holds is left to that one: an emit in the caller's transaction waits for no
    other."""
    told = or_(triggers.c.is_enabled, triggers.c.disabled_reason.is_(None))
    free = select(triggers.c.id).where(triggers.c.id.in_(ids), told).with_for_update(**tx.dialect.skip_locked)
    tx.run(
        update(triggers)
        .where(triggers.c.id.in_(free))
        .values(is_enabled=False, disabled_reason=reason, updated_at=tx.now, version=triggers.c.version + 1)
    )


def _sealed(tx: Tx, values: Mapping[str, Any], tenant_id: UUID, trigger_id: UUID) -> Mapping[str, Any]:
    if "payload_template" not in values:
        return values
    template = tx.codec.seal(values["payload_template"], template_of(tenant_id, trigger_id))
    return {**values, "payload_template": template}


def _trigger(row: Mapping[Any, Any], codec: Codec) -> Trigger:
    values = {name: row[name] for name in _FIELDS}
    place = partial(template_of, values["tenant_id"], values["id"])
    return Trigger(**{**values, "payload_template": codec.open(json_object(values["payload_template"]), place)})
