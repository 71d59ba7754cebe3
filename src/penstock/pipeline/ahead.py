"""Reading ahead. Most make()s begin by fetching the row of their key from a parent: a round trip for each key, which is most of
what a short make() takes, and the more workers share a machine, the more of it is waiting for one's turn.

So once a key has asked for a row by its own key, the same is read for the keys after it too, in one statement. It is a read
like any other that came a moment earlier: after the key was claimed, never older than FRESH, each row used once and then read
anew. Nothing is read ahead of the tables that are being filled, and no blobs; a row that was not there is looked for again;
and all is forgotten when this populate() writes anything but results.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Table as SqlTable

from penstock.pipeline.connection import Connection
from penstock.pipeline.errors import RestrictionError
from penstock.pipeline.options import Key
from penstock.pipeline.restrict import comparable
from penstock.store.pipeline.lookup import lookup_many
from penstock.store.pipeline.shape import Attribute

FRESH = 0.5
GROWTH = 4
FARTHEST = 100

Pattern = tuple[SqlTable, tuple[str, ...]]
"""What was asked for: the table, and the attributes wanted."""


class Ahead:
    """What one populate() has read for keys that it has not made yet."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._keys: Sequence[Key] = ()
        self._at = 0
        self._patterns: dict[Pattern, _Read] = {}

    def over(self, keys: Sequence[Key]) -> Iterator[Key]:
        """The keys one by one; what each asks for is read for the next ones too."""
        self.forget()
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
        pattern = (table, tuple(wanted))
        read = self._patterns.get(pattern)
        if read is None:
            read = self._patterns[pattern] = _Read(any(attributes[name].kind == "blob" for name in wanted))
        asked = tuple(values.values())
        found = read.take(asked)
        if found is not None or read.barred or read.last == asked:
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
        read.fill(self._connection.read(lambda conn: many.rows(conn, given)))
        return read.take(asked)


class _Read:
    """Rows of one pattern by their keys."""

    def __init__(self, barred: bool) -> None:
        self.barred = barred
        self.last: tuple[Any, ...] = ()
        self._rows: dict[tuple[Any, ...], Any] = {}
        self._number = 0
        self._reach = 1
        self._since = 0.0

    def reach(self) -> int:
        """How far to read now: farther than last time if all of that was used, else no farther than was."""
        self._reach = max(1, self._number - len(self._rows)) if self._rows else min(self._reach * GROWTH, FARTHEST)
        return self._reach

    def fill(self, rows: Mapping[tuple[Any, ...], Any]) -> None:
        self._rows, self._number, self._since = dict(rows), len(rows), time.monotonic()

    def take(self, key: tuple[Any, ...]) -> Any | None:
        found = self._rows.pop(key, None) if time.monotonic() - self._since <= FRESH else None
        if found is not None:
            self.last = key
        return found

    def forget(self) -> None:
        self._rows.clear()
