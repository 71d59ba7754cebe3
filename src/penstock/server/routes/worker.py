"""For workers without database access: claim, keep, report. Every report is fenced by its run's id."""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from fastapi import Request

from penstock.core.access import Need
from penstock.core.errors import Forbidden, InvalidInput, LeaseLost, NotFound
from penstock.core.ids import derived_id
from penstock.core.masking import hidden_outcome, says_something
from penstock.core.nouns import Claim
from penstock.core.outcomes import Canceled, Evidence, Failed, Outcome, Skipped, Snoozed, Succeeded, TimedOut
from penstock.core.payload import plain, storable
from penstock.core.scopes import allows_key
from penstock.core.wire import worker as wire
from penstock.core.worker_names import row_id
from penstock.queue import bounds, record
from penstock.queue import claim as claiming
from penstock.queue.shown import mask_of_job
from penstock.server.calls import Call
from penstock.server.routing import Caller, Routes
from penstock.server.secret_reads import note_claims
from penstock.server.waits import Places, WaitingRoom
from penstock.store import claims, remote, wake
from penstock.store.database import Tx
from penstock.store.hot import Beats

routes = Routes("worker")


@routes.post("/worker/jobs/claim", Need.WORK)
async def claim_jobs(call: Caller, request: Request, body: wire.ClaimRequest) -> wire.Claims:
    """Take up to `limit` jobs, in order. A worker's token claims for its own tenant and queues alone. With `wait_seconds` the
    request waits until there is one; 429 if too many requests of the token or the tenant wait already."""
    queues = _queues(call, body.queues)
    claiming_once = Claiming(call, body, queues)
    if not body.wait_seconds:
        return await call.on_thread(claiming_once.first)
    waits: Places = request.app.state.waits
    room: WaitingRoom = request.app.state.room
    with waits.taken(call.principal, call.tenant_id):
        found = await call.on_thread(claiming_once.first)
        if found.items:
            return found
        waited = await room.wait(
            request,
            body.wait_seconds,
            claiming_once.again,
            lambda taken: claiming.release(call.ground, taken),
            tenant_id=call.principal.tenant_id,
            line=("claim", None if queues is None else frozenset(queues), body.keys and frozenset(body.keys)),
            queues=queues,
            poll=call.ground.config.poll_seconds,
        )
    return await call.on_thread(lambda: claiming_once.told(waited or []))


class Claiming(NamedTuple):
    """One request to claim, which may look more than once."""

    call: Call
    body: wire.ClaimRequest
    queues: list[str] | None

    def first(self) -> wire.Claims:
        call, body = self.call, self.body
        _appear(call, body, self.queues)
        run_ids = self.run_ids()
        taken = _taken_before(call, run_ids, body.lease_seconds) if run_ids and body.again else []
        return self.told(taken or self.claim())

    def again(self) -> list[Claim] | None:
        """A look at what is there, without a lock; a claim if there may be something."""
        with self.call.read() as tx:
            if not wake.may_claim(tx, self.call.principal.tenant_id):
                return None
        return self.claim() or None

    def claim(self) -> list[Claim]:
        call, body = self.call, self.body
        return claiming.claim(
            call.ground, _worker_id(call, body), body.limit, queues=self.queues, keys=body.keys,
            tenant_id=call.principal.tenant_id, lease_seconds=body.lease_seconds, pid=body.pid, run_ids=self.run_ids(),
        )  # fmt: skip

    def run_ids(self) -> list[UUID] | None:
        claim_id = self.body.claim_id
        return None if claim_id is None else run_ids_of(self.call.principal.id, claim_id, self.body.limit)

    def told(self, taken: list[Claim]) -> wire.Claims:
        note_claims(self.call, taken)
        default = self.call.ground.config.default_timeout_seconds
        marks = self.call.marks(*{each.definition_id for each in taken})
        return wire.Claims(items=[wire.Claim.of(each, default, marks[each.definition_id]) for each in taken])


def _appear(call: Call, body: wire.ClaimRequest, queues: list[str] | None) -> None:
    """Note that the worker is there."""
    tenant_id, ground = call.principal.tenant_id, call.bound_ground

    def make_room(tx: Tx) -> None:
        if tenant_id is not None:
            bounds.require_worker_row(ground, tx, tenant_id)

    row = _row(call, body, queues)
    call.ground.db.transact(lambda tx: remote.present(tx, tenant_id, _worker_id(call, body), row, make_room))


def _worker_id(call: Call, body: wire.ClaimRequest) -> str:
    """Under this id its rows, jobs and runs are kept."""
    return row_id(call.principal.tenant_id, body.worker_id)


def run_ids_of(principal: UUID, claim_id: UUID, limit: int) -> list[UUID]:
    """The ids of a claim's runs. They follow from the claim's own id, so that a second request finds what the first one
    took, and from who asks, so that nobody meets another's runs."""
    return [derived_id(claim_id, principal.bytes + number.to_bytes(4, "big")) for number in range(limit)]


def _taken_before(call: Call, run_ids: list[UUID], lease_seconds: float | None) -> list[Claim]:
    """What a claim took whose answer was lost, with leases that start now."""
    with call.read() as tx:
        found = [each for each in claims.held(tx, run_ids) if _may_hold(call, each)]
    kept = claiming.heartbeat(call.ground, found, lease_seconds).kept
    return [each for each in found if each.run_id in kept]


def _queues(call: Call, wanted: list[str] | None) -> list[str] | None:
    bound = call.principal.queues
    if bound is None:
        return wanted
    if wanted is None:
        return list(bound)
    if not set(wanted) <= set(bound):
        raise Forbidden(f"This token is bound to the queues {', '.join(bound)}.")
    return wanted


def _row(call: Call, body: wire.ClaimRequest, queues: list[str] | None) -> dict[str, Any]:
    tenant_id = call.principal.tenant_id
    return {
        "hostname": body.hostname or body.worker_id.partition(":")[0], "pid": body.pid or 0, "version": body.version,
        "queues": queues or [], "keys": body.keys, "concurrency": body.concurrency,
        "metadata": {"by": "api", "principal": str(call.principal.id), **({"tenant_id": str(tenant_id)} if tenant_id else {})},
    }  # fmt: skip


def _held(call: Call, tx: Tx, job_id: UUID) -> remote.Held:
    """The job, if it is one that this worker may know of."""
    found = remote.held(tx, job_id)
    if found is None or not _may_hold(call, found):
        raise NotFound("job", job_id)
    return found


def _may_hold(call: Call, run: Claim | remote.Held) -> bool:
    """Whether the token's tenant, queues and definitions include this run."""
    principal = call.principal
    return (
        (principal.tenant_id is None or run.tenant_id == principal.tenant_id)
        and (principal.queues is None or run.queue in principal.queues)
        and allows_key(principal.keys, run.key)
    )


@routes.post("/worker/jobs/heartbeat", Need.WORK)
def heartbeat_jobs(call: Caller, body: wire.BeatMany) -> wire.BeatenMany:
    """Extend the leases of many runs in one request. Each run gets an entry of its own: a run that is lost, unknown or
    another tenant's does not keep the others from being extended."""
    lease = body.lease_seconds or call.ground.config.lease_seconds

    def work(tx: Tx) -> Beats:
        found = remote.held_many(tx, {run.job_id for run in body.runs})
        ours = {
            run.run_id: run
            for run in sorted(body.runs, key=lambda run: run.job_id)
            if (held := found.get(run.job_id)) is not None and held.run_id == run.run_id and _may_hold(call, held)
        }
        if not ours:
            return Beats(set(), set(), set())
        beats = claims.heartbeat(tx, [(run.job_id, run.run_id) for run in ours.values()], lease)
        for run in ours.values():
            if run.run_id in beats.kept:
                _note(tx, run.job_id, run.run_id, run)
        workers = {held.claimed_by for run in ours.values() if (held := found[run.job_id]).claimed_by is not None}
        remote.seen(tx, call.principal.tenant_id, workers)
        return beats

    beats = call.ground.db.transact(work, retry_disconnects=True)
    items = [
        wire.RunState(
            job_id=run.job_id,
            run_id=run.run_id,
            state="extended" if run.run_id in beats.renewed else "held" if run.run_id in beats.passed_by else "lost",
            cancel_requested=run.run_id in beats.asked_to_stop,
        )
        for run in body.runs
    ]
    return wire.BeatenMany(items=items, lease_seconds=lease)


def _note(tx: Tx, job_id: UUID, run_id: UUID, said: wire.KeptRun | wire.Beat) -> None:
    """Write down what a run said with its heartbeat, such that both databases can hold it."""
    if said.progress is None and said.stdout_tail is None and said.stderr_tail is None:
        mask = None
    else:
        mask = mask_of_job(tx, job_id)
    if said.progress is not None and mask is not None:
        claims.report_progress(tx, job_id, run_id, mask.redact_json(storable(said.progress.model_dump())))
    if (said.stdout_tail is not None or said.stderr_tail is not None) and mask is not None:
        tails = [
            None if each is None else mask.redact_text(each)
            for each in (_text(said.stdout_tail), _text(said.stderr_tail))
        ]
        claims.report_tails(tx, job_id, run_id, *tails)
    if said.pid is not None:
        claims.report_pid(tx, job_id, run_id, said.pid)


@routes.post("/worker/jobs/release", Need.WORK)
def release_jobs(call: Caller, body: wire.Release) -> wire.Released:
    """Give back claims that were never started: same place in the queue, no attempt used. Runs that are no longer this
    worker's are passed over."""
    wanted = {(run.job_id, run.run_id) for run in body.runs}
    with call.read() as tx:
        held = claims.held(tx, [run.run_id for run in body.runs])
    ours = [each for each in held if (each.job_id, each.run_id) in wanted and _may_hold(call, each)]
    return wire.Released(released=claiming.release(call.ground, ours))


@routes.post("/worker/jobs/{job_id}/heartbeat", Need.WORK)
def heartbeat_job(call: Caller, job_id: UUID, body: wire.Beat) -> wire.Beaten:
    """Extend the lease of a run. 409 when the run was closed or its lease passed on: stop working on it."""
    lease = body.lease_seconds or call.ground.config.lease_seconds
    if body.progress is not None:
        plain("progress", body.progress.model_dump())

    def work(tx: Tx) -> bool:
        worker = _held(call, tx, job_id).claimed_by
        beats = claims.heartbeat(tx, [(job_id, body.run_id)], lease)
        if body.run_id not in beats.kept:
            raise LeaseLost([body.run_id])
        _note(tx, job_id, body.run_id, body)
        if worker is not None:
            remote.seen(tx, call.principal.tenant_id, [worker])
        return body.run_id in beats.asked_to_stop

    asked = call.ground.db.transact(work)
    return wire.Beaten(job_id=job_id, run_id=body.run_id, cancel_requested=asked, lease_seconds=lease)


def _text(value: str | None) -> str | None:
    """As both databases can hold it."""
    return None if value is None else value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def _evidence(body: wire.RunEvidence) -> Evidence:
    for artifact in body.artifacts:
        plain("artifacts", artifact)
    return Evidence(
        exit_code=body.exit_code, stdout_tail=_text(body.stdout_tail), stderr_tail=_text(body.stderr_tail),
        artifacts=tuple(body.artifacts), pid=body.pid,
    )  # fmt: skip


def _close(call: Call, job_id: UUID, run_id: UUID, outcome: Outcome) -> wire.Recorded:
    with call.read() as tx:
        held = _held(call, tx, job_id)
        if says_something(outcome):
            outcome = hidden_outcome(outcome, mask_of_job(tx, job_id))
    report = record.Report(job_id, run_id, outcome, held.tenant_id)
    lost = record.finish_many(call.ground, [report], held.claimed_by or "")
    if lost:
        raise LeaseLost([run_id])
    with call.read() as tx:
        return wire.Recorded(job_id=job_id, run_id=run_id, status=_held(call, tx, job_id).status)


@routes.post("/worker/jobs/{job_id}/complete", Need.WORK)
def complete_job(call: Caller, job_id: UUID, body: wire.Complete) -> wire.Recorded:
    """The run did its work. 409, and nothing changes, when the run is no longer this worker's."""
    evidence = _evidence(body)
    outcome = Skipped(body.reason, evidence) if body.skipped else Succeeded(body.result, evidence)
    return _close(call, job_id, body.run_id, outcome)


@routes.post("/worker/jobs/{job_id}/fail", Need.WORK)
def fail_job(call: Caller, job_id: UUID, body: wire.Fail) -> wire.Recorded:
    """The run failed; its retry policy says what comes next."""
    evidence, error = _evidence(body), _text(body.error) or "failed"
    match body.kind:
        case "timeout":
            outcome: Outcome = TimedOut(error, evidence)
        case "canceled":
            outcome = Canceled(error, body.by_shutdown, evidence)
        case "snoozed":
            if body.delay_seconds is None:
                raise InvalidInput("A snoozed run says for how long: delay_seconds.")
            outcome = Snoozed(body.delay_seconds, error, evidence)
        case _:
            outcome = Failed(error, body.fatal, body.delay_seconds, evidence=evidence, blameless=body.blameless)
    return _close(call, job_id, body.run_id, outcome)
