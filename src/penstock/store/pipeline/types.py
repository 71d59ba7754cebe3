"""Column types of user tables that mean the same on both databases."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Date,
    DateTime,
    Dialect,
    Double,
    Integer,
    LargeBinary,
    Numeric,
    SmallInteger,
    String,
    Text,
)
from sqlalchemy.types import TypeDecorator, TypeEngine

from penstock.store.types import Id, JsonDoc, UtcTime

NAIVE_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - a wall-clock time has no zone
MICROSECOND = timedelta(microseconds=1)


class WallTime(TypeDecorator[datetime]):
    """A time on a clock on the wall, without a zone: TIMESTAMP on PostgreSQL, whole microseconds on SQLite."""

    impl = DateTime(timezone=False)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name == "sqlite":
            return dialect.type_descriptor(BigInteger())
        return dialect.type_descriptor(DateTime(timezone=False))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        if value is None or dialect.name != "sqlite":
            return value
        return (value - NAIVE_EPOCH) // MICROSECOND

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        if value is None or isinstance(value, datetime):
            return value
        return NAIVE_EPOCH + timedelta(microseconds=value)


class Real(TypeDecorator[float]):
    """A double that keeps NaN. SQLite would turn NaN into NULL, so there it is the text 'NaN', which sorts after every
    number as PostgreSQL's NaN does."""

    impl = Double()
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Dialect) -> Any:
        if value is not None and dialect.name == "sqlite" and math.isnan(value):
            return "NaN"
        return value

    def bind_processor(self, dialect: Dialect) -> Any:
        return lambda value: self.process_bind_param(value, dialect)

    def result_processor(self, dialect: Dialect, coltype: Any) -> Any:
        return lambda value: None if value is None else float(value)


class Exact(TypeDecorator[Decimal]):
    """An exact decimal: NUMERIC on PostgreSQL, an integer count of its smallest unit on SQLite."""

    impl = Numeric()
    cache_ok = True

    def __init__(self, precision: int, scale: int) -> None:
        super().__init__()
        self.precision = precision
        self.scale = scale

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name == "sqlite":
            return dialect.type_descriptor(BigInteger())
        return dialect.type_descriptor(Numeric(self.precision, self.scale))

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        if value is None or dialect.name != "sqlite":
            return value
        return int(Decimal(value).scaleb(self.scale).to_integral_value())

    def process_result_value(self, value: Any, dialect: Dialect) -> Decimal | None:
        if value is None:
            return None
        exact = value if isinstance(value, Decimal) else Decimal(str(value))
        return exact.scaleb(-self.scale) if dialect.name == "sqlite" else exact


class Unsigned64(TypeDecorator[int]):
    """Up to 2^64-1: NUMERIC(20) on PostgreSQL. SQLite's integers end at 2^63-1; the encoder says so."""

    impl = Numeric(20, 0)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name == "sqlite":
            return dialect.type_descriptor(BigInteger())
        return dialect.type_descriptor(Numeric(20, 0))

    def process_result_value(self, value: Any, dialect: Dialect) -> int | None:
        return None if value is None else int(value)


def column_type(kind: str, args: tuple[Any, ...]) -> TypeEngine[Any]:
    """The column type for a kind of attribute.

    >>> column_type("varchar", (12,))
    String(length=12)
    """
    if kind in ("int8", "uint8", "int16"):
        return SmallInteger()
    if kind in ("uint16", "int32"):
        return Integer()
    if kind in ("uint32", "int64"):
        return BigInteger()
    if kind in ("varchar", "char"):
        return String(int(args[0]))
    if kind == "enum":
        return String(max((len(item) for item in args), default=1))
    if kind == "decimal":
        return Exact(int(args[0]), int(args[1]))
    return _PLAIN[kind]


_PLAIN: dict[str, TypeEngine[Any]] = {
    "uint64": Unsigned64(),
    "float64": Real(),
    "bool": Boolean(),
    "date": Date(),
    "datetime": WallTime(),
    "timestamp": UtcTime(),
    "uuid": Id(),
    "json": JsonDoc,
    "text": Text(),
    "blob": LargeBinary(),
}
