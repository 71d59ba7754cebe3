"""How much room the logs of commands may take: of each directory, the oldest logs are removed when it holds too much."""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from uuid import UUID

LOOK_SECONDS = 10.0
"""How often a directory is looked through, at most."""

_OURS = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.log")


class LogRoom:
    """Gives out the paths of logs, and keeps the directories within their bounds."""

    def __init__(self, totals: Mapping[Path, int]) -> None:
        """`totals` has the bytes that each directory may hold."""
        self._totals = dict(totals)
        self._lock = threading.Lock()
        self._looked_at: dict[Path, float] = {}

    def room_for(self, folder: Path, run_id: UUID) -> Path:
        """Return the path of a run's log. If the directory was not looked at for some seconds, make room there first."""
        if folder in self._totals and self._is_due(folder):
            make_room(folder, self._totals[folder])
        return folder / f"{run_id}.log"

    def _is_due(self, folder: Path) -> bool:
        now = time.monotonic()
        with self._lock:
            last = self._looked_at.get(folder)
            if last is not None and now - last < LOOK_SECONDS:
                return False
            self._looked_at[folder] = now
            return True


def make_room(folder: Path, total: int) -> int:
    """Remove the oldest logs of a directory until the rest is within `total` bytes. Return how many were removed.

    Only files that are named as logs of runs are counted and removed. Several workers may do this at the same time."""
    found: list[tuple[float, int, str]] = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            if _OURS.fullmatch(entry.name):
                with contextlib.suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    found.append((status.st_mtime, status.st_size, entry.path))
    held = sum(size for _, size, _ in found)
    removed = 0
    for _, size, path in sorted(found):
        if held <= total:
            break
        with contextlib.suppress(OSError):
            os.unlink(path)  # noqa: PTH108 - thousands of them, perhaps
            removed += 1
        held -= size
    return removed
