"""Locks: none. One writes at a time, which BEGIN IMMEDIATE sees to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class SqliteLocks:
    """One writer rules."""

    many_writers: ClassVar[bool] = False
    skip_locked: ClassVar[Mapping[str, Any]] = {}
