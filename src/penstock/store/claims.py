"""The hot verbs: claim, heartbeat, close. Each is one transaction's work for a whole batch, fenced by run id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from sqlalchemy import and_, case, delete, insert, literal, or_, select, update

from penstock.core.decide import Attempt
from penstock.core.ids import new_id
from penstock.core.nouns import Claim
from penstock.core.outcomes import NOTHING
from penstock.core.status import JobStatus, RetryMode, RunStatus, WaitsFor
from penstock.store import failpoints, promote, rows
from penstock.store.database import Tx
from penstock.store.dialect import Dialect
from penstock.store.hot import NOTHING_TAKEN, Beats, ClaimRequest, Closed, Closing, Gate, Rehearsed, Success, Taken
from penstock.store.sealing import error_of, has_secrets, progress_of, stderr_of, stdout_of
from penstock.store.tables import definitions, in_status, jobs, run_in_status, runs, tenants


def gate(tx: Tx) -> Gate:
    """Enter: what a claim must know, under the lock that keeps it true until the transaction ends."""
    return tx.dialect.gate(tx.conn, tx.moment)


def claim(tx: Tx, entered: Gate, request: ClaimRequest) -> Taken:
    """Claim as many jobs as are asked for, in order, each with its run row. What became due, or got a slot, takes its
    place first."""
    failpoints.reach("claim.before")
    if entered.due:
        promote.due(tx)
    if entered.due or entered.limited:
        promote.admit(tx)
    admitted = request.through(entered)
    return _opened(tx, tx.dialect.claim(tx.conn, tx.moment, admitted)) if admitted else NOTHING_TAKEN


def _opened(tx: Tx, taken: Taken) -> Taken:
    codec = tx.codec
    return Taken(taken.number, lambda: codec.claims(taken.claims())) if taken.number else taken


def rehearse(dialect: Dialect, expected: Gate, request: ClaimRequest, moment: datetime | None) -> Rehearsed | None:
    """Make a claim ready for the gate as expected; None if that lets nothing through."""
    admitted = request.through(expected)
    return None if admitted is None else dialect.rehearse(moment, admitted, expected)


def enter_and_claim(tx: Tx, rehearsed: Rehearsed) -> tuple[Gate, Taken]:
    """The same where nothing has changed since the gate was last seen, which is most of the time; nothing is claimed if
    something has."""
    failpoints.reach("claim.before")
    entered, taken = tx.dialect.enter_and_claim(tx.conn, tx.moment, rehearsed)
    return entered, _opened(tx, taken)


def held(tx: Tx, run_ids: Sequence[UUID]) -> list[Claim]:
    """The claims of these runs, if they were made: for a caller whose COMMIT was not answered."""
    query = (
        select(jobs, tenants.c.slug, runs.c.started_at.label("run_started"), definitions.c.timeout_seconds)
        .join(tenants, tenants.c.id == jobs.c.tenant_id)
        .outerjoin(definitions, definitions.c.id == jobs.c.definition_id)
        .join(runs, and_(runs.c.job_id == jobs.c.id, runs.c.id == jobs.c.run_id))
        .where(jobs.c.run_id.in_(run_ids), in_status(JobStatus.RUNNING))
        .order_by(jobs.c.priority, jobs.c.position, jobs.c.queued_at, jobs.c.id)
    )
    names = (
        "run_id", "tenant_id", "definition_id", "queue", "params", "attempt_no", "max_attempts", "retry_mode", "root_id",
        "group_id", "lease_expires_at", "trace", "correlation_id", "timeout_seconds",
    )  # fmt: skip
    found = [
        rows.claim(
            {
                **{name: row[name] for name in names},
                "job_id": row["id"],
                "key": row["definition_key"],
                "tenant_slug": row["slug"],
                "started_at": row["run_started"],
                "suspicion": row["crashes"] + 1 if row["suspect"] else 0,
            },
            row["claimed_by"],
        )
        for row in tx.run(query).mappings()
    ]
    return tx.codec.claims(found)


def heartbeat(
    tx: Tx, pairs: Sequence[tuple[UUID, UUID]], lease_seconds: float, begun: Sequence[bool] | None = None
) -> Beats:
    """Extend the leases of (job, run) pairs that are still ours, and note which of them have begun: all unless told."""
    known = [True] * len(pairs) if begun is None else begun
    extended = tx.dialect.heartbeat(tx.conn, tx.moment, pairs, lease_seconds, known)
    renewed = {run_id for run_id, _ in extended}
    asked = {run_id for run_id, cancel in extended if cancel}
    passed_by: set[UUID] = set()
    missing = [(job_id, run_id) for job_id, run_id in pairs if run_id not in renewed]
    if missing:
        # A row that somebody holds at this moment was passed by, not lost: it is ours while it carries our run.
        ours = select(jobs.c.run_id).where(
            jobs.c.id.in_([job_id for job_id, _ in missing]),
            jobs.c.run_id.in_([run_id for _, run_id in missing]),
            in_status(JobStatus.RUNNING),
        )
        passed_by = {row.run_id for row in tx.rows(ours)}
    return Beats(renewed, passed_by, asked)


def attempts(tx: Tx, pairs: Sequence[tuple[UUID, UUID]]) -> dict[UUID, tuple[Attempt, UUID | None]]:
    """The facts a decision needs, by run id, read under lock; a run that is no longer open is missing."""
    query = (
        select(
            jobs.c.run_id, jobs.c.attempt_no, jobs.c.max_attempts, jobs.c.retry_mode, jobs.c.crashes,
            jobs.c.cancel_requested_at, jobs.c.definition_id, jobs.c.interruptions,
        )
        .where(jobs.c.id.in_([job_id for job_id, _ in pairs]), in_status(JobStatus.RUNNING))
        .order_by(jobs.c.id)
        .with_for_update()
    )  # fmt: skip
    wanted = {run_id for _, run_id in pairs}
    return {
        row.run_id: (
            Attempt(
                row.attempt_no,
                row.max_attempts,
                RetryMode(row.retry_mode),
                cancel_requested=row.cancel_requested_at is not None,
                crashes=row.crashes,
                interruptions=row.interruptions,
            ),
            row.definition_id,
        )
        for row in tx.rows(query)
        if row.run_id in wanted
    }


def close(tx: Tx, closings: Sequence[Closing], shard: int = 0) -> list[Closed]:
    """Close runs and move their jobs as decided, with their retries. One that is missing from the answer was not ours."""
    failpoints.reach("finish.before")
    sealed = _sealed(tx, closings) if tx.codec.writes else closings
    closed = list(tx.dialect.close(tx.conn, tx.moment, sealed, shard))
    failpoints.reach("finish.before_retry")
    ours = {done.run_id for done in closed}
    for closing in closings:
        if closing.resolution.chain and closing.run_id in ours:
            chain(tx, closing.job_id, closing.resolution.delay or 0.0)
    return closed


def close_successes(tx: Tx, successes: Sequence[Success], shard: int = 0) -> set[UUID]:
    """Close those of them that belong to no group and of which no webhook is to know; answer their run ids."""
    failpoints.reach("finish.before")
    if tx.codec.writes:
        successes = _sealed_successes(tx, successes)
        if not successes:
            return set()
    closed = tx.dialect.close_successes(tx.conn, tx.moment, successes, shard)
    return {success.run_id for success in successes} if closed is None else closed


def _sealed(tx: Tx, closings: Sequence[Closing]) -> list[Closing]:
    telling = [closing for closing in closings if has_secrets(closing.resolution)]
    known = _tenants(tx, [(closing.job_id, closing.tenant_id) for closing in telling])
    return [
        tx.codec.closing(closing, known[closing.job_id]) if closing.job_id in known else _without_secrets(closing)
        for closing in closings
    ]


def _without_secrets(closing: Closing) -> Closing:
    """One that has none, or whose job is gone: then nothing is written, and nothing in clear may go to the server."""
    if not has_secrets(closing.resolution):
        return closing
    bare = replace(closing.resolution, error=None, result=None, evidence=NOTHING)
    return replace(closing, resolution=bare)


def _sealed_successes(tx: Tx, successes: Sequence[Success]) -> list[Success]:
    known = _tenants(tx, [(each.job_id, each.tenant_id) for each in successes if each.result is not None])
    return [
        each if each.result is None else tx.codec.success(each, known[each.job_id])
        for each in successes
        if each.result is None or each.job_id in known
    ]


def _tenants(tx: Tx, given: Sequence[tuple[UUID, UUID | None]]) -> dict[UUID, UUID]:
    """Whose jobs these are: most callers know, the others' are looked up."""
    known = {job_id: tenant_id for job_id, tenant_id in given if tenant_id is not None}
    missing = [job_id for job_id, tenant_id in given if tenant_id is None]
    if missing:
        known |= {
            row.id: row.tenant_id for row in tx.rows(select(jobs.c.id, jobs.c.tenant_id).where(jobs.c.id.in_(missing)))
        }
    return known


def chain(tx: Tx, job_id: UUID, delay: float) -> UUID:
    """A new job that retries this one, due after `delay`. `UNIQUE (retry_of)` holds that there is only one."""
    retry_id = new_id()
    copied = (
        "tenant_id", "definition_id", "definition_key", "queue", "priority", "params", "source", "source_ref", "dedupe_key",
        "correlation_id", "attempt_no", "max_attempts", "retry_mode", "root_id", "group_id", "group_position", "trigger_id",
        "tick_at", "created_by", "trace", "crashes", "interruptions", "suspect",
    )  # fmt: skip
    ours: dict[str, Any] = {
        "id": literal(retry_id, jobs.c.id.type),
        "retry_of": jobs.c.id,
        "status": literal(str(JobStatus.QUEUED)),
        "claimable": literal(False),
        "waits_for": literal(str(WaitsFor.TIME)),
        "slot": literal(False),
        "position": literal(0),
        "scheduled_for": tx.later(delay),
        "created_at": tx.now,
        "queued_at": tx.now,
    }
    source = select(*(jobs.c[name] for name in copied), *(value.label(name) for name, value in ours.items())).where(
        jobs.c.id == job_id
    )
    tx.run(insert(jobs).from_select([*copied, *ours], source))
    return retry_id


def release(tx: Tx, pairs: Sequence[tuple[UUID, UUID]], *, suspects: bool = False) -> int:
    """Give claims that were never started back untouched: the run is as if it had not been, the place is kept. One whose
    definition was paused or limited meanwhile goes behind that limit instead; one that was asked to stop is left.
    `suspects` are claims of a worker that died, of which nobody can tell whether they had begun."""
    limited = or_(
        select(definitions.c.id)
        .where(
            definitions.c.id == jobs.c.definition_id,
            or_(definitions.c.paused, and_(definitions.c.max_running.is_not(None), ~jobs.c.slot)),
        )
        .exists(),
        select(tenants.c.id)
        .where(tenants.c.id == jobs.c.tenant_id, tenants.c.max_running.is_not(None), ~jobs.c.slot)
        .exists(),
    )
    given = update(jobs).where(
        jobs.c.id.in_([job_id for job_id, _ in pairs]),
        jobs.c.run_id.in_([run_id for _, run_id in pairs]),  # a run is of one job
        in_status(JobStatus.RUNNING),
        jobs.c.cancel_requested_at.is_(None),
    )
    values: dict[str, Any] = {
        "status": JobStatus.QUEUED,
        "claimable": ~limited,
        "waits_for": case((limited, WaitsFor.LIMIT)),
        "slot": and_(jobs.c.slot, ~limited),
        "attempt_no": jobs.c.attempt_no - 1,
        "started_at": case((jobs.c.attempt_no > 1, jobs.c.started_at)),
        "run_id": None,
        "claimed_by": None,
        "lease_expires_at": None,
    }
    if suspects:
        values["suspect"] = True
    returned = tx.rows(given.values(**values).returning(jobs.c.id, jobs.c.queue, jobs.c.claimable))
    if returned:
        mine = and_(runs.c.job_id.in_([row.id for row in returned]), runs.c.id.in_([run_id for _, run_id in pairs]))
        tx.run(delete(runs).where(mine, run_in_status(RunStatus.RUNNING)))
        tx.dialect.wake(tx.conn, [row.queue for row in returned if row.claimable])
    return len(returned)


def asked_to_stop(tx: Tx, pairs: Sequence[tuple[UUID, UUID]]) -> list[tuple[UUID, UUID]]:
    """Of these (job, run) pairs, those still open whose job was asked to stop."""
    query = select(jobs.c.id, jobs.c.run_id).where(
        jobs.c.id.in_([job_id for job_id, _ in pairs]),
        in_status(JobStatus.RUNNING),
        jobs.c.cancel_requested_at.is_not(None),
    )
    wanted = set(pairs)
    return [(row.id, row.run_id) for row in tx.rows(query) if (row.id, row.run_id) in wanted]


def report_progress(tx: Tx, job_id: UUID, run_id: UUID, values: dict[str, Any]) -> bool:
    """Progress of a run that is still open; a stale one changes nothing."""
    if tx.codec.writes:
        known = _tenants(tx, [(job_id, None)])
        if job_id not in known:
            return False
        values = tx.codec.seal(values, progress_of(known[job_id], job_id))
    return bool(
        tx.count(
            update(jobs)
            .where(jobs.c.id == job_id, jobs.c.run_id == run_id, in_status(JobStatus.RUNNING))
            .values(progress=values)
        )
    )


def report_tails(tx: Tx, job_id: UUID, run_id: UUID, stdout: str | None, stderr: str | None) -> bool:
    """What an open run has printed lately."""
    if tx.codec.writes:
        known = _tenants(tx, [(job_id, None)])
        if job_id not in known:
            return False
        stdout = tx.codec.seal_text(stdout, stdout_of(known[job_id], run_id))
        stderr = tx.codec.seal_text(stderr, stderr_of(known[job_id], run_id))
    return bool(
        tx.count(
            update(runs)
            .where(runs.c.job_id == job_id, runs.c.id == run_id, run_in_status(RunStatus.RUNNING))
            .values(stdout_tail=stdout, stderr_tail=stderr)
        )
    )


def report_pid(tx: Tx, job_id: UUID, run_id: UUID, pid: int) -> bool:
    """Note which process an open run has."""
    return bool(
        tx.count(
            update(runs)
            .where(runs.c.job_id == job_id, runs.c.id == run_id, run_in_status(RunStatus.RUNNING))
            .values(pid=pid)
        )
    )


def append_artifacts(tx: Tx, job_id: UUID, run_id: UUID, artifacts: Sequence[dict[str, Any]]) -> bool:
    """Artifacts are the one thing that may be added to a run, even a finished one."""
    where = and_(runs.c.job_id == job_id, runs.c.id == run_id)
    row = tx.first(select(runs.c.artifacts).where(where).with_for_update())
    if row is None:
        return False
    tx.run(update(runs).where(where).values(artifacts=[*(row.artifacts or []), *artifacts]))
    return True


def policies(tx: Tx, ids: set[UUID]) -> dict[UUID, Any]:
    found = tx.rows(select(definitions.c.id, definitions.c.retry_policy).where(definitions.c.id.in_(ids)))
    return {row.id: row.retry_policy for row in found}


def ended(tx: Tx, pairs: Sequence[tuple[UUID, UUID]]) -> dict[UUID, tuple[RunStatus, str | None]]:
    """Of these (job, run) pairs, how the runs that are closed ended, by run id."""
    query = select(runs.c.id, runs.c.status, runs.c.error, runs.c.tenant_id, runs.c.job_id).where(
        runs.c.job_id.in_([job_id for job_id, _ in pairs]),
        runs.c.id.in_([run_id for _, run_id in pairs]),
        runs.c.status != RunStatus.RUNNING,
    )
    return {
        row.id: (RunStatus(row.status), tx.codec.open_text(row.error, partial(error_of, row.tenant_id, row.job_id)))
        for row in tx.rows(query)
    }
