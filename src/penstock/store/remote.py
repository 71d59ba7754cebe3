"""What a worker that comes over HTTP may touch: looked up before its report is believed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import select, update

from penstock.store import workers
from penstock.store.database import Tx
from penstock.store.tables import job_view
from penstock.store.tables import workers as workers_table

SEEN_SECONDS = 5


class Held(NamedTuple):
    """A job as a worker's report finds it."""

    tenant_id: UUID
    queue: str
    key: str
    run_id: UUID | None
    status: str
    claimed_by: str | None


def held(tx: Tx, job_id: UUID) -> Held | None:
    return held_many(tx, [job_id]).get(job_id)


def held_many(tx: Tx, job_ids: Collection[UUID]) -> dict[UUID, Held]:
    names = ("id", *("definition_key" if name == "key" else name for name in Held._fields))
    found = tx.rows(select(*(job_view.c[name] for name in names)).where(job_view.c.id.in_(job_ids)))
    return {row[0]: Held(*row[1:]) for row in found}


def seen(tx: Tx, tenant_id: UUID | None, worker_ids: Collection[str]) -> None:
    """Note that workers whose runs were kept are alive, even if they claim nothing for long. A tenant's token speaks for the tenant's
    own workers alone."""
    mine = workers_table.c.tenant_id.is_(None) if tenant_id is None else workers_table.c.tenant_id == tenant_id
    tx.run(
        update(workers_table)
        .where(workers_table.c.id.in_(worker_ids), mine, workers_table.c.last_seen_at < tx.later(-SEEN_SECONDS))
        .values(last_seen_at=tx.now, stopped_at=None)
    )


def present(
    tx: Tx, tenant_id: UUID | None, worker_id: str, values: Mapping[str, Any], before: Callable[[Tx], object]
) -> None:
    """Note that a worker is there; the first time, what it offers. `before` is called before a row is added."""
    running = int(values.get("running_count", 0))
    if not workers.seen(tx, worker_id, running):
        before(tx)
        row = {name: value for name, value in values.items() if name != "running_count"}
        workers.register(tx, worker_id, {**row, "tenant_id": tenant_id})
