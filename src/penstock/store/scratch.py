"""A place of its own beside a database that is in use: the same disk and server, none of its tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.store import urls
from penstock.store.database import Database
from penstock.store.dialect import dialect_for
from penstock.store.schema import upgrade


@contextmanager
def scratch(url: str) -> Iterator[str]:
    """The URL of an empty, migrated store: a file in the same directory, or a schema on the same server. Gone afterwards."""
    parsed = urls.parsed(url)
    with dialect_for(parsed.get_backend_name()).scratch(parsed, lambda: Database(url)) as beside:
        yield _migrated(beside)


def _migrated(url: str) -> str:
    db = Database(url)
    try:
        upgrade(db)
    finally:
        db.close()
    return url
