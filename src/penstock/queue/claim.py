"""Taking work, keeping it, giving it back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

import structlog

from penstock.core import check
from penstock.core.cipher import Unreadable
from penstock.core.errors import DatabaseUnavailable, KeyMissing
from penstock.core.ids import new_id
from penstock.core.nouns import Claim
from penstock.core.outcomes import Canceled, Failed, Outcome, Snoozed
from penstock.queue.ground import Ground
from penstock.queue.record import Report, check_results, close_in, finish_many, recorded, report_of
from penstock.store import claims
from penstock.store.database import Tx
from penstock.store.faults import is_disconnect
from penstock.store.hot import Beats, ClaimRequest, Rehearsed, Taken

MAX_BATCH = 1000
KEY_WAIT_SECONDS, MAX_KEY_WAIT_SECONDS = 15.0, 600.0
"""How long a job waits whose params a worker could not decrypt; twice as long each time, up to the most."""


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
    run_ids: Sequence[UUID] | None = None,
) -> list[Claim]:
    """Claim up to `limit` jobs, in order. `reports` are closed first, in the same commit; those that were no longer
    ours are added to `lost`. `run_ids` name the runs, one for each job that may be claimed; by default they are new."""
    ready = make_ready(
        ground,
        worker,
        limit,
        queues=queues,
        keys=keys,
        tenant_id=tenant_id,
        lease_seconds=lease_seconds,
        pid=pid,
        run_ids=run_ids,
    )
    return claim_ready(ground, ready, reports, lost).claims()


class Ready(NamedTuple):
    """A claim that is only to be made. It has its run ids, so it is made once."""

    request: ClaimRequest
    rehearsed: Rehearsed | None


def make_ready(
    ground: Ground,
    worker: str,
    limit: int,
    *,
    queues: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    tenant_id: UUID | None = None,
    lease_seconds: float | None = None,
    pid: int | None = None,
    run_ids: Sequence[UUID] | None = None,
    starting: int | None = None,
    alone: bool = False,
) -> Ready:
    """All of a claim that can be done before there is anything to claim. `claim` is this and the rest. A worker says how many
    of them begin at once, and whether it has nothing else in hand."""
    check.text("worker", worker)
    check.integer("limit", limit, 0, MAX_BATCH)
    request = ClaimRequest(
        worker=worker,
        pid=pid,
        lease_seconds=_lease(ground, lease_seconds),
        queues=None if queues is None else tuple(queues),
        keys=None if keys is None else tuple(keys),
        tenant_id=tenant_id,
        run_ids=tuple([new_id() for _ in range(limit)] if run_ids is None else run_ids),
        starting=starting,
        alone=alone,
    )
    return Ready(request, _rehearsed(ground, request))


def _rehearsed(ground: Ground, request: ClaimRequest) -> Rehearsed | None:
    """For the gate as it was last seen; None if a claim could not be made through that at once."""
    expected = ground.gate
    if expected is None or not expected.lets_through(expected) or not ground.db.has_short_way:
        return None
    return claims.rehearse(ground.db.dialect, expected, request, ground.db.moment())


def claim_ready(ground: Ground, ready: Ready, reports: Sequence[Report] = (), lost: set[UUID] | None = None) -> Taken:
    check_results(reports)
    request = ready.request
    stale: set[UUID] = set()
    try:
        taken = None if reports else _claim_at_once(ground, ready)
        if taken is None:
            taken = _claim_whole(ground, request, reports, stale)
    except (DatabaseUnavailable, ConnectionError) as error:
        if not (is_disconnect(error) or is_disconnect(error.__cause__ or error)):
            raise
        taken = _after_lost_reply(ground, request, reports, stale)
    if lost is not None:
        lost.update(stale)
    return taken if not taken.number else Taken(taken.number, lambda: _readable(ground, taken.claims()))


def _readable(ground: Ground, taken: list[Claim]) -> list[Claim]:
    """Those whose params can be read here. The others go back: what lacks only a key waits for a worker that has it, and loses
    no attempt; what was tampered with is a dead letter."""
    for claim in taken:
        if type(claim.params) is Unreadable:
            break
    else:
        return taken
    sound, refused = [], []
    for claim in taken:
        if isinstance(claim.params, Unreadable):
            refused.append(report_of(claim, _outcome_of_unreadable(claim, claim.params)))
        else:
            sound.append(claim)
    finish_many(ground, refused, taken[0].worker_id)
    structlog.get_logger("penstock").warning("unreadable_params", jobs=len(refused), reason=str(refused[0].outcome))
    return sound


def _outcome_of_unreadable(claim: Claim, params: Unreadable) -> Outcome:
    error = params.error
    if isinstance(error, KeyMissing):
        wait = min(KEY_WAIT_SECONDS * 2 ** min(claim.attempt_no - 1, 16), MAX_KEY_WAIT_SECONDS)
        return Snoozed(wait, f"KeyMissing: its params are {error.short}. It waits for a worker that has the key.")
    return Failed(f"CiphertextInvalid: its params are {error.short}.", fatal=True)


def _claim_at_once(ground: Ground, ready: Ready) -> Taken | None:
    """Where the gate is as it was when it was last seen. None if it is not."""
    rehearsed = ready.rehearsed
    if rehearsed is None or rehearsed.expected != ground.gate:
        return None
    found = ground.db.at_once(lambda tx: claims.enter_and_claim(tx, rehearsed))
    if found is None:
        return None
    ground.gate, taken = found
    # What was taken is ours whatever the gate said a moment earlier: the claim has looked for itself.
    return taken if taken.number or ground.gate.lets_through(rehearsed.expected) else None


def _claim_whole(ground: Ground, request: ClaimRequest, reports: Sequence[Report], stale: set[UUID]) -> Taken:
    return ground.db.transact(lambda tx: _claim_in(ground, tx, request, reports, stale))


def _claim_in(ground: Ground, tx: Tx, request: ClaimRequest, reports: Sequence[Report], stale: set[UUID]) -> Taken:
    stale.clear()
    entered = ground.gate = claims.gate(tx)
    if reports:
        stale.update(close_in(ground, tx, reports, request.worker))
    return claims.claim(tx, entered, request)


def _after_lost_reply(ground: Ground, request: ClaimRequest, reports: Sequence[Report], stale: set[UUID]) -> Taken:
    """The commit may have happened. Our run ids tell: what carries them is ours already."""
    with ground.db.read() as tx:
        taken = claims.held(tx, request.run_ids)
        closed = recorded(tx, reports) if reports else set()
    if taken or (reports and closed):
        stale.update({report.run_id for report in reports} - closed)
        return Taken(len(taken), lambda: taken)
    # Other ids for the second try: should the first be committed late, no id fences two runs.
    again = replace(request, run_ids=tuple(new_id() for _ in request.run_ids))
    return _claim_whole(ground, again, reports, stale)


def _lease(ground: Ground, given: float | None) -> float:
    return ground.config.lease_seconds if given is None else check.seconds("lease_seconds", given, 0.001, 86400.0)


def heartbeat(
    ground: Ground,
    held: Sequence[Claim],
    lease_seconds: float | None = None,
    begun: Sequence[bool] | None = None,
) -> Beats:
    """Extend the leases, and note which runs have begun: all of them unless told."""
    if not held:
        return Beats(set(), set(), set())
    pairs = [(claim.job_id, claim.run_id) for claim in held]
    lease = _lease(ground, lease_seconds)
    return ground.db.transact(lambda tx: claims.heartbeat(tx, pairs, lease, begun), retry_disconnects=True)


def release(ground: Ground, unstarted: Sequence[Claim]) -> int:
    """Give back claims that were never started, untouched: same place, no attempt used. Those that were asked to stop
    meanwhile are canceled instead. Answers how many were given back."""
    if not unstarted:
        return 0
    pairs = [(claim.job_id, claim.run_id) for claim in unstarted]
    return ground.db.transact(lambda tx: release_in(ground, tx, pairs, unstarted[0].worker_id))


def release_in(
    ground: Ground, tx: Tx, pairs: Sequence[tuple[UUID, UUID]], worker: str, *, suspects: bool = False
) -> int:
    """The same in a transaction under way, by the ids of job and run."""
    returned = claims.release(tx, pairs, suspects=suspects)
    if returned < len(pairs):
        stopped = [
            Report(job_id, run_id, Canceled("canceled on request"))
            for job_id, run_id in claims.asked_to_stop(tx, pairs)
        ]
        close_in(ground, tx, stopped, worker)
    return returned
