"""After a crash (seed 004 §4), once or ten times, by one process or five at once: the same rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass
from functools import partial
from typing import Any
from uuid import UUID

from penstock.core.chance import chance
from penstock.core.decide import Lost, lost_run
from penstock.core.leases import forgotten_after, present_for
from penstock.core.outcomes import Canceled, Failed, Outcome, Skipped, Succeeded, TimedOut
from penstock.core.status import RetryMode
from penstock.queue import audit, erase
from penstock.queue.begun import Begun, begun_by
from penstock.queue.claim import release_in
from penstock.queue.ground import Ground
from penstock.queue.identity import is_dead
from penstock.queue.record import CRASH_RECOVERY, Report, close_in
from penstock.store import claims, failpoints, groups, jobs, recovery, reservations, served, workers
from penstock.store.database import Tx

MAX_JITTER = 1.0


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a recovery mended."""

    abandoned: int = 0
    """Runs that had begun when their worker vanished: closed as failed."""
    given_back: int = 0
    """Claims that had not begun when their worker vanished: queued again as if they had never been claimed."""
    without_run: int = 0
    finishing: int = 0
    stray_runs: int = 0
    orphan_runs: int = 0
    """Runs whose job does not exist: removed. `recover(orphans=True)` looks for them."""
    retries: int = 0
    groups: int = 0
    reservations: int = 0

    @property
    def total(self) -> int:
        return sum(astuple(self))


def recover(ground: Ground, *, orphans: bool = False) -> Recovered:
    """Everything a restart must look at. Bounded by what is open, never by history. With `orphans` also what only an operator
    asks for: runs without a job, which are looked for among all runs, some thousands at a time."""
    transact = ground.db.transact
    failpoints.reach("recover.before")
    without_run = transact(lambda tx: _without_run(ground, tx))
    finishing = transact(lambda tx: _finishing(ground, tx))
    abandoned, given_back = vanished(ground, known_dead=True)
    mended = Recovered(
        without_run=without_run,
        finishing=finishing,
        abandoned=abandoned,
        given_back=given_back,
        stray_runs=transact(recovery.close_stray_runs),
        orphan_runs=_orphans(ground) if orphans else 0,
        retries=transact(_missing_retries),
        groups=transact(_stalled_groups),
        reservations=transact(lambda tx: reservations.expire(tx, is_dead=is_dead)),
    )
    transact(workers.settle_clock)
    audit.seal(ground)
    return mended


def vanished(ground: Ground, known_dead: bool = False) -> tuple[int, int]:
    """Take up what workers held that vanished. What had begun is closed as failed, with the reason, and the retry policy applies,
    with jitter; what had not is given back. Return how many of each."""
    closed = returned = 0
    while True:
        found = ground.db.transact(lambda tx: _abandoned(ground, tx, is_dead if known_dead else None))
        closed, returned = closed + found[0], returned + found[1]
        if sum(found) < recovery.BATCH:
            return closed, returned


def _abandoned(ground: Ground, tx: Tx, dead: Callable[[str], bool] | None) -> tuple[int, int]:
    found = recovery.abandoned(tx, dead)
    told = {worker: begun_by(worker) for worker in {row.claimed_by for row in found}}
    reports: list[Report] = []
    back: dict[Lost, list[tuple[UUID, UUID]]] = {Lost.UNTOUCHED: [], Lost.DOUBTFUL: []}
    for row in found:
        kind = _kind(row, told[row.claimed_by])
        if kind in back:
            back[kind].append((row.id, row.run_id))
        else:
            reports.append(Report(row.id, row.run_id, _outcome_of_lost(row, kind)))
    lost = close_in(ground, tx, reports, "recovery") if reports else set()
    failpoints.reach("recover.after_close")
    returned = 0
    for kind, pairs in back.items():
        if pairs:
            returned += release_in(ground, tx, pairs, "recovery", suspects=kind is Lost.DOUBTFUL)
    # What was asked to stop meanwhile is not given back but closed.
    return len(found) - len(lost) - returned, returned


def _kind(row: Any, told: Begun | None) -> Lost:
    return lost_run(
        row.begun,
        None if told is None else told.has_begun(row.run_id),
        told is not None and told.has_ended(row.run_id),
        row.retry_mode == RetryMode.CHAIN or row.attempt_no >= row.max_attempts,
    )


def _outcome_of_lost(row: Any, kind: Lost) -> Failed:
    why = " and its lease expired" if row.over else ""
    when = " before it had reported the end of this run" if kind is Lost.UNREPORTED else ""
    return Failed(
        f"{CRASH_RECOVERY} its worker {row.claimed_by} vanished{when}{why}",
        delay=chance.random() * MAX_JITTER,
        crashed=kind is Lost.UNDER_WAY,
        suspect=True,
    )


def _orphans(ground: Ground) -> int:
    removed = 0
    at: UUID | None = UUID(int=0)
    while at is not None:
        found, at = ground.db.transact(partial(recovery.remove_orphan_runs, after=at))
        removed += found
    return removed


def _without_run(ground: Ground, tx: Tx) -> int:
    found = recovery.without_run(tx)
    for job in found:
        run_id = recovery.open_missing_run(tx, job)
        close_in(
            ground,
            tx,
            [Report(job["id"], run_id, Failed(f"{CRASH_RECOVERY} it was running without a run", crashed=True))],
        )
    return len(found)


def _finishing(ground: Ground, tx: Tx) -> int:
    found = recovery.with_ended_run(tx)
    for row in found:
        recovery.reopen_run(tx, row.id, row.run_id)
        close_in(ground, tx, [Report(row.id, row.run_id, _outcome_of(row.status, row.error))])
    return len(found)


def _outcome_of(status: str, error: str | None) -> Outcome:
    match status:
        case "succeeded":
            return Succeeded()
        case "skipped":
            return Skipped(error or "")
        case "timeout":
            return TimedOut(error or "timed out")
        case "canceled":
            return Canceled(error or "canceled")
        case _:
            return Failed(error or "failed")


def _missing_retries(tx: Tx) -> int:
    # Looked for again under the lock: another recovery may have written it since ours began to look.
    missing = [job_id for job_id in recovery.failed_without_retry(tx) if jobs.retry_of(tx, job_id) is None]
    for job_id in missing:
        claims.chain(tx, job_id, 0.0)
    return len(missing)


def _stalled_groups(tx: Tx) -> int:
    return sum(groups.mend(tx, group_id) for group_id in groups.stalled(tx))


def keep_house(ground: Ground) -> int:
    """The watchdog's step, run by any worker and harmless when many do: expired leases and reservations, old
    workers, where the clock of fairness begins, and the hash chain of the audit."""
    taken_up = sum(vanished(ground))

    def work(tx: Tx) -> None:
        reservations.expire(tx, is_dead=is_dead)
        recovery.forget_workers(tx, unseen_for=forgotten_after(ground.config.lease_seconds), is_dead=is_dead)
        workers.remember_time(tx)

    ground.db.transact(work)
    ground.db.transact(lambda tx: served.set_floors(tx, present_for(ground.config.lease_seconds)))
    audit.seal(ground)
    erase.resume(ground)
    return taken_up
