"""Definitions as an operator sees them: all of them, or all of one owner."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import select

from penstock.core.nouns import Definition
from penstock.store import rows
from penstock.store.database import Tx
from penstock.store.tables import definitions


def every(tx: Tx, *, archived: bool = False) -> list[Definition]:
    """Everyone's, by key; those offered to all first."""
    query = select(definitions).order_by(definitions.c.key, definitions.c.tenant_id.is_not(None), definitions.c.id)
    if not archived:
        query = query.where(definitions.c.is_active)
    return [rows.definition(row, tx.codec) for row in tx.run(query).mappings()]


def owned_by(tx: Tx, tenant_id: UUID | None) -> list[Definition]:
    """The active ones of one owner: a tenant, or with None those offered to all."""
    owner = definitions.c.tenant_id.is_(None) if tenant_id is None else definitions.c.tenant_id == tenant_id
    query = select(definitions).where(owner, definitions.c.is_active).order_by(definitions.c.key)
    return [rows.definition(row, tx.codec) for row in tx.run(query).mappings()]
