"""Triggers, ticks, events, webhooks and deliveries on the wire."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import ConfigDict, Field

from penstock.core import reach
from penstock.core.marks import Marks
from penstock.core.masking import hidden_params
from penstock.core.redact import Redactor
from penstock.core.wire.base import (
    Answer,
    Count,
    Flag,
    Instant,
    Int32,
    JsonObject,
    Label,
    Moment,
    Name,
    Request,
    Text,
)

_redactor = Redactor()
Type = Literal["event", "schedule"]
CatchUp = Literal["skip", "latest", "all"]
Overlap = Literal["allow", "skip", "buffer_one", "cancel_running"]
Gap = Literal["shift", "skip"]
Fold = Literal["first", "both"]
CronText = Annotated[str, Field(min_length=1, max_length=200)]
EVENT_EXAMPLE: dict[str, Any] = {
    "label": "Resync on folder change",
    "trigger_type": "event",
    "event_name": "provider.folder.updated",
    "definition_key": "sync-dropbox",
    "payload_template": {"provider_id": "{{event.provider_id}}", "path_prefix": "{{event.folder_path}}"},
    "dedupe_window_seconds": 120,
}
SCHEDULE_EXAMPLE: dict[str, Any] = {
    "label": "Nightly provider sync",
    "trigger_type": "schedule",
    "cron_expr": "0 2 * * *",
    "timezone": "America/New_York",
    "definition_key": "sync-dropbox",
    "payload_template": {"path_prefix": "/"},
}


class Policies(Request):
    catch_up: CatchUp | None = None
    catch_up_window_seconds: Count | None = None
    overlap: Overlap | None = None
    jitter_seconds: Count | None = None
    dst_gap: Gap | None = None
    dst_overlap: Fold | None = None

    def policies(self) -> dict[str, Any]:
        """Those that were given."""
        return {name: value for name in Policies.model_fields if (value := getattr(self, name)) is not None}


class NewTrigger(Policies):
    """When a definition is asked for: when an event is emitted, or at the moments of a cron expression."""

    model_config = ConfigDict(json_schema_extra={"examples": [EVENT_EXAMPLE, SCHEDULE_EXAMPLE]})

    label: Name
    trigger_type: Type
    definition_key: Name
    event_name: Name | None = None
    cron_expr: CronText | None = None
    timezone: Name | None = None
    payload_template: JsonObject = Field(default_factory=dict)
    dedupe_window_seconds: Count | None = None
    priority: Int32 | None = None
    is_enabled: Flag = True


class ChangeTrigger(Policies):
    """What is given changes. With `version`, only if nobody changed it since."""

    label: Name | None = None
    definition_key: Name | None = None
    event_name: Name | None = None
    cron_expr: CronText | None = None
    timezone: Name | None = None
    payload_template: JsonObject | None = None
    dedupe_window_seconds: Count | None = None
    priority: Int32 | None = None
    is_enabled: Flag | None = None
    version: Count | None = None


class Trigger(Answer):
    id: UUID
    tenant_id: UUID
    label: str
    is_enabled: bool
    disabled_reason: str | None
    trigger_type: Type
    event_name: str | None
    cron_expr: str | None
    timezone: str | None
    definition_id: UUID
    definition_key: str
    payload_template: JsonObject
    priority: int | None
    dedupe_window_seconds: int
    catch_up: CatchUp
    catch_up_window_seconds: int
    overlap: Overlap
    jitter_seconds: int
    dst_gap: Gap
    dst_overlap: Fold
    next_trigger_at: Instant | None
    last_triggered_at: Instant | None
    version: int
    created_by: str | None
    created_at: Instant
    updated_at: Instant

    @classmethod
    def of(cls, trigger: reach.Trigger, marks: Marks) -> Trigger:
        """As people may see it: `marks` are those of its definition."""
        given = {name: getattr(trigger, name) for name in cls.model_fields}
        return cls(**{**given, "payload_template": hidden_params(trigger.payload_template, marks)})


class TriggerList(Answer):
    items: list[Trigger]


class Fire(Request):
    """`payload` goes over the template's; `event` is what an event trigger's template looks into."""

    payload: JsonObject = Field(default_factory=dict)
    event: JsonObject = Field(default_factory=dict)


class CronPreview(Request):
    cron_expr: CronText
    timezone: Name = "UTC"
    count: Annotated[int, Field(strict=True, ge=1, le=100)] = 10
    after: Moment | None = None
    dst_gap: Gap = "shift"
    dst_overlap: Fold = "first"


class NextRun(Answer):
    """A moment, in UTC and as the clock on the wall of its zone shows it."""

    at: Instant
    local: str


class Preview(Answer):
    """The next moments of a schedule, and the schedule in words."""

    timezone: str
    words: str
    items: list[NextRun]


class Tick(Answer):
    """What became of one due moment of a schedule."""

    trigger_id: UUID
    tick_at: Instant
    outcome: Literal["fired", "skipped", "error"]
    reason: str | None
    job_id: UUID | None
    created_at: Instant

    @classmethod
    def of(cls, tick: reach.TickRecord) -> Tick:
        return cls(**{name: getattr(tick, name) for name in cls.model_fields})


class TickPage(Answer):
    items: list[Tick]


class NewEvent(Request):
    """A named fact. Triggers that answer it make their jobs with it, or none of it is written."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"name": "provider.folder.updated", "context": {"provider_id": "p1", "folder_path": "/photos"}}
            ]
        }
    )

    name: Name
    context: JsonObject = Field(default_factory=dict)
    correlation_id: Label | None = None


class Event(Answer):
    """An event, and what each matching trigger made of it."""

    id: UUID
    tenant_id: UUID
    name: str
    context: JsonObject
    depth: int
    emitted_by: str | None
    outcomes: list[JsonObject]
    job_ids: list[UUID]
    created_at: Instant

    @classmethod
    def of(cls, event: reach.Event, secrets: Iterable[str] = ()) -> Event:
        """As people may see it: `secrets` are those of the jobs that it started."""
        given = {name: getattr(event, name) for name in cls.model_fields}
        given["context"] = _redactor.extended(secrets).redact_json(event.context)
        return cls(**{**given, "outcomes": [dict(each) for each in event.outcomes], "job_ids": list(event.job_ids)})


class EventPage(Answer):
    items: list[Event]
    next_cursor: str | None


class NewWebhook(Request):
    """Tell `url` of these things, signed as Standard Webhooks says. Without `event_types`, of everything."""

    url: Annotated[str, Field(min_length=1, max_length=2000)]
    event_types: Annotated[list[Name], Field(min_length=1, max_length=50)] | None = None
    description: Text = ""


class ChangeWebhook(Request):
    url: Annotated[str, Field(min_length=1, max_length=2000)] | None = None
    event_types: Annotated[list[Name], Field(min_length=1, max_length=50)] | None = None
    description: Text | None = None
    is_enabled: Flag | None = None


class Webhook(Answer):
    id: UUID
    tenant_id: UUID
    url: str
    description: str
    event_types: list[str]
    is_enabled: bool
    previous_secret_expires_at: Instant | None
    created_by: str | None
    created_at: Instant
    updated_at: Instant

    @classmethod
    def of(cls, webhook: reach.Webhook) -> Webhook:
        return cls(**told(webhook))


def told(webhook: reach.Webhook) -> dict[str, Any]:
    given = {name: getattr(webhook, name) for name in Webhook.model_fields}
    return {**given, "url": _redactor.redact_text(webhook.url), "event_types": list(webhook.event_types)}


class CreatedWebhook(Webhook):
    """`secret` is shown this once; a repeated request with the same Idempotency-Key answers null for it."""

    secret: str | None


class WebhookList(Answer):
    items: list[Webhook]


class Delivery(Answer):
    """One attempt to deliver one message."""

    id: UUID
    webhook_id: UUID
    message_id: UUID
    event_type: str
    subject_id: UUID | None
    job_id: UUID
    attempt: int
    status: Literal["delivered", "failed"]
    response_status: int | None
    response_excerpt: str | None
    error: str | None
    duration_ms: int | None
    created_at: Instant

    @classmethod
    def of(cls, delivery: reach.Delivery) -> Delivery:
        return cls(**{name: getattr(delivery, name) for name in cls.model_fields})


class DeliveryPage(Answer):
    items: list[Delivery]
    next_cursor: str | None
