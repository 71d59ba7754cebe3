"""Finished keys on their way to the database, several in one transaction.

Where make() takes a millisecond, a commit of its own for each key would cost more than the work. So finished keys wait
here for company, for at most a quarter of a second, and go in together: all their rows, and the completion of their
jobs. If anything is wrong with one of them, each goes in alone, and only that one fails.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.pipeline.connection import Connection
from penstock.pipeline.make import MakeScope, Pending, write_pending
from penstock.store.database import Tx

COMPANY = 200
LINGER = 0.25


@dataclass(frozen=True, slots=True)
class Finished:
    """A key whose make() ended well, and what it has to insert."""

    key: dict[str, Any]
    scope: MakeScope
    duration: float


class Outbox:
    """Holds finished keys for a moment. `settle` writes what else belongs into their transaction."""

    def __init__(self, connection: Connection, settle: Callable[[Tx, Sequence[Finished]], None]) -> None:
        self.done = 0
        self.failed: list[tuple[Finished, Exception]] = []
        self._connection, self._settle = connection, settle
        self._lock = threading.RLock()
        self._waiting: list[Finished] = []
        self._tables: set[str] = set()
        self._filled = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, finished: Finished) -> None:
        with self._lock:
            self._waiting.append(finished)
            self._tables |= finished.scope.tables
            if len(self._waiting) >= COMPANY:
                self.flush()
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="penstock-outbox", daemon=True)
                self._thread.start()
        self._filled.set()

    def holds(self, tables: Collection[str]) -> bool:
        """Whether rows of these tables wait here."""
        return not self._tables.isdisjoint(tables)

    def flush(self) -> None:
        """Write all that waits; when it returns, nothing does."""
        with self._lock:
            items, self._waiting = self._waiting, []
            if not items:
                return
            try:
                self._connection.apart(lambda tx: self._write(tx, items))
                self.done += len(items)
            except Exception as error:
                if len(items) == 1:
                    self.failed.append((items[0], error))
                else:
                    self._one_by_one(items)
            finally:
                self._tables = set()

    def close(self) -> None:
        self.flush()
        self._closed.set()
        self._filled.set()
        if self._thread is not None:
            self._thread.join()

    def _one_by_one(self, items: Sequence[Finished]) -> None:
        for item in items:
            try:
                self._connection.apart(lambda tx, item=item: self._write(tx, [item]))  # type: ignore[misc]
                self.done += 1
            except Exception as error:
                self.failed.append((item, error))

    def _write(self, tx: Tx, items: Sequence[Finished]) -> None:
        together: dict[tuple[str, bool, bool], list[Pending]] = {}
        for item in items:
            for pending in item.scope.waiting:
                kind = (pending.shape.full_name, pending.skip_duplicates, pending.replace)
                together.setdefault(kind, []).append(pending)
        for group in together.values():
            first = group[0]
            rows = [row for pending in group for row in pending.rows]
            write_pending(tx, Pending(first.shape, first.table, rows, first.skip_duplicates, first.replace))
        self._settle(tx, items)

    def _run(self) -> None:
        while True:
            self._filled.wait()
            self._filled.clear()
            if self._closed.wait(LINGER):
                return
            self.flush()
