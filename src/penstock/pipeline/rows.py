"""Rows of one table: what can be fetched, and also deleted."""

from __future__ import annotations

from typing import Any

from penstock.pipeline import delete
from penstock.pipeline.connection import Connection
from penstock.pipeline.fetch import Order
from penstock.pipeline.relation import Relation, tables_of
from penstock.store.pipeline.algebra import Source
from penstock.store.pipeline.shape import Shape


class TableRows(Relation):
    """A table, or a restriction of it."""

    def __init__(
        self, connection: Connection, shape: Shape, source: Source, tables: frozenset[str], order: Order = None
    ) -> None:
        super().__init__(connection, {a.name: a for a in shape.attributes}, source, tables, order)
        self.base = shape

    def delete(self, *, prompt: bool | None = None, dry_run: bool = False, force_parts: bool = False) -> int:
        """Delete these rows and all that depend on them, in one transaction; answers how many rows of this table went.

        At a terminal it shows what would go and asks, unless `prompt=False`. Rows of a job table go at once.
        """
        if dry_run:
            return self.delete_preview().get(self.base.full_name, 0)
        if self.base.tier == "jobs":
            return self.delete_quick()
        return delete.cascade(self, self.base, prompt=prompt, force_parts=force_parts)

    def delete_preview(self) -> dict[str, int]:
        """How many rows of which tables `delete` would take."""
        return delete.preview(self, self.base)

    def delete_quick(self) -> int:
        """Delete just these rows, without cascade and without asking. Rows that others refer to raise."""
        return delete.quick(self, self.base)

    def _restricted(self, source: Source, restriction: Any) -> TableRows:
        return TableRows(self.connection, self.base, source, self.tables | tables_of(restriction), self.order)
