"""The app that tests hold."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from typing import Any

from penstock.app import Penstock
from penstock.core.clock import ManualClock
from penstock.core.config import Config
from penstock.core.nouns import Claim, Job
from penstock.core.status import JobStatus
from penstock.queue.identity import process_identity
from penstock.run.context import Runner
from penstock.store import definitions
from penstock.worker.control import RunControl
from penstock.worker.executors import execute
from penstock.worker.reporter import Reporter
from penstock.worker.worker import by_key

MOST = 10_000


class PenstockTest(Penstock):
    """A Penstock for tests: a SQLite file of its own that goes with it, and time that stands still until it is moved.

    >>> with PenstockTest() as app:
    ...     @app.job(key="add")
    ...     def add(a: int, b: int = 1) -> int:
    ...         return a + b
    ...     _ = add.enqueue(a=2)
    ...     [job.result for job in app.drain()]
    [3]
    """

    def __init__(self, clock: ManualClock | None = None, config: Config | None = None) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="penstock-test-")
        super().__init__(f"sqlite:///{self._directory.name}/test.db", clock=clock or ManualClock(), config=config)

    @property
    def clock(self) -> ManualClock:
        """The time: `app.clock.advance(hours=1)`."""
        clock = self.db.clock
        assert isinstance(clock, ManualClock)
        return clock

    def enqueued(self, key: str | None = None) -> list[Job]:
        """What waits or runs, oldest first."""
        return self.jobs.list(("queued", "running"), key=key, limit=1000)[::-1]

    def assert_enqueued(self, key: str, params: Mapping[str, Any] | None = None, **about: Any) -> Job:
        """Fail unless a job of this key waits whose params include these; answers it. Other attributes of the job may
        be asked for too: `assert_enqueued("mail", {"to": "ada"}, priority=10)`."""
        __tracebackhide__ = True
        wanted = dict(params or {})
        candidates = [job for job in self.enqueued(key) if job.status is JobStatus.QUEUED]
        for job in candidates:
            fits = all(name in job.params and job.params[name] == value for name, value in wanted.items())
            if fits and all(getattr(job, name) == value for name, value in about.items()):
                return job
        also = "".join(f", {name}={value!r}" for name, value in about.items())
        seen = "\n".join(f"  {job.definition_key} {dict(job.params)}" for job in candidates or self.enqueued())
        raise AssertionError(f"No {key!r} with {wanted}{also} is enqueued. What waits:\n{seen or '  nothing'}")

    def drain(self, *, most: int = MOST) -> list[Job]:
        """Run what is due, here and now, in order, and what that makes due in turn; answers the jobs as they then are.

        Retries and schedules run when the clock has been moved to them. A job that fails is recorded as failed, as a
        worker would do it, and does not raise."""
        self.sync_definitions()
        runners = self.runners()
        offered = by_key(runners, None)
        ran: list[Claim] = []
        try:
            while len(ran) < most and (claim := self._next(offered)) is not None:
                self._perform(claim, offered)
                ran.append(claim)
        finally:
            for runner in runners:
                runner.close()
        return [self.as_tenant(claim.tenant_slug).jobs.get(claim.job_id) for claim in ran]

    def _next(self, offered: Mapping[str, Runner]) -> Claim | None:
        return next(iter(self.queue.claim(process_identity(), 1, keys=sorted(offered))), None)

    def _perform(self, claim: Claim, offered: Mapping[str, Runner]) -> None:
        reporter = Reporter(self.ground)
        control = RunControl(
            claim, self._timeout(claim), self.ground, time.monotonic(), reporter.touched, lambda _control: None
        )
        outcome = execute(control, offered)
        reporter.write([control])
        if outcome is not None:
            self.queue.finish(claim, outcome)

    def _timeout(self, claim: Claim) -> float:
        with self.db.read() as tx:
            found = definitions.by_id(tx, claim.definition_id) if claim.definition_id else None
        return float(found.timeout_seconds if found else self.config.default_timeout_seconds)

    def __enter__(self) -> PenstockTest:
        return self

    def close(self) -> None:
        """Close the database and remove its file."""
        super().close()
        if hasattr(self, "_directory"):  # a view bound to a tenant has none of its own
            self._directory.cleanup()
