"""Whose an id is, for the operator's audit only: no answer to a tenant depends on it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import select

from penstock.store import audit
from penstock.store.database import Tx
from penstock.store.tables import definitions, groups, jobs, principals, reservations, tenants, triggers, webhooks

TABLES = {
    "job": jobs,
    "group": groups,
    "trigger": triggers,
    "webhook": webhooks,
    "token": principals,
    "definition": definitions,
    "reservation": reservations,
}


def owners(tx: Tx, noun: str, ids: Collection[UUID]) -> dict[UUID, UUID]:
    """Return the tenants that things of this kind belong to, by their ids."""
    table = TABLES.get(noun)
    if table is None:
        return {}
    found = tx.rows(select(table.c.id, table.c.tenant_id).where(table.c.id.in_(ids), table.c.tenant_id.is_not(None)))
    return {row.id: row.tenant_id for row in found}


def existing(tx: Tx, ids: Collection[UUID]) -> set[UUID]:
    """Return which of these tenants exist. They cannot be deleted until this transaction ends."""
    if not ids:
        return set()
    query = select(tenants.c.id).where(tenants.c.id.in_(ids)).order_by(tenants.c.id)
    return {row.id for row in tx.rows(query.with_for_update(read=True, key_share=True))}


def note(
    tx: Tx,
    tenant_id: UUID | None,
    actor: str,
    action: str,
    subject_type: str,
    after: Mapping[str, Any],
    request_id: str | None,
    address: str | None,
) -> None:
    audit.write(tx, tenant_id, actor, action, subject_type, None, after=after, request_id=request_id, address=address)
