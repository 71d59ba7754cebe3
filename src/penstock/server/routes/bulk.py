"""Many jobs at once: cancel and retry by filter, export."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Annotated, Any
from uuid import UUID

from fastapi import Query
from fastapi.responses import StreamingResponse

from penstock.core.access import Need
from penstock.core.errors import IllegalTransition, NotFound
from penstock.core.nouns import Job
from penstock.core.scopes import allows_key
from penstock.core.status import CANCEL, RETRY, Transition
from penstock.core.wire import jobs as wire
from penstock.queue import observe
from penstock.server.calls import Call, Unit
from penstock.server.queries import JobQuery, where
from penstock.server.routing import Caller, Routes
from penstock.store import jobs
from penstock.store.jobs import Filter

routes = Routes("jobs")
BATCH = 200
MOST = 10_000
EXPORT_MOST = 100_000
COLUMNS = (
    "id", "definition_key", "status", "source", "queue", "priority", "attempt_count", "max_attempts", "queued_at",
    "scheduled_for", "started_at", "finished_at", "claimed_by_worker", "correlation_id", "dedupe_key", "last_error",
)  # fmt: skip
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


@routes.post("/jobs/cancel", Need.OPERATE)
def cancel_jobs(call: Caller, body: wire.Bulk) -> wire.BulkDone:
    """Cancel what matches: at most 10,000 a call, newest first."""
    return _each(call, body, CANCEL, "job.cancel", lambda unit, job: unit.jobs().cancel(job.id))


@routes.post("/jobs/retry", Need.OPERATE)
def retry_jobs(call: Caller, body: wire.Bulk) -> wire.BulkDone:
    """Retry what matches and ended badly: at most 10,000 a call, newest first."""
    return _each(call, body, RETRY, "job.retry", lambda unit, job: unit.jobs().retry(job.id))


def _each(
    call: Call, body: wire.Bulk, transition: Transition, action: str, act: Callable[[Unit, Job], Job]
) -> wire.BulkDone:
    chosen = where(body.filter, call.principal.keys, transition.sources)
    ids = body.filter.ids
    matched = _count(call, chosen, ids)
    changed = refused = 0
    if not body.dry_run:
        for batch in _batches(call, chosen, ids):
            done, not_done = _apply(call, batch, body, action, act)
            changed, refused = changed + done, refused + not_done
    return wire.BulkDone(
        matched=matched, changed=changed, refused=refused, remaining=matched > MOST, dry_run=body.dry_run
    )


def _count(call: Call, chosen: Filter, ids: list[UUID] | None) -> int:
    with call.read() as tx:
        if ids is None:
            return jobs.count(tx, call.tenant_id, chosen, MOST + 1)
        return sum(job.status in chosen.statuses for job in _own(call, jobs.get_many(tx, list(dict.fromkeys(ids)))))


def _own(call: Call, found: Iterable[Job]) -> list[Job]:
    keys = call.principal.keys
    return [job for job in found if job.tenant_id == call.tenant_id and allows_key(keys, job.definition_key)]


def _batches(call: Call, chosen: Filter, ids: list[UUID] | None) -> Iterator[list[Job]]:
    if ids is not None:
        with call.read() as tx:
            found = _own(call, jobs.get_many(tx, list(dict.fromkeys(ids))))
        yield [job for job in found if job.status in chosen.statuses]
        return
    last: UUID | None = None
    for _ in range(MOST // BATCH):
        page = observe.listed(call.ground, call.tenant_id, chosen, BATCH, 0, last)
        if page:
            yield page
        if len(page) < BATCH:
            return
        last = page[-1].id


def _apply(
    call: Call, batch: list[Job], body: wire.Bulk, action: str, act: Callable[[Unit, Job], Job]
) -> tuple[int, int]:
    """One batch, one transaction. What moved on by itself meanwhile is refused, and the others go through."""
    counted = (0, 0)

    def work(unit: Unit) -> wire.BulkDone:
        nonlocal counted
        changed: list[UUID] = []
        for job in batch:
            try:
                act(unit, job)
            except (IllegalTransition, NotFound):
                continue  # both are raised before anything is written
            changed.append(job.id)
        counted = (len(changed), len(batch) - len(changed))
        if changed:
            told = {"filter": body.filter.model_dump(mode="json", exclude_none=True), "jobs": [str(i) for i in changed]}
            unit.audit(f"{action}.bulk", "job", None, after=told)
        return wire.BulkDone(matched=0, changed=0, refused=0, remaining=False, dry_run=False)

    replace(call, idempotency_key=None).change(work)
    return counted


@routes.get(
    "/jobs/export.csv",
    Need.VIEW,
    response_class=StreamingResponse,
    responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}, "description": "One line a job"}},
)
def export_jobs(call: Caller, query: Annotated[JobQuery, Query()]) -> StreamingResponse:
    """What matches as CSV, newest first, at most 100,000 lines. No cell is a formula."""
    headers = {"content-disposition": 'attachment; filename="jobs.csv"'}
    return StreamingResponse(
        _lines(call, where(query, call.principal.keys)), media_type="text/csv; charset=utf-8", headers=headers
    )


def _lines(call: Call, chosen: Filter) -> Iterator[str]:
    yield _line(COLUMNS)
    last: UUID | None = None
    for _ in range(EXPORT_MOST // observe.MAX_PAGE):
        page = observe.listed(call.ground, call.tenant_id, chosen, observe.MAX_PAGE, 0, last)
        marks = call.marks(*{job.definition_id for job in page})
        for job in page:
            told = wire.Job.of(job, marks[job.definition_id]).model_dump(mode="json", include=set(COLUMNS))
            yield _line([told[name] for name in COLUMNS])
        if len(page) < observe.MAX_PAGE:
            return
        last = page[-1].id


def _line(cells: Iterable[Any]) -> str:
    written = io.StringIO()
    csv.writer(written, quoting=csv.QUOTE_ALL).writerow([_cell(cell) for cell in cells])
    return written.getvalue()


def _cell(value: Any) -> str:
    """As text, and never one that a spreadsheet would take for a formula."""
    if value is None:
        return ""
    if isinstance(value, int | float):
        return str(value)
    text = str(value).replace("\0", "")
    return f"'{text}" if text.startswith(_FORMULA) else text
