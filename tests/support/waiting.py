"""How tests wait: for a state, never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

PATIENCE = 200.0
"""Seconds until something counts as not happening: a machine with ten times the work that it can do needs most of them, and a test
that passes none."""


def eventually(true: Callable[[], Any], seconds: float = PATIENCE, what: str = "it") -> Any:
    """Return what the condition returns as soon as it holds; fail if it does not in time."""
    until = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < until, f"{what} did not happen within {seconds:g} s"
        time.sleep(0.01)
    return found
