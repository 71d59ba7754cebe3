"""A worker without database access: it claims, keeps and reports over the service's API.

The service fences every report by its run's id, as the database does for workers beside it.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import structlog

from penstock.core.errors import InvalidInput, PenstockError
from penstock.core.nouns import Claim
from penstock.core.outcomes import Canceled, Evidence, Failed, Outcome, Skipped, Snoozed, Succeeded, TimedOut
from penstock.core.status import RetryMode
from penstock.core.version import VERSION
from penstock.core.wire import worker as wire
from penstock.queue.identity import process_identity
from penstock.run.context import Runner
from penstock.worker.worker import by_key

_log: Any = structlog.get_logger("penstock.worker")
WAIT_SECONDS = 10.0
STOP_SECONDS = 5.0
BEAT_SECONDS = 2.0
"""How long a request to stop, a line of output or a step of progress waits at most."""
GONE = frozenset({"lease_lost", "not_found"})
MAX_TAIL = 256 * 1024


class Desk(Protocol):
    """Where work is had and handed in; `penstock.Client` is one."""

    def claim(self, worker_id: str, limit: int = 1, **options: Any) -> wire.Claims: ...

    def heartbeat(self, job_id: Any, run_id: Any, **report: Any) -> wire.Beaten: ...

    def complete(self, job_id: Any, run_id: Any, **report: Any) -> wire.Recorded: ...

    def fail(self, job_id: Any, run_id: Any, error: str, **report: Any) -> wire.Recorded: ...


class RemoteControl:
    """The worker's side of one run; the `Control` that its runner is given."""

    def __init__(self, claim: Claim, timeout: float | None) -> None:
        self.claim = claim
        self.timeout = timeout
        self.canceled = threading.Event()
        self.reason = ""
        self.by_shutdown = False
        self.lost = False
        self.news: dict[str, Any] = {}
        self._lock = threading.Lock()

    def cancel(self, reason: str, *, by_shutdown: bool = False) -> None:
        """Tell the run to stop. The first reason stays."""
        if not self.canceled.is_set():
            self.reason, self.by_shutdown = reason, by_shutdown
            self.canceled.set()

    def take_news(self) -> dict[str, Any]:
        """What the next heartbeat carries."""
        with self._lock:
            taken, self.news = self.news, {}
        return taken

    def report_progress(self, done: float, total: float | None, message: str) -> None:
        with self._lock:
            self.news["progress"] = {"done": done, "total": total, "message": message[:1000]}

    def report_tails(self, stdout: str, stderr: str) -> None:
        with self._lock:
            self.news |= {"stdout_tail": stdout[-MAX_TAIL:], "stderr_tail": stderr[-MAX_TAIL:]}

    def add_artifact(self, artifact: Mapping[str, Any]) -> None:
        """Nothing to do: the outcome's evidence lists all of them."""

    def heartbeat(self) -> None:
        """Nothing to do: the worker's own heartbeats carry on."""

    def open_transaction(self) -> AbstractContextManager[Any]:
        raise InvalidInput("This worker has no database: a job that finishes in its own transaction cannot run here.")


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
        lease: float = 30.0,
        wait: float = WAIT_SECONDS,
    ) -> None:
        self._desk = desk
        self._runners = by_key(list(runners), keys)
        self._lock = threading.Lock()
        self._runs: dict[Any, RemoteControl] = {}
        self._stopping = threading.Event()
        self._queues = None if queues is None else list(queues)
        self.concurrency, self.grace, self.lease, self.wait = concurrency, grace, lease, wait
        self.id = process_identity()

    def run(self) -> None:
        """Work until `stop()`; then let what runs end within the grace, and stop the rest."""
        beats = threading.Thread(target=self._keep, name="penstock-beats", daemon=True)
        beats.start()
        failures = 0
        while not self._stopping.is_set():
            room = self._room()
            if not room:
                self._stopping.wait(0.05)
                continue
            try:
                self._take(room)
                failures = 0
            except PenstockError as error:
                failures += 1
                _log.warning("claim_failed", why=str(error))
                self._stopping.wait(min(30.0, 0.2 * 2**failures))
        self._finish()

    def stop(self) -> None:
        """Claim nothing more, and end."""
        self._stopping.set()

    def _room(self) -> int:
        with self._lock:
            return self.concurrency - len(self._runs)

    def _take(self, room: int) -> None:
        found = self._desk.claim(
            self.id, min(room, 100), queues=self._queues, keys=sorted(self._runners), lease_seconds=self.lease,
            wait_seconds=self.wait if not self._runs else 0.5, hostname=socket.gethostname(), pid=os.getpid(),
            version=VERSION, concurrency=self.concurrency,
        )  # fmt: skip
        for each in found.items:
            control = RemoteControl(noun_of(each), float(each.timeout_seconds))
            with self._lock:
                self._runs[each.run_id] = control
            threading.Thread(target=self._execute, args=(control,), name="penstock-run", daemon=True).start()

    def _execute(self, control: RemoteControl) -> None:
        claim = control.claim
        try:
            outcome: Outcome = self._runners[claim.key].run(claim, control)
        except Exception as error:
            _log.exception("runner_failed", job_id=str(claim.job_id), definition_key=claim.key)
            outcome = Failed(f"the worker failed to run it: {type(error).__name__}: {error}")
        try:
            if not control.lost:
                hand_in(self._desk, claim, outcome)
        except PenstockError as error:
            _log.warning("report_refused", job_id=str(claim.job_id), run_id=str(claim.run_id), why=str(error))
        finally:
            with self._lock:
                self._runs.pop(claim.run_id, None)

    def _keep(self) -> None:
        pause = min(self.lease / 3, BEAT_SECONDS)
        while True:
            time.sleep(pause)
            with self._lock:
                open_runs = list(self._runs.values())
            if self._stopping.is_set() and not open_runs:
                return
            for control in open_runs:
                self._beat(control)

    def _beat(self, control: RemoteControl) -> None:
        claim = control.claim
        try:
            told = self._desk.heartbeat(claim.job_id, claim.run_id, lease_seconds=self.lease, **control.take_news())
        except PenstockError as error:
            if error.code in GONE:
                control.lost = True
                control.cancel("its lease was lost: another worker may have taken the job up")
            return
        if told.cancel_requested:
            control.cancel("canceled on request")

    def _finish(self) -> None:
        self._wait_for_runs(self.grace)
        with self._lock:
            left = list(self._runs.values())
        for control in left:
            control.cancel("the worker was shut down", by_shutdown=True)
        self._wait_for_runs(STOP_SECONDS)
        for runner in set(self._runners.values()):
            runner.close()

    def _wait_for_runs(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while self._room() < self.concurrency and time.monotonic() < until:
            time.sleep(0.05)


def noun_of(claim: wire.Claim) -> Claim:
    """A claim as runners take it."""
    same = set(Claim._fields) - {"key", "params", "retry_mode"}
    given = {name: getattr(claim, name) for name in same}
    return Claim(**given, key=claim.definition_key, params=claim.payload, retry_mode=RetryMode(claim.retry_mode))


def hand_in(desk: Desk, claim: Claim, outcome: Outcome) -> None:
    """Report how a run ended."""
    job, run = claim.job_id, claim.run_id
    evidence = _told(outcome.evidence)
    match outcome:
        case Succeeded(result=result):
            desk.complete(job, run, result=result, **evidence)
        case Skipped(reason=reason):
            desk.complete(job, run, skipped=True, reason=reason[:1000], **evidence)
        case Failed():
            given = {} if outcome.delay is None else {"delay_seconds": outcome.delay}
            desk.fail(job, run, outcome.error[:60_000] or "failed", fatal=outcome.fatal, **given, **evidence)
        case TimedOut(error=error):
            desk.fail(job, run, error[:60_000] or "timed out", kind="timeout", **evidence)
        case Canceled(reason=reason):
            by_shutdown = outcome.by_shutdown
            desk.fail(job, run, reason[:60_000] or "canceled", kind="canceled", by_shutdown=by_shutdown, **evidence)
        case Snoozed(seconds=seconds):
            desk.fail(job, run, outcome.reason or "snoozed", kind="snoozed", delay_seconds=seconds, **evidence)


def _told(evidence: Evidence) -> dict[str, Any]:
    return {
        "exit_code": evidence.exit_code,
        "stdout_tail": None if evidence.stdout_tail is None else evidence.stdout_tail[-MAX_TAIL:],
        "stderr_tail": None if evidence.stderr_tail is None else evidence.stderr_tail[-MAX_TAIL:],
        "artifacts": [dict(artifact) for artifact in evidence.artifacts][:100],
    }
