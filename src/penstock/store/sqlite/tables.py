"""The tables of pipelines on SQLite. Its one file has no schemas, so there the schema is a prefix of the name, joined by a dot:
no schema's name holds a dot, so no two tables can meet."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, ClassVar

from sqlalchemy import (
    BigInteger,
    Connection,
    Double,
    String,
    Table,
    bindparam,
    case,
    func,
    inspect,
    select,
    text,
    tuple_,
    type_coerce,
)
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.sql import ColumnElement, cast


class SqliteTables:
    """Where tables of pipelines lie, and which ways there are to reach them."""

    reads_alone: ClassVar[bool] = False
    takes_arrays: ClassVar[bool] = False
    returns_subqueries: ClassVar[bool] = False
    largest_integer: ClassVar[int] = 2**63 - 1

    def address(self, schema: str, name: str) -> tuple[str, str | None]:
        return f"{schema}.{name}", None

    def create_schema(self, conn: Connection, schema: str) -> None:
        """Do nothing: a schema is a part of the names."""

    def drop_schema(self, conn: Connection, schema: str) -> None:
        """Do nothing: a schema is a part of the names."""

    def schemas_with(self, conn: Connection, name: str) -> list[str]:
        query = text("SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE :ending")
        return sorted(row[0].rsplit(".", 1)[0] for row in conn.execute(query, {"ending": f"%.{name}"}))

    def names_in(self, conn: Connection, schema: str) -> list[str]:
        prefix = f"{schema}."
        return [name[len(prefix) :] for name in inspect(conn).get_table_names() if name.startswith(prefix)]

    def relations_in(self, conn: Connection, schema: str) -> list[str]:
        return []  # a schema is a prefix here, so nothing stands in the way of its end

    def one_of(self, columns: Sequence[ColumnElement[Any]], rows: Sequence[Sequence[Any]]) -> ColumnElement[bool]:
        """As one JSON document: parameters of their own would soon be more than SQLite takes, and so would ORs."""
        bound = [_bound_values(column, given) for column, given in zip(columns, zip(*rows, strict=True), strict=True)]
        document = json.dumps(list(zip(*bound, strict=True)))
        each = func.json_each(bindparam(None, document, type_=String(), unique=True)).table_valued("value")
        values = [
            type_coerce(func.json_extract(each.c.value, f"$[{at}]"), column.type) for at, column in enumerate(columns)
        ]
        return tuple_(*columns).in_(select(*values)) if len(columns) > 1 else columns[0].in_(select(*values))

    def literal_now(self, kind: str) -> str:
        return "0"

    def literal_bool(self, value: bool) -> str:
        return "1" if value else "0"

    def literal_decimal(self, text: str, scale: int) -> str | None:
        return str(round(float(text) * 10**scale))

    def rows_of_arrays(self, table: Table) -> Any:
        return None

    def asker(self, user: Any) -> tuple[Any, Any]:
        return user, 0

    def shifted(self, moment: ColumnElement[Any], seconds: float) -> ColumnElement[Any]:
        return cast(moment, BigInteger) + round(seconds * 1_000_000)

    def decimal_as_real(self, value: ColumnElement[Any], scale: int) -> ColumnElement[Any]:
        return cast(value, Double()) / 10.0**scale

    def with_nan(
        self, value: ColumnElement[Any], made: ColumnElement[Any], nan: ColumnElement[Any]
    ) -> ColumnElement[Any]:
        """NaN is kept as a text, which sums would count as nothing."""
        return case((func.max(func.typeof(value) == "text") == 1, nan), else_=made)


def _bound_values(column: ColumnElement[Any], values: Sequence[Any]) -> list[Any]:
    """The values as the database keeps them in this column."""
    dialect = _dialect()
    processor = column.type.dialect_impl(dialect).bind_processor(dialect)
    return list(values) if processor is None else [processor(value) for value in values]


@lru_cache(maxsize=1)
def _dialect() -> SQLiteDialect_pysqlite:
    return SQLiteDialect_pysqlite()
