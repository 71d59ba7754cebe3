"""Closing runs: what was decided is written with the run, the retry, the group's next step and the outgoing webhook,
in one transaction, fenced by run id."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from penstock.core.decide import Attempt, Resolution, RetryPolicy, decide
from penstock.core.errors import DatabaseUnavailable, LeaseLost
from penstock.core.nouns import Claim
from penstock.core.outcomes import NOTHING, Failed, Outcome, Skipped, Succeeded
from penstock.core.payload import plain, storable
from penstock.core.status import JobStatus, RetryMode, RunStatus
from penstock.queue.ground import Ended, Ground
from penstock.store import claims, groups
from penstock.store.database import Tx
from penstock.store.faults import is_disconnect
from penstock.store.hot import PLAIN_SUCCESS, Closed, Closing
from penstock.store.sealing import has_secrets


class Report(NamedTuple):
    """How a run ended. The tenant is that of its job, where the caller knows it; else it is looked up if it is needed."""

    job_id: UUID
    run_id: UUID
    outcome: Outcome
    tenant_id: UUID | None = None


_ANY_ATTEMPT = Attempt(1, 1, RetryMode.REQUEUE)
SHARDS = 8
CRASH_RECOVERY = "crash recovery:"
"""How the reason begins when not the worker but recovery closed a run."""
_TOLD = ("stdout_tail", "stderr_tail", "artifacts", "log_path")


def finish(ground: Ground, claim: Claim, outcome: Outcome) -> None:
    """Report one run. Raises LeaseLost, and changes nothing, if the run was closed or its lease passed on."""
    lost = finish_many(ground, [report_of(claim, outcome)], worker=claim.worker_id)
    if lost:
        raise LeaseLost(sorted(lost))


def report_of(claim: Claim, outcome: Outcome) -> Report:
    return Report(claim.job_id, claim.run_id, outcome, claim.tenant_id)


def finish_many(ground: Ground, reports: Sequence[Report], worker: str = "") -> set[UUID]:
    """Report a batch. Answers the run ids that were no longer ours; the others are written."""
    if not reports:
        return set()
    check_results(reports)
    try:
        reports = _left_after_the_short_way(ground, reports, worker)
        return ground.db.transact(lambda tx: close_in(ground, tx, reports, worker)) if reports else set()
    except (DatabaseUnavailable, ConnectionError) as error:
        if not (is_disconnect(error) or is_disconnect(error.__cause__ or error)):
            raise
    # The reply to COMMIT may have been lost: what is closed by us is closed; the rest is tried once more.
    with ground.db.read() as tx:
        done = recorded(tx, reports)
    rest = [report for report in reports if report[1] not in done]
    return ground.db.transact(lambda tx: close_in(ground, tx, rest, worker)) if rest else set()


def _left_after_the_short_way(ground: Ground, reports: Sequence[Report], worker: str) -> Sequence[Report]:
    """Write what needs no facts and touches nobody else on the shortest way; return what is left to write. Of a batch with other
    outcomes nothing: it is written together, or not at all."""
    if not ground.db.has_short_way or not all(isinstance(each.outcome, Succeeded | Skipped) for each in reports):
        return reports
    closings = [_without_facts(each) for each in reports]
    if ground.db.codec.writes and any(each.tenant_id is None and has_secrets(each.resolution) for each in closings):
        return reports  # whose they are is to be looked up
    done = ground.db.at_once(lambda tx: claims.close_alone(tx, closings, shard_of(worker)))
    if done is None:
        return reports
    closed = done.run_ids
    return [] if closed is None else [each for each in reports if each.run_id not in closed]


def _without_facts(report: Report) -> Closing:
    """What a success or a skip means, whatever is known of the job."""
    job_id, run_id, outcome, tenant_id = report
    if type(outcome) is Succeeded and outcome.result is None and outcome.evidence is NOTHING:
        return Closing(job_id, run_id, PLAIN_SUCCESS, tenant_id)
    return Closing(job_id, run_id, _storable(decide(_ANY_ATTEMPT, outcome)), tenant_id)


def recorded(tx: Tx, reports: Sequence[Report]) -> set[UUID]:
    """The runs that are closed as these reports say: for a caller whose COMMIT was not answered."""
    found = claims.ended(tx, [(report.job_id, report.run_id) for report in reports])
    return {
        report.run_id
        for report in reports
        if report.run_id in found and not _by_recovery(report.outcome, *found[report.run_id])
    }


def _by_recovery(outcome: Outcome, status: RunStatus, error: str | None) -> bool:
    """Whether a run that was reported so was closed by recovery instead."""
    if not isinstance(outcome, Failed):
        return status is RunStatus.FAILED
    return CRASH_RECOVERY in (error or "") and CRASH_RECOVERY not in outcome.error


def check_results(reports: Sequence[Report]) -> None:
    for report in reports:
        outcome = report.outcome
        if isinstance(outcome, Succeeded) and outcome.result is not None:
            plain("result", outcome.result)


def close_in(ground: Ground, tx: Tx, reports: Sequence[Report], worker: str = "") -> set[UUID]:
    """Close runs in a transaction under way; the verb under `finish`, recovery, and a job's own transaction."""
    closings = _decide(ground, tx, reports)
    closed = {each.run_id for each in closings}
    if closings:
        done = claims.close(tx, closings, shard_of(worker))
        if done.followed:
            _tell(ground, tx, done.followed, {closing.run_id: closing.resolution for closing in closings})
        closed = closed if done.run_ids is None else done.run_ids
    return {report.run_id for report in reports} - closed


def _tell(ground: Ground, tx: Tx, moved: Sequence[Closed], resolutions: Mapping[UUID, Resolution]) -> None:
    """Let groups go on, and webhooks know."""
    ended = []
    for done in moved:
        resolution = resolutions[done.run_id]
        group_ended = False
        if done.group_id is not None and resolution.job_status is not JobStatus.QUEUED and not resolution.chain:
            group_ended = groups.advance(tx, done.group_id)
        if done.hooked:
            ended.append(Ended(done.job_id, done.tenant_id, done.run_id, resolution, done.group_id, group_ended))
    if ended:
        ground.outbox(tx, ended)


def _decide(ground: Ground, tx: Tx, reports: Sequence[Report]) -> list[Closing]:
    """Success needs no facts. Everything else is decided on the job as it is now, under lock; what is no longer ours
    is left out."""
    unsure = [report for report in reports if not isinstance(report[2], Succeeded | Skipped)]
    decided = _decide_on_facts(ground, tx, unsure) if unsure else {}
    closings = []
    for report in reports:
        if isinstance(report.outcome, Succeeded | Skipped):
            closings.append(_without_facts(report))
        elif report.run_id in decided:
            closings.append(Closing(report.job_id, report.run_id, _storable(decided[report.run_id]), report.tenant_id))
    return closings


def _decide_on_facts(ground: Ground, tx: Tx, reports: Sequence[Report]) -> dict[UUID, Resolution]:
    facts = claims.attempts(tx, [(report.job_id, report.run_id) for report in reports])
    policies = claims.policies(tx, {definition_id for _, definition_id in facts.values() if definition_id})
    resolutions = {}
    for _, run_id, outcome, _ in reports:
        if run_id in facts:
            attempt, definition_id = facts[run_id]
            stored = policies.get(definition_id) if definition_id else None
            policy = RetryPolicy.from_dict(stored)
            resolutions[run_id] = decide(replace(attempt, policy=policy, limits=ground.config.limits), outcome)
    return resolutions


def _storable(resolution: Resolution) -> Resolution:
    if resolution.error is None and resolution.evidence is NOTHING:
        return resolution
    told = {name: storable(getattr(resolution.evidence, name)) for name in _TOLD}
    return replace(resolution, error=storable(resolution.error), evidence=replace(resolution.evidence, **told))


def shard_of(worker: str) -> int:
    return zlib.crc32(worker.encode()) % SHARDS
