"""Keys for tests, and everything that a database holds, as bytes."""

from __future__ import annotations

import base64
import sqlite3
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import select

from penstock import Penstock
from penstock.store.tables import metadata

K1 = "k1:" + base64.b64encode(bytes(range(32))).decode()
K2 = "k2:" + base64.b64encode(bytes(range(32, 64))).decode()
OTHER_K1 = "k1:" + base64.b64encode(bytes(range(64, 96))).decode()


def dump(url: str) -> bytes:
    """All rows of all tables as the database gives them out; of SQLite every byte of its files, too."""
    if url.startswith("sqlite"):
        path = url.removeprefix("sqlite:///")
        with sqlite3.connect(path) as conn:
            rows = "\n".join(conn.iterdump()).encode()
        files = [Path(path + end) for end in ("", "-wal", "-shm", "-journal")]
        return rows + b"".join(file.read_bytes() for file in files if file.exists())
    with psycopg.connect(url.replace("+psycopg", "")) as conn:
        found = b""
        for table in metadata.sorted_tables:
            with conn.cursor().copy(f"COPY {table.name} TO STDOUT") as copy:  # type: ignore[arg-type]
                found += b"".join(bytes(part) for part in copy)
        return found


def stored(app: Penstock, table: str, column: str) -> list[Any]:
    """The values of a column as they are stored."""
    of = metadata.tables[f"penstock_{table}"]
    with app.db.read() as tx:
        return [row[0] for row in tx.rows(select(of.c[column]))]
