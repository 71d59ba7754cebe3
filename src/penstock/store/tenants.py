"""Tenants: the wall between customers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import insert, select, update

from penstock.core.ids import new_id
from penstock.core.nouns import Tenant
from penstock.store import rows
from penstock.store.database import Tx
from penstock.store.tables import tenants


def create(
    tx: Tx,
    slug: str,
    name: str,
    timezone: str,
    weight: int,
    max_running: int | None,
    quotas: Mapping[str, int | None] | None = None,
    min_priority: int | None = None,
    max_priority: int | None = None,
) -> Tenant:
    values = {
        "id": new_id(),
        "slug": slug,
        "name": name,
        "timezone": timezone,
        "weight": weight,
        "max_running": max_running,
        "quotas": dict(quotas or {}),
        "min_priority": min_priority,
        "max_priority": max_priority,
    }
    row = (
        tx.run(insert(tenants).values(**values, is_active=True, created_at=tx.now).returning(tenants)).mappings().one()
    )
    return rows.tenant(row)


def by_slug(tx: Tx, slug: str) -> Tenant | None:
    row = tx.run(select(tenants).where(tenants.c.slug == slug)).mappings().first()
    return rows.tenant(row) if row else None


def by_id(tx: Tx, tenant_id: UUID, *, lock: bool = False) -> Tenant | None:
    """With `lock`, nobody else changes it until the transaction ends; enqueues do not wait for that."""
    query = select(tenants).where(tenants.c.id == tenant_id)
    row = tx.run(query.with_for_update(key_share=True) if lock else query).mappings().first()
    return rows.tenant(row) if row else None


def every(tx: Tx) -> list[Tenant]:
    return [rows.tenant(row) for row in tx.run(select(tenants).order_by(tenants.c.slug)).mappings()]


def change(tx: Tx, tenant_id: UUID, values: dict[str, Any]) -> Tenant | None:
    row = (
        tx.run(update(tenants).where(tenants.c.id == tenant_id).values(**values).returning(tenants)).mappings().first()
    )
    return rows.tenant(row) if row else None
