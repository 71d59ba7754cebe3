"""Taking work, keeping it, giving it back."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from penstock.core import check
from penstock.core.errors import DatabaseUnavailable
from penstock.core.ids import new_id
from penstock.core.nouns import Claim
from penstock.core.outcomes import Canceled
from penstock.queue.ground import Ground
from penstock.queue.record import Report, check_results, close_in, recorded
from penstock.store import claims
from penstock.store.database import Tx
from penstock.store.faults import is_disconnect

MAX_BATCH = 1000


def claim(
    ground: Ground,
    worker: str,
    limit: int = 1,
    *,
    queues: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    tenant_id: UUID | None = None,
    lease_seconds: float | None = None,
    pid: int | None = None,
    reports: Sequence[Report] = (),
    lost: set[UUID] | None = None,
) -> list[Claim]:
    """Claim up to `limit` jobs, in order. `reports` are closed first, in the same commit; those that were no longer
    ours are added to `lost`."""
    check.text("worker", worker)
    check.integer("limit", limit, 0, MAX_BATCH)
    run_ids = [new_id() for _ in range(limit)]
    lease = _lease(ground, lease_seconds)
    check_results(reports)
    stale: set[UUID] = set()

    def work(tx: Tx) -> list[Claim]:
        stale.clear()
        entered = claims.gate(tx)
        if reports:
            stale.update(close_in(ground, tx, reports, worker))
        return claims.claim(tx, entered, worker, run_ids, lease, pid=pid, queues=queues, keys=keys, tenant_id=tenant_id)

    try:
        taken = ground.db.transact(work)
    except (DatabaseUnavailable, ConnectionError) as error:
        if not (is_disconnect(error) or is_disconnect(error.__cause__ or error)):
            raise
        taken = _after_lost_reply(ground, run_ids, reports, stale, work)
    if lost is not None:
        lost.update(stale)
    return taken


def _after_lost_reply(
    ground: Ground, run_ids: list[UUID], reports: Sequence[Report], stale: set[UUID], work: object
) -> list[Claim]:
    """The commit may have happened. Our run ids tell: what carries them is ours already."""
    with ground.db.read() as tx:
        taken = claims.held(tx, run_ids)
        closed = recorded(tx, reports) if reports else set()
    if taken or (reports and closed):
        stale.update({run_id for _, run_id, _ in reports} - closed)
        return taken
    # Other ids for the second try: should the first be committed late, no id fences two runs.
    run_ids[:] = [new_id() for _ in run_ids]
    return ground.db.transact(work)  # type: ignore[arg-type]


def _lease(ground: Ground, given: float | None) -> float:
    return ground.config.lease_seconds if given is None else check.seconds("lease_seconds", given, 0.001, 86400.0)


def heartbeat(
    ground: Ground, held: Sequence[Claim], lease_seconds: float | None = None
) -> tuple[list[Claim], list[Claim]]:
    """Extend the leases. Answers (claims that are no longer ours, claims whose job was asked to stop)."""
    if not held:
        return [], []
    pairs = [(claim.job_id, claim.run_id) for claim in held]
    lease = _lease(ground, lease_seconds)
    kept, asked = ground.db.transact(lambda tx: claims.heartbeat(tx, pairs, lease), retry_disconnects=True)
    return [c for c in held if c.job_id not in kept], [c for c in held if c.job_id in asked]


def release(ground: Ground, unstarted: Sequence[Claim]) -> int:
    """Give back claims that were never started, untouched: same place, no attempt used. Those that were asked to stop
    meanwhile are canceled instead. Answers how many were given back."""
    if not unstarted:
        return 0
    pairs = [(claim.job_id, claim.run_id) for claim in unstarted]

    def work(tx: Tx) -> int:
        returned = claims.release(tx, pairs)
        if returned < len(pairs):
            stopped = [
                (job_id, run_id, Canceled("canceled on request")) for job_id, run_id in claims.asked_to_stop(tx, pairs)
            ]
            close_in(ground, tx, stopped, unstarted[0].worker_id)
        return returned

    return ground.db.transact(work)
