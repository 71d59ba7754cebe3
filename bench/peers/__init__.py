"""Who is measured, and under which settings. One file per system beside this one, run in its own virtual environment."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Peer:
    """A system in the bench. `share` is the part of the jobs that it is given: a slow one is measured on fewer, so that
    all of them fit into one run; rates are compared, and the number of jobs is in the table."""

    name: str
    database: str
    requirements: tuple[str, ...]
    settings: str
    remaining: str | None = None
    """A query for the jobs that are not finished, so that a drain ends when its last job is durably done. Without one, it
    ends when the last job has run."""
    share: float = 1.0
    bulk: bool = True
    gap: float = 0.02
    """Seconds between the jobs of the latency measurement."""

    processes: int = 2
    """How many worker processes may share its queue."""
    hears: bool = True
    """Whether an idle worker takes up what another process enqueues."""
    python: tuple[int, int] = (3, 11)
    """The oldest Python that it runs on."""

    @property
    def label(self) -> str:
        return self.name

    @property
    def distribution(self) -> str:
        return re.split(r"[\[<=>]", self.requirements[0])[0] if self.requirements else "penstock"


@dataclass(frozen=True, slots=True)
class Ours(Peer):
    @property
    def label(self) -> str:
        return f"penstock on {'PostgreSQL' if self.database == 'postgresql' else 'SQLite'}"


_UNFINISHED = "SELECT (SELECT count(*) FROM penstock_waiting) + (SELECT count(*) FROM penstock_ready) + (SELECT count(*) FROM penstock_running)"

PEERS: tuple[Peer, ...] = (
    Ours("penstock", "postgresql", (), "the defaults: concurrency 8, adaptive batches", _UNFINISHED),
    Peer(
        "pgqueuer", "postgresql", ("pgqueuer[asyncpg]", "uvloop"), "asyncpg, uvloop, batch_size=500; finished jobs are moved to a log",
        "SELECT count(*) FROM pgqueuer",
    ),
    Peer(
        "procrastinate", "postgresql", ("procrastinate",), "async psycopg, concurrency=10, LISTEN/NOTIFY",
        "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')", share=0.06,
    ),
    Peer(
        "chancy", "postgresql", ("chancy",), "AsyncExecutor, concurrency=500, eager_polling",
        "SELECT count(*) FROM chancy_jobs WHERE state IN ('pending', 'running', 'retrying')", share=0.2,
    ),
    Peer(
        "oban", "postgresql", ("oban",), "one queue, limit 100",
        "SELECT count(*) FROM oban_jobs WHERE state IN ('available', 'executing', 'scheduled', 'retryable')", share=0.2,
        python=(3, 12),
    ),
    Peer(
        "dbos", "postgresql", ("dbos",), "a workflow without steps, database-backed queue, polling_interval_sec=0.01",
        "SELECT count(*) FROM dbos.workflow_status WHERE status IN ('PENDING', 'ENQUEUED')", share=0.04, bulk=False, gap=0.05,
    ),
    Ours("penstock", "sqlite", (), "the defaults: WAL, synchronous=FULL, concurrency 8", _UNFINISHED),
    Peer(
        "huey", "sqlite", ("huey",), "SqliteHuey(fsync=True), 1 thread; a claim deletes the row", "SELECT count(*) FROM task",
        share=0.2, bulk=False, gap=0.15,
    ),
    Peer(
        "apscheduler", "sqlite", ("apscheduler<4", "sqlalchemy"), "SQLAlchemyJobStore, WAL, synchronous=FULL, 8 threads",
        "SELECT count(*) FROM apscheduler_jobs", share=0.04, bulk=False, processes=1, hears=False,
    ),
    Peer("celery", "redis", ("celery[redis]",), "solo pool, acks_late, prefetch 64, results off", share=0.1, bulk=False),
    Peer("dramatiq", "redis", ("dramatiq[redis]",), "100 threads", share=0.1, bulk=False),
    Peer("rq", "redis", ("rq",), "SimpleWorker, results off", share=0.04),
)  # fmt: skip


def named(name: str, database: str) -> Peer:
    return next(peer for peer in PEERS if (peer.name, peer.database) == (name, database))
