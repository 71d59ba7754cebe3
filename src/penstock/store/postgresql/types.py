"""Values and moments as PostgreSQL has them. The server's clock is the only one."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, func, select
from sqlalchemy.sql import ColumnElement, Executable

from penstock.store.types import UtcTime


class PostgresTypes:
    """The time, and arithmetic with it."""

    def machine_time(self) -> datetime | None:
        return None

    def lease_time(self, conn: Connection, moment: datetime | None) -> datetime | None:
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

    def greatest(self, *values: ColumnElement[Any]) -> ColumnElement[Any]:
        return func.greatest(*values, type_=values[0].type)


def loaded_id(value: Any) -> UUID:
    """A guest's connection may have other loaders than ours, and hand out text."""
    return value if isinstance(value, UUID) else UUID(str(value))


def loaded_moment(value: Any) -> datetime:
    moment: datetime = datetime.fromisoformat(value) if isinstance(value, str) else value
    return moment.astimezone(UTC)


def array(ids: Iterable[UUID]) -> str:
    """An array as PostgreSQL writes it: the driver takes several times as long to make one of a list."""
    return "{" + ",".join([each.hex for each in ids]) + "}"
