"""The runs that this worker holds: claimed, waiting in its buffer, running, or finished and not yet reported."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable
from queue import Empty, SimpleQueue

from penstock.core.nouns import Claim
from penstock.worker.control import RunControl


class Flight:
    """What the worker's threads share. `ready` leads from the pump to the executors, `inbox` back to the pump."""

    def __init__(self) -> None:
        self.runs: set[RunControl] = set()
        self.suspects: deque[RunControl] = deque()
        """Claims that may begin only when nothing else is in our hands."""
        self._expected = 0
        self._arrived = 0
        self._boarding = threading.Lock()
        self.ready: SimpleQueue[RunControl | None] = SimpleQueue()
        self.inbox: SimpleQueue[RunControl | None] = SimpleQueue()
        """Finished runs; None says that there may be work."""

    @property
    def coming(self) -> int:
        """How many were claimed and have not boarded yet."""
        return self._expected - self._arrived

    @property
    def held(self) -> int:
        """How many runs are in our hands."""
        coming = self.coming  # read first: a run that boards now is counted twice for a moment, and never not at all
        return len(self.runs) + coming

    def expect(self, number: int) -> None:
        """So many are about to board. Only one thread may say so."""
        self._expected += number

    def board(self, controls: list[RunControl], instead_of: int) -> None:
        """The runs of claims that were expected."""
        self.runs.update(controls)
        suspect = (
            controls.pop() if controls and controls[-1].claim.suspicion else None
        )  # a claim ends with the first it meets
        put = self.ready.put
        for control in controls:
            put(control)
        if suspect is not None:
            self.suspects.append(suspect)
            self.wake()
        with self._boarding:
            self._arrived += instead_of

    def land(self, control: RunControl) -> None:
        self.runs.discard(control)

    def still_held(self, controls: Iterable[RunControl]) -> list[RunControl]:
        """Those of them that have not landed."""
        return [control for control in controls if control in self.runs]

    def return_to_buffer(self, controls: Iterable[RunControl]) -> None:
        """They were taken out of the buffer by `unstarted`, and stay ours after all."""
        for control in controls:
            if control.claim.suspicion:
                self.suspects.append(control)
            else:
                self.ready.put(control)

    def wake(self) -> None:
        self.inbox.put(None)

    def every(self) -> list[RunControl]:
        return list(self.runs)

    def claims(self) -> list[Claim]:
        return [control.claim for control in self.every()]

    def under_way(self) -> list[RunControl]:
        """Runs that were started and have not ended."""
        return [control for control in self.every() if control.started_at is not None and not control.ended]

    def in_hand(self, waited: float = 1.0) -> int:
        """How many runs this worker answers for: started, or claimed more than a moment ago. Neither what waits in the buffer
        for its turn, nor what ended long ago and is left to recovery."""
        before = time.monotonic() - waited
        return sum((c.started_at is not None or c.claimed_at < before) and not c.abandoned for c in self.every())

    def unstarted(self) -> list[RunControl]:
        """Take everything out of the buffer that no executor has taken yet."""
        taken: list[RunControl] = []
        ends = 0
        while True:
            try:
                control = self.ready.get_nowait()
            except Empty:
                break
            if control is None:
                ends += 1
            else:
                taken.append(control)
        for _ in range(ends):  # executors that were told to end still are to
            self.ready.put(None)
        while self.suspects:
            taken.append(self.suspects.popleft())
        return taken
