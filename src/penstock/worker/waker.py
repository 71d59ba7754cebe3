"""Listens for work while the pump has none."""

from __future__ import annotations

from sqlalchemy.exc import SQLAlchemyError

from penstock.core.errors import DatabaseUnavailable
from penstock.queue.ground import Ground
from penstock.store.wake import ear
from penstock.worker.flight import Flight
from penstock.worker.pump import Pump
from penstock.worker.service import Service

PATIENCE = 0.25
"""How long one wait lasts at most, so that a stop is heard."""


class Waker(Service):
    """Tells the pump that there may be work."""

    name = "waker"

    def __init__(self, ground: Ground, flight: Flight, pump: Pump, queues: tuple[str, ...] | None) -> None:
        super().__init__()
        self._ear = ear(ground.db, queues)
        self._flight = flight
        self._pump = pump

    def pause(self) -> float:
        return 0.0  # the step itself waits

    def step(self) -> None:
        # A busy pump finds by itself what there is. What is said meanwhile is heard when it rests: a notice waits in
        # the session, a changed data_version stays changed.
        if not self._pump.resting.wait(PATIENCE):
            return
        try:
            news = self._ear.wait(PATIENCE)
        except (SQLAlchemyError, OSError) as error:
            raise DatabaseUnavailable(f"Listening for work failed: {error}") from error
        except Exception as error:
            if type(error).__module__.partition(".")[0] not in ("psycopg", "sqlite3"):
                raise
            raise DatabaseUnavailable(f"Listening for work failed: {error}") from error
        if news:
            self._pump.resting.clear()
            self._flight.wake()

    def ended(self) -> None:
        self._ear.close()
