"""Settings of workers: leases, how far ahead they claim, and how they end."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.settings.base import Group, setting


@dataclass(frozen=True, kw_only=True)
class WorkerSettings(Group):
    """How a worker claims, renews, reports and stops."""

    lease_seconds: float = setting(30.0, more_than=0, at_most=86_400)
    """Seconds that a claim holds without a heartbeat, so the longest that the jobs of a dead worker wait. Heartbeats come three times
    as often. A short lease needs a database that always answers within a fraction of it."""
    poll_seconds: float = setting(1.0, more_than=0, at_most=3600)
    """The longest that an idle worker or scheduler sleeps if no notification wakes it. It is the safety net, and the latency behind
    poolers that do not pass notifications on."""
    claim_limit: int = setting(500, at_least=1, at_most=1_000)
    """Jobs that one claim takes at most. A larger claim hardly costs less for each job, and holds more of them if the worker dies."""
    claim_ahead_seconds: float = setting(0.05, at_least=0, at_most=60)
    """Seconds of work that a worker claims ahead for its threads, so that they do not wait for the database between short jobs. 0
    claims only what can start at once."""
    claim_ahead_limit: int = setting(1_000, at_least=0, at_most=100_000)
    """Jobs that a worker claims ahead at most, however short they are."""
    buffer_seconds: float = setting(0.5, more_than=0)
    """Seconds after which jobs that were claimed ahead and could not start are given back, because another worker may be free."""
    report_delay_seconds: float = setting(0.01, at_least=0, at_most=1)
    """Seconds that a finished run waits for others, while more work is waiting, so that one commit reports many. 0 reports each at
    once."""
    progress_seconds: float = setting(0.5, more_than=0)
    """Seconds between two writes of progress, output and artifacts of running jobs."""
    cancel_seconds: float = setting(1.0, more_than=0)
    """Seconds within which a running job hears that it was canceled. Each look is one indexed read for each worker."""
    recover_seconds: float = setting(5.0, more_than=0)
    """Seconds between two looks of a worker for expired leases of others; never more than a third of the lease."""
    stop_notice_seconds: float = setting(4.0, at_least=0)
    """Seconds before the end of `--grace` at which running jobs are told to stop, so that they can clean up. At most a quarter of the
    grace."""
    stop_seconds: float = setting(1.0, at_least=0)
    """Seconds after the grace that a job may take to end before the worker leaves without it."""
    report_seconds: float = setting(3.0, at_least=0)
    """Seconds that a stopping worker then tries to report what ended. Grace, `stop_seconds` and `report_seconds` together are the most
    that a stop takes: give the service manager or Kubernetes at least that much."""
    runs_per_process: int = setting(1_000, at_least=1)
    """Jobs with `isolation="process"` that one process runs before it is replaced, so that memory which they leak is given back."""
    process_start_seconds: float = setting(60.0, more_than=0)
    """Seconds that such a process may take to start and to import the job, beside the job's own timeout."""
