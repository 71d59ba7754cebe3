"""Erase a tenant: every row of every table that belongs to it, a page at a time, then the tenant itself.

What belongs to a tenant is read from the tables' own metadata. A table without a `tenant_id` must be named here, either with how
its rows are found or as one that knows no tenants; a test holds that none is forgotten.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import Table, Text, and_, cast, delete, exists, func, insert, literal, or_, select, text, tuple_, update
from sqlalchemy.sql import ColumnElement

from penstock.core.audit_chain import DELETED
from penstock.core.tenancy import Certificate, Deletion
from penstock.store import audit, audit_chain, failpoints
from penstock.store.database import Tx
from penstock.store.reservations import take
from penstock.store.tables import (
    audit_heads,
    dedupe,
    erasures,
    idempotency_keys,
    jobs,
    metadata,
    principals,
    ready,
    reservations,
    runs,
    sessions,
    tenants,
    trigger_fires,
    triggers,
    waiting,
    workers,
)
from penstock.store.tables import (
    running as open_runs,
)

PAGE = 500
CLOSED_BY = "tenant deletion"
FOREVER = 100 * 365 * 86400.0

Finder = Callable[[UUID], ColumnElement[bool]]


def _of_principal(tenant_id: UUID) -> ColumnElement[bool]:
    return sessions.c.principal_id.in_(select(principals.c.id).where(principals.c.tenant_id == tenant_id))


def _of_trigger(tenant_id: UUID) -> ColumnElement[bool]:
    return trigger_fires.c.trigger_id.in_(select(triggers.c.id).where(triggers.c.tenant_id == tenant_id))


def _answers(tenant_id: UUID) -> ColumnElement[bool]:
    """The tenant's own keys, and what the operator was told when the tenant and its tokens were created."""
    told = cast(idempotency_keys.c.response_body, Text).contains(str(tenant_id))
    return or_(idempotency_keys.c.tenant_id == tenant_id, told)


def _workers(tenant_id: UUID) -> ColumnElement[bool]:
    told = cast(workers.c.metadata, Text).contains(str(tenant_id))
    return or_(workers.c.tenant_id == tenant_id, told) if "tenant_id" in workers.c else told


FOUND_OTHERWISE: Mapping[str, Finder] = {
    sessions.name: _of_principal,
    trigger_fires.name: _of_trigger,
    idempotency_keys.name: _answers,
    workers.name: _workers,
}
"""How the rows of a tenant are found in tables where `tenant_id = …` does not say it all."""
OF_NOBODY = frozenset(
    {"penstock_clock", "penstock_floors", "penstock_leaders", "penstock_queues", "penstock_revocations"}
)
"""Tables that know no tenants. A revoked JWT is known by its issuer and its own id, which mean nothing here without its tenant."""
LAST = frozenset({tenants.name, erasures.name, audit_heads.name})
"""What goes in the last transaction."""
STATES = (waiting, ready, open_runs)
WITH_JOBS = frozenset({jobs.name, runs.name, dedupe.name, *(table.name for table in STATES)})
"""What goes with the jobs. What is left of it without one comes before all others."""
LARGE = frozenset({runs.name, "penstock_tallies"})
"""Tables without an index by tenant. They are written with jobs only, so they are not read again in the last transaction."""


def tables() -> list[Table]:
    """The tables that hold rows of tenants, those that refer to others first. The audit comes last."""
    found = [each for each in reversed(metadata.sorted_tables) if each.name not in OF_NOBODY | LAST | WITH_JOBS]
    return [
        *STATES,
        dedupe,
        runs,
        *sorted(found, key=lambda each: (each.name == "penstock_audit", each.name not in FOUND_OTHERWISE)),
    ]


def rows_of(table: Table, tenant_id: UUID) -> ColumnElement[bool]:
    """Which rows of a table belong to a tenant."""
    if table.name in FOUND_OTHERWISE:
        return FOUND_OTHERWISE[table.name](tenant_id)
    if table is tenants:
        return tenants.c.id == tenant_id
    if table is audit_heads:
        return audit_heads.c.chain == tenant_id
    found: ColumnElement[bool] = table.c.tenant_id == tenant_id
    return found


# 1. Close.


def close(tx: Tx, tenant_id: UUID, requested_by: str, request_id: str | None) -> bool:
    """Close a tenant: from the commit on it takes no jobs, its tokens and sessions are worth nothing, its schedules stand still and
    nothing of it is claimed. Runs under way are asked to stop. Return whether it was open until now."""
    # Not a full lock: a caller's open transaction with rows of this tenant must not keep it from being closed.
    if tx.first(select(tenants.c.id).where(tenants.c.id == tenant_id).with_for_update(key_share=True)) is None:
        return False
    if tx.first(select(erasures.c.tenant_id).where(erasures.c.tenant_id == tenant_id)) is not None:
        return False
    until = tx.scalar(select(func.max(open_runs.c.lease_expires_at)).where(open_runs.c.tenant_id == tenant_id))
    tx.run(
        insert(erasures).values(
            tenant_id=tenant_id, requested_by=requested_by, request_id=request_id, requested_at=tx.now,
            drain_until=tx.lease_now if until is None else until, counts={}, horizon=_transaction(tx),
        )
    )  # fmt: skip
    tx.run(update(tenants).where(tenants.c.id == tenant_id).values(is_active=False))
    _hold(tx, tenant_id)
    stop(tx, tenant_id)
    return True


def _hold(tx: Tx, tenant_id: UUID) -> None:
    """Nothing of a tenant is claimed while a reservation is active; this one does not end."""
    mine = (reservations.c.tenant_id == tenant_id, reservations.c.status == "active")
    tx.run(
        update(reservations)
        .where(*mine, reservations.c.reserved_by != CLOSED_BY)
        .values(status="released", ended_at=tx.now)
    )
    take(tx, tenant_id, CLOSED_BY, FOREVER)


def _transaction(tx: Tx) -> str | None:
    """PostgreSQL: `closing:N` with the number of the transaction that closes the tenant."""
    if tx.dialect.name != "postgresql":
        return None
    return f"closing:{tx.scalar(text('SELECT pg_current_xact_id()::text'))}"


def stop(tx: Tx, tenant_id: UUID) -> None:
    """Ask the runs under way to stop."""
    tx.run(
        update(open_runs)
        .where(open_runs.c.tenant_id == tenant_id, open_runs.c.cancel_requested_at.is_(None))
        .values(cancel_requested_at=tx.now)
    )


# 2. Erase, a page at a time.


def under_way(tx: Tx) -> list[UUID]:
    """The tenants that are being deleted. Most often there are none."""
    return [row.tenant_id for row in tx.rows(select(erasures.c.tenant_id).order_by(erasures.c.requested_at))]


def deletion(tx: Tx, tenant_id: UUID) -> Deletion | None:
    """How far the deletion of a tenant is."""
    query = select(erasures, tenants.c.slug).join(tenants, tenants.c.id == erasures.c.tenant_id)
    row = tx.run(query.where(erasures.c.tenant_id == tenant_id)).mappings().first()
    if row is None:
        return None
    return Deletion(tenant_id, row["slug"], row["requested_by"], row["requested_at"], dict(row["counts"]))


def running(tx: Tx, tenant_id: UUID) -> int:
    """How many runs may still end by themselves: those under way, until the leases of the moment of closing are over."""
    drains = exists().where(erasures.c.tenant_id == tenant_id, erasures.c.drain_until > tx.lease_now)
    query = select(func.count()).select_from(open_runs).where(open_runs.c.tenant_id == tenant_id)
    return int(tx.scalar(query.where(drains)))


def job_page(tx: Tx, tenant_id: UUID, after: UUID | None) -> list[UUID]:
    query = select(jobs.c.id).where(jobs.c.tenant_id == tenant_id).order_by(jobs.c.id).limit(PAGE)
    return [row.id for row in tx.rows(query if after is None else query.where(jobs.c.id > after))]


def erase_jobs(tx: Tx, tenant_id: UUID, ids: Sequence[UUID], *, also_running: bool) -> tuple[int, int]:
    """Delete jobs with their runs and the logs that are on this machine. Return how many jobs and runs went. A worker that still
    holds a run has lost it: its next report is refused."""
    # First what a claim would take: what comes after sees what was claimed before.
    for table in (waiting, ready):
        tx.run(delete(table).where(table.c.tenant_id == tenant_id, table.c.job_id.in_(ids)))
    opened: Sequence[Any] = ()
    query = delete(jobs).where(jobs.c.id.in_(ids), jobs.c.tenant_id == tenant_id)
    if also_running:
        mine = delete(open_runs).where(open_runs.c.job_id.in_(ids), open_runs.c.tenant_id == tenant_id)
        opened = tx.rows(mine.returning(open_runs.c.run_id))
    else:
        query = query.where(~exists().where(open_runs.c.job_id == jobs.c.id))
    gone = [row.id for row in tx.rows(query.returning(jobs.c.id))]
    if gone:
        tx.run(delete(dedupe).where(dedupe.c.tenant_id == tenant_id, dedupe.c.job_id.in_(gone)))
    ended = tx.rows(delete(runs).where(runs.c.job_id.in_(gone)).returning(runs.c.id, runs.c.log_path)) if gone else []
    files = sum(_remove_log(row.id, row.log_path) for row in ended if row.log_path)
    number = len(opened) + sum(row.id is not None for row in ended)
    _count(tx, tenant_id, {"jobs": len(gone), "runs": number, "log_files": files})
    return len(gone), number


def _remove_log(run_id: UUID, path: str) -> bool:
    """Remove the log of a run, if it is here. Never anything but a plain file that has the run's name."""
    if Path(path).name != f"{run_id}.log":
        return False
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return False
        Path(path).unlink()
    except OSError:
        return False
    return True


def page(tx: Tx, table: Table, tenant_id: UUID, after: Sequence[Any] | None) -> list[tuple[Any, ...]]:
    """The keys of the tenant's next rows in a table, in the order of the key: one pass reads the table once."""
    key = list(table.primary_key.columns)
    query = select(*key).where(rows_of(table, tenant_id)).order_by(*key).limit(PAGE)
    if after is not None:
        last = [literal(value, column.type) for value, column in zip(after, key, strict=True)]
        query = query.where(tuple_(*key) > tuple_(*last) if len(key) > 1 else key[0] > last[0])
    return [tuple(row) for row in tx.rows(query)]


def erase_page(tx: Tx, table: Table, tenant_id: UUID, keys: Sequence[tuple[Any, ...]]) -> int:
    columns = list(table.primary_key.columns)
    mine: ColumnElement[bool]
    if len(columns) == 1:
        mine = columns[0].in_([key[0] for key in keys])
    else:
        mine = or_(*(_is(columns, key) for key in keys))
    logs: Sequence[Any] = ()
    if table is runs:
        logs = tx.rows(select(runs.c.id, runs.c.log_path).where(mine, runs.c.log_path.is_not(None)))
    files = sum(_remove_log(row.id, row.log_path) for row in logs)
    gone = tx.count(delete(table).where(mine))
    _count(tx, tenant_id, {_name(table): gone, "log_files": files})
    return gone


def _is(columns: Sequence[Any], key: Sequence[Any]) -> ColumnElement[bool]:
    return and_(*(column == value for column, value in zip(columns, key, strict=True)))


def _name(table: Table) -> str:
    return table.name.removeprefix("penstock_")


def _count(tx: Tx, tenant_id: UUID, more: Mapping[str, int]) -> None:
    """Add to what was erased so far, in the transaction that erased it."""
    row = tx.first(select(erasures.c.counts).where(erasures.c.tenant_id == tenant_id).with_for_update())
    if row is None:
        return
    counts = dict(row.counts)
    for name, number in more.items():
        if number:
            counts[name] = counts.get(name, 0) + number
    tx.run(update(erasures).where(erasures.c.tenant_id == tenant_id).values(counts=counts))
    failpoints.reach("erase.before_commit")


# 3. The end.


def others_are_done(tx: Tx, tenant_id: UUID) -> bool:
    """Whether no transaction is open any more that saw the tenant before it was closed, and might still write a row of it.

    On SQLite nobody writes beside us. On PostgreSQL first every snapshot from before the closing must be gone, then every
    transaction that had written something by then must have ended."""
    if tx.dialect.name != "postgresql":
        return True
    horizon = tx.scalar(select(erasures.c.horizon).where(erasures.c.tenant_id == tenant_id).with_for_update())
    if horizon is None:
        return False
    phase, _, number = horizon.partition(":")
    if phase == "closing":
        old = text(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend' AND age(backend_xmin) >= age(CAST(CAST(:closing AS text) AS xid8)::xid)"
        )
        if tx.scalar(old, {"closing": number}):
            return False
        seen = tx.scalar(text("SELECT pg_snapshot_xmax(pg_current_snapshot())::text"))
        tx.run(update(erasures).where(erasures.c.tenant_id == tenant_id).values(horizon=f"writing:{seen}"))
        return False
    ended = text("SELECT pg_snapshot_xmin(pg_current_snapshot()) >= CAST(CAST(:seen AS text) AS xid8)")
    return bool(tx.scalar(ended, {"seen": number}))


def finish(tx: Tx, tenant_id: UUID) -> Certificate | None:
    """Delete the tenant itself and certify it in the operator's audit. None if something of it has appeared meanwhile."""
    row = tx.run(select(erasures).where(erasures.c.tenant_id == tenant_id).with_for_update()).mappings().first()
    tenant = tx.run(select(tenants).where(tenants.c.id == tenant_id).with_for_update()).mappings().first()
    if row is None or tenant is None:
        return None
    if tx.first(select(jobs.c.id).where(jobs.c.tenant_id == tenant_id).limit(1)) is not None:
        return None
    counts = dict(row["counts"])
    for table in tables():
        if table.name not in LARGE:
            gone = tx.count(delete(table).where(rows_of(table, tenant_id)))
            if gone:
                counts[_name(table)] = counts.get(_name(table), 0) + gone
    head = audit_chain.head(tx, tenant_id)
    tx.run(delete(audit_heads).where(audit_heads.c.chain == tenant_id))
    tx.run(delete(erasures).where(erasures.c.tenant_id == tenant_id))
    failpoints.reach("erase.before_commit")
    tx.run(delete(tenants).where(tenants.c.id == tenant_id))
    now = tx.time()
    files = counts.pop("log_files", 0)
    made = Certificate(
        tenant_id, tenant["slug"], row["requested_by"], row["requested_at"], now, counts, files,
        0 if head is None else head.seq, None if head is None else head.hash,
    )  # fmt: skip
    audit.write(
        tx, None, made.requested_by, DELETED, "tenant", str(tenant_id), after=made.told(),
        request_id=row["request_id"],
    )  # fmt: skip
    return made


def certificates(tx: Tx, tenant_id: UUID) -> list[Certificate]:
    """What the operator's audit certifies of a tenant that was deleted."""
    return [
        Certificate.read(entry.after)
        for entry in audit.listed(
            tx, None, 10, None, audit.Filter(action=DELETED, subject_id=str(tenant_id)), operator=True
        )
        if isinstance(entry.after, Mapping)
    ]
