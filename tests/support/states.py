"""Where jobs are, asked and changed past the engine: for tests that look at a job between two steps, or plant what a crash left.

Whatever a job is shown with is in `job_view`; what only the engine needs (crashes, suspicion, its slot) is in the row of the
table that the job is in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from penstock import Penstock
from penstock.core.ids import new_id
from penstock.store.database import Tx
from penstock.store.tables import CARRIED, dedupe, job_view, jobs, ready, running, runs, waiting

ACTIVE = (waiting, ready, running)
"""The tables of jobs that have not ended."""


def statuses(app: Penstock) -> Counter[str]:
    """How many jobs there are in each status."""
    with app.db.read() as tx:
        return Counter(row.status for row in tx.rows(sa.select(job_view.c.status)))


def state_of(app: Penstock, job_id: UUID) -> Mapping[str, Any]:
    """The row of a job that has not ended, in whichever table it is; `table` is that table's name."""
    with app.db.read() as tx:
        return _state(tx, job_id)


def _state(tx: Tx, job_id: UUID) -> Mapping[str, Any]:
    found = []
    for table in ACTIVE:
        for row in tx.run(sa.select(table).where(table.c.job_id == job_id)).mappings():
            found.append({**row, "table": table.name})
    assert len(found) == 1, f"job {job_id} is in {len(found)} tables"
    return found[0]


def carried(app: Penstock, *names: str) -> dict[UUID, tuple[Any, ...]]:
    """What every job that has not ended carries under these names, by its id."""
    found: dict[UUID, tuple[Any, ...]] = {}
    with app.db.read() as tx:
        for table in ACTIVE:
            for row in tx.rows(sa.select(table.c.job_id, *(table.c[name] for name in names))):
                assert row.job_id not in found, f"job {row.job_id} is in two tables"
                found[row.job_id] = tuple(row)[1:]
    return found


def change(app: Penstock, job_id: UUID, **values: Any) -> None:
    """Change what a job carries, wherever it is."""
    with app.db.write() as tx:
        name = _state(tx, job_id)["table"]
        target = next(table for table in ACTIVE if table.name == name)
        tx.run(sa.update(target).where(target.c.job_id == job_id).values(**values))


def put_running(
    app: Penstock, job_id: UUID, worker: str = "host:1", lease: float = 30.0, *, begun: bool = True
) -> UUID:
    """Let a job that can be claimed run, as a claim of this worker would. Returns the id of its run."""
    run_id = new_id()
    with app.db.write() as tx:
        row = tx.run(sa.select(ready).where(ready.c.job_id == job_id)).mappings().one()
        kept = {name: row[name] for name in (*CARRIED, "ready_at", "position", "slot")}
        now = tx.time()
        tx.run(
            sa.insert(running).values(
                {
                    **kept, "attempt_no": row["attempt_no"] + 1, "run_id": run_id, "worker_id": worker, "started_at": now,
                    "lease_expires_at": now + timedelta(seconds=lease), "begun": begun,
                }
            )
        )  # fmt: skip
        tx.run(sa.delete(ready).where(ready.c.job_id == job_id))
    return run_id


def force_lease_over(app: Penstock, *job_ids: UUID) -> None:
    """Let the leases of these running jobs be over, or of all."""
    with app.db.write() as tx:
        of_these = sa.true() if not job_ids else running.c.job_id.in_(job_ids)
        tx.run(sa.update(running).where(of_these).values(lease_expires_at=running.c.started_at))


def lose_state(app: Penstock, *job_ids: UUID) -> None:
    """Take jobs out of every table of the active ones, so that they neither wait nor run nor have ended."""
    with app.db.write() as tx:
        for table in ACTIVE:
            tx.run(sa.delete(table).where(table.c.job_id.in_(job_ids)))


def remove(app: Penstock, *job_ids: UUID) -> None:
    """Remove jobs as if they had never been written: with their state and dedupe key, and with their runs."""
    lose_state(app, *job_ids)
    with app.db.write() as tx:
        tx.run(sa.delete(dedupe).where(dedupe.c.job_id.in_(job_ids)))
        tx.run(sa.delete(runs).where(runs.c.job_id.in_(job_ids)))
        tx.run(sa.delete(jobs).where(jobs.c.id.in_(job_ids)))
