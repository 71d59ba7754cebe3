"""Definitions: what may be asked for. A tenant sees its own, then those offered to everyone."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, or_, select, update

from penstock.core.ids import new_id
from penstock.core.marks import remembered
from penstock.core.nouns import Definition
from penstock.core.status import WaitsFor
from penstock.store import rows, states
from penstock.store.database import Tx
from penstock.store.sealing import defaults_of
from penstock.store.tables import definitions, ready, triggers
from penstock.store.types import json_object

MOVED_AT_ONCE = 1000
"""Jobs that one statement names by their ids."""


def _visible(tenant_id: UUID | None) -> ColumnElement[bool]:
    if tenant_id is None:
        return definitions.c.tenant_id.is_(None)
    return or_(definitions.c.tenant_id == tenant_id, definitions.c.tenant_id.is_(None))


def by_key(tx: Tx, tenant_id: UUID | None, key: str) -> Definition | None:
    """The tenant's own definition of this key, else the one offered to everyone."""
    found = tx.run(
        select(definitions)
        .where(_visible(tenant_id), definitions.c.key == key)
        .order_by(definitions.c.tenant_id.is_(None))
        .limit(1)
    )
    row = found.mappings().first()
    return rows.definition(row, tx.codec) if row else None


def owned(tx: Tx, tenant_id: UUID | None, key: str, *, lock: bool = False) -> Definition | None:
    owner = definitions.c.tenant_id.is_(None) if tenant_id is None else definitions.c.tenant_id == tenant_id
    query = select(definitions).where(owner, definitions.c.key == key)
    row = tx.run(query.with_for_update() if lock else query).mappings().first()
    return rows.definition(row, tx.codec) if row else None


def by_id(tx: Tx, definition_id: UUID) -> Definition | None:
    row = tx.run(select(definitions).where(definitions.c.id == definition_id)).mappings().first()
    return rows.definition(row, tx.codec) if row else None


def by_ids(tx: Tx, ids: set[UUID]) -> dict[UUID, Definition]:
    found = tx.run(select(definitions).where(definitions.c.id.in_(ids))).mappings()
    return {row["id"]: rows.definition(row, tx.codec) for row in found}


def visible(tx: Tx, tenant_id: UUID | None, *, archived: bool = False) -> list[Definition]:
    query = select(definitions).where(_visible(tenant_id)).order_by(definitions.c.key)
    if not archived:
        query = query.where(definitions.c.is_active)
    return [rows.definition(row, tx.codec) for row in tx.run(query).mappings()]


def keys_run_by(tx: Tx, runner: str) -> list[str]:
    query = select(definitions.c.key).where(definitions.c.runner == runner, definitions.c.is_active).distinct()
    return sorted(tx.run(query).scalars())


def secret_marks(tx: Tx, ids: Collection[UUID]) -> dict[UUID, list[Mapping[str, Any]]]:
    """What marks params as secret, of those of these definitions that ever marked any."""
    query = select(definitions.c.id, definitions.c.secret_marks).where(
        definitions.c.id.in_(ids), definitions.c.secret_marks.is_not(None)
    )
    return {row[0]: json_object(row[1]) for row in tx.rows(query)}


def add(tx: Tx, tenant_id: UUID | None, key: str, values: dict[str, Any]) -> Definition | None:
    """The new definition, or None if somebody else added one of this key at the same moment."""
    definition_id = new_id()
    values = {
        **values,
        "default_params": tx.codec.seal(values["default_params"], defaults_of(tenant_id, definition_id)),
    }
    statement = (
        tx.insert(definitions)
        .values(
            id=definition_id,
            tenant_id=tenant_id,
            key=key,
            created_at=tx.now,
            updated_at=tx.now,
            secret_marks=remembered(None, values["arg_schema"]),
            **values,
        )
        .on_conflict_do_nothing()
        .returning(definitions)
    )
    row = tx.run(statement).mappings().first()
    return rows.definition(row, tx.codec) if row else None


def change(tx: Tx, definition_id: UUID, values: dict[str, Any]) -> Definition:
    """Change it, and its version: what enqueues saw before is checked against it. Marks of secrets are never forgotten."""
    if "arg_schema" in values:
        before = secret_marks(tx, [definition_id]).get(definition_id)
        values = {**values, "secret_marks": remembered(before, values["arg_schema"])}
    if tx.codec.writes and values.get("default_params"):
        owner = tx.scalar(select(definitions.c.tenant_id).where(definitions.c.id == definition_id))
        values = {
            **values,
            "default_params": tx.codec.seal(values["default_params"], defaults_of(owner, definition_id)),
        }
    statement = (
        update(definitions)
        .where(definitions.c.id == definition_id)
        .values(**values, version=definitions.c.version + 1, updated_at=tx.now)
        .returning(definitions)
    )
    return rows.definition(tx.run(statement).mappings().one(), tx.codec)


def park(tx: Tx, definition_id: UUID) -> int:
    """Put what could be claimed back behind the limit; `admit` lets it through again as slots allow."""
    return _park(tx, ready.c.definition_id == definition_id)


def park_tenant(tx: Tx, tenant_id: UUID) -> int:
    return _park(tx, ready.c.tenant_id == tenant_id)


def _park(tx: Tx, whose: ColumnElement[bool]) -> int:
    """What is claimed meanwhile is left to who claimed it."""
    ids = [row.job_id for row in tx.rows(select(ready.c.job_id).where(whose).with_for_update())]
    for start in range(0, len(ids), MOVED_AT_ONCE):
        states.wait(tx, ready, ids[start : start + MOVED_AT_ONCE], WaitsFor.LIMIT, ready.c.ready_at)
    return len(ids)


def disable_triggers(tx: Tx, definition_id: UUID, reason: str) -> list[str]:
    """Disable the triggers of an archived definition; answers their labels."""
    found = tx.run(
        update(triggers)
        .where(triggers.c.definition_id == definition_id, triggers.c.is_enabled, triggers.c.deleted_at.is_(None))
        .values(is_enabled=False, disabled_reason=reason, updated_at=tx.now)
        .returning(triggers.c.label)
    )
    return sorted(found.scalars())
