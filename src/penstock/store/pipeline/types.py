"""Column types of user tables that mean the same on both databases."""

from __future__ import annotations

from datetime import datetime
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

from penstock.store.types import Id, JsonDoc, UtcTime, values_of


class WallTime(TypeDecorator[datetime]):
    """A time on a clock on the wall, without a zone."""

    impl = DateTime(timezone=False)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(values_of(dialect.name).wall_time)

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        return None if value is None else values_of(dialect.name).wall_time_in(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        if value is None or isinstance(value, datetime):
            return value
        return values_of(dialect.name).wall_time_out(value)


class Real(TypeDecorator[float]):
    """A double that keeps NaN."""

    impl = Double()
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Dialect) -> Any:
        return None if value is None else values_of(dialect.name).real_in(value)

    def bind_processor(self, dialect: Dialect) -> Any:
        return lambda value: self.process_bind_param(value, dialect)

    def result_processor(self, dialect: Dialect, coltype: Any) -> Any:
        return lambda value: None if value is None else float(value)


class Exact(TypeDecorator[Decimal]):
    """An exact decimal."""

    impl = Numeric()
    cache_ok = True

    def __init__(self, precision: int, scale: int) -> None:
        super().__init__()
        self.precision = precision
        self.scale = scale

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(values_of(dialect.name).exact(self.precision, self.scale))

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        return None if value is None else values_of(dialect.name).exact_in(value, self.scale)

    def process_result_value(self, value: Any, dialect: Dialect) -> Decimal | None:
        if value is None:
            return None
        exact = value if isinstance(value, Decimal) else Decimal(str(value))
        return values_of(dialect.name).exact_out(exact, self.scale)


class Unsigned64(TypeDecorator[int]):
    """Up to 2^64-1. SQLite's integers end at 2^63-1; the encoder says so."""

    impl = Numeric(20, 0)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(values_of(dialect.name).unsigned)

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
