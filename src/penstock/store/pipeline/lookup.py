"""The read that make() asks for most: columns of the rows that have certain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Dialect, Select, Table, bindparam, literal_column
from sqlalchemy.sql import ColumnElement

from penstock.store.pipeline.algebra import Source

Convert = Callable[[Any], Any]
CURSOR = "penstock_lookup"
"""Where a connection keeps the cursor of its lookups; to make one for each would take as long as half of the rest."""


@lru_cache(maxsize=2048)
def lookup(table: Table, given: tuple[str, ...], wanted: tuple[str, ...], order: tuple[str, ...]) -> Lookup:
    """Columns of the rows that have the values `given`, which travel as parameters: one statement, built once, for every
    key that is asked for. With an order, at most two rows."""
    source = Source.of(table)
    columns = source.columns
    query = source.select(wanted).where(*(columns[name] == bindparam(name, type_=columns[name].type) for name in given))
    if order:
        query = query.order_by(*(columns[name] for name in order)).limit(literal_column("2"))
    return Lookup(query, {name: columns[name] for name in given}, [columns[name] for name in wanted])


class Lookup:
    """One statement, to be run with many values."""

    def __init__(
        self, query: Select[Any], given: Mapping[str, ColumnElement[Any]], wanted: Sequence[ColumnElement[Any]]
    ) -> None:
        self.query, self._given, self._wanted = query, given, wanted
        self._text = ""
        self._binds: list[tuple[str, Convert]] = []
        self._results: list[tuple[int, Convert]] | None = None

    def rows(self, conn: Connection, values: Mapping[str, Any]) -> Sequence[Any]:
        """On the driver's own cursor where the connection is ours: SQLAlchemy's share would be a third of the time that
        a key takes. What goes wrong is told in SQLAlchemy's way."""
        if conn.dialect.name != "postgresql" or "penstock_own" not in conn.get_execution_options():
            return conn.execute(self.query, values).all()
        if not self._text:
            self._compile(conn.dialect)
        params = dict(values)
        for name, convert in self._binds:
            params[name] = convert(params[name])
        cursor = conn.info.get(CURSOR)
        if cursor is None:
            cursor = conn.info[CURSOR] = conn.connection.cursor()
        try:
            cursor.execute(self._text, params)
            return self._converted(conn.dialect, cursor)
        except Exception as error:
            del conn.info[CURSOR]
            conn._handle_dbapi_exception(error, self._text, params, cursor, None)

    def _compile(self, dialect: Dialect) -> None:
        found = (
            (name, column.type.dialect_impl(dialect).bind_processor(dialect)) for name, column in self._given.items()
        )
        self._binds = [(name, convert) for name, convert in found if convert is not None]
        self._text = str(self.query.compile(dialect=dialect))

    def _converted(self, dialect: Dialect, cursor: Any) -> Sequence[Any]:
        found: Sequence[Any] = cursor.fetchall()
        if self._results is None:
            kinds = (column.type.dialect_impl(dialect) for column in self._wanted)
            codes = (said[1] for said in cursor.description)
            results = (kind.result_processor(dialect, code) for kind, code in zip(kinds, codes, strict=True))
            self._results = [(at, convert) for at, convert in enumerate(results) if convert is not None]
        if not self._results:
            return found
        rows = [list(row) for row in found]
        for row in rows:
            for at, convert in self._results:
                row[at] = convert(row[at])
        return rows
