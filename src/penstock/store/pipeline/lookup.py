"""The read that make() asks for most: columns of the rows that have certain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

from sqlalchemy import ARRAY, Connection, Dialect, Select, Table, bindparam, func, literal_column, select, tuple_
from sqlalchemy.sql import ColumnElement

from penstock.store.dialect import user_tables_of
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


@lru_cache(maxsize=2048)
def lookup_many(table: Table, key: tuple[str, ...], wanted: tuple[str, ...]) -> LookupMany:
    """The same for many keys at once."""
    return LookupMany(Source.of(table), key, wanted)


class LookupMany:
    """Columns of many rows by their keys. A key of one column travels as an array where there are arrays, so that the
    statement is the same for any number of them."""

    def __init__(self, source: Source, key: tuple[str, ...], wanted: tuple[str, ...]) -> None:
        self._wanted = len(wanted)
        self._keys = [source.columns[name] for name in key]
        self._select = select(*(source.columns[name] for name in wanted), *self._keys)

    def rows(self, conn: Connection, keys: Sequence[tuple[Any, ...]]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
        """What is wanted of each row that is there, by its key."""
        given: list[Any] = [key[0] for key in keys] if len(self._keys) == 1 else list(keys)
        found = conn.execute(self._by_array if self._takes_array(conn) else self._by_list, {"keys": given}).all()
        return {tuple(row[self._wanted :]): tuple(row[: self._wanted]) for row in found}

    def _takes_array(self, conn: Connection) -> bool:
        return len(self._keys) == 1 and user_tables_of(conn.dialect.name).takes_arrays

    @cached_property
    def _by_array(self) -> Select[Any]:
        (key,) = self._keys
        return self._select.where(key == func.any(bindparam("keys", type_=ARRAY(key.type))))

    @cached_property
    def _by_list(self) -> Select[Any]:
        key = self._keys[0] if len(self._keys) == 1 else tuple_(*self._keys)
        return self._select.where(key.in_(bindparam("keys", expanding=True)))


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
        if not user_tables_of(conn.dialect.name).reads_alone or "penstock_own" not in conn.get_execution_options():
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
