"""Pages of jobs as plain values, for answers: one statement, and no object for each row.

A list is what the service answers most. `jobs.listed` makes nouns of the rows, which costs several times what reading
them does.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

from sqlalchemy import Select, select, type_coerce
from sqlalchemy.types import NullType

from penstock.store import rows
from penstock.store.database import Tx
from penstock.store.jobs import Filter, page_of_ids, page_params
from penstock.store.tables import job_view
from penstock.store.types import Id, UtcTime, from_micros

NAMES = tuple(str(column.name) for column in rows.JOB_COLUMNS)  # plain strings: SQLAlchemy's own are slow to serialize


def page(
    tx: Tx, tenant_id: UUID, where: Filter, limit: int, offset: int = 0, before: UUID | None = None
) -> list[dict[str, Any]]:
    """Newest first; ids and times as text, JSON as values."""
    if not where.statuses:
        return []
    ids = page_of_ids(where, before is not None)
    given = page_params(tenant_id, limit, offset, before)
    convert = _CONVERTERS[tx.dialect.name]
    found = []
    for row in tx.rows(_statement(tx.dialect.among, ids), given):
        plain = dict(zip(NAMES, row, strict=True))
        for name, change in convert:
            value = plain[name]
            if value is not None:
                plain[name] = change(value)
        found.append(rows.opened_job(plain, tx.codec))
    return found


@lru_cache(maxsize=256)
def _statement(among: Callable[[Any, Select[Any]], Any], ids: Select[Any]) -> Any:
    raw = [type_coerce(column, NullType()).label(column.name) for column in rows.JOB_COLUMNS]
    return select(*raw).where(among(job_view.c.id, ids)).order_by(job_view.c.id.desc())


def _time_of_micros(value: int) -> str:
    return from_micros(value).isoformat()[:-6] + "Z"


def _time(value: datetime) -> str:
    return value.astimezone(UTC).isoformat()[:-6] + "Z"


def _json_of(value: Any) -> Any:
    """SQLite's JSON columns have numeric affinity: a document that is a bare number comes back as one."""
    return json.loads(value) if isinstance(value, str) else value


def _converters(dialect: str) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    """What the driver's own values need to become plain ones."""
    here = dialect == "sqlite"
    found: list[tuple[str, Callable[[Any], Any]]] = []
    for name, column in zip(NAMES, rows.JOB_COLUMNS, strict=True):
        if isinstance(column.type, UtcTime):
            found.append((name, _time_of_micros if here else _time))
        elif isinstance(column.type, Id) and not here:
            found.append((name, str))
        elif column.name in ("params", "progress", "result", "trace") and here:
            found.append((name, _json_of))
    return tuple(found)


_CONVERTERS = {dialect: _converters(dialect) for dialect in ("sqlite", "postgresql")}
