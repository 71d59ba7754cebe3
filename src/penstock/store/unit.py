"""Several verbs in one transaction.

Every verb opens its own transaction on the ground's database. A `Borrowed` database answers each of those with the
transaction that is under way, so that a change, its audit entry and its idempotency key are written together or not
at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from penstock.store.database import Database, Tx

T = TypeVar("T")


class Borrowed(Database):
    """A database whose transactions are all the one given. Lives as long as that."""

    def __init__(self, db: Database, tx: Tx) -> None:
        self.__dict__.update(db.__dict__)
        self._tx = tx
        self._owns_engine = self.has_short_way = False

    @contextmanager
    def read(self) -> Iterator[Tx]:
        yield self._tx

    @contextmanager
    def write(self) -> Iterator[Tx]:
        yield self._tx

    def transact(self, work: Callable[[Tx], T], *, retry_disconnects: bool = False) -> T:
        return work(self._tx)
