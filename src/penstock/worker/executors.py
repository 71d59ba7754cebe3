"""Threads that run claims, one at a time each."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import structlog

from penstock.core.outcomes import Failed, Outcome, Skipped, Snoozed, Succeeded
from penstock.run.context import Runner
from penstock.store import failpoints
from penstock.worker.control import RunControl
from penstock.worker.flight import Flight

_log: Any = structlog.get_logger("penstock.worker")


class Executors:
    """As many threads as runs may be under way."""

    def __init__(self, flight: Flight, runners: Mapping[str, Runner], concurrency: int) -> None:
        self._flight = flight
        self._runners = runners
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
        ready, inbox = self._flight.ready, self._flight.inbox
        while True:
            control = ready.get()
            if control is None:
                return
            try:
                outcome = execute(control, self._runners)
            except BaseException as error:  # the run is over whatever happened, and this thread is needed for the next
                outcome = Failed(f"the worker failed to end it: {type(error).__name__}: {error}")
            if control.end(outcome):
                inbox.put(control)


def execute(control: RunControl, runners: Mapping[str, Runner]) -> Outcome | None:
    """Run one claim to its end. Returns what is to be reported, or None if the run's own transaction recorded it."""
    failpoints.reach("worker.before_run")
    started = control.started_at = time.monotonic()
    try:
        outcome: Outcome = runners[control.claim.key].run(control.claim, control)
    except Exception as error:
        with suppress(Exception):
            _log.exception("runner_failed", **control.labels)
        outcome = Failed(f"the worker failed to run it: {type(error).__name__}: {error}")
    control.seconds = time.monotonic() - started
    failpoints.reach("worker.after_run")
    with suppress(Exception):  # whoever reads the log may be gone
        _tell(control, outcome)
    return control.settle(outcome)


def _tell(control: RunControl, outcome: Outcome) -> None:
    facts = {"outcome": type(outcome).__name__, "seconds": round(control.seconds, 3)}
    if not isinstance(outcome, Succeeded | Skipped | Snoozed):
        why = getattr(outcome, "error", None) or getattr(outcome, "reason", "")
        _log.warning("run_ended", why=why, **facts, **control.labels)
    elif structlog.is_configured() and _log.is_enabled_for(logging.DEBUG):
        _log.debug("run_ended", **facts, **control.labels)
