"""How an idle worker hears of work: NOTIFY on PostgreSQL, `PRAGMA data_version` on SQLite. It only wakes; a claim finds.

Hearing nothing is therefore never wrong, only slow, and a worker polls beside it.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any, Protocol
from uuid import UUID

from sqlalchemy import exists, or_, select, text

from penstock.core.chance import chance
from penstock.core.status import JobStatus, WaitsFor
from penstock.store.database import Database, Tx
from penstock.store.dialects import sqlite_file
from penstock.store.dialects.link import Readiness, is_pooled, is_psycopg, patience
from penstock.store.dialects.postgresql import CHANNEL
from penstock.store.dialects.sqlite import be_patient
from penstock.store.tables import in_status, is_claimable, jobs, waiting_for
from penstock.store.types import UtcTime

PROBE_SECONDS = 30.0
"""How often a silent LISTEN session is asked whether it is still there: a half-open link looks just like silence."""

PATIENCE_SECONDS = 10.0
"""How long the LISTEN session may take to answer such a question."""
MAX_HEARD = 1000
"""Queues that are remembered by name until somebody asks for them."""
DEAF_SECONDS = 300.0
"""How long it is taken for granted that a pooler is in the way."""


class Ear(Protocol):
    """Listens for work on a connection of its own. Used by one thread."""

    def wait(self, timeout: float) -> bool:
        """Whether there may be work; waits at most `timeout` seconds. Raises what the driver raises."""

    def heard(self) -> set[str] | None:
        """The queues that were named since this was last asked; None if it may be any."""

    def close(self) -> None: ...


def ear(db: Database, queues: Collection[str] | None = None) -> Ear:
    """The ear that fits this database, for these queues or for all."""
    return PostgresEar(db, queues) if db.name == "postgresql" else SqliteEar(db)


def _own_session(db: Database) -> Any:
    """A driver's connection that does not go back to the pool."""
    pooled = db.engine.raw_connection()
    session = pooled.driver_connection
    pooled.detach()
    return session


class PostgresEar:
    """A LISTEN session. It is opened again, and counts as news, whenever it was lost.

    Behind a pooler in transaction mode no session is ours to listen on. Then there is nothing to hear, and whoever waits is
    left to poll; from time to time it is looked at again."""

    def __init__(self, db: Database, queues: Collection[str] | None = None) -> None:
        self._db = db
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
        session = _own_session(self._db)
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


class SqliteEar:
    """Watches for commits of other connections. The longer nothing happens, the more rarely it looks."""

    QUICK, SLOW = 0.004, 0.02
    SLOW_AFTER = 10.0

    def __init__(self, db: Database) -> None:
        self._db = db
        self._session: Any = None
        self._seen: int | None = None
        self._file: sqlite_file.Identity | None = None
        self._changed_at = time.monotonic()

    def wait(self, timeout: float) -> bool:
        if self._session is None:
            self._open()
        until = time.monotonic() + timeout
        while True:
            try:
                if self._file is not None:
                    sqlite_file.compare(self._file)
            except sqlite_file.FileLost:
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
        pooled = self._db.engine.raw_connection()
        try:
            self._file = sqlite_file.check(pooled)
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
    "SELECT 1 WHERE EXISTS (SELECT 1 FROM penstock_jobs WHERE claimable)"
    " OR EXISTS (SELECT 1 FROM penstock_jobs WHERE waits_for = 'limit')"
    " OR EXISTS (SELECT 1 FROM penstock_jobs WHERE waits_for = 'time')"
)


def may_claim(tx: Tx, tenant_id: UUID | None) -> bool:
    """Whether a claim may find something: a look before it that takes no lock. Jobs that are due, or wait for a limit, get their
    place by a claim, whoever's they are."""
    due = select(jobs.c.id).where(waiting_for(WaitsFor.TIME), jobs.c.scheduled_for <= tx.now)
    limited = select(jobs.c.id).where(waiting_for(WaitsFor.LIMIT))
    claimable = select(jobs.c.id).where(is_claimable())
    if tenant_id is not None:
        claimable = claimable.where(jobs.c.tenant_id == tenant_id)
    return bool(tx.scalar(select(or_(exists(claimable), exists(due), exists(limited)))))


def seconds_to_next_due(tx: Tx) -> float | None:
    """How long until the first job that waits for its time; None if none does."""
    query = text("SELECT scheduled_for FROM penstock_jobs WHERE waits_for = 'time' ORDER BY scheduled_for LIMIT 1")
    due = tx.scalar(query.columns(scheduled_for=UtcTime()))
    return None if due is None else float((due - tx.time()).total_seconds())


def asked_to_stop(tx: Tx, worker_id: str) -> list[UUID]:
    """The runs of this worker whose jobs were canceled while they run. Reads only what is running."""
    query = select(jobs.c.run_id).where(
        in_status(JobStatus.RUNNING), jobs.c.claimed_by == worker_id, jobs.c.cancel_requested_at.is_not(None)
    )
    return [row.run_id for row in tx.rows(query)]
