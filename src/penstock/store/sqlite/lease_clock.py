"""The clock of SQLite's leases: the time since the machine booted, which nobody can set.

A lease that is stamped by one process is judged by others, and the machine's wall clock may jump in between: forward, and
every worker would seem to have vanished; back, and a worker that did vanish would seem alive for hours. Uptime does neither,
and all processes of a machine share it. So that leases can be read as times, they are counted from `booted_at`, which the
first process of a boot writes down for all. Everything else (due times, what happened when) is the wall clock's.
"""

from __future__ import annotations

import sqlite3
import time
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from penstock.core.clock import uptime, wall_time
from penstock.store.dialect import Bare, HotConnection
from penstock.store.types import from_micros, to_micros

REREAD_SECONDS = 5.0
"""How long `booted_at` is believed without another look: it changes when the machine boots or the file is replaced."""
TOLERANCE = 60_000_000
"""Microseconds between this clock and the wall that are no cause for a word: time services step clocks by seconds."""

_READ = "SELECT boot_id, booted_at FROM penstock_clock WHERE id = 1"
_WRITE = "UPDATE penstock_clock SET boot_id = ?, booted_at = ? WHERE id = 1"
_IN_USE = (
    "SELECT EXISTS (SELECT 1 FROM penstock_running) OR EXISTS (SELECT 1 FROM penstock_workers WHERE stopped_at IS NULL)"
)


class LeaseClock:
    """Reads and keeps `penstock_clock` for one database."""

    def __init__(self) -> None:
        self._booted_at: int | None = None
        self._read_at = 0.0

    def now(self, connection: Any, *, writing: bool) -> datetime:
        """Return the time that leases are counted by. `writing`: whether the transaction may note a new boot."""
        if self._booted_at is None or time.monotonic() - self._read_at > REREAD_SECONDS:
            self._booted_at = self._read(connection, writing)
            self._read_at = time.monotonic()
        zero = self._booted_at
        return wall_time() if zero is None else from_micros(zero + _uptime())

    def forget(self) -> None:
        """Read anew: another file may count from another boot."""
        self._booted_at = None

    def settle(self, connection: Any) -> None:
        """Forget a time that the machine's clock has not reached, and if the clock was wrong when this boot began, count leases
        by it anew, unless somebody holds one."""
        now = to_micros(wall_time())
        _rows(connection, "UPDATE penstock_clock SET latest = ? WHERE id = 1 AND latest > ?", (now, now + TOLERANCE))
        behind = now - to_micros(self.now(connection, writing=True))
        if abs(behind) > TOLERANCE and not _rows(connection, _IN_USE)[0][0]:
            _rows(connection, _WRITE, (boot_id(), to_micros(wall_time()) - _uptime()))
            self._booted_at = None

    def _read(self, connection: Any, writing: bool) -> int | None:
        zero = to_micros(wall_time()) - _uptime()
        try:
            return _noted(connection, writing, zero)
        except sqlite3.OperationalError as error:
            if "no such" not in str(error):
                raise
            return zero  # a pipeline on a file without the engine's tables, or tables that are not upgraded yet


def _noted(connection: Any, writing: bool, zero: int) -> int | None:
    """When this boot began, as it was written down, or None if it is only now written down, or by a later transaction."""
    rows = _rows(connection, _READ)
    if not rows:
        return zero
    [(noted, booted_at)] = rows
    if booted_at is not None and _same_boot(noted, booted_at):
        return int(booted_at)
    if not writing:
        return None
    if noted is not None:
        # Nobody who held a lease has outlived the boot that it was counted in.
        over = "UPDATE penstock_running SET lease_expires_at = min(lease_expires_at, ?)"
        _rows(connection, over, (zero + _uptime(),))
        _rows(connection, "DELETE FROM penstock_leaders")
    _rows(connection, _WRITE, (boot_id(), zero))
    return None  # until it is committed; the next transaction reads it


class SqliteLeases:
    """When leases end."""

    _lease_clock: LeaseClock | None

    def lease_time(self, conn: HotConnection, moment: datetime | None) -> datetime | None:
        if self._lease_clock is None:
            return moment
        writing = isinstance(conn, Bare) or bool(conn.get_execution_options().get("penstock_write"))
        return self._lease_clock.now(conn.connection, writing=writing)

    def settle_clock(self, conn: Connection) -> None:
        if self._lease_clock is not None:
            self._lease_clock.settle(conn.connection)

    def lease_until(self, conn: HotConnection, moment: datetime | None, seconds: float) -> int:
        return to_micros(self.lease_time(conn, moment) or wall_time()) + round(seconds * 1_000_000)


def _same_boot(noted: str | None, booted_at: int) -> bool:
    if noted != boot_id():
        return False
    # Where a boot has no name, it is told by the uptime that began anew.
    return bool(noted) or booted_at + _uptime() >= to_micros(wall_time()) - TOLERANCE


@lru_cache(maxsize=1)
def boot_id() -> str:
    """Return the name of this boot of the machine, or "" where it has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _uptime() -> int:
    return round(uptime() * 1_000_000)


def _rows(connection: Any, sql: str, params: tuple[Any, ...] = ()) -> list[Any]:
    cursor = connection.cursor()
    try:
        found: list[Any] = cursor.execute(sql, params).fetchall()
        return found
    finally:
        cursor.close()
