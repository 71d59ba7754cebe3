"""The column types of the migrations, as they were when the first was frozen.

Never change this file: every database in use was made with it, and a test pins its digest. A migration that needs
another type or helper defines it in its own file. The types of today's tables are in `store.types`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.sql import ColumnElement
from sqlalchemy.types import TypeDecorator, TypeEngine

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class UtcTime(TypeDecorator[datetime]):
    """timestamptz on PostgreSQL; whole microseconds since 1970 on SQLite."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> TypeEngine[Any]:
        if dialect.name == "sqlite":
            return dialect.type_descriptor(sa.BigInteger())
        return dialect.type_descriptor(sa.DateTime(timezone=True))

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> Any:
        if value is None or dialect.name != "sqlite":
            return value
        return (value - _EPOCH) // timedelta(microseconds=1)


class Id(TypeDecorator[UUID]):
    """uuid on PostgreSQL; its canonical text on SQLite."""

    impl = sa.String(36)
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> TypeEngine[Any]:
        if dialect.name == "sqlite":
            return dialect.type_descriptor(sa.String(36))
        return dialect.type_descriptor(postgresql.UUID(as_uuid=True))

    def process_bind_param(self, value: UUID | None, dialect: sa.Dialect) -> Any:
        if value is None or dialect.name != "sqlite":
            return value
        return str(value)


JsonDoc = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def now(dialect: str) -> ColumnElement[datetime]:
    """Return the time of the database: PostgreSQL's clock, or on SQLite the machine's."""
    if dialect == "sqlite":
        return sa.literal(datetime.now(UTC), UtcTime)
    return sa.func.statement_timestamp(type_=UtcTime())
