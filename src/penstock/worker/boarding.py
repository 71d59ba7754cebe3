"""How claims come to the executors: few at once, many by a thread that reads them while the pump asks for the next."""

from __future__ import annotations

from queue import Empty, SimpleQueue

from penstock.queue.ground import Ground
from penstock.store.hot import Taken
from penstock.worker.control import RunControl
from penstock.worker.flight import Flight
from penstock.worker.heartbeat import Heartbeater
from penstock.worker.reporter import Reporter
from penstock.worker.service import Service


class Boarding(Service):
    """Makes runs of what was claimed. The thread is for batches: to hand one claim to it would take longer than to read it."""

    name = "boarding"

    def __init__(
        self, ground: Ground, job_ground: Ground, flight: Flight, reporter: Reporter, beats: Heartbeater, few: int
    ) -> None:
        super().__init__()
        self._ground = ground
        self._job_ground = job_ground
        self._flight = flight
        self._reporter = reporter
        self._beats = beats
        self._few = few
        self._handed: SimpleQueue[tuple[Taken, float]] = SimpleQueue()

    def take(self, taken: Taken, asked_at: float) -> None:
        """Claims that were asked for at `asked_at`; they board in the order in which they were claimed. Only one thread may
        call this."""
        if not taken.number:
            return
        by_thread = taken.number > self._few or self._flight.coming
        self._flight.expect(taken.number)
        if by_thread:
            self._handed.put((taken, asked_at))
        else:
            self._board(taken, asked_at)

    def pause(self) -> float:
        return 0.0  # the step itself waits

    def step(self) -> None:
        try:
            taken, asked_at = self._handed.get(timeout=0.25)
        except Empty:
            return
        self._board(taken, asked_at)

    def _board(self, taken: Taken, asked_at: float) -> None:
        """Claims that cannot be read do not board. Nobody extends their leases, so recovery takes them up."""
        controls: list[RunControl] = []
        try:
            claims = taken.claims()
            default = self._ground.config.default_timeout_seconds
            ground, touched, beat = self._job_ground, self._reporter.touched, self._beats.beat
            controls = [
                RunControl(each, float(each.timeout_seconds or default), ground, asked_at, touched, beat)
                for each in claims
            ]
        finally:
            self._flight.board(controls, instead_of=taken.number)
