"""One make() under way: its inserts wait in memory and go in with the job's completion, in one transaction.

No transaction is open while make() reads and computes, so on SQLite the write lock is held for the insert and not for
the computation. If make() looks at a table it has inserted into, deletes or updates, the transaction opens then and
there, and all it does from that point on is seen by it alone until it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from sqlalchemy import Table as SqlTable

from penstock.pipeline.connection import Connection, faults
from penstock.store.database import Tx
from penstock.store.pipeline import rows
from penstock.store.pipeline.shape import Shape


@dataclass(frozen=True, slots=True)
class Pending:
    shape: Shape
    table: SqlTable
    rows: Sequence[Mapping[str, Any]]
    skip_duplicates: bool
    replace: bool


class Earlier(Protocol):
    """Keys that are finished but not written yet."""

    def holds(self, tables: Collection[str]) -> bool: ...

    def flush(self) -> None: ...


class MakeScope:
    """What one make() has done and not yet committed."""

    def __init__(
        self, connection: Connection, target: Shape, key: Mapping[str, Any], earlier: Earlier | None = None
    ) -> None:
        self.connection, self.target, self.key, self.earlier = connection, target, key, earlier
        self.made_key = False
        self._pending: list[Pending] = []
        self._open: AbstractContextManager[Tx] | None = None
        self._tx: Tx | None = None

    def admits(self, shape: Shape) -> bool:
        """Whether make() may insert into this computed table: its own, and its parts."""
        return shape.schema == self.target.schema and self.target.name in (shape.name, shape.master)

    def sees_all(self, shape: Shape) -> bool:
        """Whether a read of this table from here finds what anyone would: it is not being filled by this populate()."""
        names = (shape.full_name,)
        return (
            self._tx is None
            and not self.admits(shape)
            and not any(pending.shape.full_name in names for pending in self._pending)
            and not (self.earlier is not None and self.earlier.holds(names))
        )

    def insert(self, pending: Pending, encoded_key: Mapping[str, Any]) -> None:
        if pending.shape == self.target and any(
            all(row[name] == value for name, value in encoded_key.items()) for row in pending.rows
        ):
            self.made_key = True
        elif not self.admits(pending.shape):
            self.connection.forget_ahead()
        self._pending.append(pending)
        if self._tx is not None:
            self._flush(self._tx)

    def seen_by(self, tables: Collection[str]) -> Tx | None:
        """The transaction in which a read of `tables` must run, if it must."""
        if self.earlier is not None and self.earlier.holds(tables):
            self.earlier.flush()
        if self._tx is None and any(pending.shape.full_name in tables for pending in self._pending):
            return self.opened()
        return self._tx

    def opened(self) -> Tx:
        if self._tx is None:
            if self.earlier is not None:
                self.earlier.flush()  # it could not, once we hold SQLite's write lock
            self._open = self.connection.db.write(patient=True)
            self._tx = self._open.__enter__()
            self._flush(self._tx)
        return self._tx

    @property
    def may_wait(self) -> bool:
        """Whether its rows can go in later, together with others': it made its key, and opened no transaction."""
        return self.made_key and self._tx is None

    @property
    def waiting(self) -> Sequence[Pending]:
        return self._pending

    @property
    def tables(self) -> set[str]:
        return {pending.shape.full_name for pending in self._pending}

    def commit(self, before: Callable[[Tx], None]) -> None:
        """Write what waits, run `before`, commit. If nothing was open yet, bad luck is tried again."""
        if self._tx is None:
            self.connection.apart(lambda tx: self._finish(tx, before))
            return
        try:
            with faults():
                self._finish(self._tx, before)
        except BaseException as error:
            self.rollback(error)
            raise
        self._close(None)

    def rollback(self, error: BaseException) -> None:
        """Undo everything. Safe to call twice."""
        self._pending.clear()
        self._close(error)

    def _finish(self, tx: Tx, before: Callable[[Tx], None]) -> None:
        for pending in self._pending:
            write_pending(tx, pending)
        before(tx)

    def _flush(self, tx: Tx) -> None:
        waiting, self._pending = self._pending, []
        with faults():
            for pending in waiting:
                write_pending(tx, pending)

    def _close(self, error: BaseException | None) -> None:
        if self._open is None:
            return
        manager, self._open, self._tx = self._open, None, None
        try:
            manager.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)
        except BaseException as raised:
            if raised is not error:
                raise


def write_pending(tx: Tx, pending: Pending) -> None:
    """Insert what waited."""
    rows.insert_rows(tx, pending.table, pending.rows, skip_duplicates=pending.skip_duplicates, replace=pending.replace)
