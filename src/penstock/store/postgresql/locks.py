"""Locks beyond those of rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

GATE_LOCK = 5_068_337_001
"""Claims share this transaction-scoped lock, reserving takes it alone: no claim is half done when a reservation begins."""


class PostgresLocks:
    """Many write side by side."""

    many_writers: ClassVar[bool] = True
    skip_locked: ClassVar[Mapping[str, Any]] = {"skip_locked": True}
