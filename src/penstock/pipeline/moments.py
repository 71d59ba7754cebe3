"""NOW() in a restriction: a moment that is read when the query runs, on the clock that rules."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import bindparam, type_coerce
from sqlalchemy.sql import ColumnElement

from penstock.pipeline.kinds import wall
from penstock.store.database import Database
from penstock.store.pipeline.types import column_type

SECONDS = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86400, "WEEK": 604800}


class Moments:
    """Times for one database."""

    def __init__(self, db: Database) -> None:
        self.db = db

    def now(self, kind: str, offset: float = 0) -> ColumnElement[Any]:
        """Now plus `offset` seconds, as the kind of attribute it is compared with."""
        if kind == "timestamp" and self.db.moment() is None:
            return self.db.dialect.add_seconds(self.db.dialect.now(), offset)
        late = partial(self._later, kind, offset)
        return bindparam(None, callable_=late, type_=column_type(kind, ()), unique=True)

    def _later(self, kind: str, offset: float) -> Any:
        moment = self.value() + timedelta(seconds=offset)
        if kind == "timestamp":
            return moment
        return wall(moment) if kind == "datetime" else wall(moment).date()

    def value(self) -> datetime:
        """The time as a value. Where the database's clock rules, this machine's is near enough for a wall clock."""
        return self.db.moment() or datetime.now().astimezone()

    def shifted(self, moment: ColumnElement[Any], kind: str, seconds: float) -> ColumnElement[Any]:
        """A time attribute plus seconds."""
        return type_coerce(self.db.dialect.user_tables.shifted(moment, seconds), column_type(kind, ()))
