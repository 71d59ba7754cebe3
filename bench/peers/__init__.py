"""Who is measured, and under which settings. One file per system beside this one, run in its own virtual environment."""

from __future__ import annotations

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

    @property
    def label(self) -> str:
        return self.name

    @property
    def distribution(self) -> str:
        return self.requirements[0].partition("[")[0] if self.requirements else "penstock"


@dataclass(frozen=True, slots=True)
class Ours(Peer):
    @property
    def label(self) -> str:
        return f"penstock on {'PostgreSQL' if self.database == 'postgresql' else 'SQLite'}"


_UNFINISHED = "SELECT count(*) FROM penstock_jobs WHERE status IN ('queued', 'running')"

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
    Ours("penstock", "sqlite", (), "the defaults: WAL, synchronous=FULL, concurrency 8", _UNFINISHED),
    Peer(
        "huey", "sqlite", ("huey",), "SqliteHuey(fsync=True), 1 thread; a claim deletes the row", "SELECT count(*) FROM task",
        share=0.2, bulk=False, gap=0.15,
    ),
)  # fmt: skip


def named(name: str, database: str) -> Peer:
    return next(peer for peer in PEERS if (peer.name, peer.database) == (name, database))
