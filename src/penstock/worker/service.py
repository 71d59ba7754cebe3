"""A background loop is a small service: `start`, `stop`, and one `step()` that tests can call by hand."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from penstock.core.chance import chance
from penstock.core.errors import DatabaseError, DatabaseReadOnly, DatabaseUnavailable
from penstock.core.utc_logs import worker_log
from penstock.store.faults import is_disconnect, is_left

MAX_BACKOFF = 5.0
"""How long a service waits at most after failures: so late, at most, does it notice that the database is back."""
T = TypeVar("T")


def full_jitter(failures: int, base: float = 0.1, most: float = MAX_BACKOFF) -> float:
    """How long to wait after so many failures in a row: anything up to a limit that doubles, so that a hundred
    workers do not come back together."""
    return chance.random() * min(most, base * float(2 ** min(failures, 16)))


def patiently(work: Callable[[], T], seconds: float) -> T:
    """Do what must be done before the work begins, also while the database is being restarted or another server takes over."""
    until = time.monotonic() + seconds
    failures = 0
    while True:
        try:
            return work()
        except (DatabaseUnavailable, DatabaseReadOnly) as error:
            cause = error.__cause__ or error
            if time.monotonic() >= until or not (is_disconnect(cause) or is_left(cause)):
                raise
            if failures == 0:
                worker_log.warning("waiting_for_database", error=str(error))
            failures += 1
            time.sleep(full_jitter(failures, most=2.0))


class Service:
    """Runs `step()` on a thread of its own, `pause()` seconds apart, and outlives whatever a step raises."""

    name = "service"

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self.failures = 0
        self._thread: threading.Thread | None = None

    @property
    def log(self) -> Any:
        return worker_log

    def start(self) -> None:
        self._thread = threading.Thread(target=self._loop, name=f"penstock-{self.name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ask it to end after the step under way."""
        self.stopping.set()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for its end; whether it came in time."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)
            return not self._thread.is_alive()
        return True

    def pause(self) -> float:
        """Seconds until the next step."""
        return 1.0

    def step(self) -> None:
        """One round of work."""
        raise NotImplementedError

    def ended(self) -> None:
        """Called on the service's own thread when the loop is over."""

    def _loop(self) -> None:
        try:
            while not self.stopping.wait(full_jitter(self.failures) if self.failures else self.pause()):
                self.attempt()
        finally:
            self.ended()

    def attempt(self) -> bool:
        """One step that does not raise; whether it went well."""
        try:
            self.step()
        except Exception as error:
            self.failed(error)
            return False
        if self.failures:
            with suppress(Exception):
                self.log.info("service_recovered", service=self.name, after_failures=self.failures)
            self.failures = 0
        return True

    def failed(self, error: Exception) -> None:
        with suppress(Exception):  # whoever reads the log may be gone: no reason to stop working
            if not isinstance(error, DatabaseError):
                self.log.exception("service_failed", service=self.name, error=str(error))
            elif self.failures == 0:
                self.log.warning("database_trouble", service=self.name, error=str(error))
        self.failures += 1
