"""Pipelines: the diagram with its counts, errors grouped, refresh, clear, ignore. For super admins: tables have no tenant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Path, Query, Request
from pydantic import Field
from pydantic_core import to_jsonable_python

from penstock.core.access import Need
from penstock.core.errors import InvalidInput
from penstock.core.redact import Redactor
from penstock.core.wire import pipelines as wire
from penstock.core.wire.base import Name
from penstock.core.wire.base import Request as Wire
from penstock.pipeline.auto import AutoPopulate
from penstock.pipeline.diagram import Diagram
from penstock.server.calls import Call, Unit
from penstock.server.pipelines import Pipelines, key_of
from penstock.server.routing import Caller, Routes

routes = Routes("pipelines")
ERRORS_READ = 1000
ERRORS_SHOWN = 20
COMPUTING = frozenset({"imported", "computed"})
_redactor = Redactor()
Named = Annotated[Name, Path()]


def _known(request: Request) -> Pipelines:
    found: Pipelines = request.app.state.pipelines
    return found


@routes.get("/pipelines", Need.ADMIN)
def list_pipelines(call: Caller, request: Request) -> wire.PipelineList:
    """Every schema of the modules that the operator named, as boxes and lines with counts."""
    items = []
    for name, shown in _known(request).schemas.items():
        picture = Diagram(shown.schema)._picture()
        tables = [
            wire.PipelineTable(
                id=node.id, name=node.label, tier=node.tier, layer=depth, rows=node.rows,
                computes=node.tier in COMPUTING, jobs=dict(node.jobs),
            )
            for depth, layer in enumerate(picture.layers)
            for node in layer
        ]  # fmt: skip
        edges = [wire.PipelineEdge(parent=e.parent, child=e.child, in_key=e.in_key) for e in picture.edges]
        items.append(wire.Pipeline(schema_name=name, module=shown.module, tables=tables, edges=edges))
    return wire.PipelineList(items=items)


@routes.get("/pipelines/{schema}/{table}", Need.ADMIN)
def get_pipeline_table(call: Caller, request: Request, schema: Named, table: Named) -> wire.TableStatus:
    """How far a table is, and what went wrong, by cause."""
    found = _known(request).table(schema, table)
    remaining, total = found.progress()
    return wire.TableStatus(
        schema_name=schema, table=table, made=total - remaining, remaining=remaining, total=total,
        jobs=found.jobs.progress(), errors=_errors(found),
    )  # fmt: skip


def _errors(table: AutoPopulate) -> list[wire.ErrorGroup]:
    rows = table.jobs.errors.to_dicts(limit=ERRORS_READ)
    names = _key_names(table)
    counts = Counter(_text(row["error_message"]) or "" for row in rows)
    examples = {_text(row["error_message"]) or "": key_of(row, names) for row in rows}
    return [
        wire.ErrorGroup(error=error, count=count, example=_plain(examples[error]))
        for error, count in counts.most_common(ERRORS_SHOWN)
    ]


def _key_names(table: AutoPopulate) -> list[str]:
    return [attribute.name for attribute in type(table).declared_shape().job_key]


def _checked(table: AutoPopulate, key: dict[str, Any]) -> dict[str, Any]:
    """A whole key of plain values: what is no attribute would restrict nothing, and clear everything."""
    names = _key_names(table)
    if set(key) != set(names) or not all(isinstance(value, str | int | float) for value in key.values()):
        raise InvalidInput(f"A key of this table has exactly {', '.join(names)}, each a text or a number.")
    return key


def _plain(value: Any) -> Any:
    return to_jsonable_python(value, fallback=str)


def _text(value: Any) -> str | None:
    return None if value is None else _redactor.redact_text(str(value))


class TableJobQuery(Wire):
    status: wire.JobState = "error"
    limit: Annotated[int, Field(ge=1, le=1000)] = 50
    offset: Annotated[int, Field(ge=0, le=1_000_000)] = 0


@routes.get("/pipelines/{schema}/{table}/jobs", Need.ADMIN)
def list_pipeline_jobs(
    call: Caller, request: Request, schema: Named, table: Named, query: Annotated[TableJobQuery, Query()]
) -> wire.TableJobList:
    """The jobs of one status, by key."""
    found = _known(request).table(schema, table)
    names = _key_names(found)
    rows = _in_status(found, query.status).to_dicts(order_by="KEY", limit=query.limit, offset=query.offset)
    return wire.TableJobList(items=[_job(row, names) for row in rows])


def _in_status(table: AutoPopulate, status: str) -> Any:
    jobs = table.jobs
    return {
        "pending": jobs.pending, "reserved": jobs.reserved, "success": jobs.completed, "error": jobs.errors,
        "ignore": jobs.ignored,
    }[status]  # fmt: skip


def _job(row: dict[str, Any], names: Sequence[str]) -> wire.TableJob:
    times = {name: _plain(row.get(name)) for name in ("scheduled_time", "reserved_time", "completed_time")}
    return wire.TableJob(
        key=_plain(key_of(row, names)), status=row["status"], priority=row.get("priority"),
        error_message=_text(row.get("error_message")), error_stack=_text(row.get("error_stack")),
        duration=row.get("duration"), host=row.get("host"), pid=row.get("pid"), **times,
    )  # fmt: skip


def _told(call: Call, action: str, subject: str, after: Any) -> None:
    """The audit is written right after: a pipeline may live in a database of its own."""

    def work(unit: Unit) -> wire.Changed:
        unit.audit(action, "pipeline", subject, after=after, tenant_id=None)
        return wire.Changed(changed=0)

    call.change(work)


@routes.post("/pipelines/{schema}/{table}/refresh", Need.ADMIN)
def refresh_pipeline_table(
    call: Caller, request: Request, schema: Named, table: Named, body: wire.RefreshTable
) -> wire.Refreshed:
    """Queue what is missing, drop what has no source any more."""
    found = _known(request).table(schema, table)
    counts = found.jobs.refresh(priority=body.priority, delay=body.delay_seconds)
    _told(call, "pipeline.refresh", f"{schema}.{table}", counts)
    return wire.Refreshed(counts=counts)


@routes.post("/pipelines/{schema}/{table}/clear", Need.ADMIN)
def clear_pipeline_jobs(
    call: Caller, request: Request, schema: Named, table: Named, body: wire.ClearJobs
) -> wire.Changed:
    """Forget the jobs of a status, all or by key, so that a refresh queues them anew."""
    found = _known(request).table(schema, table)
    chosen = _in_status(found, body.status)
    if body.keys is not None:
        chosen = chosen & [_checked(found, key) for key in body.keys]
    changed = int(chosen.delete_quick())
    _told(call, "pipeline.clear", f"{schema}.{table}", {"status": body.status, "changed": changed})
    return wire.Changed(changed=changed)


@routes.post("/pipelines/{schema}/{table}/ignore", Need.ADMIN)
def ignore_pipeline_keys(
    call: Caller, request: Request, schema: Named, table: Named, body: wire.IgnoreKeys
) -> wire.Changed:
    """Set keys aside."""
    found = _known(request).table(schema, table)
    for key in [_checked(found, key) for key in body.keys]:
        found.jobs.ignore(key)
    _told(call, "pipeline.ignore", f"{schema}.{table}", {"keys": _plain(body.keys)})
    return wire.Changed(changed=len(body.keys))
