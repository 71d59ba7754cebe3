"""Events, and when each trigger last fired with which payload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from sqlalchemy import delete, insert, select

from penstock.core.reach import Event
from penstock.store.database import WRONG_CLOCK_SECONDS, Tx
from penstock.store.sealing import Codec, event_of
from penstock.store.tables import events, trigger_fires
from penstock.store.types import json_object

_FIELDS = tuple(Event.__dataclass_fields__)
_COLUMNS = [events.c[name] for name in _FIELDS]


def add(tx: Tx, values: Mapping[str, Any]) -> Event:
    context = tx.codec.seal(values["context"], event_of(values["tenant_id"], values["id"]))
    statement = insert(events).values(created_at=tx.now, **{**values, "context": context}).returning(*_COLUMNS)
    return _event(tx.run(statement).mappings().one(), tx.codec)


def get(tx: Tx, tenant_id: UUID, event_id: UUID) -> Event | None:
    query = select(*_COLUMNS).where(events.c.id == event_id, events.c.tenant_id == tenant_id)
    row = tx.run(query).mappings().first()
    return _event(row, tx.codec) if row else None


def listed(tx: Tx, tenant_id: UUID, name: str | None, limit: int, before: UUID | None = None) -> list[Event]:
    """Newest first; ids grow with time."""
    query = select(*_COLUMNS).where(events.c.tenant_id == tenant_id)
    if name is not None:
        query = query.where(events.c.name == name)
    if before is not None:
        query = query.where(events.c.id < before)
    return [_event(row, tx.codec) for row in tx.run(query.order_by(events.c.id.desc()).limit(limit)).mappings()]


def depth(tx: Tx, tenant_id: UUID, event_id: UUID) -> int | None:
    value: int | None = tx.scalar(
        select(events.c.depth).where(events.c.id == event_id, events.c.tenant_id == tenant_id)
    )
    return value


def claim_fire(tx: Tx, trigger_id: UUID, payload_hash: str, job_id: UUID, window_seconds: float) -> UUID | None:
    """Be the one that fires this payload within the window. None if we are; else the job that was made before.

    One statement, so that of two emits at once the second waits for the first, and then sees what it wrote."""
    statement = tx.insert(trigger_fires).values(
        trigger_id=trigger_id, payload_hash=payload_hash, fired_at=tx.now, job_id=job_id
    )
    taken = statement.on_conflict_do_update(
        index_elements=[trigger_fires.c.trigger_id, trigger_fires.c.payload_hash],
        set_={"fired_at": statement.excluded.fired_at, "job_id": statement.excluded.job_id},
        where=(trigger_fires.c.fired_at <= tx.later(-window_seconds))
        # Fired while the clock was wrong: that must not silence the trigger until the time comes.
        | (trigger_fires.c.fired_at > tx.later(max(window_seconds, WRONG_CLOCK_SECONDS))),
    ).returning(trigger_fires.c.job_id)
    if tx.first(taken) is not None:
        return None
    earlier: UUID = tx.scalar(
        select(trigger_fires.c.job_id).where(
            trigger_fires.c.trigger_id == trigger_id, trigger_fires.c.payload_hash == payload_hash
        )
    )
    return earlier


def forget_fires(tx: Tx, trigger_ids: Sequence[UUID]) -> None:
    """A trigger that changed starts its windows anew."""
    tx.run(delete(trigger_fires).where(trigger_fires.c.trigger_id.in_(trigger_ids)))


def _event(row: Mapping[Any, Any], codec: Codec) -> Event:
    values = {name: row[name] for name in _FIELDS}
    place = partial(event_of, values["tenant_id"], values["id"])
    values["context"] = codec.open(json_object(values["context"]), place)
    values["outcomes"] = tuple(json_object(values["outcomes"]))
    return Event(**values)
