"""What follows from the length of a lease. Shares, not settings: they keep one another in order, whatever the length is."""

from __future__ import annotations

BEATS = 3
"""Heartbeats in the length of a lease: two may fail before it ends."""

SAFE_SHARE = 0.85
"""The share of a lease after which a run whose lease was not renewed is stopped. The rest is the time it has to stop before another
worker may start the same job."""

PRESENT_LEASES = 2
"""Leases for which a worker that was not seen still counts as present."""

FORGOTTEN_LEASES = 10
"""Leases after which the row of a worker that was not seen is removed."""


def renew_after(lease_seconds: float) -> float:
    """Return how many seconds after a heartbeat the next one is due.

    >>> renew_after(30.0)
    10.0
    """
    return lease_seconds / BEATS


def safe_for(lease_seconds: float) -> float:
    """Return for how many seconds after its last renewal a run is surely our own."""
    return lease_seconds * SAFE_SHARE


def present_for(lease_seconds: float) -> float:
    """Return for how many seconds after it was last seen a worker counts as present."""
    return lease_seconds * PRESENT_LEASES


def forgotten_after(lease_seconds: float) -> float:
    """Return how many seconds after it was last seen a worker's row is removed."""
    return lease_seconds * FORGOTTEN_LEASES
