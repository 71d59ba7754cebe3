"""Two siblings: what must differ between SQLite and PostgreSQL, with its reason. Everything else is shared."""

from __future__ import annotations

from penstock.core.errors import InvalidInput
from penstock.store.dialects.base import Dialect
from penstock.store.dialects.postgresql import PostgresDialect
from penstock.store.dialects.sqlite import SqliteDialect

__all__ = ["Dialect", "dialect_for"]


def dialect_for(name: str, *, injected_clock: bool = False) -> Dialect:
    if name == "sqlite":
        return SqliteDialect(injected_clock)
    if name == "postgresql":
        return PostgresDialect()
    raise InvalidInput(f"Penstock lives on sqlite or postgresql, not on {name!r}.")
