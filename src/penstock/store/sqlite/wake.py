"""Whoever waits for work watches `PRAGMA data_version`, which tells of commits."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection, Engine

from penstock.store.dialect import Ear, FileLost
from penstock.store.sqlite import file
from penstock.store.sqlite.transaction import be_patient


class SqliteWake:
    """Hear of new work."""

    def wake(self, conn: Connection, queues: Sequence[str]) -> None:
        """Nothing to do: workers watch `PRAGMA data_version`."""

    def ear(self, engine: Engine, queues: Collection[str] | None) -> Ear:
        return SqliteEar(engine)


class SqliteEar:
    """Watches for commits of other connections. The longer nothing happens, the more rarely it looks."""

    QUICK, SLOW = 0.004, 0.02
    SLOW_AFTER = 10.0

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.driver_error: type[Exception] = engine.dialect.loaded_dbapi.Error
        self._session: Any = None
        self._seen: int | None = None
        self._file: file.Identity | None = None
        self._changed_at = time.monotonic()

    def wait(self, timeout: float) -> bool:
        if self._session is None:
            self._open()
        until = time.monotonic() + timeout
        while True:
            try:
                if self._file is not None:
                    file.compare(self._file)
            except FileLost:
                self.close()
                return True  # whoever claims is told
            if self._changed() and self._anything():
                return True
            now = time.monotonic()
            if now >= until:
                return False
            idle = now - self._changed_at
            time.sleep(min(until - now, self.QUICK if idle < self.SLOW_AFTER else self.SLOW))

    def heard(self) -> set[str] | None:
        return None

    def _open(self) -> None:
        pooled = self._engine.raw_connection()
        try:
            self._file = file.check(pooled)
            be_patient(pooled)
        except BaseException:
            pooled.invalidate()
            raise
        self._session = pooled.driver_connection
        pooled.detach()

    def _changed(self) -> bool:
        version = self._session.execute("PRAGMA data_version").fetchone()[0]
        if version == self._seen:
            return False
        self._seen, self._changed_at = version, time.monotonic()
        return True

    def _anything(self) -> bool:
        """Most commits are not about new work; those that are not must not make every worker ask for the write lock."""
        return self._session.execute(_ANYTHING).fetchone() is not None

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()


_ANYTHING = (
    "SELECT 1 WHERE EXISTS (SELECT 1 FROM penstock_ready)"
    " OR EXISTS (SELECT 1 FROM penstock_waiting WHERE reason = 'limit')"
    " OR EXISTS (SELECT 1 FROM penstock_waiting WHERE reason = 'time')"
)
