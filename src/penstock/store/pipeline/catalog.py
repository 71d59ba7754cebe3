"""DDL, and the catalog: one hidden table `~tables` per schema that remembers the shape of every table in it.

Everything a declaration creates, it creates in one transaction, under one lock, so that a hundred workers may import
the same module at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import Column, MetaData, String, Table, Text, delete, insert, inspect, select
from sqlalchemy.schema import CreateIndex, CreateTable, DropTable

from penstock.store.database import Tx
from penstock.store.dialect import Lock
from penstock.store.pipeline.physical import address, declared
from penstock.store.pipeline.shape import Shape

CATALOG = "~tables"


def lock(tx: Tx) -> None:
    """Only one declaration at a time; on SQLite the write transaction is that lock already."""
    tx.lock(Lock.DECLARE)


def ensure_schema(tx: Tx, schema: str) -> None:
    """Create the schema and its catalog unless they are there."""
    if has_catalog(tx, schema):
        return
    tx.dialect.user_tables.create_schema(tx.conn, schema)
    tx.run(CreateTable(_catalog(tx.dialect.name, schema), if_not_exists=True))


def has_table(tx: Tx, schema: str, name: str) -> bool:
    physical, where = address(tx.dialect.name, schema, name)
    return bool(inspect(tx.conn).has_table(physical, schema=where))


def has_catalog(tx: Tx, schema: str) -> bool:
    return has_table(tx, schema, CATALOG)


def shapes(tx: Tx, schema: str) -> dict[str, Shape]:
    """Every table of the schema by name, in the order of their declaration."""
    if not has_catalog(tx, schema):
        return {}
    table = _catalog(tx.dialect.name, schema)
    rows = tx.rows(select(table.c.name, table.c.shape).order_by(table.c.position, table.c.name))
    return {row.name: Shape.from_json(row.shape) for row in rows}


def schemas(tx: Tx) -> list[str]:
    """Every schema of this database that has a catalog."""
    return tx.dialect.user_tables.schemas_with(tx.conn, CATALOG)


def create(tx: Tx, new: Sequence[Shape]) -> None:
    """Create the tables and write them into the catalog."""
    for shape in new:
        table = declared(tx.dialect.name, shape)
        tx.run(CreateTable(table))
        for index in table.indexes:
            tx.run(CreateIndex(index))
        remember(tx, shape)


def remember(tx: Tx, shape: Shape) -> None:
    table = _catalog(tx.dialect.name, shape.schema)
    known = tx.first(select(table.c.position).where(table.c.name == shape.name))
    count = tx.scalar(select(table.c.position).order_by(table.c.position.desc()).limit(1))
    position = known[0] if known else f"{int(count or 0) + 1:06d}"
    tx.run(delete(table).where(table.c.name == shape.name))
    tx.run(insert(table).values(name=shape.name, position=position, shape=shape.to_json()))


def drop(tx: Tx, gone: Iterable[Shape]) -> None:
    """Drop the tables, children first as given, and forget them."""
    for shape in gone:
        drop_table(tx, shape.schema, shape.name)
        table = _catalog(tx.dialect.name, shape.schema)
        tx.run(delete(table).where(table.c.name == shape.name))


def drop_table(tx: Tx, schema: str, name: str) -> None:
    physical, where = address(tx.dialect.name, schema, name)
    tx.run(DropTable(Table(physical, MetaData(), schema=where), if_exists=True))


def drop_schema(tx: Tx, schema: str, hidden: Iterable[str]) -> None:
    """Drop what is left of an emptied schema: its hidden tables, and on PostgreSQL the schema itself."""
    for name in (*hidden, CATALOG):
        drop_table(tx, schema, name)
    tx.dialect.user_tables.drop_schema(tx.conn, schema)


def table_names(tx: Tx, schema: str) -> list[str]:
    """Every table of the schema as it really is, hidden ones too."""
    return tx.dialect.user_tables.names_in(tx.conn, schema)


def relation_names(tx: Tx, schema: str) -> list[str]:
    """Every table, view and foreign table of the schema, whoever created it."""
    return tx.dialect.user_tables.relations_in(tx.conn, schema)


def column_names(tx: Tx, schema: str, name: str) -> list[str]:
    physical, where = address(tx.dialect.name, schema, name)
    return [column["name"] for column in inspect(tx.conn).get_columns(physical, schema=where)]


def _catalog(backend: str, schema: str) -> Table:
    name, where = address(backend, schema, CATALOG)
    return Table(
        name, MetaData(), Column("name", String(64), primary_key=True), Column("position", String(6), nullable=False),
        Column("shape", Text, nullable=False), schema=where,
    )  # fmt: skip
