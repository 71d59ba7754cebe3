"""Rows of user tables: read, count, insert, update, delete."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    Connection,
    Select,
    Table,
    and_,
    bindparam,
    delete,
    func,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.sql import ColumnElement

from penstock.store.database import Database, Tx
from penstock.store.dialect import dialect_for
from penstock.store.faults import sqlstate, translated

BATCH = 500


class Duplicate(Exception):
    """A row with this primary or unique key is there already."""


class MissingParent(Exception):
    """A row points at a parent that is not there, or a parent still has children."""


@contextmanager
def reading(db: Database) -> Iterator[Connection]:
    """A connection for one read. Without BEGIN and ROLLBACK where they are not needed: one round trip instead of three."""
    if not db.dialect.user_tables.reads_alone:
        with db.read() as tx:
            yield tx.conn
        return
    with translated(db.url, db.dialect.unwrapped_errors), db.engine.connect() as plain:
        yield plain.execution_options(
            isolation_level="AUTOCOMMIT", **({"penstock_own": True} if db.has_short_way else {})
        )


def insert_rows(
    tx: Tx, table: Table, rows: Sequence[Mapping[str, Any]], *, skip_duplicates: bool = False, replace: bool = False
) -> int:
    """Write rows; answers how many were written. With `skip_duplicates`, rows whose key is there already are left."""
    # Not to replace: one statement may not touch a row twice, while of rows one after another the last stays.
    at_once = len(rows) > 1 and not replace and tx.dialect.user_tables.rows_of_arrays(table) is not None
    statement = _insertion(tx.dialect.name, table, skip_duplicates, replace, at_once)
    names = [column.name for column in table.columns]
    written = 0
    with constraints():
        for start in range(0, len(rows), BATCH):
            batch = rows[start : start + BATCH]
            values = _columns(names, batch) if at_once else [dict(row) for row in batch]
            count = tx.conn.execute(statement, values).rowcount
            written += count if count >= 0 else len(batch)
    return written


def _columns(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    return {f"ALL_{name}": [row[name] for row in rows] for name in names}


@lru_cache(maxsize=2048)
def _insertion(backend: str, table: Table, skip_duplicates: bool, replace: bool, at_once: bool) -> Any:
    """The statement, built once. `at_once`: for all rows, as one array per column."""
    dialect = dialect_for(backend)
    statement: Any = dialect.insert(table)
    if at_once:
        given = dialect.user_tables.rows_of_arrays(table)
        statement = statement.from_select([column.name for column in table.columns], given)
    key = [column.name for column in table.primary_key]
    rest = {c.name: statement.excluded[c.name] for c in table.columns if c.name not in key}
    if replace and rest:
        statement = statement.on_conflict_do_update(index_elements=key, set_=rest)
    elif replace or skip_duplicates:
        statement = statement.on_conflict_do_nothing(index_elements=key)
    return statement.execution_options(preserve_rowcount=True)


def update_row(tx: Tx, table: Table, key: Mapping[str, Any], values: Mapping[str, Any]) -> int:
    with constraints():
        return tx.count(update(table).where(_matches(table, key)).values(dict(values)))


def delete_where(tx: Tx, table: Table, condition: ColumnElement[bool]) -> int:
    """Delete the rows that meet `condition`, which speaks of `table` itself and not of an alias."""
    with constraints():
        return tx.count(delete(table).where(condition))


def delete_matching(tx: Tx, table: Table, names: Sequence[str], chosen: Select[Any]) -> int:
    """Delete the rows whose key `chosen` selects."""
    inner = chosen.subquery()
    condition = select(1).where(*(table.c[name] == inner.c[name] for name in names)).correlate(table).exists()
    return delete_where(tx, table, condition)


def delete_keys(tx: Tx, table: Table, names: Sequence[str], keys: Sequence[Sequence[Any]]) -> None:
    """Delete the rows with exactly these keys."""
    statement = delete(table).where(*(table.c[name] == bindparam(f"k_{name}") for name in names))
    with constraints():
        for start in range(0, len(keys), BATCH):
            batch = [
                dict(zip((f"k_{name}" for name in names), key, strict=True)) for key in keys[start : start + BATCH]
            ]
            tx.run(statement, batch)


def counts(conn: Connection, tables: Sequence[Table]) -> list[int]:
    return [int(conn.execute(select(func.count()).select_from(table)).scalar_one()) for table in tables]


def _matches(table: Table, key: Mapping[str, Any]) -> ColumnElement[bool]:
    return and_(*(table.c[name] == value for name, value in key.items()))


@contextmanager
def constraints() -> Iterator[None]:
    """Tell duplicates and broken references apart from other faults."""
    try:
        yield
    except IntegrityError as error:
        text = str(error.orig)
        state = sqlstate(error)
        if state == "23505" or "UNIQUE constraint failed" in text:
            raise Duplicate(text.strip().splitlines()[0]) from error
        if state == "23503" or "FOREIGN KEY constraint failed" in text:
            raise MissingParent(text.strip().splitlines()[0]) from error
        raise
