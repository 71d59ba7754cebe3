"""Position is fairness: start-time fair queueing kept in one column (DESIGN, "Position is fairness")."""

from __future__ import annotations

GAP = 100


def step(weight: int) -> int:
    """A tenant's stride through the queue: weight 2 goes half as far, so it is served twice as often."""
    return max(1, GAP // max(1, weight))


def place(largest_of_tenant: int | None, smallest_of_all: int | None, weight: int = 1) -> int:
    """
    >>> place(None, None), place(300, 100), place(None, 5000)
    (100, 400, 5000)
    """
    return max(largest_of_tenant or 0, (smallest_of_all or 0) - GAP) + step(weight)
