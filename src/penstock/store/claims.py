"""The hot verbs: claim, heartbeat, close. Each is one transaction's work for a whole batch, fenced by run id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, and_, case, insert, literal, select, update

from penstock.core.decide import Attempt
from penstock.core.ids import new_id
from penstock.core.nouns import Claim
from penstock.core.outcomes import NOTHING
from penstock.core.status import RetryMode, RunStatus, WaitsFor
from penstock.store import failpoints, promote, rows, states
from penstock.store.database import HotTx, Tx
from penstock.store.dialect import Dialect
from penstock.store.hot import NOTHING_TAKEN, Beats, ClaimRequest, Closing, Closures, Gate, Rehearsed, Taken
from penstock.store.sealing import error_of, has_secrets, progress_of, stderr_of, stdout_of
from penstock.store.tables import definitions, jobs, running, runs, tenants


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


def _opened(tx: HotTx, taken: Taken) -> Taken:
    codec = tx.codec
    return Taken(taken.number, lambda: codec.claims(taken.claims())) if taken.number else taken


def rehearse(dialect: Dialect, expected: Gate, request: ClaimRequest, moment: datetime | None) -> Rehearsed | None:
    """Make a claim ready for the gate as expected; None if that lets nothing through."""
    admitted = request.through(expected)
    return None if admitted is None else dialect.rehearse(moment, admitted, expected)


def enter_and_claim(tx: HotTx, rehearsed: Rehearsed) -> tuple[Gate, Taken]:
    """The same where nothing has changed since the gate was last seen, which is most of the time; nothing is claimed if
    something has."""
    failpoints.reach("claim.before")
    entered, taken = tx.dialect.enter_and_claim(tx.conn, tx.moment, rehearsed)
    return entered, _opened(tx, taken)


def held(tx: Tx, run_ids: Sequence[UUID]) -> list[Claim]:
    """The claims of these runs, if they were made: for a caller whose COMMIT was not answered."""
    query = (
        select(
            running.c.job_id, running.c.run_id, running.c.tenant_id, tenants.c.slug.label("tenant_slug"), running.c.definition_id,
            running.c.definition_key.label("key"), running.c.queue, jobs.c.params, running.c.attempt_no, running.c.max_attempts,
            jobs.c.retry_mode, jobs.c.root_id, jobs.c.group_id, jobs.c.trace, jobs.c.correlation_id, running.c.lease_expires_at,
            running.c.started_at, definitions.c.timeout_seconds, running.c.worker_id,
            case((running.c.suspect, running.c.crashes + 1), else_=0).label("suspicion"),
        )
        .join(jobs, jobs.c.id == running.c.job_id)
        .join(tenants, tenants.c.id == running.c.tenant_id)
        .outerjoin(definitions, definitions.c.id == running.c.definition_id)
        .where(running.c.run_id.in_(run_ids))
        .order_by(running.c.priority, running.c.position, running.c.queued_at, running.c.job_id)
    )  # fmt: skip
    found = [dict(row) for row in tx.run(query).mappings()]
    return tx.codec.claims([rows.claim(row, row.pop("worker_id")) for row in found])


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
        ours = select(running.c.run_id).where(
            running.c.job_id.in_([job_id for job_id, _ in missing]),
            running.c.run_id.in_([run_id for _, run_id in missing]),
        )
        passed_by = {row.run_id for row in tx.rows(ours)}
    return Beats(renewed, passed_by, asked)


def attempts(tx: Tx, pairs: Sequence[tuple[UUID, UUID]]) -> dict[UUID, tuple[Attempt, UUID | None]]:
    """The facts a decision needs, by run id, read under lock; a run that is no longer open is missing."""
    # Looked up one by one, however many there are: joined, all jobs might be read for them.
    mode = select(jobs.c.retry_mode).where(jobs.c.id == running.c.job_id).scalar_subquery()
    query = (
        select(
            running.c.run_id, running.c.attempt_no, running.c.max_attempts, mode.label("retry_mode"), running.c.crashes,
            running.c.cancel_requested_at, running.c.definition_id, running.c.interruptions,
        )
        .where(running.c.job_id.in_([job_id for job_id, _ in pairs]))
        .order_by(running.c.job_id)
        .with_for_update(of=running)
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


def close_alone(tx: HotTx, closings: Sequence[Closing], shard: int = 0) -> Closures:
    """Close runs from which nothing follows. One that is missing from the answer was not ours, or its group goes on with it, or a
    webhook is told. Whoever seals must know whose jobs they are: nothing is looked up here."""
    failpoints.reach("finish.before")
    if tx.codec.writes:
        known = {each.job_id: each.tenant_id for each in closings if each.tenant_id is not None}
        closings = _sealed(tx, closings, known)
    closures = tx.dialect.close(tx.conn, tx.moment, closings, shard, alone=True)
    failpoints.reach("finish.before_retry")
    return closures


def close(tx: Tx, closings: Sequence[Closing], shard: int = 0) -> Closures:
    """Close runs and move their jobs as decided, with their retries. One that is missing from the answer was not ours."""
    failpoints.reach("finish.before")
    sealed = closings
    if tx.codec.writes:
        telling = [each for each in closings if has_secrets(each.resolution)]
        sealed = _sealed(tx, closings, _tenants(tx, [(each.job_id, each.tenant_id) for each in telling]))
    closures = tx.dialect.close(tx.conn, tx.moment, sealed, shard, alone=False)
    failpoints.reach("finish.before_retry")
    if closures.followed:
        delays = {each.run_id: each.resolution.delay for each in closings if each.resolution.chain}
        for done in closures.followed:
            if done.run_id in delays:
                chain(
                    tx, done.job_id, delays[done.run_id] or 0.0, attempt_no=done.attempt_no, max_attempts=done.max_attempts,
                    crashes=done.crashes, interruptions=done.interruptions, suspect=done.suspect,
                )  # fmt: skip
    return closures


def _sealed(tx: HotTx, closings: Sequence[Closing], known: Mapping[UUID, UUID]) -> list[Closing]:
    return [
        tx.codec.closing(closing, known[closing.job_id])
        if closing.job_id in known and has_secrets(closing.resolution)
        else _without_secrets(closing)
        for closing in closings
    ]


def _without_secrets(closing: Closing) -> Closing:
    """One that has none, or whose job is gone: then nothing is written, and nothing in clear may go to the server."""
    if not has_secrets(closing.resolution):
        return closing
    bare = replace(closing.resolution, error=None, result=None, evidence=NOTHING)
    return closing._replace(resolution=bare)


def _tenants(tx: Tx, given: Sequence[tuple[UUID, UUID | None]]) -> dict[UUID, UUID]:
    """Whose jobs these are: most callers know, the others' are looked up."""
    known = {job_id: tenant_id for job_id, tenant_id in given if tenant_id is not None}
    missing = [job_id for job_id, tenant_id in given if tenant_id is None]
    if missing:
        known |= {
            row.id: row.tenant_id for row in tx.rows(select(jobs.c.id, jobs.c.tenant_id).where(jobs.c.id.in_(missing)))
        }
    return known


_COPIED = (
    "tenant_id", "root_id", "priority", "max_attempts", "queue", "definition_key", "retry_mode", "source", "params", "definition_id",
    "source_ref", "dedupe_key", "correlation_id", "group_id", "group_position", "trigger_id", "tick_at", "created_by", "trace",
)  # fmt: skip
"""What a retry has of the job that it retries."""


def chain(
    tx: Tx,
    job_id: UUID,
    delay: float,
    *,
    attempt_no: int | None = None,
    max_attempts: int | None = None,
    waits_for: WaitsFor = WaitsFor.TIME,
    crashes: int = 0,
    interruptions: int = 0,
    suspect: bool = False,
) -> UUID:
    """A new job that retries this one, which has ended, due after `delay`. `UNIQUE (retry_of)` holds that there is only one. How
    many attempts there were, and may be, is as in its last run unless told."""
    if attempt_no is None or max_attempts is None:
        ended = and_(runs.c.job_id == job_id, runs.c.job_status.is_not(None))
        # A row without a run stands in the place of the next attempt.
        made = (runs.c.attempt_no - case((runs.c.id.is_(None), 1), else_=0)).label("attempt_no")
        last = tx.run(select(made, runs.c.max_attempts).where(ended)).one()
        attempt_no = last.attempt_no if attempt_no is None else attempt_no
        max_attempts = last.max_attempts if max_attempts is None else max_attempts
    retry_id = new_id()
    due = tx.later(delay)
    ours: dict[str, Any] = {
        "id": literal(retry_id, jobs.c.id.type), "retry_of": jobs.c.id, "scheduled_for": due, "created_at": tx.now,
    }  # fmt: skip
    copy = select(*(jobs.c[name] for name in _COPIED), *(value.label(name) for name, value in ours.items()))
    tx.run(insert(jobs).from_select([*_COPIED, *ours], copy.where(jobs.c.id == job_id)))
    states.enter(
        tx, retry_id, waits_for, attempt_no, max_attempts, until=due, crashes=crashes, interruptions=interruptions,
        suspect=suspect,
    )  # fmt: skip
    return retry_id


def release(tx: Tx, pairs: Sequence[tuple[UUID, UUID]], *, suspects: bool = False) -> int:
    """Give claims that were never started back untouched: the run is as if it had not been, the place is kept. One whose
    definition was paused or limited meanwhile goes behind that limit instead; one that was asked to stop is left.
    `suspects` are claims of a worker that died, of which nobody can tell whether they had begun."""
    given = (
        select(running.c.job_id, running.c.queue, states.is_limited(running).label("limited"))
        .where(_open(pairs), running.c.cancel_requested_at.is_(None))
        .order_by(running.c.job_id)
        .with_for_update(of=running)
    )
    held = tx.rows(given)
    free = [row for row in held if not row.limited]
    states.give_back(tx, [row.job_id for row in free], suspects=suspects)
    states.give_back_limited(tx, [row.job_id for row in held if row.limited], suspects=suspects)
    if free:
        tx.dialect.wake(tx.conn, [row.queue for row in free])
    return len(held)


def _open(pairs: Sequence[tuple[UUID, UUID]]) -> ColumnElement[bool]:
    """Those of these (job, run) pairs that are open."""
    # A run is of one job.
    job_ids, run_ids = [job_id for job_id, _ in pairs], [run_id for _, run_id in pairs]
    return and_(running.c.job_id.in_(job_ids), running.c.run_id.in_(run_ids))


def asked_to_stop(tx: Tx, pairs: Sequence[tuple[UUID, UUID]]) -> list[tuple[UUID, UUID]]:
    """Of these (job, run) pairs, those still open whose job was asked to stop."""
    query = select(running.c.job_id, running.c.run_id).where(_open(pairs), running.c.cancel_requested_at.is_not(None))
    return [(row.job_id, row.run_id) for row in tx.rows(query)]


def report_progress(tx: Tx, job_id: UUID, run_id: UUID, values: dict[str, Any]) -> bool:
    """Progress of a run that is still open; a stale one changes nothing."""
    if tx.codec.writes:
        known = _tenants(tx, [(job_id, None)])
        if job_id not in known:
            return False
        values = tx.codec.seal(values, progress_of(known[job_id], job_id))
    return _report(tx, job_id, run_id, progress=values)


def report_tails(tx: Tx, job_id: UUID, run_id: UUID, stdout: str | None, stderr: str | None) -> bool:
    """What an open run has printed lately."""
    if tx.codec.writes:
        known = _tenants(tx, [(job_id, None)])
        if job_id not in known:
            return False
        stdout = tx.codec.seal_text(stdout, stdout_of(known[job_id], run_id))
        stderr = tx.codec.seal_text(stderr, stderr_of(known[job_id], run_id))
    return _report(tx, job_id, run_id, stdout_tail=stdout, stderr_tail=stderr)


def report_pid(tx: Tx, job_id: UUID, run_id: UUID, pid: int) -> bool:
    """Note which process an open run has."""
    return _report(tx, job_id, run_id, pid=pid)


def _report(tx: Tx, job_id: UUID, run_id: UUID, **said: Any) -> bool:
    return bool(tx.count(update(running).where(_open([(job_id, run_id)])).values(**said)))


def append_artifacts(tx: Tx, job_id: UUID, run_id: UUID, artifacts: Sequence[dict[str, Any]]) -> bool:
    """Artifacts are the one thing that may be added to a run, even a finished one."""
    closed = and_(runs.c.job_id == job_id, runs.c.id == run_id)
    # A run that is closed meanwhile is met where it went.
    for table, ours in ((running, _open([(job_id, run_id)])), (runs, closed)):
        row = tx.first(select(table.c.artifacts).where(ours).with_for_update())
        if row is not None:
            tx.run(update(table).where(ours).values(artifacts=[*(row.artifacts or []), *artifacts]))
            return True
    return False


def policies(tx: Tx, ids: set[UUID]) -> dict[UUID, Any]:
    found = tx.rows(select(definitions.c.id, definitions.c.retry_policy).where(definitions.c.id.in_(ids)))
    return {row.id: row.retry_policy for row in found}


def ended(tx: Tx, pairs: Sequence[tuple[UUID, UUID]]) -> dict[UUID, tuple[RunStatus, str | None]]:
    """Of these (job, run) pairs, how the runs that are closed ended, by run id."""
    query = select(runs.c.id, runs.c.status, runs.c.error, runs.c.tenant_id, runs.c.job_id).where(
        runs.c.job_id.in_([job_id for job_id, _ in pairs]),
        runs.c.id.in_([run_id for _, run_id in pairs]),
    )
    return {
        row.id: (RunStatus(row.status), tx.codec.open_text(row.error, partial(error_of, row.tenant_id, row.job_id)))
        for row in tx.rows(query)
    }
