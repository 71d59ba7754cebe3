"""A caller's psycopg connection, lent with cursors of psycopg's defaults.

Frameworks change how a connection's cursors read and write values: Django has `jsonb` as text, times without their zone and
parameters in the statement; others have rows as dictionaries. Ours must not depend on that.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.rows import tuple_row

DEFAULTS = AdaptersMap(types=psycopg.postgres.types)
psycopg.postgres.register_default_adapters(DEFAULTS)


class PlainCursor(psycopg.Cursor[tuple[Any, ...]]):
    """A cursor whose adapters are psycopg's, not its connection's."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        super().__init__(connection, row_factory=tuple_row)
        self._adapters = AdaptersMap(DEFAULTS)


class Plain:
    """A caller's connection with plain cursors; all else is the connection's own."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def cursor(self, *_args: Any, **_kwargs: Any) -> PlainCursor:
        return PlainCursor(self._connection)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)
