"""Changing what was asked for, while a job waits: its params, its priority, its time. The caller holds it (`states.hold`)."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, and_, update

from penstock.core.nouns import Job
from penstock.store import jobs as job_rows
from penstock.store.database import Tx
from penstock.store.sealing import params_of
from penstock.store.tables import jobs, waiting


def set_params(tx: Tx, job: Job, params: dict[str, Any]) -> None:
    """Change the params of a job that waits. Its earlier runs keep what they ran with."""
    if job.attempt_no > 0:
        job_rows.keep_snapshots(tx, job)
    sealed = tx.codec.seal(params, params_of(job.tenant_id, job.root_id)) if params else params
    tx.run(update(jobs).where(jobs.c.id == job.id).values(params=sealed))


def set_priority(tx: Tx, job: Job, priority: int) -> None:
    """Change the priority of a job that waits for its time, its turn or a slot. One that is ready has a place at its priority:
    `order.put` changes both."""
    tx.run(update(jobs).where(jobs.c.id == job.id).values(priority=priority))
    here = and_(waiting.c.tenant_id == job.tenant_id, waiting.c.job_id == job.id)
    tx.run(update(waiting).where(here).values(priority=priority))


def set_time(tx: Tx, job_id: UUID, moment: datetime | ColumnElement[datetime]) -> None:
    """Change when a job was asked to run. When one that waits for its time is due is in `waiting`."""
    tx.run(update(jobs).where(jobs.c.id == job_id).values(scheduled_for=moment))
