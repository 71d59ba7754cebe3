"""One frozen configuration, checked once at the edge."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.decide import Limits
from penstock.core.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Config:
    """What an installation may set. The defaults are good for one machine.

    >>> Config(lease_seconds=10).lease_seconds
    10
    """

    lease_seconds: float = 30.0
    """How long a claim is held without a heartbeat; a dead worker's job is taken up again after it."""
    grace_seconds: float = 60.0
    """What `doctor()` allows recovery before it calls something stuck."""
    default_priority: int = 100
    default_max_attempts: int = 3
    default_timeout_seconds: int = 3600
    default_queue: str = "default"
    pool_size: int = 10
    busy_timeout: float = 30.0
    """How long to wait for SQLite's write lock, or for a free connection."""
    statement_seconds: float = 20.0
    """How long one of Penstock's own short statements may take on PostgreSQL before its connection is given up as hung and
    replaced. A worker waits no longer than a third of its lease. Migrations, `prune`, `doctor`, pipelines and what jobs do in
    `ctx.transaction()` may take as long as they need."""
    poll_seconds: float = 1.0
    """The safety net under notifications: how long an idle worker sleeps at most."""
    retention_days: float = 30.0
    """What `prune()` keeps when not told otherwise."""
    max_crashes: int = 3
    """After how many deaths of its worker in a row, while it was under way, a job becomes a dead letter."""
    max_interruptions: int = 10
    """How many attempts of one job are given back that a shutdown, a preemption or a fault outside the job ended."""
    suspect_seconds: float = 30.0
    """How long a worker keeps a suspect (a job that was under way when its worker died) apart from all other jobs. On its
    last chance before `max_crashes` a suspect runs apart until it ends."""

    def __post_init__(self) -> None:
        for name in (
            "lease_seconds",
            "grace_seconds",
            "busy_timeout",
            "statement_seconds",
            "poll_seconds",
            "retention_days",
            "suspect_seconds",
        ):
            if getattr(self, name) <= 0:
                raise InvalidInput(f"{name} is {getattr(self, name)!r}; it must be more than 0.")
        for name in ("default_max_attempts", "default_timeout_seconds", "pool_size", "max_crashes"):
            if getattr(self, name) < 1:
                raise InvalidInput(f"{name} is {getattr(self, name)!r}; it must be at least 1.")
        if self.max_interruptions < 0:
            raise InvalidInput(f"max_interruptions is {self.max_interruptions!r}; it must not be less than 0.")

    @property
    def limits(self) -> Limits:
        """What one job may cost before it becomes a dead letter."""
        return Limits(self.max_crashes, self.max_interruptions)
