"""NOTIFY tells of new work, and a LISTEN session hears it."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection, Engine, text

from penstock.core.chance import chance
from penstock.store.dialect import Ear
from penstock.store.postgresql.link import Readiness, is_pooled, is_psycopg, patience

CHANNEL = "penstock"
PROBE_SECONDS = 30.0
"""How often a silent LISTEN session is asked whether it is still there: a half-open link looks just like silence."""

PATIENCE_SECONDS = 10.0
"""How long the LISTEN session may take to answer such a question."""
MAX_HEARD = 1000
"""Queues that are remembered by name until somebody asks for them."""
DEAF_SECONDS = 300.0
"""How long it is taken for granted that a pooler is in the way."""


class PostgresWake:
    """Tell of new work, and hear of it."""

    def wake(self, conn: Connection, queues: Sequence[str]) -> None:
        for queue in sorted(set(queues)):
            conn.execute(_WAKE, {"queue": queue[:1000]})

    def ear(self, engine: Engine, queues: Collection[str] | None) -> Ear:
        return PostgresEar(engine, queues)


class PostgresEar:
    """A LISTEN session. It is opened again, and counts as news, whenever it was lost.

    Behind a pooler in transaction mode no session is ours to listen on. Then there is nothing to hear, and whoever waits is
    left to poll; from time to time it is looked at again."""

    def __init__(self, engine: Engine, queues: Collection[str] | None = None) -> None:
        self._engine = engine
        self.driver_error: type[Exception] = engine.dialect.loaded_dbapi.Error
        self._queues = None if queues is None else {name[:1000] for name in queues}
        self._session: Any = None
        self._probe_at = 0.0
        self._deaf_until = 0.0
        self._heard: set[str] | None = set()

    def wait(self, timeout: float) -> bool:
        if time.monotonic() < self._deaf_until:
            time.sleep(timeout)
            return False
        if self._session is None:
            self._open()
            self._heard = None
            return True  # what was said while nobody listened is not said again
        pgconn = self._session.pgconn
        try:
            if time.monotonic() >= self._probe_at:
                with patience(self._session, PATIENCE_SECONDS):
                    self._session.execute("SELECT 1")
                self._probe_at = _later()
                self._heard = None
                return True  # what is said meanwhile the driver keeps to itself
            if self._news(pgconn):
                return True
            if self._said.readable(timeout):
                pgconn.consume_input()
            return self._news(pgconn)
        except BaseException:
            self.close()
            raise

    def _news(self, pgconn: Any) -> bool:
        """Whether something that was said is of interest. The driver's own way here is ten times as long."""
        news = False
        while (notice := pgconn.notifies()) is not None:
            queue = notice.extra.decode()
            if self._queues is None or queue in self._queues:
                news = True
                if self._heard is not None and len(self._heard) < MAX_HEARD:
                    self._heard.add(queue)
        return news

    def heard(self) -> set[str] | None:
        heard, self._heard = self._heard, set()
        return None if heard is None or len(heard) >= MAX_HEARD else heard

    def _open(self) -> None:
        session = _own_session(self._engine)
        try:
            if not is_psycopg(session) or is_pooled(session):
                session.close()
                self._deaf_until = time.monotonic() + DEAF_SECONDS
                return
            with patience(session, PATIENCE_SECONDS):
                session.autocommit = True
                session.execute(f"LISTEN {CHANNEL}")
        except BaseException:
            session.close()
            raise
        self._said = Readiness(session.pgconn.socket)
        self._session, self._probe_at = session, _later()

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()


def _later() -> float:
    return time.monotonic() + PROBE_SECONDS * (0.75 + chance.random() / 2)


def _own_session(engine: Engine) -> Any:
    """A driver's connection that does not go back to the pool."""
    pooled = engine.raw_connection()
    session = pooled.driver_connection
    pooled.detach()
    return session


_WAKE = text("SELECT pg_notify('penstock', :queue)")
