"""The tables of pipelines on PostgreSQL: a schema for each pipeline, arrays as parameters, and a server that knows who asks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, ClassVar

from sqlalchemy import (
    ARRAY,
    JSON,
    Connection,
    Double,
    LargeBinary,
    Table,
    bindparam,
    func,
    inspect,
    select,
    text,
    tuple_,
)
from sqlalchemy.sql import ColumnElement, cast


class PostgresTables:
    """Where tables of pipelines lie, and which ways there are to reach them."""

    reads_alone: ClassVar[bool] = True
    takes_arrays: ClassVar[bool] = True
    returns_subqueries: ClassVar[bool] = True
    largest_integer: ClassVar[int] = 2**64 - 1

    def address(self, schema: str, name: str) -> tuple[str, str | None]:
        return name, schema

    def create_schema(self, conn: Connection, schema: str) -> None:
        quoted = conn.dialect.identifier_preparer.quote(schema)
        conn.execute(text(f"CREATE SCHEMA IF NOT EXISTS {quoted}"))

    def drop_schema(self, conn: Connection, schema: str) -> None:
        quoted = conn.dialect.identifier_preparer.quote(schema)
        conn.execute(text(f"DROP SCHEMA IF EXISTS {quoted} RESTRICT"))

    def schemas_with(self, conn: Connection, name: str) -> list[str]:
        found = conn.execute(text("SELECT schemaname FROM pg_tables WHERE tablename = :name"), {"name": name})
        return sorted(row[0] for row in found)

    def names_in(self, conn: Connection, schema: str) -> list[str]:
        return inspect(conn).get_table_names(schema=schema)

    def relations_in(self, conn: Connection, schema: str) -> list[str]:
        query = text(
            "SELECT relname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace "
            "WHERE n.nspname = :schema AND relkind IN ('r', 'p', 'v', 'm', 'f', 'S') ORDER BY relname"
        )
        return [row[0] for row in conn.execute(query, {"schema": schema})]

    def one_of(self, columns: Sequence[ColumnElement[Any]], rows: Sequence[Sequence[Any]]) -> ColumnElement[bool]:
        """As one array per column, so that the statement is the same for any number of rows."""
        values = zip(*rows, strict=True)
        arrays = [
            func.unnest(bindparam(None, list(given), type_=ARRAY(column.type), unique=True))
            for column, given in zip(columns, values, strict=True)
        ]
        return tuple_(*columns).in_(select(*arrays)) if len(columns) > 1 else columns[0].in_(select(*arrays))

    def literal_now(self, kind: str) -> str:
        return {"timestamp": "now()", "datetime": "localtimestamp"}[kind]

    def literal_bool(self, value: bool) -> str:
        return "true" if value else "false"

    def literal_decimal(self, text: str, scale: int) -> str | None:
        return None

    def rows_of_arrays(self, table: Table) -> Any:
        return _rows_of_arrays(table)

    def asker(self, user: Any) -> tuple[Any, Any]:
        return func.coalesce(func.current_user(), user), func.pg_backend_pid()

    def shifted(self, moment: ColumnElement[Any], seconds: float) -> ColumnElement[Any]:
        return moment.op("+")(func.make_interval(0, 0, 0, 0, 0, 0, float(seconds)))

    def decimal_as_real(self, value: ColumnElement[Any], scale: int) -> ColumnElement[Any]:
        return cast(value, Double())

    def with_nan(
        self, value: ColumnElement[Any], made: ColumnElement[Any], nan: ColumnElement[Any]
    ) -> ColumnElement[Any]:
        return made


@lru_cache(maxsize=2048)
def _rows_of_arrays(table: Table) -> Any:
    """One array per column, so that PostgreSQL runs one statement for many rows instead of one for each, which takes a quarter of
    the time on either side. Bytes and JSON travel row by row: as elements of an array they would be escaped twice."""
    if any(isinstance(column.type, LargeBinary | JSON) for column in table.columns):
        return None
    return select(*(func.unnest(bindparam(f"ALL_{column.name}", type_=ARRAY(column.type))) for column in table.columns))
