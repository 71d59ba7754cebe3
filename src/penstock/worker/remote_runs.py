"""The runs that an HTTP worker holds, and until when it may believe that they are its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from penstock.core.errors import InvalidInput
from penstock.core.leases import safe_for
from penstock.core.nouns import Claim
from penstock.worker.control import LEASE_LOST

MAX_TAIL = 256 * 1024
REPORTING_SECONDS = 600.0
"""How long the lease of a run that has ended is extended while its report does not get through. Then the lease ends, the
service passes the job on, and its answer to the next report frees the worker's place."""


class RemoteControl:
    """The worker's side of one run; the `Control` that its runner is given."""

    def __init__(self, claim: Claim, timeout: float | None, renewed_at: float) -> None:
        self.claim = claim
        self.timeout = timeout
        self.canceled = threading.Event()
        self.reason = ""
        self.by_shutdown = False
        self.lost = False
        """Whether the service said that the run is no longer ours: its outcome counts for nothing."""
        self.renewed_at = renewed_at
        """When the last request was sent that set or extended the lease, so that we never think it longer than it is."""
        self.ended_at: float | None = None
        self._news: dict[str, Any] = {}
        self._lock = threading.Lock()

    @property
    def labels(self) -> dict[str, Any]:
        """What every log line about this run carries."""
        claim = self.claim
        return {
            "job_id": str(claim.job_id), "run_id": str(claim.run_id), "tenant_id": str(claim.tenant_id),
            "definition_key": claim.key, "attempt_no": claim.attempt_no, "worker_id": claim.worker_id,
        }  # fmt: skip

    def cancel(self, reason: str, *, by_shutdown: bool = False) -> None:
        """Tell the run to stop. The first reason stays."""
        if not self.canceled.is_set():
            self.reason, self.by_shutdown = reason, by_shutdown
            self.canceled.set()

    def lose(self) -> None:
        """The run was closed or passed on: stop it, and drop its outcome."""
        self.lost = True
        self.cancel(LEASE_LOST)

    def take_news(self) -> dict[str, Any]:
        """What the next heartbeat carries."""
        with self._lock:
            taken, self._news = self._news, {}
        return taken

    def put_back(self, news: Mapping[str, Any]) -> None:
        """The heartbeat did not get through: the next one carries this, unless there is something newer."""
        with self._lock:
            self._news = {**news, **self._news}

    def report_progress(self, done: float, total: float | None, message: str) -> None:
        with self._lock:
            self._news["progress"] = {"done": done, "total": total, "message": message[:1000]}

    def report_tails(self, stdout: str, stderr: str) -> None:
        with self._lock:
            self._news |= {"stdout_tail": stdout[-MAX_TAIL:], "stderr_tail": stderr[-MAX_TAIL:]}

    def report_pid(self, pid: int) -> None:
        with self._lock:
            self._news["pid"] = pid

    def add_artifact(self, artifact: Mapping[str, Any]) -> None:
        """Nothing to do: the outcome's evidence lists all of them."""

    def heartbeat(self) -> None:
        """Nothing to do: the worker's own heartbeats carry on."""

    def open_transaction(self) -> AbstractContextManager[Any]:
        raise InvalidInput("This worker has no database: a job that finishes in its own transaction cannot run here.")


class Holding:
    """Every run in the worker's hands: under way, or ended and not yet reported. It only keeps the books; whoever asks
    decides what to do about the answer."""

    def __init__(self, lease_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.lease_seconds = lease_seconds
        self.clock = clock
        self._controls: set[RemoteControl] = set()
        self._changed = threading.Condition()

    def __len__(self) -> int:
        return len(self._controls)

    def add(self, control: RemoteControl) -> None:
        with self._changed:
            self._controls.add(control)

    def drop(self, control: RemoteControl) -> None:
        with self._changed:
            self._controls.discard(control)
            self._changed.notify_all()

    def end(self, control: RemoteControl) -> None:
        """The run has ended; what is left is to report it."""
        with self._changed:
            control.ended_at = self.clock()
            self._changed.notify_all()

    def every(self) -> list[RemoteControl]:
        with self._changed:
            return list(self._controls)

    def under_way(self) -> list[RemoteControl]:
        return [control for control in self.every() if control.ended_at is None]

    def to_extend(self) -> list[RemoteControl]:
        """The runs whose leases the next heartbeat extends."""
        until = self.clock() - REPORTING_SECONDS
        return [
            control
            for control in self.every()
            if not control.lost and (control.ended_at is None or control.ended_at > until)
        ]

    def overdue(self) -> list[RemoteControl]:
        """The runs that must stop now, because their leases may soon be over."""
        too_late = self.clock() - safe_for(self.lease_seconds)
        return [
            control for control in self.under_way() if control.renewed_at <= too_late and not control.canceled.is_set()
        ]

    def wait(self, true: Callable[[], bool], seconds: float) -> bool:
        """Wait until it is true, looking again whenever a run ends or is reported."""
        with self._changed:
            return self._changed.wait_for(true, seconds)
