"""The runs that this worker holds: claimed, waiting in its buffer, running, or finished and not yet reported."""

from __future__ import annotations

from queue import Empty, SimpleQueue

from penstock.core.nouns import Claim
from penstock.worker.control import RunControl


class Flight:
    """What the worker's threads share. `ready` leads from the pump to the executors, `inbox` back to the pump."""

    def __init__(self) -> None:
        self.runs: set[RunControl] = set()
        self.ready: SimpleQueue[RunControl | None] = SimpleQueue()
        self.inbox: SimpleQueue[RunControl | None] = SimpleQueue()
        """Finished runs; None says that there may be work."""

    def board(self, controls: list[RunControl]) -> None:
        self.runs.update(controls)
        for control in controls:
            self.ready.put(control)

    def land(self, control: RunControl) -> None:
        self.runs.discard(control)

    def wake(self) -> None:
        self.inbox.put(None)

    def every(self) -> list[RunControl]:
        return list(self.runs)

    def claims(self) -> list[Claim]:
        return [control.claim for control in self.every()]

    def under_way(self) -> list[RunControl]:
        """Runs that were started and have not ended."""
        return [control for control in self.every() if control.started_at is not None and not control.ended]

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
        return taken
