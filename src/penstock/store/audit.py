"""The audit: every change, written with it, never changed."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import insert, select

from penstock.core.access import AuditEntry
from penstock.core.ids import new_id
from penstock.store.database import Tx
from penstock.store.tables import audit


def write(
    tx: Tx,
    tenant_id: UUID | None,
    actor: str,
    action: str,
    subject_type: str,
    subject_id: str | None,
    before: Any = None,
    after: Any = None,
    request_id: str | None = None,
) -> None:
    tx.run(
        insert(audit).values(
            id=new_id(), tenant_id=tenant_id, actor=actor, action=action, subject_type=subject_type,
            subject_id=subject_id, before=before, after=after, request_id=request_id, at=tx.now,
        )
    )  # fmt: skip


def listed(
    tx: Tx,
    tenant_id: UUID | None,
    limit: int,
    before: UUID | None = None,
    action: str | None = None,
    subject_id: str | None = None,
) -> list[AuditEntry]:
    """Newest first: one tenant's, or with None everything."""
    query = select(audit).order_by(audit.c.id.desc()).limit(limit)
    if tenant_id is not None:
        query = query.where(audit.c.tenant_id == tenant_id)
    if before is not None:
        query = query.where(audit.c.id < before)
    if action is not None:
        query = query.where(audit.c.action == action)
    if subject_id is not None:
        query = query.where(audit.c.subject_id == subject_id)
    return [AuditEntry(**row) for row in tx.run(query).mappings()]
