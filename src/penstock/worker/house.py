"""The chores that any worker does, and that are harmless when many do: being seen, and taking up what others dropped."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from typing import Any

from penstock.core.chance import chance
from penstock.core.leases import renew_after
from penstock.core.version import VERSION
from penstock.queue.ground import Ground
from penstock.queue.recover import keep_house
from penstock.store import workers
from penstock.store.database import Tx
from penstock.worker.flight import Flight
from penstock.worker.pump import Offer
from penstock.worker.service import Service

MOST_UNSEEN = 10.0
"""Seconds between two signs of life of a worker at most, so that the page shows who is there."""


class Presence(Service):
    """The worker's row: who it is, what it offers, how much it runs, when it was last seen."""

    name = "presence"

    def __init__(self, ground: Ground, offer: Offer, flight: Flight, pid: int, metadata: Mapping[str, Any]) -> None:
        super().__init__()
        self._ground = ground
        self._offer = offer
        self._flight = flight
        self._row = {
            "hostname": socket.gethostname(),
            "pid": pid,
            "version": VERSION,
            "queues": list(offer.queues) if offer.queues else [],
            "keys": list(offer.keys),
            "concurrency": offer.concurrency,
            "metadata": dict(metadata),
        }

    def pause(self) -> float:
        return min(renew_after(self._offer.lease_seconds), MOST_UNSEEN) * (0.9 + chance.random() / 5)

    def step(self) -> None:
        self._ground.db.transact(self._appear, retry_disconnects=True)

    def _appear(self, tx: Tx) -> None:
        worker_id = self._offer.worker_id
        if not workers.seen(tx, worker_id, self._flight.in_hand()):
            workers.register(tx, worker_id, self._row)

    def leave(self) -> None:
        """Say that the worker has stopped."""
        self._ground.db.transact(lambda tx: workers.stopped(tx, self._offer.worker_id), retry_disconnects=True)


class Watchdog(Service):
    """Takes up what others dropped: expired leases, reservations, workers that are gone."""

    name = "watchdog"

    def __init__(self, ground: Ground, flight: Flight, lease_seconds: float) -> None:
        super().__init__()
        self._ground = ground
        self._flight = flight
        self._every = min(ground.config.recover_seconds, renew_after(lease_seconds))

    def pause(self) -> float:
        return self._every * (0.5 + chance.random())

    def step(self) -> None:
        started = time.monotonic()
        closed = keep_house(self._ground)
        if closed:
            self.log.warning("recovered", runs=closed, seconds=round(time.monotonic() - started, 3))
            self._flight.wake()
