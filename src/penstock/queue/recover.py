"""After a crash (seed 004 §4), once or ten times, by one process or five at once: the same rows."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from penstock.core.outcomes import Canceled, Failed, Outcome, Skipped, Succeeded, TimedOut
from penstock.queue.ground import Ground
from penstock.queue.identity import is_dead
from penstock.queue.record import CRASH_RECOVERY, close_in
from penstock.store import claims, failpoints, groups, jobs, recovery, reservations, served, workers
from penstock.store.database import Tx

MAX_JITTER = 1.0


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a recovery mended."""

    abandoned: int = 0
    without_run: int = 0
    finishing: int = 0
    stray_runs: int = 0
    retries: int = 0
    groups: int = 0
    reservations: int = 0

    @property
    def total(self) -> int:
        return (
            self.abandoned
            + self.without_run
            + self.finishing
            + self.stray_runs
            + self.retries
            + self.groups
            + self.reservations
        )


def recover(ground: Ground) -> Recovered:
    """Everything a restart must look at. Bounded by what is open, never by history."""
    transact = ground.db.transact
    failpoints.reach("recover.before")
    mended = Recovered(
        without_run=transact(lambda tx: _without_run(ground, tx)),
        finishing=transact(lambda tx: _finishing(ground, tx)),
        abandoned=expired(ground, known_dead=True),
        stray_runs=transact(recovery.close_stray_runs),
        retries=transact(_missing_retries),
        groups=transact(_stalled_groups),
        reservations=transact(lambda tx: reservations.expire(tx, is_dead=is_dead)),
    )
    transact(workers.settle_clock)
    return mended


def expired(ground: Ground, known_dead: bool = False) -> int:
    """Close the runs of workers that vanished: as failed, with the reason; then the retry policy applies, with jitter."""
    total = 0
    while True:
        closed = ground.db.transact(lambda tx: _abandoned(ground, tx, is_dead if known_dead else None))
        total += closed
        if closed < recovery.BATCH:
            return total


def _abandoned(ground: Ground, tx: Tx, dead: Callable[[str], bool] | None) -> int:
    found = recovery.abandoned(tx, dead)
    reports: list[tuple[UUID, UUID, Outcome]] = [
        (
            row.id,
            row.run_id,
            Failed(
                f"{CRASH_RECOVERY} its worker {row.claimed_by} vanished"
                + (" and its lease expired" if row.over else ""),
                delay=random.random() * MAX_JITTER,
                crashed=True,
            ),
        )
        for row in found
    ]
    lost = close_in(ground, tx, reports, "recovery") if reports else set()
    failpoints.reach("recover.after_close")
    return len(reports) - len(lost)


def _without_run(ground: Ground, tx: Tx) -> int:
    found = recovery.without_run(tx)
    for job in found:
        run_id = recovery.open_missing_run(tx, job)
        close_in(
            ground, tx, [(job["id"], run_id, Failed(f"{CRASH_RECOVERY} it was running without a run", crashed=True))]
        )
    return len(found)


def _finishing(ground: Ground, tx: Tx) -> int:
    found = recovery.with_ended_run(tx)
    for row in found:
        recovery.reopen_run(tx, row.id, row.run_id)
        close_in(ground, tx, [(row.id, row.run_id, _outcome_of(row.status, row.error))])
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
    workers, and where the clock of fairness begins."""
    closed = expired(ground)

    def work(tx: Tx) -> None:
        reservations.expire(tx, is_dead=is_dead)
        recovery.forget_workers(tx, unseen_for=10 * ground.config.lease_seconds, is_dead=is_dead)
        workers.remember_time(tx)

    ground.db.transact(work)
    ground.db.transact(lambda tx: served.set_floors(tx, 2 * ground.config.lease_seconds))
    return closed
