"""Settings of schedules, events and webhooks."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.settings.base import Group, setting


@dataclass(frozen=True, kw_only=True)
class TriggerSettings(Group):
    """How schedules are shared, and what events and webhooks may do."""

    scheduler_lease_seconds: float = setting(10.0, more_than=0, at_most=3600)
    """Seconds for which one scheduler leads. If it dies, another takes over after that. Each scheduled time fires once in any case."""
    event_depth: int = setting(8, at_least=1, at_most=100)
    """How many events may follow from one another before the chain is cut: a job that emits the event that started it would
    otherwise never end."""
    webhook_attempts: int = setting(3, at_least=1, at_most=100)
    """Attempts to deliver one webhook message. The delay between them grows."""
    webhook_seconds: float = setting(10.0, more_than=0, at_most=300)
    """Seconds that a receiver of a webhook has to answer, connection included. Each delivery holds a thread of a worker for so
    long."""
    webhook_priority: int = setting(50, at_least=0, at_most=1_000_000)
    """The priority of webhook messages. It is ahead of ordinary jobs (100), because they are small and somebody waits for them."""
