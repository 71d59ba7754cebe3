"""Suspects run apart: a job that was under way when its worker died runs with nothing beside it, so that the next crash, if there
is one, has exactly one culprit."""

from __future__ import annotations

import time

from penstock.queue.claim import heartbeat
from penstock.queue.ground import Ground
from penstock.worker.control import RunControl
from penstock.worker.flight import Flight


class Apart:
    """Holds suspects back until the worker has nothing else in hand, and keeps the pump from claiming while one runs.

    Neither lasts for ever where jobs are long: after `suspect_seconds` a suspect begins in company, or gets company. Only on its
    last chance, when the next crash makes it a dead letter, does a suspect run alone from its beginning to its end."""

    def __init__(self, ground: Ground, flight: Flight, lease_seconds: float) -> None:
        self._ground = ground
        self._flight = flight
        self._lease_seconds = lease_seconds
        self._running: RunControl | None = None
        self._known_begun = False

    @property
    def closed(self) -> bool:
        """Whether nothing may be claimed now."""
        if self._flight.suspects:
            return True
        suspect = self._running
        if suspect is None or suspect.ended:
            self._running = None
            return False
        return self._insists(suspect, suspect.started_at)

    def claimed(self, alone: bool) -> None:
        """A batch was claimed: with nothing else in hand, and of one job, or not."""
        self._known_begun = alone

    def step(self, others: int) -> None:
        """Let the first of the waiting suspects begin, if nothing else is in our hands or it has waited long enough."""
        if not self._flight.suspects:
            return
        suspect = self._flight.suspects[0]
        if others and self._insists(suspect, suspect.claimed_at):
            return
        if not self._known_begun and not self._mark(suspect):
            return
        self._known_begun = False
        self._flight.suspects.popleft()
        self._running = suspect
        self._flight.ready.put(suspect)

    def _insists(self, suspect: RunControl, since: float | None) -> bool:
        config = self._ground.config
        if suspect.claim.suspicion >= config.max_crashes:
            return True
        return since is None or time.monotonic() - since < config.suspect_seconds

    def _mark(self, suspect: RunControl) -> bool:
        """Note in the database that it begins, before it does. False if that could not be noted: it is no longer ours, or somebody
        holds its row at this moment."""
        beats = heartbeat(self._ground, [suspect.claim], self._lease_seconds, [True])
        if suspect.claim.run_id not in beats.kept:
            self._flight.suspects.popleft()
            self._flight.land(suspect)
        return suspect.claim.run_id in beats.renewed
