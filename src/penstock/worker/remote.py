"""A worker without database access: it claims, keeps and reports over the service's API.

The service fences every report by its run's id, as the database does for workers beside it. What the network does to a
request is never the job's fault: a run is stopped only when its lease could not be renewed in time, and an outcome is
forgotten only when the service says that the run was lost.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from penstock.core.errors import InvalidInput
from penstock.core.ids import new_id
from penstock.core.nouns import Claim
from penstock.core.outcomes import Failed, Outcome
from penstock.core.settings.worker import WorkerSettings
from penstock.core.status import RetryMode
from penstock.core.utc_logs import worker_log
from penstock.core.version import VERSION
from penstock.core.wire import worker as wire
from penstock.queue.identity import process_identity
from penstock.run.context import Runner
from penstock.worker.remote_reports import Reports, log_end, report
from penstock.worker.remote_runs import Holding, RemoteControl
from penstock.worker.remote_services import Beats, RemoteGuard, RemoteHeartbeater, within
from penstock.worker.service import full_jitter
from penstock.worker.worker import SHUTDOWN, by_key

WAIT_SECONDS = 10.0
"""How long the service holds a claim while there is no work: shorter than the idle timeouts of common proxies."""

CLAIM_SECONDS = 15.0
"""How long the answer to a claim may take, beside the time that the service waits for work."""

REPORT_SECONDS = 15.0
"""How long one report may take before it is sent again."""

MAX_LEASE = 3600.0
MAX_CLAIM = 100


class Desk(Beats, Reports, Protocol):
    """Where work is claimed and reported; `penstock.Client` is one."""

    def claim(self, worker_id: str, limit: int = 1, **options: Any) -> wire.Claims: ...

    def release(self, runs: Sequence[Any]) -> wire.Released: ...

    def with_options(self, *, timeout: float | None = None, retries: int | None = None) -> Desk: ...

    def close(self) -> None: ...


class RemoteWorker:
    """Runs jobs of the keys that its runners offer, over the API.

    ```python
    RemoteWorker(Client(url, token), runners).run()
    ```
    """

    def __init__(
        self,
        desk: Desk,
        runners: Iterable[Runner],
        *,
        concurrency: int = 8,
        queues: Sequence[str] | None = None,
        keys: Sequence[str] | None = None,
        grace: float = 30.0,
        lease: float | None = None,
        wait: float = WAIT_SECONDS,
        settings: WorkerSettings | None = None,
    ) -> None:
        self._settings = settings or WorkerSettings()
        lease = self._settings.lease_seconds if lease is None else lease
        if not 0 < lease <= MAX_LEASE:
            raise InvalidInput(f"The lease is {lease:g} s; over the API it is more than 0 and at most {MAX_LEASE:g} s.")
        self._runners = by_key(list(runners), keys)
        self._queues = None if queues is None else list(queues)
        self.concurrency, self.grace, self.lease = concurrency, grace, lease
        self.wait = min(wait, lease / 4)
        """A lease counts from when its claim was sent, so the service must not hold the claim for most of that time."""
        self.id = process_identity()
        self.holding = Holding(lease)
        self._claims = desk.with_options(timeout=self._claim_seconds, retries=0)
        self._reports = desk.with_options(timeout=REPORT_SECONDS, retries=0)
        self._beats = desk.with_options(timeout=lease / 4, retries=0)
        self._heartbeater = RemoteHeartbeater(self._beats, self.holding)
        self._guard = RemoteGuard(self.holding)
        self._stopping = threading.Event()
        self._in_haste = threading.Event()
        self._ended = threading.Event()
        self._unanswered: dict[str, Any] | None = None

    @property
    def _claim_seconds(self) -> float:
        return self.wait + min(CLAIM_SECONDS, self.lease)

    def run(self) -> None:
        """Work until `stop()`; then let what runs end within the grace, stop the rest, and report all of it."""
        self._heartbeater.start()
        self._guard.start()
        failures = 0
        try:
            while not self._stopping.is_set():
                if len(self.holding) >= self.concurrency:
                    self.holding.wait(lambda: len(self.holding) < self.concurrency, 0.5)
                    continue
                try:
                    self.step()
                except Exception as error:
                    if failures == 0:
                        worker_log.warning("claim_failed", error=str(error) or type(error).__name__)
                    failures += 1
                    self._stopping.wait(full_jitter(failures, 0.2, most=30.0))
                else:
                    failures = 0
        finally:
            self._finish()

    def stop(self) -> None:
        """Claim nothing more, and end. The second call does not wait for what is running."""
        if self._stopping.is_set():
            self._in_haste.set()
        self._stopping.set()

    def step(self) -> None:
        """Claim as much as there is room for, and start it."""
        asked_at, found = self._claim(min(self.concurrency - len(self.holding), MAX_CLAIM))
        controls = [RemoteControl(noun_of(each), float(each.timeout_seconds), asked_at) for each in found]
        late = self.holding.clock() - asked_at > self.lease / 2
        if self._stopping.is_set() or late:
            self._give_back(controls)
            return
        for control in controls:
            self.holding.add(control)
            threading.Thread(target=self._execute, args=(control,), name="penstock-run", daemon=True).start()

    def _claim(self, room: int) -> tuple[float, Sequence[wire.Claim]]:
        """Claim, or ask once more for a claim whose answer was lost: what it took would have to wait for its lease."""
        asked = self._unanswered or {"claim_id": new_id(), "limit": room, "again": False}
        self._unanswered = {**asked, "again": True}
        asked_at = self.holding.clock()
        found = within(
            self._claim_seconds,
            lambda: self._claims.claim(
                self.id, queues=self._queues, keys=sorted(self._runners), lease_seconds=self.lease,
                wait_seconds=self.wait if not self.holding else min(self.wait, 0.5), hostname=socket.gethostname(),
                pid=os.getpid(), version=VERSION, concurrency=self.concurrency, **asked,
            ),
        )  # fmt: skip
        self._unanswered = None
        return asked_at, found.items

    def _give_back(self, controls: Sequence[RemoteControl]) -> None:
        if not controls:
            return
        pairs = [(control.claim.job_id, control.claim.run_id) for control in controls]
        try:
            within(self._claim_seconds, lambda: self._claims.release(pairs))
        except Exception as error:  # then their leases end, and they come back by that
            worker_log.warning("release_failed", error=str(error) or type(error).__name__, runs=len(pairs))

    def _execute(self, control: RemoteControl) -> None:
        claim = control.claim
        started = self.holding.clock()
        try:
            outcome: Outcome = self._runners[claim.key].run(claim, control)
        except Exception as error:
            worker_log.exception("runner_failed", **control.labels)
            outcome = Failed(f"the worker failed to run it: {type(error).__name__}: {error}")
        self.holding.end(control)
        log_end(control, outcome, self.holding.clock() - started)
        try:
            report(self._reports, control, outcome, REPORT_SECONDS, self._ended)
        finally:
            self.holding.drop(control)

    def _finish(self) -> None:
        def nothing_runs() -> bool:
            return not self.holding.under_way()

        until = self.holding.clock() + self.grace
        while not nothing_runs() and not self._in_haste.is_set() and (left := until - self.holding.clock()) > 0:
            self.holding.wait(nothing_runs, min(left, 0.25))
        for control in self.holding.under_way():
            control.cancel(SHUTDOWN, by_shutdown=True)
        self.holding.wait(nothing_runs, self._settings.stop_seconds)
        self.holding.wait(lambda: not self.holding, 1.0 if self._in_haste.is_set() else min(self.lease, REPORT_SECONDS))
        self._ended.set()
        for service in (self._heartbeater, self._guard):
            service.stop()
            service.join(1.0)
        for left_over in self.holding.every():
            worker_log.warning("left_unreported", ended=left_over.ended_at is not None, **left_over.labels)
        for runner in set(self._runners.values()):
            runner.close()
        for desk in (self._claims, self._reports, self._beats):
            desk.close()


def noun_of(claim: wire.Claim) -> Claim:
    """A claim as runners take it."""
    same = (set(Claim._fields) & set(wire.Claim.model_fields)) - {
        "retry_mode"
    }  # what the service does not send has a default
    given = {name: getattr(claim, name) for name in same}
    return Claim(
        **given,
        key=claim.definition_key,
        params=claim.payload,
        retry_mode=RetryMode(claim.retry_mode),
        secrets=tuple(claim.secret_params),
    )
