"""Workers: who is there, what they offer, when they were last seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select, update

from penstock.core.worker_names import own_name
from penstock.store.database import Tx
from penstock.store.tables import clock, workers


def register(tx: Tx, worker_id: str, values: Mapping[str, Any]) -> None:
    """Write the worker's row. Of two requests that come first at once, one writes it."""
    row = tx.insert(workers).values(id=worker_id, started_at=tx.now, last_seen_at=tx.now, running_count=0, **values)
    tx.run(row.on_conflict_do_nothing())


def seen(tx: Tx, worker_id: str, running: int, metadata: Mapping[str, Any] | None = None) -> bool:
    values: dict[str, Any] = {"last_seen_at": tx.now, "running_count": running, "stopped_at": None}
    if metadata is not None:
        values["metadata"] = dict(metadata)
    return bool(tx.count(update(workers).where(workers.c.id == worker_id).values(**values)))


def stopped(tx: Tx, worker_id: str) -> None:
    tx.run(update(workers).where(workers.c.id == worker_id).values(stopped_at=tx.now, running_count=0))


def present(tx: Tx, seen_within: float | None = None) -> list[dict[str, Any]]:
    """Workers that have not stopped, by the names that they gave themselves, newest first, with `stale` for those not seen within the
    time given."""
    stale = (workers.c.last_seen_at <= tx.later(-(seen_within or 60.0))).label("stale")
    query = (
        select(workers, stale).where(workers.c.stopped_at.is_(None)).order_by(workers.c.started_at.desc(), workers.c.id)
    )
    return [{**row, "id": own_name(row["tenant_id"], row["id"])} for row in tx.run(query).mappings()]


def remember_time(tx: Tx) -> None:
    """Note the latest time seen, so that `doctor` can tell a machine whose clock was set back."""
    tx.run(update(clock).where(clock.c.id == 1, clock.c.latest < tx.now).values(latest=tx.now))


def settle_clock(tx: Tx) -> None:
    """Believe the machine's clock again, whatever it said before."""
    tx.dialect.settle_clock(tx.conn)
