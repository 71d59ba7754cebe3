"""Jobs: ask for them, see them, steer them."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import Query, Response
from pydantic_core import to_json

from penstock.core.access import Need
from penstock.core.check import UNSET
from penstock.core.errors import InvalidInput
from penstock.core.marks import marks_of_schema
from penstock.core.masking import refuse_masks
from penstock.core.redact import MASK, unmasked
from penstock.core.scopes import check_key
from penstock.core.wire import jobs as wire
from penstock.core.wire.base import MAX_INT32
from penstock.queue import enqueue, observe, order
from penstock.queue.enqueue import Options
from penstock.queue.shown import marks_for, shown_runs
from penstock.queue.why import why
from penstock.server.calls import Call, Unit
from penstock.server.queries import JobListQuery, cursor_of, from_cursor, where
from penstock.server.routing import Caller, Routes
from penstock.store import listing
from penstock.store.hot import NewJob

routes = Routes("jobs")
COUNT_CAP = 1_000_000


@routes.post(
    "/jobs",
    Need.OPERATE,
    status_code=201,
    responses={200: {"model": wire.Job, "description": "An active job has the dedupe key: this is it"}},
)
def create_job(call: Caller, body: wire.NewJob, response: Response) -> wire.Job:
    """Ask for work. With a dedupe key that an active job has, the answer is that job, with status 200."""
    if body.scheduled_for is not None and body.delay_seconds is not None:
        raise InvalidInput("Give scheduled_for or delay_seconds, not both.")
    options = Options(
        priority=body.priority, queue=body.queue, scheduled_for=body.scheduled_for, delay=body.delay_seconds,
        dedupe_key=body.dedupe_key, correlation_id=body.correlation_id, created_by=call.principal.actor,
        source_ref=call.request_id, trace=call.trace,
    ).checked()  # fmt: skip
    prepared: list[NewJob] = []

    def prepare() -> None:
        prepared.append(enqueue.prepare(call.ground, None, call.tenant_id, body.definition_key, body.payload, options))

    def work(unit: Unit) -> wire.Job:
        if MASK in str(body.payload):
            definition, _ = unit.ground.definition(unit.tx, call.tenant_id, body.definition_key)
            refuse_masks(body.payload, marks_of_schema(definition.arg_schema))
        job = enqueue.enqueue_in(
            unit.ground, unit.tx, call.tenant_id, body.definition_key, body.payload, options, prepared
        )
        if prepared and job.id != prepared[0].id:
            response.status_code = 200
            check_key(call.principal, job.definition_key)
            return unit.show(job)
        unit.audit(
            "job.create",
            "job",
            job.id,
            after={"definition_key": job.definition_key, "priority": job.priority, "dedupe_key": job.dedupe_key},
        )
        return wire.Job.of(job, unit.ground.marks(call.tenant_id, body.definition_key))

    return call.change(work, status=201, retry_disconnects=True, prepare=prepare)


@routes.get("/jobs", Need.VIEW, response_model=wire.JobPage)
def list_jobs(call: Caller, query: Annotated[JobListQuery, Query()]) -> Response:
    """Newest first, by limit and offset or by a cursor, which does not slip when jobs arrive."""
    before = from_cursor(query.cursor)
    with call.read() as tx:
        found = listing.page(tx, call.tenant_id, where(query, call.principal.keys), query.limit, query.offset, before)
        ids = {row["definition_id"]: UUID(row["definition_id"]) for row in found if row["definition_id"]}
        marks = marks_for(tx, ids.values())
    more = cursor_of(UUID(found[-1]["id"])) if len(found) == query.limit else None
    items = [wire.told_row(row, marks[ids.get(row["definition_id"])]) for row in found]
    body = {"items": items, "limit": query.limit, "offset": query.offset, "next_cursor": more}
    return Response(to_json(body), media_type="application/json")


@routes.get("/jobs/summary", Need.VIEW)
def summarize_jobs(call: Caller) -> wire.Summary:
    """Counts by status, the age of the oldest job that waits, how many run."""
    found = observe.summary(call.ground, call.tenant_id, COUNT_CAP)
    counts = wire.Counts(**{status.value: n for status, n in found.counts.items()})
    return wire.Summary(
        counts=counts,
        oldest_queued_age_seconds=found.oldest_queued_seconds,
        running_count=found.running,
        capped_at=COUNT_CAP,
    )


@routes.get("/jobs/{job_id}", Need.VIEW)
def get_job(call: Caller, job_id: UUID) -> wire.Job:
    """One job, secrets masked."""
    return call.show(call.jobs().get(job_id))


@routes.patch("/jobs/{job_id}", Need.OPERATE)
def change_job(call: Caller, job_id: UUID, body: wire.ChangeJob) -> wire.Job:
    """Change the payload or the priority of a queued job, or when it is due."""

    def prepare() -> None:
        if body.payload is not None:
            payload = unmasked(body.payload, call.jobs().get(job_id).params)
            order.prepare_update(call.ground, call.tenant_id, job_id, payload)

    def work(unit: Unit) -> wire.Job:
        before = unit.jobs().get(job_id)
        payload = None if body.payload is None else unmasked(body.payload, before.params)
        if payload is not None:
            refuse_masks(payload, unit.marks(before.definition_id)[before.definition_id])
        moment = body.scheduled_for if "scheduled_for" in body.model_fields_set else UNSET
        after = unit.jobs().update(job_id, payload, body.priority, moment)
        kept = {"payload", "priority", "scheduled_for"}
        told = [unit.show(job).model_dump(mode="json", include=kept) for job in (before, after)]
        unit.audit("job.change", "job", job_id, *told)
        return unit.show(after)

    return call.change(work, prepare=prepare)


@routes.post("/jobs/{job_id}/cancel", Need.OPERATE)
def cancel_job(call: Caller, job_id: UUID) -> wire.Job:
    """A queued job is canceled at once; a running one is asked to stop."""

    def work(unit: Unit) -> wire.Job:
        before = unit.jobs().get(job_id)
        after = unit.jobs().cancel(job_id)
        unit.audit("job.cancel", "job", job_id, {"status": before.status}, {"status": after.status})
        return unit.show(after)

    return call.change(work)


@routes.post("/jobs/{job_id}/retry", Need.OPERATE)
def retry_job(call: Caller, job_id: UUID) -> wire.Job:
    """Try again what ended badly. In chain mode the answer is a new job that retries it."""

    def work(unit: Unit) -> wire.Job:
        before = unit.jobs().get(job_id)
        after = unit.jobs().retry(job_id)
        told = {"status": after.status, "job_id": str(after.id)}
        unit.audit("job.retry", "job", job_id, {"status": before.status}, told)
        return unit.show(after)

    return call.change(work)


@routes.post("/jobs/{job_id}/run-now", Need.OPERATE)
def run_job_now(call: Caller, job_id: UUID) -> wire.Job:
    """Let a job that waits for its time or its backoff run now. A job that is due already is returned as it is."""

    def work(unit: Unit) -> wire.Job:
        before = unit.jobs().get(job_id)
        after = unit.jobs().run_now(job_id)
        kept = {"scheduled_for", "waits_for"}
        told = [unit.show(job).model_dump(mode="json", include=kept) for job in (before, after)]
        unit.audit("job.run_now", "job", job_id, *told)
        return unit.show(after)

    return call.change(work)


@routes.post("/jobs/{job_id}/move", Need.OPERATE)
def move_job(call: Caller, job_id: UUID, body: wire.MoveJob) -> wire.Job:
    """Put a waiting job before or after another, or at the top or bottom of its tenant's jobs of its priority."""

    def work(unit: Unit) -> wire.Job:
        before = unit.jobs().get(job_id)
        after = unit.jobs().move(job_id, before=body.before, after=body.after, to=body.to)
        places = [{"priority": job.priority, "position": job.position} for job in (before, after)]
        unit.audit("job.move", "job", job_id, *places)
        return unit.show(after)

    return call.change(work)


@routes.get("/jobs/{job_id}/attempts", Need.VIEW)
def list_attempts(call: Caller, job_id: UUID) -> wire.AttemptList:
    """Every run of the job, first to last."""
    runs = call.jobs().runs(job_id)
    marks = call.marks(*(run.definition_id for run in runs))
    return wire.AttemptList(items=[wire.Attempt.of(run, marks[run.definition_id]) for run in runs])


@routes.get("/jobs/{job_id}/chain", Need.VIEW)
def list_chain(call: Caller, job_id: UUID) -> wire.JobList:
    """The job's retry chain, first to last; itself alone in requeue mode."""
    return wire.JobList(items=[call.show(job) for job in call.jobs().chain(job_id)])


@routes.get("/jobs/{job_id}/why", Need.VIEW)
def explain_job(call: Caller, job_id: UUID) -> wire.Why:
    """Why it is not running, or why it ended as it did."""
    found = why(call.ground, call.tenant_id, job_id, for_tenant=True)
    return wire.Why(sentence=found.sentence, reason=found.reason, facts=dict(found.facts))


@routes.get("/jobs/{job_id}/logs", Need.VIEW)
def read_logs(
    call: Caller, job_id: UUID, attempt_no: Annotated[int | None, Query(ge=1, le=MAX_INT32)] = None
) -> wire.Logs:
    """The end of what an attempt printed: the latest, or the one named."""
    return logs_of(call, job_id, attempt_no)


def logs_of(call: Call, job_id: UUID, attempt_no: int | None = None) -> wire.Logs:
    runs = call.jobs().runs(job_id)
    chosen = [run for run in runs if attempt_no in (None, run.attempt_no)]
    if not chosen:
        return wire.Logs(job_id=job_id, attempt_no=attempt_no, status=None, stdout="", stderr="", ended=False)
    [run] = shown_runs(call.ground, chosen[-1:])
    return wire.Logs(
        job_id=job_id, attempt_no=run.attempt_no, status=run.status.value, stdout=run.stdout_tail or "",
        stderr=run.stderr_tail or "", ended=run.finished_at is not None,
    )  # fmt: skip
