"""The worker's side of one run: what the run is told, and what it says while it runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from typing import Any

from penstock.core.nouns import Claim
from penstock.core.outcomes import Failed, Outcome, Skipped, Succeeded
from penstock.queue.ground import Ground
from penstock.queue.record import close_in, report_of
from penstock.store.database import Tx
from penstock.store.faults import is_outage

LEASE_LOST = "its lease was lost: another worker may have taken the job up"


_ending = threading.Lock()


class LightEvent(threading.Event):
    """An event that makes its lock when somebody waits for it: most runs end without anybody having done so."""

    def __init__(self) -> None:
        self._flag = False
        self._waited: threading.Event | None = None

    def is_set(self) -> bool:
        return self._flag

    def set(self) -> None:
        with _ending:
            self._flag = True
            if self._waited is not None:
                self._waited.set()

    def clear(self) -> None:
        raise NotImplementedError("What was told to stop stays so.")

    def wait(self, timeout: float | None = None) -> bool:
        with _ending:
            if self._waited is None:
                self._waited = threading.Event()
            if self._flag:
                return True
        return self._waited.wait(timeout)


class RunControl:
    """One run in this worker's hands; the `Control` that its runner is given."""

    __slots__ = (
        "_beat", "_new_artifacts", "_outage", "_transaction", "abandoned", "by_shutdown", "canceled", "claim", "claimed_at", "ended",
        "ended_at", "ground", "lost", "outcome", "pid", "progress", "reason", "renewed_at", "seconds", "started_at", "tails",
        "timeout", "touched",
    )  # fmt: skip

    def __init__(
        self,
        claim: Claim,
        timeout: float | None,
        ground: Ground,
        claimed_at: float,
        touched: Callable[[RunControl], None],
        beat: Callable[[RunControl], None],
    ) -> None:
        self.claim = claim
        self.timeout = timeout
        self.ground = ground
        self.canceled: threading.Event = LightEvent()
        self.reason = ""
        self.by_shutdown = False
        self.lost = False
        """Whether the database said that the run is no longer ours: its outcome counts for nothing."""
        self.claimed_at = self.renewed_at = claimed_at
        """By the monotonic clock, and taken before the statement that set the lease, so that we never think it longer."""
        self.started_at: float | None = None
        self.seconds = 0.0
        self.ended = False
        self.ended_at = 0.0
        self.abandoned = False
        """Whether its lease is no longer extended, because it ended long ago and could not be reported."""
        self.outcome: Outcome | None = None
        """What is to be reported once the run has ended; None if the run's own transaction recorded it."""
        self.pid: int | None = None
        """The process of its own that the run has, until that is written."""
        self.progress: dict[str, Any] | None = None
        self.tails: tuple[str, str] | None = None
        self.touched = touched
        self._beat = beat
        self._new_artifacts: list[Mapping[str, Any]] = []
        self._transaction: _Transaction | None = None
        self._outage = False
        """Whether the run's own transaction broke because the database went away."""

    @property
    def labels(self) -> dict[str, Any]:
        """What every log line about this run carries."""
        claim = self.claim
        return {
            "job_id": str(claim.job_id),
            "run_id": str(claim.run_id),
            "tenant_id": str(claim.tenant_id),
            "definition_key": claim.key,
            "attempt_no": claim.attempt_no,
            "worker_id": claim.worker_id,
        }

    def cancel(self, reason: str, *, by_shutdown: bool = False) -> None:
        """Tell the run to stop. The first reason stays."""
        if not self.canceled.is_set():
            self.reason, self.by_shutdown = reason, by_shutdown
            self.canceled.set()

    def lose(self) -> None:
        """The run was closed or passed on: stop it, and drop its outcome."""
        self.lost = True
        self.cancel(LEASE_LOST)

    def end(self, outcome: Outcome | None) -> bool:
        """The run has ended, with this left to report. False if its end was told before."""
        with _ending:
            if self.ended:
                return False
            self.ended_at = time.monotonic()
            self.ended, self.outcome = True, outcome
            return True

    def report_progress(self, done: float, total: float | None, message: str) -> None:
        self.progress = {"done": done, "total": total, "message": message}
        self.touched(self)

    def report_tails(self, stdout: str, stderr: str) -> None:
        self.tails = (stdout, stderr)
        self.touched(self)

    def report_pid(self, pid: int) -> None:
        self.pid = pid
        self.touched(self)

    def add_artifact(self, artifact: Mapping[str, Any]) -> None:
        self._new_artifacts.append(artifact)
        self.touched(self)

    @property
    def new_artifacts(self) -> list[dict[str, Any]]:
        """Artifacts that are not written yet."""
        return [dict(artifact) for artifact in self._new_artifacts]

    def artifacts_written(self, number: int) -> None:
        """The first `number` of the new artifacts are written."""
        del self._new_artifacts[:number]

    def heartbeat(self) -> None:
        self._beat(self)

    @property
    def holds_transaction(self) -> bool:
        return self._transaction is not None

    def open_transaction(self) -> AbstractContextManager[Any]:
        return self._open()

    @contextmanager
    def _open(self) -> Iterator[Any]:
        """The transaction stays open when the block ends, until the run's outcome is known: both are written or
        neither. A second block of the same run joins the first."""
        if self._transaction is None:
            self._transaction = _Transaction(self.ground)
        held = self._transaction
        try:
            yield held.tx.conn
        except BaseException as error:
            self._transaction = None
            self._outage = is_outage(error)
            held.rollback()
            raise

    def settle(self, outcome: Outcome) -> Outcome | None:
        """End the run's own transaction with it. None when the run was recorded in that transaction; else what is
        left to report."""
        held, self._transaction = self._transaction, None
        if self._outage and isinstance(outcome, Failed):
            outcome = replace(outcome, blameless=True)
        if held is None:
            return outcome
        if not isinstance(outcome, Succeeded | Skipped):
            held.rollback()
            return outcome
        claim = self.claim
        try:
            lost = close_in(self.ground, held.tx, [report_of(claim, outcome)], claim.worker_id)
        except Exception as error:
            held.rollback()
            return Failed(f"its transaction could not be finished: {error}", blameless=is_outage(error))
        if lost:
            held.rollback()
            self.lose()
            return None
        try:
            held.commit()
        except Exception as error:
            # If it was committed after all, the run is closed, and this report of it is refused.
            return Failed(f"its transaction could not be committed: {error}", blameless=is_outage(error))
        return None


class _Transaction:
    """`db.write()` that is ended by hand."""

    def __init__(self, ground: Ground) -> None:
        self._manager = ground.db.write(patient=True)  # the job's own statements, too
        self.tx: Tx = self._manager.__enter__()

    def commit(self) -> None:
        self._manager.__exit__(None, None, None)

    def rollback(self) -> None:
        """Never raises: where the connection is gone, the database has rolled back by itself."""
        with suppress(Exception):
            self._manager.__exit__(_RolledBack, _RolledBack(), None)


class _RolledBack(Exception):
    pass
