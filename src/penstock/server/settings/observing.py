"""Settings of what the service shows of itself and of the queue."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.settings.base import SWITCH, Group, setting


@dataclass(frozen=True, kw_only=True)
class ObservingSettings(Group):
    """Metrics, live streams, tracing and the page's pipelines."""

    metrics: str = setting("token", one_of=("token", "loopback"))
    """Who may read /metrics: `token` (anyone who may view, and sees their own tenant) or `loopback` (this machine, all)."""
    metrics_tenants: int = setting(100, at_least=0)
    """How many tenants have a label of their own in the metrics; the rest is summed as `other`."""
    metrics_series: int = setting(50, at_least=0)
    """How many pairs of queue and definition key of a tenant have labels of their own in the metrics; the rest is summed as
    `other`."""
    stream_interval: float = setting(1.0, more_than=0)
    """Seconds between looks at the database for the live stream."""
    tracing: str = setting("off", one_of=SWITCH)
    """`on` makes OpenTelemetry spans, sent where OTEL_* variables say, and carries the trace from enqueue to run."""
    pipelines: tuple[str, ...] = ()
    """Modules whose pipeline tables the page shows."""
