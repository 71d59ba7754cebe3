"""A place of its own beside a database that is in use: the same disk and server, none of its tables."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import text

from penstock.core.errors import InvalidInput
from penstock.store import urls
from penstock.store.database import Database
from penstock.store.postgresql.link import is_pooled
from penstock.store.schema import upgrade


@contextmanager
def scratch(url: str) -> Iterator[str]:
    """The URL of an empty, migrated store: a file in the same directory, or a schema on the same server. Gone afterwards."""
    parsed = urls.parsed(url)
    if parsed.get_backend_name() == "sqlite":
        with tempfile.TemporaryDirectory(
            prefix="penstock-bench-", dir=Path(parsed.database or ".").resolve().parent
        ) as d:
            yield _migrated(f"sqlite:///{d}/bench.db")
        return
    name = f"penstock_bench_{uuid.uuid4().hex[:8]}"
    db = Database(url)
    try:
        with db.write() as tx:
            if is_pooled(tx.conn.connection.dbapi_connection):
                raise InvalidInput("This needs a direct connection to PostgreSQL, not one through a pooler.")
            tx.run(text(f"CREATE SCHEMA {name}"))
        try:
            inside = parsed.update_query_dict({"options": f"-csearch_path={name}"})
            yield _migrated(inside.render_as_string(hide_password=False))
        finally:
            with db.write() as tx:
                tx.run(text(f"DROP SCHEMA {name} CASCADE"))
    finally:
        db.close()


def _migrated(url: str) -> str:
    db = Database(url)
    try:
        upgrade(db)
    finally:
        db.close()
    return url
