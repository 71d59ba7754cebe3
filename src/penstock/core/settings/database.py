"""Settings of the connections to the database."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.settings.base import Group, setting


@dataclass(frozen=True, kw_only=True)
class DatabaseSettings(Group):
    """How a process talks to its database."""

    pool_size: int = setting(10, at_least=1, at_most=1000)
    """Connections that one process keeps for its own threads. More are of use only where more threads than this enqueue or read at
    once; each costs PostgreSQL a process."""
    busy_timeout: float = setting(30.0, more_than=0)
    """Seconds to wait for SQLite's write lock, or for a free connection, before the call fails. Long enough for a large transaction
    of another process to end."""
    statement_seconds: float = setting(20.0, more_than=0)
    """Seconds that one of Penstock's own short statements may take on PostgreSQL before its connection is given up as hung and
    replaced. A worker waits no longer than a third of its lease. Migrations, `prune`, `doctor`, pipelines and what jobs do in
    `ctx.transaction()` may take as long as they need."""
    startup_seconds: float = setting(30.0, at_least=0)
    """Seconds that a worker, the scheduler or the service wait at their start for a database that is still starting or that fails
    over to another server. After that they end with an error, so that whoever supervises them sees it."""
    enqueue_batch: int = setting(5_000, at_least=1, at_most=100_000)
    """Jobs that `enqueue_many` writes in one statement. Larger batches save little time and need more memory on both sides."""
    cache_seconds: float = setting(2.0, at_least=0, at_most=3600)
    """Seconds for which a process remembers a tenant's slug and quotas, so the longest that a change of another process takes to be
    seen. 0 reads them with every call."""
