"""What should hold of every job table in a database, as queries; and what is no fault, but worth knowing."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import func, not_, or_, select
from sqlalchemy.sql import ColumnElement

from penstock.core.nouns import Violation, Warning_
from penstock.store.database import Tx
from penstock.store.pipeline import catalog, physical
from penstock.store.pipeline.algebra import Source
from penstock.store.pipeline.jobs import JobStore

HELD = "key whose reservation and token disagree"


def violations(tx: Tx, most: int = 20) -> list[Violation]:
    """A key is reserved exactly if somebody holds its token, for a time: otherwise it is nobody's, or two workers'."""
    found: list[str] = []
    for store in _stores(tx):
        jobs = store.table
        reserved = jobs.c.status == "reserved"
        wrong = or_(reserved != jobs.c.token.is_not(None), reserved != jobs.c.lease_until.is_not(None))
        rows = tx.rows(select(*(jobs.c[name] for name in store.keys)).where(wrong).limit(most))
        found += [f"{store.target.full_name} {_told(store, row)}" for row in rows]
    return [Violation(HELD, "P3", tuple(found[:most]))] if found else []


def warnings(tx: Tx) -> list[Warning_]:
    """What refresh() or populate() will put right."""
    found: list[Warning_] = []
    for store in _stores(tx):
        jobs, name = store.table, store.target.full_name
        there = _there(tx, store)
        for condition, what, told in (
            ((jobs.c.status == "success") & not_(there), "result that is gone",
             "done, but their rows are gone. refresh() has them made again."),
            ((jobs.c.status == "pending") & there, "pending key that is there",
             "pending although their rows are there. refresh() takes them off the list."),
            ((jobs.c.status == "reserved") & (jobs.c.lease_until < tx.lease_now), "reservation that ran out",
             "reserved by a worker that no longer renews them. The next populate() or refresh() takes them back."),
        ):  # fmt: skip
            count = int(tx.scalar(select(func.count()).select_from(jobs).where(condition)))
            if count:
                found.append(Warning_(what, f"{count:,} keys of {name} are {told}"))
    return found


def _stores(tx: Tx) -> Iterator[JobStore]:
    for schema in catalog.schemas(tx):
        for shape in catalog.shapes(tx, schema).values():
            if shape.tier in ("imported", "computed") and not shape.master:
                store = JobStore(tx.dialect.name, shape)
                if store.is_there(tx):
                    yield store


def _there(tx: Tx, store: JobStore) -> ColumnElement[bool]:
    target = Source.of(physical.table(tx.dialect.name, store.target))
    return target.exists([(store.table.c[name], name) for name in store.keys])


def _told(store: JobStore, row: object) -> str:
    return ", ".join(f"{name}={getattr(row, name)}" for name in store.keys)
