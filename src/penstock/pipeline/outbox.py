"""Finished keys on their way to the database, several in one transaction.

Where make() takes a millisecond, a commit of its own for each key would cost more than the work. So finished keys wait
here for company, for `jobs.commit_seconds` at most, and go in together: all their rows, and the completion of their
jobs. If anything is wrong with one of them, each goes in alone, and only that one fails.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from penstock.pipeline.config import config
from penstock.pipeline.connection import Connection
from penstock.pipeline.make import MakeScope, Pending, write_pending
from penstock.store.database import Tx

T = TypeVar("T")


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
        self._linger: float = config["jobs.commit_seconds"]
        self._company: int = config["jobs.commit_limit"] if self._linger else 1
        self._lock = threading.RLock()
        self._waiting: list[Finished] = []
        self._since = 0.0
        self._tables: set[str] = set()
        self._filled = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, finished: Finished) -> None:
        with self._lock:
            self._waiting.append(finished)
            self._tables |= finished.scope.tables
            if len(self._waiting) >= self._company:
                self.flush()
                return
            if len(self._waiting) > 1:
                return
            self._since = time.monotonic()
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
            if self._waiting:
                self.flush_and(lambda tx: None)

    def flush_and(self, then: Callable[[Tx], T]) -> T:
        """Write all that waits, and do `then` in the same transaction; in one of its own, if anything was wrong."""
        with self._lock:
            items, self._waiting = self._waiting, []
            try:
                answer = self._connection.apart(lambda tx: self._write(tx, items, then))
                self.done += len(items)
                return answer
            except Exception:
                if not items:
                    raise
                self._one_by_one(items)
            finally:
                self._tables = set()
            return self._connection.apart(then)

    def close(self) -> None:
        """Write all that waits; no more may be added."""
        try:
            self.flush()
        finally:
            self._closed.set()
            self._filled.set()
            if self._thread is not None:
                self._thread.join()

    def _one_by_one(self, items: Sequence[Finished]) -> None:
        for item in items:
            try:
                self._connection.apart(partial(self._write, items=[item], then=lambda tx: None))
                self.done += 1
            except Exception as error:
                self.failed.append((item, error))

    def _write(self, tx: Tx, items: Sequence[Finished], then: Callable[[Tx], T]) -> T:
        together: dict[tuple[str, bool, bool], list[Pending]] = {}
        for item in items:
            for pending in item.scope.waiting:
                kind = (pending.shape.full_name, pending.skip_duplicates, pending.replace)
                together.setdefault(kind, []).append(pending)
        for group in together.values():
            first = group[0]
            rows = [row for pending in group for row in pending.rows]
            write_pending(tx, Pending(first.shape, first.table, rows, first.skip_duplicates, first.replace))
        if items:
            self._settle(tx, items)
        return then(tx)

    def _run(self) -> None:
        """See that nothing waits for longer than it may, while the next make() takes its time."""
        while not self._closed.is_set():
            self._filled.wait()
            if self._closed.wait(max(0.0, self._since + self._linger - time.monotonic())):
                return
            with self._lock:
                if self._waiting and time.monotonic() < self._since + self._linger:
                    continue  # what it waited for went in meanwhile, and others came
                self._filled.clear()
                self.flush()
