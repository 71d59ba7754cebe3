"""What the conformance tests share: short ways to ask, to claim, to plant rows and to see that nothing was written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from penstock import Claim, Job, Penstock
from penstock.store.tables import metadata

WORKER = "host:1"


def claim(app: Penstock, limit: int = 1, **options: Any) -> list[Claim]:
    return app.queue.claim(WORKER, limit, **options)


def claim_one(app: Penstock, **options: Any) -> Claim:
    (taken,) = claim(app, 1, **options)
    return taken


def claimed_numbers(app: Penstock, limit: int = 100, **options: Any) -> list[Any]:
    """The `n` of each claimed job, in the order of the claim."""
    return [taken.params["n"] for taken in claim(app, limit, **options)]


def numbered(app: Penstock, numbers: Sequence[int], key: str = "work", **options: Any) -> list[Job]:
    return [app.enqueue(key, {"n": n}, **options) for n in numbers]


def execute(app: Penstock, statement: Any) -> None:
    """Write past the engine: how a test plants what the engine itself would never leave."""
    with app.db.write() as tx:
        tx.run(statement)


def fetch(app: Penstock, statement: Any) -> Sequence[Any]:
    with app.db.read() as tx:
        return tx.rows(statement)


def everything(app: Penstock) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table, for "this call changed nothing"."""
    with app.db.read() as tx:
        return {
            table.name: sorted(tuple(map(repr, row)) for row in tx.rows(sa.select(table)))
            for table in metadata.sorted_tables
        }


@contextmanager
def nothing_written(app: Penstock) -> Iterator[None]:
    before = everything(app)
    yield
    assert everything(app) == before


def statuses(app: Penstock, ids: Sequence[UUID]) -> list[str]:
    return [str(app.jobs.get(id).status) for id in ids]
