"""The next slot, held for work outside the queue (seed 004 §2.5, 3.3). Waits for running jobs, never preempts them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from penstock.core.errors import Busy, InvalidInput
from penstock.core.nouns import Reservation
from penstock.queue.ground import Ground
from penstock.queue.identity import process_identity
from penstock.store import reservations

POLL = 0.05


def take(
    ground: Ground, tenant_id: UUID, wait: float, expires_in: float, reserved_by: str | None = None
) -> Reservation:
    """Become the tenant's one reservation and wait until nothing of it runs; Busy if that takes longer than `wait`."""
    taking = Taking(ground, tenant_id, wait, expires_in, reserved_by)
    deadline = time.monotonic() + wait
    while True:
        taken = taking.step()
        if taken is not None:
            return taken
        if time.monotonic() >= deadline:
            raise taking.give_up()
        time.sleep(min(POLL, max(0.0, deadline - time.monotonic())))


class Taking:
    """A reservation on its way: first it is to be had, then what runs has to end. Who waits for it calls `step` from time to
    time, and `give_up` in the end."""

    def __init__(
        self, ground: Ground, tenant_id: UUID, wait: float, expires_in: float, reserved_by: str | None = None
    ) -> None:
        if not 0 < expires_in <= 86400:
            raise InvalidInput(f"expires_in is {expires_in!r}; expected more than 0 and at most 86400 seconds.")
        if wait < 0:
            raise InvalidInput(f"wait is {wait!r}; expected 0 or more seconds.")
        self._ground = ground
        self._tenant_id = tenant_id
        self._wait = wait
        self._expires_in = expires_in
        self._owner = reserved_by or process_identity()
        self._held: Reservation | None = None
        self._running = 0
        self._stepping = threading.Lock()
        self._is_over = False

    def step(self) -> Reservation | None:
        """The reservation, once nothing runs; None if it is still to be waited for."""
        with self._stepping:
            return None if self._is_over else self._step()

    def _step(self) -> Reservation | None:
        if self._held is None and not self._is_another_active():
            self._held = self._ground.db.transact(
                lambda tx: reservations.take(tx, self._tenant_id, self._owner, self._expires_in)
            )
        if self._held is None:
            return None
        with self._ground.db.read() as tx:
            self._running = reservations.running(tx, self._tenant_id)
        return self._held if self._running == 0 else None

    def _is_another_active(self) -> bool:
        with self._ground.db.read() as tx:  # whoever waits must not lock out the claims of others each time
            return reservations.active(tx, self._tenant_id) is not None

    def give_up(self) -> Busy:
        """Release what was had, also by a step that is under way; returns why it was not enough."""
        with self._stepping:
            self._is_over = True
        if self._held is not None:
            release(self._ground, self._held.id)
            return Busy(
                f"{self._running} running job(s) did not end within {self._wait:g} s; the reservation was given up."
            )
        return Busy(f"Another reservation is active and was not released within {self._wait:g} s.")


def release(ground: Ground, reservation_id: UUID) -> bool:
    return ground.db.transact(lambda tx: reservations.release(tx, reservation_id))


@contextmanager
def reserve(ground: Ground, tenant_id: UUID, wait: float, expires_in: float) -> Iterator[Reservation]:
    held = take(ground, tenant_id, wait, expires_in)
    try:
        yield held
    finally:
        release(ground, held.id)
