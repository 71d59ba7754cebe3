"""Errors that were: one hidden table `~errors` per schema, which clearing a job table leaves alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol
from uuid import uuid4

from sqlalchemy import Column, Index, Integer, LargeBinary, MetaData, String, Table, delete, insert, select
from sqlalchemy.schema import CreateIndex, CreateTable

from penstock.store.database import Tx
from penstock.store.pipeline import catalog
from penstock.store.pipeline.physical import address
from penstock.store.pipeline.shape import Shape
from penstock.store.types import Id, JsonDoc, UtcTime

NAME = "~errors"


class Worker(Protocol):
    @property
    def user(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def pid(self) -> int: ...
    @property
    def version(self) -> str: ...


def table(backend: str, schema: str) -> Table:
    name, where = address(backend, schema, NAME)
    return Table(
        name, MetaData(), Column("id", Id, primary_key=True), Column("table_name", String(64), nullable=False),
        Column("key", JsonDoc, nullable=False), Column("time", UtcTime, nullable=False), Column("attempt", Integer),
        Column("error_message", String(2047), nullable=False), Column("error_stack", LargeBinary),
        Column("user", String(255)), Column("host", String(255)), Column("pid", Integer), Column("version", String(255)),
        schema=where,
    )  # fmt: skip


def ensure(tx: Tx, schema: str) -> None:
    """Create the table unless it is there."""
    if catalog.has_table(tx, schema, NAME):
        return
    made = table(tx.dialect.name, schema)
    tx.run(CreateTable(made))
    tx.run(CreateIndex(Index(f"{schema}.{NAME}#table"[-63:], made.c.table_name, made.c.time)))


def record(
    tx: Tx, target: Shape, key: Mapping[str, Any], message: str, stack: bytes | None, who: Worker, attempt: int
) -> None:
    tx.run(
        insert(table(tx.dialect.name, target.schema)).values(
            id=uuid4(), table_name=target.name, key=plain(key), time=tx.now, attempt=attempt, error_message=message,
            error_stack=stack, user=who.user, host=who.host, pid=who.pid, version=who.version,
        )
    )  # fmt: skip


def read(tx: Tx, target: Shape) -> list[dict[str, Any]]:
    """Every error of a table, latest last."""
    made = table(tx.dialect.name, target.schema)
    found = tx.rows(select(made).where(made.c.table_name == target.name).order_by(made.c.time, made.c.id))
    return [dict(row._mapping) for row in found]


def forget(tx: Tx, target: Shape) -> None:
    if catalog.has_table(tx, target.schema, NAME):
        made = table(tx.dialect.name, target.schema)
        tx.run(delete(made).where(made.c.table_name == target.name))


def plain(key: Mapping[str, Any]) -> dict[str, Any]:
    """A key as JSON can carry it."""
    return {name: value if isinstance(value, str | int | bool) else str(value) for name, value in key.items()}
