"""Which processes are Penstock's own.

What changes a whole process (the garbage collector, the switch interval, the scheduling class, limits) is done in processes that
Penstock started for itself alone: those of the command line, and their children. A program that imports Penstock is its user's.
"""

from __future__ import annotations

_ours = False


def claim_process() -> None:
    """Say that this process was started by Penstock for itself."""
    global _ours
    _ours = True


def is_ours() -> bool:
    """Return whether this process was started by Penstock for itself."""
    return _ours
