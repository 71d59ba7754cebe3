"""How much a worker takes at a time. Short jobs are claimed ahead, so that executors never wait for the database;
long ones are not, so that no job waits here while another worker is free."""

from __future__ import annotations

from penstock.core.settings.worker import WorkerSettings

LINGER_SECONDS = 0.002
"""How long a finished run waits for others at least, unless `report_delay_seconds` is less: about what a commit takes."""

WEIGHT = 0.2
"""How much the newest batch counts in the average."""

DEFAULTS = WorkerSettings()


class Pace:
    """The average duration of a run, and the room that follows from it.

    >>> pace = Pace(concurrency=8)
    >>> pace.capacity
    8
    >>> for _ in range(10):
    ...     pace.ran([0.0001] * 8)
    >>> pace.capacity
    1008
    """

    def __init__(self, concurrency: int, settings: WorkerSettings = DEFAULTS) -> None:
        self._concurrency = concurrency
        self._settings = settings
        self.least_linger = min(LINGER_SECONDS, settings.report_delay_seconds)
        """How long a finished run waits for others while no job waits to be run."""
        self._average: float | None = None
        self.ahead = 0
        """How many runs to hold beyond those that run."""

    @property
    def capacity(self) -> int:
        """How many runs this worker wants to hold, running and buffered together."""
        return self._concurrency + self.ahead

    @property
    def linger(self) -> float:
        """While others wait to be run, a run may wait about as long as it took: nobody hears of it much later, and a commit
        serves many."""
        return min(max(LINGER_SECONDS, self._average or 0.0), self._settings.report_delay_seconds)

    def ran(self, durations: list[float]) -> None:
        """Learn from a batch of runs that ended."""
        if not durations:
            return
        newest = sum(durations) / len(durations)
        weight = WEIGHT if self._average is not None else 1.0
        self._average = newest * weight + (self._average or 0.0) * (1 - weight)
        goal = int(self._concurrency * self._settings.claim_ahead_seconds / max(self._average, 1e-6))
        # Growing by steps: one quick job among slow ones does not fill the buffer.
        wanted = goal if goal >= self._concurrency else 0
        self.ahead = min(wanted, self._settings.claim_ahead_limit, 2 * self.ahead + self._concurrency)

    def stalled(self) -> None:
        """The buffer was not worked off in time: start again without one."""
        self._average, self.ahead = self._settings.claim_ahead_seconds * 2, 0
