"""Moving house: every row of one database into another, ids and history kept."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import delete, func, insert, select

from penstock.core.errors import Conflict
from penstock.store import schema
from penstock.store.database import Database
from penstock.store.tables import clock, definitions, jobs, metadata, queues, tenants

BATCH = 2000
Progress = Callable[[str, int, int], None]
"""Called with a table's name, the rows copied so far, and all of them."""


def _silent(_table: str, _done: int, _total: int) -> None:
    return None


def copy_database(source: Database, target: Database, progress: Progress = _silent) -> dict[str, int]:
    """Copy everything, in one transaction of the target, while nobody can write to the source. All or nothing.

    The target must be migrated and hold no jobs or definitions yet. Answers how many rows of each table were copied."""
    schema.verify(source)
    schema.upgrade(target)
    copied: dict[str, int] = {}
    with source.write(patient=True) as reading, target.write(patient=True) as writing:
        for table in (jobs, definitions):
            if writing.scalar(select(func.count()).select_from(table)):
                raise Conflict(
                    f"{target.url.render_as_string(hide_password=True)} is in use already; copy into a fresh database."
                )
        for table in (clock, queues, tenants):  # what the first migration made; the source has its own
            writing.run(delete(table))
        for table in metadata.sorted_tables:
            total = int(reading.scalar(select(func.count()).select_from(table)))
            done = 0
            name = table.name.removeprefix("penstock_")
            progress(name, 0, total)
            result = reading.conn.execution_options(yield_per=BATCH).execute(select(table))
            for rows in result.mappings().partitions(BATCH):
                writing.run(insert(table), [dict(row) for row in rows])
                done += len(rows)
                progress(name, done, total)
            copied[name] = done
    return copied
