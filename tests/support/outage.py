"""A database that goes away and comes back: PostgreSQL's server is stopped at once, SQLite's write lock is held by another."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from penstock.store.database import Database
from penstock.store.schema import upgrade
from tests.support.postgres import Server


class Outage(Protocol):
    """One database of a test's own, that the test may take away."""

    url: str

    def begin(self) -> None: ...

    def end(self) -> None: ...


class StoppedServer:
    """A PostgreSQL server that is stopped without a word to its clients, as by a crash."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.url = server.url()

    def begin(self) -> None:
        self.server.stop("immediate")

    def end(self) -> None:
        self.server.start()


class HeldLock:
    """A SQLite file whose write lock somebody else holds."""

    def __init__(self, path: Path) -> None:
        self.url = f"sqlite:///{path}"
        self._path = path
        self._holder: sqlite3.Connection | None = None

    def begin(self) -> None:
        self._holder = sqlite3.connect(self._path, isolation_level=None, timeout=30, check_same_thread=False)
        self._holder.execute("BEGIN IMMEDIATE")

    def end(self) -> None:
        if self._holder is not None:
            self._holder.close()
            self._holder = None


@contextmanager
def outage_of(backend: str, directory: Path) -> Iterator[Outage]:
    """A fresh, migrated database of this kind, which can go away."""
    if backend == "sqlite":
        lock = HeldLock(directory / "outage.db")
        _migrate(lock.url)
        try:
            yield lock
        finally:
            lock.end()
        return
    server = Server().start()
    try:
        _migrate(server.url())
        yield StoppedServer(server)
    finally:
        server.remove()


def _migrate(url: str) -> None:
    db = Database(url)
    upgrade(db)
    db.close()
