"""The hot statements, each whole as it runs, with the plan that the database at hand makes for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.core.errors import InvalidInput
from penstock.store import schema
from penstock.store.database import Database


class Explained(NamedTuple):
    """A statement, what it is for, and its plan."""

    what: str
    sql: str
    plan: str


def explain(db: Database, verb: str) -> Sequence[Explained]:
    """Return the statements of a verb with their plans. Nothing is run, nothing is changed."""
    known = db.dialect.hot_statements()
    if verb not in known:
        raise InvalidInput(f"There is no statement {verb!r} to explain; known: {', '.join(known)}.")
    schema.verify(db)
    with db.read() as tx:
        return [Explained(each.what, *db.dialect.plan(tx.conn, each)) for each in known[verb]]
