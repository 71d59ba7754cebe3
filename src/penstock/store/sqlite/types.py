"""Values and moments as SQLite has them. The machine's clock is its clock."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import func, literal, select
from sqlalchemy.sql import ColumnElement, Executable, cast, type_coerce
from sqlalchemy.types import BigInteger

from penstock.core.clock import wall_time
from penstock.store.types import UtcTime


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

    def greatest(self, *values: ColumnElement[Any]) -> ColumnElement[Any]:
        return func.max(*values, type_=values[0].type)
