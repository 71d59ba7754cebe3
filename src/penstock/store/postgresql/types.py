"""Values and moments as PostgreSQL has them. The server's clock is the only one."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, DateTime, Numeric, Select, Table, func, select
from sqlalchemy.dialects.postgresql import UUID as PostgresUUID
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.sql import ColumnElement, Executable
from sqlalchemy.types import TypeEngine

from penstock.store.dialect import HotConnection
from penstock.store.types import UtcTime


class PostgresValues:
    """Most values are kept as what they are."""

    instant: TypeEngine[Any] = DateTime(timezone=True)
    wall_time: TypeEngine[Any] = DateTime(timezone=False)
    id: TypeEngine[Any] = PostgresUUID(as_uuid=True)
    unsigned: TypeEngine[Any] = Numeric(20, 0)

    def exact(self, precision: int, scale: int) -> TypeEngine[Any]:
        return Numeric(precision, scale)

    def instant_in(self, value: datetime) -> Any:
        return value

    def instant_out(self, value: Any) -> datetime:
        return loaded_moment(value)

    def wall_time_in(self, value: datetime) -> Any:
        return value

    def wall_time_out(self, value: Any) -> datetime:
        moment: datetime = value
        return moment

    def id_in(self, value: UUID) -> Any:
        return value

    def real_in(self, value: float) -> Any:
        return value

    def exact_in(self, value: Any, scale: int) -> Any:
        return value

    def exact_out(self, value: Decimal, scale: int) -> Decimal:
        return value


VALUES = PostgresValues()


class PostgresTypes:
    """The time, and arithmetic with it."""

    def machine_time(self) -> datetime | None:
        return None

    def lease_time(self, conn: HotConnection, moment: datetime | None) -> datetime | None:
        return moment

    def settle_clock(self, conn: Connection) -> None:
        """Do nothing: the server's clock is the only one."""

    def now(self) -> ColumnElement[datetime]:
        # Not now(): in a transaction of several statements it would be older than rows that a later one sees.
        return func.statement_timestamp(type_=UtcTime())

    def select_now(self) -> Executable:
        return select(self.now())

    def add_seconds(self, moment: ColumnElement[datetime], seconds: Any) -> ColumnElement[datetime]:
        interval = func.make_interval(0, 0, 0, 0, 0, 0, seconds)
        return func.coalesce(moment.op("+")(interval), type_=UtcTime())

    def insert(self, table: Table) -> Any:
        return insert(table)

    def position(self, text: ColumnElement[str], part: str) -> ColumnElement[int]:
        return func.strpos(text, part)

    def greatest(self, *values: ColumnElement[Any]) -> ColumnElement[Any]:
        return func.greatest(*values, type_=values[0].type)

    def among(self, column: ColumnElement[Any], few: Select[Any]) -> ColumnElement[bool]:
        return column == func.any(func.array(few.scalar_subquery()))


def loaded_id(value: Any) -> UUID:
    """A guest's connection may have other loaders than ours, and hand out text."""
    return value if isinstance(value, UUID) else UUID(str(value))


def loaded_moment(value: Any) -> datetime:
    moment: datetime = datetime.fromisoformat(value) if isinstance(value, str) else value
    return moment.astimezone(UTC)


def array(ids: Iterable[UUID]) -> str:
    """An array as PostgreSQL writes it: the driver takes several times as long to make one of a list."""
    return "{" + ",".join([each.hex for each in ids]) + "}"
