"""Reading ahead. Most make()s begin by fetching the row of their key from a parent: a round trip for each key, which is most of
what a short make() takes, and the more workers share a machine, the more of it is waiting for one's turn.

So once a key has asked for a row by its own key, the same is read for the keys after it too, in one statement. It is a read
like any other that came a moment earlier: after the key was claimed, never older than `jobs.read_ahead_seconds`, used once by each key; asked
again, it is read anew. Nothing is read ahead of the tables that are being filled, no blobs and no JSON; a row that was not there
is looked for again; and all is forgotten when this populate() writes anything but results.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Table as SqlTable

from penstock.pipeline.config import config
from penstock.pipeline.connection import Connection
from penstock.pipeline.errors import RestrictionError
from penstock.pipeline.options import Key
from penstock.pipeline.restrict import comparable
from penstock.store.pipeline.lookup import lookup_many
from penstock.store.pipeline.shape import Attribute

GROWTH = 4
"""How many times farther is read after everything that was read was used."""

Pattern = tuple[SqlTable, tuple[str, ...]]
"""What was asked for: the table, and the attributes wanted."""


class Ahead:
    """What one populate() has read for keys that it has not made yet."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._keys: Sequence[Key] = ()
        self._at = 0
        self._patterns: dict[Pattern, _Read] = {}
        self._fresh: float = config["jobs.read_ahead_seconds"]
        self._farthest: int = config["jobs.read_ahead_limit"]

    def over(self, keys: Sequence[Key]) -> Iterator[Key]:
        """The keys one by one; what each asks for is read for the next ones too."""
        for read in self._patterns.values():
            read.start_over()
        self._keys = keys
        for self._at, key in enumerate(keys):
            yield key

    def forget(self) -> None:
        for read in self._patterns.values():
            read.forget()

    def row(
        self, table: SqlTable, attributes: Mapping[str, Attribute], wanted: Sequence[str], values: Mapping[str, Any]
    ) -> Any | None:
        """The row with these values of its primary key, if it was read ahead, or can be; else None."""
        if not self._fresh:
            return None
        pattern = (table, tuple(wanted))
        read = self._patterns.get(pattern)
        if read is None:
            read = self._patterns[pattern] = _Read(
                any(attributes[name].kind in ("blob", "json") for name in wanted), self._fresh, self._farthest
            )
        asked, again = tuple(values.values()), read.last == self._at
        found = read.take(self._at, asked)
        if found is not None or read.barred or again:
            return found
        upcoming = self._keys[self._at : self._at + read.reach()]
        if len(upcoming) < 2:
            return None
        try:
            given = [
                tuple(comparable(attributes[name], key[name], self._connection.backend) for name in values)
                for key in upcoming
            ]
        except (KeyError, RestrictionError):
            given = []
        if not given or given[0] != asked:
            return None  # not the row of its own key
        many = lookup_many(table, tuple(values), pattern[1])
        rows = self._connection.read(lambda conn: many.rows(conn, list(dict.fromkeys(given))))
        read.fill({at: (key, rows[key]) for at, key in enumerate(given, self._at) if key in rows})
        return read.take(self._at, asked)


class _Read:
    """What was read of one pattern, for the keys after this one by their number."""

    def __init__(self, barred: bool, fresh: float, farthest: int) -> None:
        self.barred = barred
        self._fresh, self._farthest = fresh, farthest
        self.last = -1
        """The key that asked last."""
        self._rows: dict[int, tuple[tuple[Any, ...], Any]] = {}
        self._number = 0
        self._reach = 1
        self._since = 0.0

    def reach(self) -> int:
        """How far to read now: farther than last time if all of that was used, else no farther than was."""
        self._reach = (
            max(1, self._number - len(self._rows)) if self._rows else min(self._reach * GROWTH, self._farthest)
        )
        return self._reach

    def fill(self, rows: dict[int, tuple[tuple[Any, ...], Any]]) -> None:
        self._rows, self._number, self._since = rows, len(rows), time.monotonic()

    def take(self, at: int, asked: tuple[Any, ...]) -> Any | None:
        self.last = at
        found = self._rows.pop(at, None)
        if found is None or found[0] != asked or time.monotonic() - self._since > self._fresh:
            return None
        return found[1]

    def forget(self) -> None:
        self._rows.clear()

    def start_over(self) -> None:
        self.forget()
        self.last = -1
