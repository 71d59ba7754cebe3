"""Keeping leases. One statement extends all of them; one thread without the database in it watches that this happened."""

from __future__ import annotations

import time

from penstock.core.errors import DatabaseError
from penstock.core.leases import renew_after, safe_for
from penstock.queue.claim import heartbeat
from penstock.queue.ground import Ground
from penstock.store.wake import asked_to_stop
from penstock.worker.control import RunControl
from penstock.worker.flight import Flight
from penstock.worker.service import Service

CHUNK = 500
"""Leases that one statement extends. It locks their rows in order, and others wait for it."""

ON_REQUEST = "canceled on request"


class Heartbeater(Service):
    """Extends the leases every third of their length, and looks for cancel requests in between."""

    name = "heartbeat"

    def __init__(self, ground: Ground, worker_id: str, flight: Flight, lease_seconds: float) -> None:
        super().__init__()
        self._ground = ground
        self._worker_id = worker_id
        self._flight = flight
        self.lease_seconds = lease_seconds
        self._beat_at = time.monotonic() + renew_after(lease_seconds)

    def pause(self) -> float:
        return max(0.01, min(self._ground.config.cancel_seconds, self._beat_at - time.monotonic()))

    def step(self) -> None:
        held = [control for control in self._flight.every() if not self._given_up(control)]
        if time.monotonic() >= self._beat_at:
            for start in range(0, len(held), CHUNK):
                self.extend(held[start : start + CHUNK])
            self._beat_at = time.monotonic() + renew_after(self.lease_seconds)
        elif any(control.started_at and not control.canceled.is_set() for control in held):
            self._look_for_cancels()

    def extend(self, held: list[RunControl]) -> None:
        """Extend these leases; those that are gone, and those asked to stop, are told so."""
        asked_at = time.monotonic()
        begun = [control.started_at is not None for control in held]
        beats = heartbeat(self._ground, [control.claim for control in held], self.lease_seconds, begun)
        for control in held:
            run_id = control.claim.run_id
            if run_id in beats.renewed:
                control.renewed_at = asked_at
            elif run_id not in beats.passed_by and control in self._flight.runs and not control.ended:
                self.log.warning("lease_lost", **control.labels)
                control.lose()
            if run_id in beats.asked_to_stop:
                control.cancel(ON_REQUEST)

    def _given_up(self, control: RunControl) -> bool:
        """Whether the run ended a whole lease ago and could not be reported since. Its lease then runs out, so that
        recovery can close the run; a report that comes first still counts."""
        if not control.ended or time.monotonic() - control.ended_at < self.lease_seconds:
            return False
        if not control.abandoned:
            control.abandoned = True
            self.log.error("run_unreported", seconds=round(time.monotonic() - control.ended_at, 1), **control.labels)
        return True

    def beat(self, control: RunControl) -> None:
        """Extend one lease because its job asks for it, at most once a second. Where the database does not answer, the
        job goes on: the guard stops it in time."""
        if time.monotonic() - control.renewed_at >= min(1.0, renew_after(self.lease_seconds)):
            try:
                self.extend([control])
            except DatabaseError as error:
                self.log.warning("heartbeat_failed", error=str(error), **control.labels)

    def _look_for_cancels(self) -> None:
        with self._ground.db.read() as tx:
            asked = set(asked_to_stop(tx, self._worker_id))
        for control in self._flight.every() if asked else []:
            if control.claim.run_id in asked:
                control.cancel(ON_REQUEST)


class Guard(Service):
    """Stops runs whose lease could not be extended in time, by this machine's monotonic clock: after that another
    worker may run the same job. It never touches the database, so nothing there can hold it up."""

    name = "guard"

    def __init__(self, flight: Flight, lease_seconds: float, one_writer: bool) -> None:
        super().__init__()
        self._flight = flight
        self._lease_seconds = lease_seconds
        self._one_writer = one_writer

    def pause(self) -> float:
        return min(0.25, self._lease_seconds / 20)

    def step(self) -> None:
        held = self._flight.every()
        if self._one_writer and any(control.holds_transaction for control in held):
            return  # a job of ours holds SQLite's write lock: until it lets go nobody can take anything over
        too_late = time.monotonic() - safe_for(self._lease_seconds)
        for control in held:
            if control.renewed_at < too_late and not control.canceled.is_set() and not control.ended:
                self.log.error("lease_not_renewed", lease_seconds=self._lease_seconds, **control.labels)
                control.cancel("its lease could not be renewed: the database did not answer in time", by_shutdown=True)
