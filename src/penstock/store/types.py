"""Column types that mean the same on both databases. How each of them keeps a value is in its own `types.py`."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from importlib import import_module
from typing import Any, Protocol, cast
from uuid import UUID

from sqlalchemy import JSON, DateTime, Dialect, String
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import TypeDecorator, TypeEngine

from penstock.store.dialect import package_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_micros(moment: datetime) -> int:
    delta = moment - EPOCH
    return (delta.days * 86400 + delta.seconds) * 1_000_000 + delta.microseconds


def from_micros(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


class Values(Protocol):
    """How one database keeps values: the type of their column, and what a value is on its way in and out. None is never asked of."""

    instant: TypeEngine[Any]
    wall_time: TypeEngine[Any]
    id: TypeEngine[Any]
    unsigned: TypeEngine[Any]

    def exact(self, precision: int, scale: int) -> TypeEngine[Any]: ...

    def instant_in(self, value: datetime) -> Any: ...

    def instant_out(self, value: Any) -> datetime: ...

    def wall_time_in(self, value: datetime) -> Any: ...

    def wall_time_out(self, value: Any) -> datetime: ...

    def id_in(self, value: UUID) -> Any: ...

    def real_in(self, value: float) -> Any: ...

    def exact_in(self, value: Any, scale: int) -> Any: ...

    def exact_out(self, value: Decimal, scale: int) -> Decimal: ...


@lru_cache(maxsize=8)
def values_of(name: str) -> Values:
    """Return how the database of this name keeps values."""
    return cast(Values, import_module(f"{package_of(name)}.types").VALUES)


class UtcTime(TypeDecorator[datetime]):
    """An instant."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(values_of(dialect.name).instant)

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        if value is None:
            return None
        if value.tzinfo is None:
            raise TypeError("a naive datetime reached the store")
        return values_of(dialect.name).instant_in(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        return None if value is None else values_of(dialect.name).instant_out(value)


class Id(TypeDecorator[UUID]):
    """A UUID."""

    impl = String(36)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(values_of(dialect.name).id)

    def process_bind_param(self, value: UUID | None, dialect: Dialect) -> Any:
        return None if value is None else values_of(dialect.name).id_in(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> UUID | None:
        return value if value is None or isinstance(value, UUID) else UUID(value)


JsonDoc = JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


def json_object(value: Any) -> Any:
    """What is an object, an array or NULL in the database, whether the caller's connection hands JSON out as text or as read."""
    return json.loads(value) if isinstance(value, str | bytes) else value
