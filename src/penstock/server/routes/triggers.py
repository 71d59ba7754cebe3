"""Triggers and their ticks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import Body, Query
from pydantic import Field

from penstock.core.access import Need
from penstock.core.cron import Cron
from penstock.core.errors import InvalidInput
from penstock.core.masking import refuse_masks
from penstock.core.reach import Trigger
from penstock.core.redact import unmasked
from penstock.core.wire import jobs as jobs_wire
from penstock.core.wire import reach as wire
from penstock.core.wire import stats as stats_wire
from penstock.core.wire.base import Moment, Request
from penstock.core.zones import zone
from penstock.queue.ground import Ground
from penstock.server.calls import Call, Unit
from penstock.server.queries import Paged
from penstock.server.routing import Caller, Routes
from penstock.store import stats
from penstock.triggers.schedules import Triggers

routes = Routes("triggers")


class TriggerQuery(Paged):
    trigger_type: wire.Type | None = None


class PreviewQuery(Request):
    count: Annotated[int, Field(ge=1, le=100)] = 10
    after: Moment | None = None


class TickQuery(Request):
    limit: Annotated[int, Field(ge=1, le=1000)] = 50
    before: Moment | None = None


def _triggers(call: Call, ground: Ground | None = None) -> Triggers:
    return Triggers(ground or call.ground, call.tenant)


@routes.get("/jobs/triggers", Need.VIEW)
def list_triggers(call: Caller, query: Annotated[TriggerQuery, Query()]) -> wire.TriggerList:
    """By label."""
    found = _triggers(call).list(query.trigger_type, query.limit, query.offset)
    marks = call.marks(*{each.definition_id for each in found})
    return wire.TriggerList(items=[wire.Trigger.of(each, marks[each.definition_id]) for each in found])


@routes.post("/jobs/triggers", Need.MANAGE, status_code=201)
def create_trigger(call: Caller, body: wire.NewTrigger) -> wire.Trigger:
    """An event trigger needs event_name, a schedule cron_expr; a schedule without timezone runs in the tenant's."""
    _check_kind(body)

    def work(unit: Unit) -> wire.Trigger:
        given: dict[str, Any] = {
            "enabled": body.is_enabled, "priority": body.priority, "created_by": call.principal.actor, "replace": False,
        }  # fmt: skip
        if body.dedupe_window_seconds is not None:
            given["dedupe_window_seconds"] = body.dedupe_window_seconds
        verbs = _triggers(call, unit.ground)
        if body.trigger_type == "event":
            made = verbs.on_event(body.label, str(body.event_name), body.definition_key, body.payload_template, **given)
        else:
            timezone = body.timezone or call.penstock.tenants.get(call.tenant).timezone
            made = verbs.schedule(
                body.label, str(body.cron_expr), body.definition_key, body.payload_template, timezone=timezone,
                **given, **body.policies(),
            )  # fmt: skip
        told = _shown(unit, made)
        unit.audit("trigger.create", "trigger", made.id, after=told)
        return told

    return call.change(work, status=201)


def _shown(where: Call | Unit, trigger: Trigger) -> wire.Trigger:
    return wire.Trigger.of(trigger, where.marks(trigger.definition_id)[trigger.definition_id])


def _check_kind(body: wire.NewTrigger) -> None:
    if body.trigger_type == "event":
        if body.event_name is None:
            raise InvalidInput("An event trigger needs event_name.")
        extra = [name for name in ("cron_expr", "timezone") if getattr(body, name) is not None]
        extra += sorted(body.policies())
    else:
        if body.cron_expr is None:
            raise InvalidInput("A schedule needs cron_expr.")
        extra = ["event_name"] if body.event_name is not None else []
    if extra:
        raise InvalidInput(f"A trigger of type {body.trigger_type} has no {', '.join(extra)}.")


@routes.post("/jobs/triggers/preview", Need.VIEW)
def preview_cron(call: Caller, body: wire.CronPreview) -> wire.Preview:
    """The next moments of a cron expression that need not belong to a trigger yet. Changes nothing."""
    found = _triggers(call).preview_cron(
        body.cron_expr, body.timezone, body.count, body.after, dst_gap=body.dst_gap, dst_overlap=body.dst_overlap
    )
    return _preview(found, Cron.parse(body.cron_expr, body.timezone))


def _preview(moments: Sequence[datetime], cron: Cron) -> wire.Preview:
    items = [_next(at, cron.timezone) for at in moments]
    return wire.Preview(timezone=cron.timezone, words=cron.describe(), items=items)


def _next(at: datetime, timezone: str) -> wire.NextRun:
    return wire.NextRun(at=at, local=at.astimezone(zone(timezone)).isoformat())


@routes.get("/jobs/triggers/{trigger_id}", Need.VIEW)
def get_trigger(call: Caller, trigger_id: UUID) -> wire.Trigger:
    """One trigger."""
    return _shown(call, _triggers(call).get(trigger_id))


@routes.patch("/jobs/triggers/{trigger_id}", Need.MANAGE)
def change_trigger(call: Caller, trigger_id: UUID, body: wire.ChangeTrigger) -> wire.Trigger:
    """A change applies to the next moment, never to jobs already made."""
    names = {"definition_key": "key", "cron_expr": "cron", "payload_template": "params", "is_enabled": "enabled"}
    given = body.model_dump(exclude_unset=True, exclude={"version"})
    changes = {names.get(name, name): value for name, value in given.items() if value is not None or name == "priority"}

    def work(unit: Unit) -> wire.Trigger:
        verbs = _triggers(call, unit.ground)
        stored = verbs.get(trigger_id)
        if "params" in changes:
            params = unmasked(changes["params"], stored.payload_template)
            refuse_masks(params, unit.marks(stored.definition_id)[stored.definition_id])
            changes["params"] = params
        before = _shown(unit, stored)
        after = _shown(unit, verbs.update(trigger_id, if_version=body.version, **changes))
        unit.audit("trigger.change", "trigger", trigger_id, before, after)
        return after

    return call.change(work)


@routes.delete("/jobs/triggers/{trigger_id}", Need.MANAGE, status_code=204)
def delete_trigger(call: Caller, trigger_id: UUID) -> None:
    """It fires no more. Its ticks and jobs stay."""

    def work(unit: Unit) -> wire.Trigger:
        verbs = _triggers(call, unit.ground)
        before = _shown(unit, verbs.get(trigger_id))
        verbs.delete(trigger_id)
        unit.audit("trigger.delete", "trigger", trigger_id, before)
        return before

    call.change(work)


@routes.post("/jobs/triggers/{trigger_id}/fire", Need.OPERATE, status_code=201)
def fire_trigger(
    call: Caller, trigger_id: UUID, body: Annotated[wire.Fire, Body(default_factory=wire.Fire)]
) -> jobs_wire.Job:
    """Make its job now, whatever its schedule and state say."""

    def work(unit: Unit) -> jobs_wire.Job:
        verbs = _triggers(call, unit.ground)
        job = verbs.fire(trigger_id, body.payload, event=body.event, created_by=call.principal.actor)
        unit.audit("trigger.fire", "trigger", trigger_id, after={"job_id": str(job.id)})
        return unit.show(job)

    def prepare() -> None:
        _triggers(call).prepare_fire(trigger_id, body.payload or {}, body.event or {})

    return call.change(work, status=201, prepare=prepare)


@routes.get("/jobs/triggers/{trigger_id}/preview", Need.VIEW)
def preview_trigger(call: Caller, trigger_id: UUID, query: Annotated[PreviewQuery, Query()]) -> wire.Preview:
    """Its next moments. An event trigger has none."""
    verbs = _triggers(call)
    found = verbs.get(trigger_id)
    if found.trigger_type == "event":
        return wire.Preview(timezone="UTC", words=f"Whenever {found.event_name} is emitted", items=[])
    cron = Cron.parse(found.cron_expr or "", found.timezone or "UTC")
    return _preview(verbs.preview(trigger_id, query.count, query.after), cron)


@routes.get("/jobs/triggers/{trigger_id}/ticks", Need.VIEW)
def list_ticks(call: Caller, trigger_id: UUID, query: Annotated[TickQuery, Query()]) -> wire.TickPage:
    """What became of its moments, newest first, with the reason of every skip."""
    found = _triggers(call).ticks(trigger_id, query.limit, query.before)
    return wire.TickPage(items=[wire.Tick.of(each) for each in found])


class UpcomingQuery(Request):
    limit: Annotated[int, Field(ge=1, le=200)] = 10


@routes.get("/stats/upcoming", Need.VIEW)
def list_upcoming(call: Caller, query: Annotated[UpcomingQuery, Query()]) -> stats_wire.UpcomingList:
    """The next moment of each enabled schedule, soonest first."""
    with call.read() as tx:
        found = stats.upcoming(tx, call.tenant_id, query.limit)
    items = [
        stats_wire.Upcoming(
            trigger_id=row.id, label=row.label, definition_key=row.definition_key, at=row.next_trigger_at
        )
        for row in found
    ]
    return stats_wire.UpcomingList(items=items)
