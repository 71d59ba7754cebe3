"""What the tables really are, compared with what this program expects.

The revision says which migrations a database has been through, not that nobody changed it since. `missing` is quick enough
for every start; `differences` looks at everything and is for `penstock db check`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from sqlalchemy import Dialect, Table, text
from sqlalchemy.schema import CreateIndex, ForeignKeyConstraint

from penstock.store.database import Tx
from penstock.store.tables import JOB_VIEW, job_view, metadata


class Found(NamedTuple):
    """A column as the database describes it."""

    type: str
    nullable: bool


def missing(tx: Tx) -> list[str]:
    """Name the tables, views and columns that this program needs and the database lacks."""
    return list(_missing(_columns(tx)))


def differences(tx: Tx) -> list[str]:
    """Say in a sentence each how the tables, columns, indexes and constraints differ from those of this program."""
    found = _columns(tx)
    told = [f"{what} is missing" for what in _missing(found)]
    present = [table for table in metadata.sorted_tables if table.name in found]
    for table in present:
        told += _columns_differ(table, found[table.name], tx.conn.dialect)
    told += _kinds_differ(tx, present)
    return [*told, *_indexes_differ(tx, present), *_constraints_differ(tx, present)]


def _missing(found: dict[str, dict[str, Found]]) -> Iterator[str]:
    for table in (*metadata.sorted_tables, job_view):
        columns = found.get(table.name)
        if columns is None:
            yield f"{'view' if table is job_view else 'table'} {table.name}"
        else:
            yield from (f"column {table.name}.{c.name}" for c in table.columns if c.name not in columns)


def _columns(tx: Tx) -> dict[str, dict[str, Found]]:
    query = (
        "SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), NOT a.attnotnull FROM pg_attribute a"
        " JOIN pg_class c ON c.oid = a.attrelid WHERE c.relkind IN ('r', 'p', 'v') AND pg_table_is_visible(c.oid)"
        " AND substr(c.relname, 1, 9) = 'penstock_' AND a.attnum > 0 AND NOT a.attisdropped"
        if tx.dialect.name == "postgresql"
        else 'SELECT t.name, c.name, c.type, NOT c."notnull" FROM sqlite_master t JOIN pragma_table_info(t.name) c'
        " WHERE t.type IN ('table', 'view') AND substr(t.name, 1, 9) = 'penstock_'"
    )
    tables: dict[str, dict[str, Found]] = {}
    for table, column, kind, nullable in tx.rows(text(query)):
        if table in metadata.tables or table == job_view.name:
            tables.setdefault(table, {})[column] = Found(str(kind).lower(), bool(nullable))
    return tables


def _columns_differ(table: Table, found: dict[str, Found], dialect: Dialect) -> Iterator[str]:
    for name, column in found.items():
        if name not in table.columns:
            yield f"column {table.name}.{name} is not known to this program"
            continue
        expected = table.columns[name]
        kind = expected.type.compile(dialect).lower()
        if _kind(column.type) != _kind(kind):
            yield f"column {table.name}.{name} is {column.type}, expected {kind}"
        if column.nullable != bool(expected.nullable):
            yield f"column {table.name}.{name} {'allows' if column.nullable else 'refuses'} NULL"


def _kinds_differ(tx: Tx, present: list[Table]) -> Iterator[str]:
    """On SQLite: whether a table is kept in the order of its key, and the view is written as ours. PostgreSQL has one kind of table,
    and does not keep the text of a view; that its columns are there is looked at already."""
    if tx.dialect.name != "sqlite":
        return
    texts = {row.name: row.sql for row in tx.rows(text("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"))}
    for table in present:
        by_key = texts[table.name].rstrip().upper().endswith("WITHOUT ROWID")
        if by_key == table.dialect_options["sqlite"]["with_rowid"]:
            yield f"table {table.name} is {'' if by_key else 'not '}kept in the order of its key"
    view = texts.get(job_view.name, "")
    if view and _words(view.partition(" AS ")[2]) != _words(JOB_VIEW):
        yield f"view {job_view.name} is defined otherwise"


def _words(sql: str) -> list[str]:
    return sql.split()


def _kind(name: str) -> str:
    return {"float": "double precision", "character varying": "text", "varchar": "text"}.get(name, name)


def _indexes_differ(tx: Tx, present: list[Table]) -> Iterator[str]:
    query = (
        "SELECT c.relname, t.relname, pg_get_indexdef(i.indexrelid), i.indisvalid AND i.indisready FROM pg_index i"
        " JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_class t ON t.oid = i.indrelid WHERE pg_table_is_visible(t.oid)"
        " AND NOT EXISTS (SELECT 1 FROM pg_constraint k WHERE k.conindid = i.indexrelid)"
        if tx.dialect.name == "postgresql"
        else "SELECT name, tbl_name, sql, 1 FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
    )
    there = {name: (table, sql, valid) for name, table, sql, valid in tx.rows(text(query))}
    known = set()
    for table in present:
        for index in sorted(table.indexes, key=lambda each: str(each.name)):
            name = str(index.name)
            known.add(name)
            if name not in there:
                yield f"index {name} is missing"
                continue
            _, sql, valid = there[name]
            if not valid:
                yield f"index {name} is invalid: building it failed"
            elif _plain(sql) != _plain(str(CreateIndex(index).compile(dialect=tx.conn.dialect))):
                yield f"index {name} is defined otherwise: {sql}"
    ours = {table.name for table in present}
    for name, (table_name, _, _) in sorted(there.items()):
        if table_name in ours and name not in known and re.match(r"(ix|uq)_penstock_", name):
            yield f"index {name} is not known to this program"


def _plain(sql: str) -> str:
    """An index's definition without what PostgreSQL adds to it: casts, parentheses, schema and method."""
    sql = re.sub(r"\bON (ONLY )?(\w+\.)?(\w+) USING btree\b", r"ON \3", sql)
    sql = re.sub(r"::\w+(\[\])?", "", sql)
    sql = re.sub(r"= ANY \(?\(?ARRAY\[([^]]*)\]\)?\)?", r"IN (\1)", sql)
    return " ".join(re.findall(r"[^\s(),]+", sql.replace('"', ""))).lower()


def _constraints_differ(tx: Tx, present: list[Table]) -> Iterator[str]:
    preparer = tx.conn.dialect.identifier_preparer
    there = _constraints(tx)
    for table in present:
        names = set()
        for constraint in table.constraints:
            if isinstance(constraint, ForeignKeyConstraint) and not constraint.elements:
                continue
            name = preparer.format_constraint(constraint)
            if name is not None:
                names.add(name)
        yield from (f"constraint {name} is missing" for name in sorted(names - there.get(table.name, set())))
        yield from (
            f"constraint {name} is not known to this program" for name in sorted(there.get(table.name, set()) - names)
        )


def _constraints(tx: Tx) -> dict[str, set[str]]:
    if tx.dialect.name == "sqlite":
        rows = tx.rows(text("SELECT name, sql FROM sqlite_master WHERE type = 'table' AND sql IS NOT NULL"))
        return {name: set(re.findall(r"\bCONSTRAINT \"?(\w+)", sql)) for name, sql in rows}
    query = (
        "SELECT t.relname, k.conname FROM pg_constraint k JOIN pg_class t ON t.oid = k.conrelid"
        " WHERE pg_table_is_visible(t.oid) AND k.contype IN ('c', 'f', 'p', 'u')"
    )
    found: dict[str, set[str]] = {}
    for table, name in tx.rows(text(query)):
        found.setdefault(table, set()).add(name)
    return found
