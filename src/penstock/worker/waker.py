"""Hears of work while the pump has none."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from sqlalchemy.exc import SQLAlchemyError

from penstock.core.errors import DatabaseUnavailable
from penstock.store.wake import Ear
from penstock.worker.service import Service

PATIENCE = 0.25
"""How long one wait lasts at most, so that a stop is heard."""

DEAF_SECONDS = 1.0
"""How long the pump leaves it to the waker to find out what is wrong with the ear."""


class Hearing:
    """One ear for two: the pump listens by itself while nothing runs here, because a message that goes from thread to
    thread arrives later; while something does, the pump waits for that to end, and the waker listens for it."""

    def __init__(self, ear: Ear) -> None:
        self._ear = ear
        self._in_use = threading.Lock()
        self._deaf_until = 0.0
        self.wanted = threading.Event()
        """Set while the waker is to listen."""

    def by_pump(self, seconds: float) -> bool | None:
        """Whether there may be work, after so many seconds at most; None if it cannot be told here."""
        if time.monotonic() < self._deaf_until or not self._in_use.acquire(blocking=False):
            return None
        try:
            return self._listen(min(seconds, PATIENCE))
        except DatabaseUnavailable:
            self._deaf_until = time.monotonic() + DEAF_SECONDS
            return None
        finally:
            self._in_use.release()

    def by_waker(self) -> bool:
        with self._in_use:
            return self.wanted.is_set() and self._listen(PATIENCE)

    def _listen(self, seconds: float) -> bool:
        try:
            return self._ear.wait(seconds)
        except (SQLAlchemyError, OSError, self._ear.driver_error) as error:
            raise DatabaseUnavailable(f"Listening for work failed: {error}") from error

    def close(self) -> None:
        """Nobody is to listen any more. Whoever hangs in it, on a link that is half open, is not waited for."""
        if self._in_use.acquire(timeout=2 * PATIENCE):
            self._ear.close()
            self._in_use.release()


class Waker(Service):
    """Tells the pump that there may be work, when the pump wants to be told."""

    name = "waker"

    def __init__(self, hearing: Hearing, wake: Callable[[], None]) -> None:
        super().__init__()
        self._hearing = hearing
        self._wake = wake

    def pause(self) -> float:
        return 0.0  # the step itself waits

    def step(self) -> None:
        # A busy pump finds by itself what there is. What is said meanwhile is heard when it rests: a notice waits in
        # the session, a changed data_version stays changed.
        if self._hearing.wanted.wait(PATIENCE) and self._hearing.by_waker():
            self._hearing.wanted.clear()
            self._wake()
