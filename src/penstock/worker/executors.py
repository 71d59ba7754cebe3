"""Threads that run claims, one at a time each."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from contextlib import suppress

import structlog

from penstock.core.leases import safe_for
from penstock.core.masking import knowing
from penstock.core.outcomes import Canceled, Failed, Outcome, Skipped, Snoozed, Succeeded
from penstock.core.utc_logs import worker_log
from penstock.queue.begun import BegunFile
from penstock.run.context import Runner
from penstock.store import failpoints
from penstock.worker.control import RunControl
from penstock.worker.flight import Flight

_EXPECTED = (Succeeded, Skipped, Snoozed)


class Executors:
    """As many threads as runs may be under way."""

    def __init__(
        self, flight: Flight, runners: Mapping[str, Runner], concurrency: int, begun: BegunFile, lease_seconds: float
    ) -> None:
        self._flight = flight
        self._runners = runners
        self._begun = begun
        self._verbose = _logs_debug()
        """Whether runs that end well are logged. Asking the logger about each run would cost more than a short run itself."""
        self._lease_seconds = lease_seconds
        self._threads = [
            threading.Thread(target=self._work, name=f"penstock-run-{number}", daemon=True)
            for number in range(concurrency)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Each thread ends after the run it is in."""
        for _ in self._threads:
            self._flight.ready.put(None)

    def join(self, timeout: float) -> bool:
        """Wait for the threads' end; whether all came to it."""
        until = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _work(self) -> None:
        place = self._begun.place()
        try:
            self._work_at(place)
        finally:
            self._begun.leave(place)

    def _work_at(self, place: int | None) -> None:
        ready, inbox, begun = self._flight.ready, self._flight.inbox, self._begun
        while True:
            control = ready.get()
            if control is None:
                return
            if self._is_too_late_for(control):
                outcome: Outcome | None = Canceled(control.reason, by_shutdown=control.by_shutdown)
            else:
                try:
                    begun.began(place, control.claim.run_id)
                    outcome = execute(control, self._runners, self._verbose)
                    begun.ended(place, control.claim.run_id)
                except BaseException as error:
                    # The run is over whatever happened, and this thread is needed for the next.
                    outcome = Failed(f"the worker failed to end it: {type(error).__name__}: {error}", blameless=True)
            if control.end(outcome):
                inbox.put(control)

    def _is_too_late_for(self, control: RunControl) -> bool:
        """Whether a claim that waited in the buffer must not begin: it was told to stop, or its lease may be over, as after a
        suspended machine wakes up, and then somebody else may have it."""
        if time.monotonic() - control.renewed_at > safe_for(self._lease_seconds):
            control.cancel("its lease could not be renewed before it began", by_shutdown=True)
        return control.canceled.is_set()


def execute(control: RunControl, runners: Mapping[str, Runner], verbose: bool = False) -> Outcome | None:
    """Run one claim to its end. Returns what is to be reported, or None if the run's own transaction recorded it."""
    failpoints.reach("worker.before_run")
    started = control.started_at = time.monotonic()
    try:
        outcome: Outcome = runners[control.claim.key].run(control.claim, control)
    except Exception as error:
        with suppress(Exception):
            worker_log.exception("runner_failed", **control.labels)
        mask = knowing(control.claim.params)
        outcome = Failed(mask.redact_text(f"the worker failed to run it: {type(error).__name__}: {error}"))
    control.seconds = time.monotonic() - started
    failpoints.reach("worker.after_run")
    if verbose or not isinstance(outcome, _EXPECTED):
        with suppress(Exception):  # whoever reads the log may be gone
            _tell(control, outcome)
    return control.settle(outcome)


def _logs_debug() -> bool:
    """Whether this program's structlog lets debug lines through. Not every kind of logger can be asked."""
    asked = getattr(worker_log, "is_enabled_for", None) or getattr(worker_log, "isEnabledFor", None)
    return structlog.is_configured() and callable(asked) and bool(asked(logging.DEBUG))


def _tell(control: RunControl, outcome: Outcome) -> None:
    facts = {"outcome": type(outcome).__name__, "seconds": round(control.seconds, 3)}
    if isinstance(outcome, _EXPECTED):
        worker_log.debug("run_ended", **facts, **control.labels)
    else:
        why = getattr(outcome, "error", None) or getattr(outcome, "reason", "")
        worker_log.warning("run_ended", why=why, **facts, **control.labels)
