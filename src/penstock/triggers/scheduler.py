"""The scheduler: a small service that turns due moments into jobs. Any number may run; none is needed for correctness
of another, and one at a time does the work."""

from __future__ import annotations

import threading
from datetime import datetime

import structlog

from penstock.core.chance import chance
from penstock.core.errors import PenstockError
from penstock.queue.ground import Ground
from penstock.queue.identity import process_identity
from penstock.store import leaders, triggers
from penstock.store.database import Tx
from penstock.store.triggers import Cursor
from penstock.triggers import ticking

_log = structlog.get_logger("penstock.scheduler")

PATIENCE_LEASES = 1.5
"""How late, in leases, a scheduled time may get while somebody else leads. After that we do the work beside them: the tick's key keeps
it right."""

ROUNDS = 100
"""Rounds over all schedules in one step, so that a long backlog does not keep `stop()` waiting."""

TRIES = 5


class Scheduler:
    """`step()` decides everything that is due; `start()` and `stop()` do so on a thread.

    >>> from penstock import Penstock
    >>> Scheduler(Penstock("sqlite://").ground).step()
    0
    """

    def __init__(self, ground: Ground, *, poll_seconds: float | None = None, holder: str | None = None) -> None:
        self.ground = ground
        self.poll_seconds = poll_seconds or ground.config.poll_seconds
        self._lease_seconds = ground.config.scheduler_lease_seconds
        self.holder = holder or f"{process_identity()}:{chance.getrandbits(32):08x}"
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def step(self) -> int:
        """Decide what is due now. Answers how many ticks were written."""
        with self.ground.db.read() as tx:
            if not triggers.any_due(tx):
                return 0
        total = 0
        for _ in range(ROUNDS):  # a long backlog is decided in portions
            written = self._pages(True) + self._pages(False)
            total += written
            if not written or self._stopping.is_set():
                break
        return total

    def _pages(self, enabled: bool) -> int:
        total, cursor = 0, None
        while True:
            written, cursor = self._page(enabled, cursor)
            total += written
            if cursor is None:
                return total

    def _page(self, enabled: bool, cursor: Cursor | None) -> tuple[int, Cursor | None]:
        def work(tx: Tx) -> tuple[int, Cursor | None]:
            if not leaders.lead_schedules(tx, self.holder, self._lease_seconds) and not self._overdue(tx):
                return 0, None
            return ticking.page(self.ground, tx, enabled, cursor)

        for attempt in range(TRIES):
            try:
                return self.ground.db.transact(work)
            except ticking.Moved:
                if attempt == TRIES - 1:
                    raise
        raise AssertionError("unreachable")

    def _overdue(self, tx: Tx) -> bool:
        first = triggers.next_due_at(tx)
        return first is not None and (tx.time() - first).total_seconds() > PATIENCE_LEASES * self._lease_seconds

    def start(self) -> None:
        """Step on a thread until `stop()`."""
        self._stopping.clear()
        self._thread = threading.Thread(target=self.run, name="penstock-scheduler", daemon=True)
        self._thread.start()

    def stop(self, timeout: float | None = 10.0) -> None:
        """End after the step under way, and let another lead at once."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout)
            self._thread = None
        try:
            self.ground.db.transact(lambda tx: leaders.resign(tx, self.holder))
        except PenstockError:
            pass  # the lease ends by itself

    def run(self) -> None:
        """Step until told to stop. A database that is away for a while does not end it."""
        failures = 0
        while not self._stopping.is_set():
            try:
                self.step()
                pause, failures = self._pause(), 0
            except Exception as error:
                failures += 1
                _log.warning("scheduler.step_failed", error=str(error), failures=failures)
                pause = chance.uniform(0.5, 1.0) * min(30.0, 0.5 * 2 ** min(failures, 6))
            self._stopping.wait(pause)

    def _pause(self) -> float:
        """Until the next moment, but no longer than the poll: a schedule may be added meanwhile."""
        with self.ground.db.read() as tx:
            due: datetime | None = triggers.next_due_at(tx)
            if due is None:
                return self.poll_seconds
            ahead = (due - tx.time()).total_seconds()
        return min(self.poll_seconds, ahead) if ahead > 0 else self.poll_seconds
