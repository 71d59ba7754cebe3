"""Values and moments as SQLite has them. The machine's clock is its clock."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from sqlalchemy import Select, Table, func, literal, select
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.sql import ColumnElement, Executable, cast, type_coerce
from sqlalchemy.types import BigInteger, String, TypeEngine

from penstock.core.clock import wall_time
from penstock.store.types import UtcTime, from_micros, to_micros

NAIVE_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - a wall-clock time has no zone
MICROSECOND = timedelta(microseconds=1)


class SqliteValues:
    """Times are whole microseconds since 1970, which is compact, and arithmetic with them is exact. Ids are their canonical text,
    which can be read, and JSON can carry it. A decimal is a count of its smallest unit."""

    instant: TypeEngine[Any] = BigInteger()
    wall_time: TypeEngine[Any] = BigInteger()
    id: TypeEngine[Any] = String(36)
    unsigned: TypeEngine[Any] = BigInteger()

    def exact(self, precision: int, scale: int) -> TypeEngine[Any]:
        return BigInteger()

    def instant_in(self, value: datetime) -> Any:
        return to_micros(value)

    def instant_out(self, value: Any) -> datetime:
        return from_micros(value)

    def wall_time_in(self, value: datetime) -> Any:
        return (value - NAIVE_EPOCH) // MICROSECOND

    def wall_time_out(self, value: Any) -> datetime:
        return NAIVE_EPOCH + timedelta(microseconds=value)

    def id_in(self, value: UUID) -> Any:
        return str(value)

    def real_in(self, value: float) -> Any:
        """Keep NaN, which SQLite would turn into NULL, as a text: it sorts after every number, as PostgreSQL's NaN does."""
        return "NaN" if math.isnan(value) else value

    def exact_in(self, value: Any, scale: int) -> Any:
        return int(Decimal(value).scaleb(scale).to_integral_value())

    def exact_out(self, value: Decimal, scale: int) -> Decimal:
        return value.scaleb(-scale)


VALUES = SqliteValues()


class SqliteTypes:
    """The time, and arithmetic with it."""

    def machine_time(self) -> datetime | None:
        return wall_time()

    def now(self) -> ColumnElement[datetime]:
        return literal(wall_time(), UtcTime)

    def select_now(self) -> Executable:
        return select(self.now())

    def add_seconds(self, moment: ColumnElement[datetime], seconds: Any) -> ColumnElement[datetime]:
        micros = cast(func.round(seconds * 1_000_000), BigInteger)
        return type_coerce(cast(moment, BigInteger) + micros, UtcTime())

    def insert(self, table: Table) -> Any:
        return insert(table)

    def position(self, text: ColumnElement[str], part: str) -> ColumnElement[int]:
        return func.instr(text, part)

    def greatest(self, *values: ColumnElement[Any]) -> ColumnElement[Any]:
        return func.max(*values, type_=values[0].type)

    def among(self, column: ColumnElement[Any], few: Select[Any]) -> ColumnElement[bool]:
        return column.in_(few)
