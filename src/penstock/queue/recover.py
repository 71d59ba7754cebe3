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
    finishing: int = 0
    """Open runs that were written as closed too: finished as it was written."""
    stray_runs: int = 0
    """Open runs of jobs that have ended or do not exist: removed."""
    second_states: int = 0
    """Jobs that ran and could be claimed, or waited, at once: they run."""
    without_run: int = 0
    """Jobs that neither waited nor ran and had not ended: given a failed run, and tried again as the retry policy says. This and what
    follows, up to the dedupe keys, is only looked for by `recover(everything=True)`."""
    orphan_runs: int = 0
    """Runs whose job does not exist: removed."""
    stray_states: int = 0
    """Places in the queue of jobs that have ended, do not exist or have another place: removed."""
    dedupe_keys: int = 0
    """Dedupe keys that no active job had, or that an active job had lost."""
    retries: int = 0
    groups: int = 0
    reservations: int = 0

    @property
    def total(self) -> int:
        return sum(astuple(self))


def recover(ground: Ground, *, everything: bool = False) -> Recovered:
    """Everything a restart must look at. Bounded by what is open, never by history. With `everything` also what only an operator
    asks for: what is looked for among all jobs and runs, some thousands at a time."""
    transact = ground.db.transact
    failpoints.reach("recover.before")
    finishing = transact(lambda tx: _finishing(ground, tx))
    stray_runs = _all_of(ground, recovery.remove_stray_runs)
    second_states = _all_of(ground, recovery.remove_second_states)
    abandoned, given_back = vanished(ground, known_dead=True)
    mended = Recovered(
        finishing=finishing,
        stray_runs=stray_runs,
        second_states=second_states,
        abandoned=abandoned,
        given_back=given_back,
        **(_everywhere(ground) if everything else {}),
        retries=transact(_missing_retries),
        groups=transact(_stalled_groups),
        reservations=transact(lambda tx: reservations.expire(tx, is_dead=is_dead)),
    )
    transact(workers.settle_clock)
    audit.seal(ground)
    return mended


def _all_of(ground: Ground, mend: Callable[[Tx], int]) -> int:
    """Mend in batches until there is nothing left."""
    mended = 0
    while True:
        found = ground.db.transact(mend)
        mended += found
        if found < recovery.BATCH:
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


_FIRST = UUID(int=0)


def _everywhere(ground: Ground) -> dict[str, int]:
    """What should not be there at all, wherever it is."""
    stray = [
        _through(ground, partial(recovery.remove_stray_states, table=table), (_FIRST, _FIRST))
        for table in recovery.PLACES
    ]
    return {
        "orphan_runs": _through(ground, recovery.remove_orphan_runs, _FIRST),
        "stray_states": sum(stray),
        "without_run": _through(ground, partial(_lost, ground), _FIRST),
        "dedupe_keys": _through(ground, recovery.remove_stray_keys, (_FIRST, ""))
        + _all_of(ground, recovery.take_missing_keys),
    }


def _through(ground: Ground, step: Callable[..., tuple[int, Any]], first: Any) -> int:
    """Go through a table in pages, and return how much was mended."""
    mended, at = 0, first
    while at is not None:
        found, at = ground.db.transact(partial(step, after=at))
        mended += found
    return mended


def _lost(ground: Ground, tx: Tx, after: UUID) -> tuple[int, UUID | None]:
    found, last = recovery.lost(tx, after)
    mended = 0
    for job_id in found:
        if not recovery.is_lost(tx, job_id):
            continue
        mended += 1
        if (run_id := recovery.take_up(tx, job_id, "unknown")) is not None:
            lost = Failed(f"{CRASH_RECOVERY} it neither waited nor ran", crashed=True)
            close_in(ground, tx, [Report(job_id, run_id, lost)])
    return mended, last


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
