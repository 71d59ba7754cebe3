"""A place of its own beside a database that is in use: the same disk and server, none of its tables."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.engine import make_url

from penstock.store.database import Database
from penstock.store.schema import upgrade


@contextmanager
def scratch(url: str) -> Iterator[str]:
    """The URL of an empty, migrated store: a file in the same directory, or a schema on the same server. Gone afterwards."""
    parsed = make_url(url)
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
