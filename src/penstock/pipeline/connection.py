"""A pipeline's hold on a database: reads, writes, one transaction at a time per thread, and the make() under way."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import Connection as SqlConnection
from sqlalchemy.exc import DBAPIError

from penstock.pipeline.errors import DuplicateError, MissingParentError, PipelineError
from penstock.pipeline.lease import heart
from penstock.pipeline.moments import Moments
from penstock.store.database import Database, Tx
from penstock.store.pipeline import rows

if TYPE_CHECKING:
    from penstock.pipeline.ahead import Ahead
    from penstock.pipeline.make import MakeScope
    from penstock.store.pipeline.shape import Shape

T = TypeVar("T")


class _Local(threading.local):
    tx: Tx | None = None
    scope: MakeScope | None = None
    reader: SqlConnection | None = None
    ahead: Ahead | None = None


class Connection:
    """Shared by every table of a schema; safe between threads, and after a fork."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.moments = Moments(db)
        self._local = _Local()
        self._pid = os.getpid()
        db.before_close.append(lambda: heart.leave(self))

    @property
    def backend(self) -> str:
        return self.db.name

    @property
    def in_transaction(self) -> bool:
        """Whether this thread is inside `transaction`."""
        return self._local.tx is not None

    @property
    def scope(self) -> MakeScope | None:
        """The make() that this thread is in."""
        return self._local.scope

    @contextmanager
    def making(self, scope: MakeScope) -> Iterator[None]:
        before, self._local.scope = self._local.scope, scope
        try:
            yield
        finally:
            self._local.scope = before

    @property
    @contextmanager
    def transaction(self) -> Iterator[Tx]:
        """Everything in the block commits together or not at all: `with schema.connection.transaction: …`"""
        if self._local.tx is not None:
            raise PipelineError("A transaction is under way already; they do not nest.")
        self.forget_ahead()
        if self.scope is not None:
            yield self.scope.opened()
            return
        self._mind_fork()
        with faults(), self.db.write(patient=True) as tx:
            self._local.tx = tx
            try:
                yield tx
            finally:
                self._local.tx = None

    def read(self, work: Callable[[SqlConnection], T], touching: Collection[str] = ()) -> T:
        """Run a read where it belongs: in the transaction under way, else on its own."""
        if self._local.tx is not None:
            return work(self._local.tx.conn)
        if self.scope is not None and (tx := self.scope.seen_by(touching)) is not None:
            return work(tx.conn)
        self._mind_fork()
        if self._local.reader is not None:
            try:
                return work(self._local.reader)
            except DBAPIError:
                self._local.reader = None  # the next read finds another
                raise
        with rows.reading(self.db) as conn:
            return work(conn)

    @contextmanager
    def steady_reads(self) -> Iterator[None]:
        """Read on one connection for the length of a block, instead of fetching one from the pool for each read.

        Not on SQLite, where a connection that has read must end its transaction to see what came since."""
        if not self.db.dialect.user_tables.reads_alone or self._local.reader is not None:
            yield
            return
        self._mind_fork()
        with rows.reading(self.db) as conn:
            self._local.reader = conn
            try:
                yield
            finally:
                self._local.reader = None

    @contextmanager
    def reading_ahead(self, ahead: Ahead) -> Iterator[None]:
        before, self._local.ahead = self._local.ahead, ahead
        try:
            yield
        finally:
            self._local.ahead = before

    def ahead_of(self, shape: Shape) -> Ahead | None:
        """What may answer a read of this table by key without the database: only for a make() that sees what all see."""
        scope = self._local.scope
        return None if scope is None or self._local.tx is not None or not scope.sees_all(shape) else self._local.ahead

    def forget_ahead(self) -> None:
        """Something is about to be written of which a read must know."""
        if self._local.ahead is not None:
            self._local.ahead.forget()

    def look(self, work: Callable[[Tx], T]) -> T:
        """Run a read that takes a `Tx`."""
        if self._local.tx is not None:
            return work(self._local.tx)
        self._mind_fork()
        with self.db.read(patient=True) as tx:
            return work(tx)

    def write(self, work: Callable[[Tx], T]) -> T:
        """Run a write in the transaction under way, else in one of its own, tried again when only luck was missing."""
        self.forget_ahead()
        with faults():
            if self._local.tx is not None:
                return work(self._local.tx)
            if self.scope is not None:
                return work(self.scope.opened())
            return self.apart(work)

    def apart(self, work: Callable[[Tx], T], *, patient: bool = True) -> T:
        """Run a write in a transaction of its own, whatever is under way; it may take its time, unless told otherwise."""
        self._mind_fork()
        with faults():
            return self.db.transact(work, patient=patient)

    def _mind_fork(self) -> None:
        if self._pid != os.getpid():
            self.db.engine.dispose(close=False)  # the parent's sockets and locks are the parent's
            self._pid = os.getpid()


@contextmanager
def faults() -> Iterator[None]:
    """The store's constraint faults in the pipeline's words."""
    try:
        yield
    except rows.Duplicate as error:
        raise DuplicateError(
            f"A row with this key is there already ({error}). Pass skip_duplicates=True to leave it."
        ) from error
    except rows.MissingParent as error:
        raise MissingParentError(
            f"A row points at a parent that is not there, or others still point at it ({error})."
        ) from error


_connections: dict[Any, Connection] = {}
_lock = threading.Lock()


def connection_to(given: Any, url: str) -> Connection:
    """One connection per database: that of `given.db`, else of `url`."""
    with _lock:
        if given is not None:
            db = given if isinstance(given, Database) else getattr(given, "db", None)
            if not isinstance(db, Database):
                raise PipelineError(
                    f"A schema takes a Penstock app or another object with a Database as .db, not {type(given).__name__}."
                )
            key: Any = id(db)
        else:
            key = url
            db = None
        found = _connections.get(key)
        if found is None or (db is not None and found.db is not db):
            found = _connections[key] = Connection(db or Database(url))
        return found


def forget_connections() -> None:
    """Close what `connection_to` opened; for tests that move from one database to the next."""
    with _lock:
        for key, connection in list(_connections.items()):
            if isinstance(key, str):
                connection.db.close()
        _connections.clear()
