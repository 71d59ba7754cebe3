"""How it goes: figures over time, failures by cause, workers."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query
from pydantic import Field

from penstock.core.access import Need, Role
from penstock.core.wire import jobs as jobs_wire
from penstock.core.wire import stats as wire
from penstock.core.wire.base import Name, Request
from penstock.core.worker_names import opaque
from penstock.queue import observe, stats
from penstock.server.calls import Call
from penstock.server.routing import Caller, Routes

routes = Routes("overview")
STANDING_CAP = 100_000


class TimelineQuery(Request):
    minutes: Annotated[int, Field(ge=1, le=44640)] = 60
    step: Annotated[int, Field(ge=1, le=1440, description="Minutes in one point")] = 1
    definition_key: Name | None = None


@routes.get("/stats/timeline", Need.VIEW)
def get_timeline(call: Caller, query: Annotated[TimelineQuery, Query()]) -> wire.Timeline:
    """Throughput and latency over time: runs by how they ended, median and p95 of waiting and running."""
    found = stats.timeline(call.ground, call.tenant_id, query.minutes, query.step, query.definition_key)
    items = [
        wire.Point(
            at=point.at, wait_p50=point.wait_p50, wait_p95=point.wait_p95, run_p50=point.run_p50, run_p95=point.run_p95,
            **point.ended,
        )
        for point in found
    ]  # fmt: skip
    return wire.Timeline(minutes=query.minutes, step=query.step, items=items)


class FailureQuery(Request):
    limit: Annotated[int, Field(ge=1, le=200)] = 20
    hours: Annotated[float, Field(gt=0, le=24 * 365)] | None = None


@routes.get("/stats/failures", Need.VIEW)
def list_failures(call: Caller, query: Annotated[FailureQuery, Query()]) -> wire.FailureList:
    """The newest 5,000 failures grouped by definition and error, most frequent first."""
    found = stats.failures(call.ground, call.tenant_id, query.limit, query.hours)
    names = wire.Failure.model_fields
    return wire.FailureList(items=[wire.Failure(**{name: getattr(each, name) for name in names}) for each in found])


@routes.get("/admin/stats", Need.ADMIN)
def list_standings(call: Caller) -> wire.Standing:
    """How every tenant's queue stands."""
    items = []
    for tenant in call.penstock.tenants.list()[:1000]:
        found = observe.summary(call.ground, tenant.id, STANDING_CAP)
        counts = jobs_wire.Counts(**{status.value: n for status, n in found.counts.items()})
        summary = jobs_wire.Summary(
            counts=counts,
            oldest_queued_age_seconds=found.oldest_queued_seconds,
            running_count=found.running,
            capped_at=STANDING_CAP,
        )
        items.append(wire.TenantStanding(tenant_id=tenant.id, slug=tenant.slug, summary=summary))
    return wire.Standing(items=items)


@routes.get("/workers", Need.VIEW)
def list_workers(call: Caller) -> wire.WorkerList:
    """The workers that serve the tenant, newest first, stale ones marked.

    How busy they are, with what, and on which machine is told to super admins alone: it would tell of other tenants and of the
    operator's machines. A tenant's own workers, which claim over HTTP, are shown by the names that they gave themselves."""
    everything = call.principal.role is Role.SUPER_ADMIN
    found = [row for row in observe.present_workers(call.ground) if everything or _serves(call, row)]
    return wire.WorkerList(items=[_worker(row, everything) for row in found])


def _serves(call: Call, row: dict[str, Any]) -> bool:
    return row["tenant_id"] in (None, call.tenant_id)


def _worker(row: dict[str, Any], everything: bool) -> wire.Worker:
    own = row["tenant_id"] is not None
    name = row["id"] if own else opaque(row["id"])
    id = row["id"] if everything else name
    return wire.Worker(
        id=id, worker_id=id, name=name, hostname=row["hostname"] if everything or own else None, version=row["version"], queues=row["queues"] or [],
        keys=row["keys"] if everything else None, concurrency=row["concurrency"],
        running_count=row["running_count"] if everything else None, started_at=row["started_at"],
        last_seen_at=row["last_seen_at"], stale=bool(row["stale"]), metadata=row["metadata"] if everything else None,
    )  # fmt: skip
