"""The next slot, held for work outside the queue (seed 004 §2.5, 3.3). Waits for running jobs, never preempts them."""

from __future__ import annotations

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
    if not 0 < expires_in <= 86400:
        raise InvalidInput(f"expires_in is {expires_in!r}; expected more than 0 and at most 86400 seconds.")
    if wait < 0:
        raise InvalidInput(f"wait is {wait!r}; expected 0 or more seconds.")
    owner = reserved_by or process_identity()
    deadline = time.monotonic() + wait
    held: Reservation | None = None
    while True:
        if held is None:
            held = ground.db.transact(lambda tx: reservations.take(tx, tenant_id, owner, expires_in))
        if held is not None:
            with ground.db.read() as tx:
                running = reservations.running(tx, tenant_id)
            if running == 0:
                return held
        if time.monotonic() >= deadline:
            if held is not None:
                release(ground, held.id)
                raise Busy(f"{running} running job(s) did not end within {wait:g} s; the reservation was given up.")
            raise Busy(f"Another reservation is active and was not released within {wait:g} s.")
        time.sleep(min(POLL, max(0.0, deadline - time.monotonic())))


def release(ground: Ground, reservation_id: UUID) -> bool:
    return ground.db.transact(lambda tx: reservations.release(tx, reservation_id))


@contextmanager
def reserve(ground: Ground, tenant_id: UUID, wait: float, expires_in: float) -> Iterator[Reservation]:
    held = take(ground, tenant_id, wait, expires_in)
    try:
        yield held
    finally:
        release(ground, held.id)
