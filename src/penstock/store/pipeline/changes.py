"""Changes to a table that is there: columns and indexes added and dropped."""

from __future__ import annotations

from sqlalchemy import inspect, select, text
from sqlalchemy.schema import CreateColumn, CreateIndex

from penstock.store.database import Tx
from penstock.store.pipeline.physical import address, declared, table
from penstock.store.pipeline.shape import Attribute, Shape


def has_rows(tx: Tx, shape: Shape) -> bool:
    return tx.first(select(1).select_from(table(tx.dialect.name, shape)).limit(1)) is not None


def add_column(tx: Tx, shape: Shape, attribute: Attribute) -> None:
    """Add a column; rows that are there take its default."""
    column = declared(tx.dialect.name, shape).c[attribute.name]
    clause = str(CreateColumn(column).compile(dialect=tx.conn.dialect))
    default = f" DEFAULT {_default(tx, attribute)}" if not attribute.nullable else ""
    tx.run(text(f"ALTER TABLE {_quoted(tx, shape)} ADD COLUMN {clause}{default}".replace(":", "\\:")))


def drop_column(tx: Tx, shape: Shape, name: str) -> None:
    column = tx.conn.dialect.identifier_preparer.quote(name)
    tx.run(text(f"ALTER TABLE {_quoted(tx, shape)} DROP COLUMN {column}"))


def drop_indexes(tx: Tx, shape: Shape) -> None:
    name, schema = address(tx.dialect.name, shape.schema, shape.name)
    quote = tx.conn.dialect.identifier_preparer.quote
    for index in inspect(tx.conn).get_indexes(name, schema=schema):
        if index.get("name"):
            where = f"{quote(schema)}." if schema else ""
            tx.run(text(f"DROP INDEX {where}{quote(str(index['name']))}".replace(":", "\\:")))


def create_indexes(tx: Tx, shape: Shape) -> None:
    for index in declared(tx.dialect.name, shape).indexes:
        tx.run(CreateIndex(index))


def _quoted(tx: Tx, shape: Shape) -> str:
    return tx.conn.dialect.identifier_preparer.format_table(table(tx.dialect.name, shape))


def _default(tx: Tx, attribute: Attribute) -> str:
    """The default as a literal that the database reads. The definition's parser has checked that it fits."""
    own, written = tx.dialect.user_tables, attribute.default or "''"
    if attribute.kind in ("timestamp", "datetime"):
        return own.literal_now(attribute.kind)
    bare = written[1:-1] if written[:1] in "'\"" and len(written) > 1 else written
    if attribute.kind == "bool":
        return own.literal_bool(bare.lower() in ("1", "true"))
    if attribute.kind == "decimal" and (literal := own.literal_decimal(bare, int(attribute.args[1]))) is not None:
        return literal
    return (
        "'" + bare.replace("'", "''") + "'"
        if attribute.kind in TEXT
        else str(float(bare) if "." in bare else int(bare))
    )


TEXT = ("varchar", "char", "text", "enum", "date", "uuid")
