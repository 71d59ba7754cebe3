"""From a shape to the table that statements name."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from sqlalchemy import CheckConstraint, Column, ForeignKeyConstraint, MetaData, Table
from sqlalchemy import Index as SqlIndex

from penstock.store.dialect import user_tables_of
from penstock.store.pipeline.shape import Attribute, ForeignKey, Shape
from penstock.store.pipeline.types import column_type

UNSIGNED = {"uint8": 2**8, "uint16": 2**16, "uint32": 2**32, "uint64": 2**64}


def address(backend: str, schema: str, name: str) -> tuple[str, str | None]:
    """The table's name and schema as the database knows them."""
    return user_tables_of(backend).address(schema, name)


@lru_cache(maxsize=2048)
def table(backend: str, shape: Shape) -> Table:
    """The table to query: columns and their types, no constraints."""
    name, schema = address(backend, shape.schema, shape.name)
    return Table(name, MetaData(), *(_column(attribute) for attribute in shape.attributes), schema=schema)


def declared(backend: str, shape: Shape) -> Table:
    """The table to create: with keys, checks and indexes. Parents are named, not described."""
    name, schema = address(backend, shape.schema, shape.name)
    metadata = MetaData()
    columns = [_column(attribute, _check(attribute)) for attribute in shape.attributes]
    made = Table(name, metadata, *columns, schema=schema)
    for key in shape.foreign_keys:
        made.append_constraint(_constraint(backend, metadata, key, shape))
    for number, index in enumerate(shape.indexes):
        SqlIndex(index_name(shape, number), *(made.c[item] for item in index.columns), unique=index.unique)
    return made


def index_name(shape: Shape, number: int) -> str:
    return f"{shape.schema}.{shape.name}#{number}"[-63:]


def _column(attribute: Attribute, check: str | None = None) -> Column[Any]:
    extra = [CheckConstraint(check)] if check is not None else []
    return Column(
        attribute.name, column_type(attribute.kind, attribute.args), *extra, primary_key=attribute.in_key,
        nullable=attribute.nullable, autoincrement=False,
    )  # fmt: skip


def _check(attribute: Attribute) -> str | None:
    """What the column must meet, as text: a constraint inside a column takes no expression. Names are plain words."""
    if attribute.kind in UNSIGNED:
        top = UNSIGNED[attribute.kind]
        below = "" if top > 2**32 else f' AND "{attribute.name}" < {top}'
        return f'"{attribute.name}" >= 0{below}'
    if attribute.kind == "enum":
        values = ", ".join("'" + str(item).replace("'", "''").replace(":", "\\:") + "'" for item in attribute.args)
        return f'"{attribute.name}" IN ({values})'
    return None


def _constraint(backend: str, metadata: MetaData, key: ForeignKey, child: Shape) -> ForeignKeyConstraint:
    name, schema = address(backend, key.parent_schema, key.parent_table)
    parent = metadata.tables.get(f"{schema}.{name}" if schema else name)
    if parent is None:
        columns = (
            Column(far, column_type(child.attribute(near).kind, child.attribute(near).args), primary_key=True)
            for near, far in zip(key.columns, key.parent_columns, strict=True)
        )
        parent = Table(name, metadata, *columns, schema=schema)
    return ForeignKeyConstraint(list(key.columns), [parent.c[far] for far in key.parent_columns])
