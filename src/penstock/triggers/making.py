"""A trigger, a definition and a context become a job ready to be written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from penstock.core.ids import new_id
from penstock.core.nouns import Definition
from penstock.core.outside import outside
from penstock.core.payload import compile_schema, dumps, merge, plain, require_object, validate
from penstock.core.quota import FREE, Bounds
from penstock.core.reach import Trigger
from penstock.core.template import render
from penstock.core.zones import zone
from penstock.store.hot import NewJob

SCHEDULE_ROOTS = ("tick", "trigger", "tenant")
EVENT_ROOTS = ("event", "emitted", "trigger", "tenant")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a job comes from."""

    source: str
    source_ref: str
    tick_at: datetime | None = None
    run_at: datetime | None = None
    correlation_id: str | None = None
    created_by: str | None = None


def schedule_context(trigger: Trigger, tenant_slug: str, moment: datetime) -> dict[str, Any]:
    """What a schedule's template may look into."""
    local = moment.astimezone(zone(trigger.timezone or "UTC"))
    tick = {
        "at": moment.astimezone(UTC).isoformat(),
        "local": local.isoformat(),
        "date": local.date().isoformat(),
        "timezone": trigger.timezone,
    }
    return {"tick": tick, **_who(trigger.id, trigger.label, trigger.tenant_id, tenant_slug)}


def event_context(
    trigger: Trigger, tenant_slug: str, event_id: UUID, name: str, context: Mapping[str, Any], moment: datetime
) -> dict[str, Any]:
    """What an event trigger's template may look into."""
    emitted = {"id": str(event_id), "name": name, "at": moment.astimezone(UTC).isoformat()}
    who = _who(trigger.id, trigger.label, trigger.tenant_id, tenant_slug)
    return {"event": context, "emitted": emitted, **who}


def _who(trigger_id: UUID, label: str, tenant_id: UUID, tenant_slug: str) -> dict[str, Any]:
    return {"trigger": {"id": str(trigger_id), "label": label}, "tenant": {"id": str(tenant_id), "slug": tenant_slug}}


def rendered(
    trigger: Trigger, definition: Definition, context: Mapping[str, Any], over: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The params that the trigger's template gives: the definition's defaults below, `over` on top. Raises InvalidTemplate or
    InvalidPayload."""
    template, schema = trigger.payload_template, definition.arg_schema

    def compute() -> dict[str, Any]:
        given = require_object("payload_template", render(template, context))
        params = merge(definition.default_params, {**given, **over} if over else given)
        plain("params", params)
        validate(definition.key, compile_schema(schema), params)
        return params

    name = ("template", trigger.id, context.get("tick", {}).get("at"), definition.id, definition.version)
    return outside(name, (template, context, over, schema), compute)


def fingerprint(params: Mapping[str, Any]) -> str:
    """The same for the same params, whatever the order of their keys."""
    return hashlib.sha256(json.dumps(params, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def new_job(
    trigger: Trigger, definition: Definition, params: Mapping[str, Any], origin: Origin, bounds: Bounds = FREE
) -> NewJob:
    """A job of this trigger, ready to be written; its params are checked."""
    return NewJob(
        id=new_id(), tenant_id=trigger.tenant_id, definition_id=definition.id, definition_version=definition.version,
        definition_key=definition.key, queue=definition.queue,
        priority=_priority(trigger, definition, bounds), params=dumps(params),
        max_attempts=definition.max_attempts, retry_mode=definition.retry_mode, source=origin.source,
        source_ref=origin.source_ref, scheduled_for=origin.run_at, trigger_id=trigger.id, tick_at=origin.tick_at,
        correlation_id=origin.correlation_id, created_by=origin.created_by,
    )  # fmt: skip


def _priority(trigger: Trigger, definition: Definition, bounds: Bounds) -> int:
    """What the tenant chose is kept within its range, which may be narrower than when it chose. What the operator chose for all
    tenants stays."""
    chosen = definition.priority if trigger.priority is None else trigger.priority
    return chosen if trigger.priority is None and definition.tenant_id is None else bounds.clamp(chosen)
