"""Several verbs in one transaction.

Every verb opens its own transaction on the ground's database. A `Borrowed` database answers each of those with the
transaction that is under way, so that a change, its audit entry and its idempotency key are written together or not
at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from sqlalchemy.exc import SQLAlchemyError

from penstock.store.database import Database, Tx

T = TypeVar("T")


class Borrowed(Database):
    """A database whose transactions are all the one given. Lives as long as that."""

    def __init__(self, db: Database, tx: Tx) -> None:
        self.__dict__.update(db.__dict__)
        self._tx = tx
        self.owns_engine = self.has_short_way = False

    @contextmanager
    def read(self, *, patient: bool = False) -> Iterator[Tx]:
        yield self._tx

    @contextmanager
    def write(self, *, patient: bool = False) -> Iterator[Tx]:
        yield self._tx

    def transact(self, work: Callable[[Tx], T], *, retry_disconnects: bool = False, patient: bool = False) -> T:
        return work(self._tx)


@contextmanager
def savepoint(tx: Tx) -> Iterator[None]:
    """Do several statements or none of them. Only what was written in the block is undone if it raises."""
    tx.conn.exec_driver_sql("SAVEPOINT penstock")
    try:
        yield
    except BaseException:
        with suppress(SQLAlchemyError):  # if the connection is gone, so is all that was written
            tx.conn.exec_driver_sql("ROLLBACK TO SAVEPOINT penstock")
            tx.conn.exec_driver_sql("RELEASE SAVEPOINT penstock")
        raise
    tx.conn.exec_driver_sql("RELEASE SAVEPOINT penstock")


@contextmanager
def beside(db: Database) -> Iterator[Database]:
    """The same database, for a transaction beside one that the caller has open. If the engine is the caller's, so is its pool:
    every connection of it may be held by threads that wait here for one more. So this one is not taken from the pool."""
    if db.owns_engine:
        yield db
        return
    other = db.beside(1, db.statement_seconds)
    try:
        yield other
    finally:
        other.close()
