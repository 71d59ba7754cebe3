"""Which tables hold a tenant's jobs of a status: where lists and counts begin, each by an index."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Table, and_, func, literal, select, union_all

from penstock.core.status import JobStatus
from penstock.store.tables import ended_as, ready, running, runs, waiting


def members(status: JobStatus, tenant: Any) -> tuple[tuple[Table, ColumnElement[bool]], ...]:
    """Return the tables that hold a tenant's jobs of this status, by `job_id`, each with the condition that its index fits."""
    if status is JobStatus.QUEUED:
        return tuple((table, and_(table.c.tenant_id == tenant)) for table in (waiting, ready))
    if status is JobStatus.RUNNING:
        return ((running, and_(running.c.tenant_id == tenant)),)
    return ((runs, and_(runs.c.tenant_id == tenant, ended_as(status.value))),)


def how_many(status: JobStatus, tenant: Any, cap: int | None = None) -> ColumnElement[int]:
    """How many jobs a tenant has in this status, as part of a statement; counted up to `cap`."""
    parts: list[Any] = []
    for table, here in members(status, tenant):
        part = select(literal(1).label("one")).where(here)
        # Ordered, so that it is read from the index; in a subquery, because SQLite allows no ORDER BY in the parts of a UNION.
        parts.append(select(part.order_by(table.c.job_id).limit(cap).subquery()) if cap else part)
    found: Any = union_all(*parts) if len(parts) > 1 else parts[0]
    return select(func.count()).select_from((found.limit(cap) if cap else found).subquery()).scalar_subquery()
