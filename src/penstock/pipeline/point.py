"""Rows of one table by the values of its attributes: `Subject & key`, which is what make() asks for most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from sqlalchemy import Table as SqlTable

from penstock.pipeline.fetch import Order
from penstock.pipeline.restrict import comparable, condition, known_values
from penstock.pipeline.rows import TableRows
from penstock.store.pipeline.algebra import Source
from penstock.store.pipeline.lookup import lookup


class Point(TableRows):
    """A table restricted by values alone. Fetched as it stands, it takes the statement that was built for the first such
    key; building one anew takes ten times as long as running it."""

    def __init__(
        self, table: TableRows, sql: SqlTable, restriction: Mapping[str, Any], values: Mapping[str, Any]
    ) -> None:
        self.connection, self.base, self.attributes, self.tables = (
            table.connection,
            table.base,
            table.attributes,
            table.tables,
        )
        self._table, self._sql, self._restriction, self._values = table, sql, restriction, values

    @cached_property
    def source(self) -> Source:  # type: ignore[override]
        """For all that goes on from here: a join, another restriction, a delete."""
        return self._table.source.restrict(condition(self._table, self._restriction))

    def _rows(self, names: list[str], order_by: Order, limit: int | None, offset: int | None) -> Sequence[Any]:
        if order_by is not None or offset is not None or limit not in (None, 2):
            return super()._rows(names, order_by, limit, offset)
        key = self.primary_key
        single = all(name in self._values for name in key)
        if single and len(key) == len(self._values) and (ahead := self.connection.ahead_of(self.base)) is not None:
            values = {name: self._values[name] for name in key}
            if (row := ahead.row(self._sql, self.attributes, names, values)) is not None:
                return [row]
        statement = lookup(self._sql, tuple(self._values), tuple(names), tuple(key) if limit and not single else ())
        return self.connection.read(lambda conn: statement.rows(conn, self._values), self.tables)


def at(table: TableRows, sql: SqlTable, restriction: Mapping[str, Any]) -> Point | None:
    """The rows with these values; None if the mapping asks for more than values, or for nothing."""
    given = known_values(table.attributes, restriction)
    backend = table.connection.backend
    values = {
        name: comparable(table.attributes[name], value, backend) for name, value in given.items() if value is not None
    }
    if not values or len(values) < len(given) or any(value is None for value in values.values()):
        return None
    return Point(table, sql, dict(restriction), values)
