"""The nouns of what reaches in and out: triggers, ticks, events, webhooks, deliveries. Frozen values, as in `nouns`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Trigger:
    """When a definition is asked for: at a schedule's moments, or when an event of some name is emitted."""

    id: UUID
    tenant_id: UUID
    label: str
    is_enabled: bool
    disabled_reason: str | None
    trigger_type: str
    event_name: str | None
    cron_expr: str | None
    timezone: str | None
    definition_id: UUID
    definition_key: str
    payload_template: Mapping[str, Any]
    priority: int | None
    dedupe_window_seconds: int
    catch_up: str
    catch_up_window_seconds: int
    overlap: str
    jitter_seconds: int
    dst_gap: str
    dst_overlap: str
    next_trigger_at: datetime | None
    last_triggered_at: datetime | None
    version: int
    created_by: str | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class TickRecord:
    """What became of one due moment of a schedule."""

    trigger_id: UUID
    tick_at: datetime
    outcome: str
    reason: str | None
    job_id: UUID | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Event:
    """A named fact, and what each matching trigger made of it."""

    id: UUID
    tenant_id: UUID
    name: str
    context: Mapping[str, Any]
    depth: int
    emitted_by: str | None
    outcomes: tuple[Mapping[str, Any], ...]
    """One for each matching trigger: `trigger_id`, `label`, `outcome` (fired, deduped, skipped, error), and `job_id` or `reason`."""
    created_at: datetime

    @property
    def job_ids(self) -> tuple[UUID, ...]:
        """The jobs that it made."""
        return tuple(UUID(each["job_id"]) for each in self.outcomes if each["outcome"] == "fired")


@dataclass(frozen=True, slots=True)
class Webhook:
    """A tenant's subscription: where to tell of what. Its secret is shown when it is made or rotated, and never again."""

    id: UUID
    tenant_id: UUID
    url: str
    description: str
    event_types: tuple[str, ...]
    is_enabled: bool
    previous_secret_expires_at: datetime | None
    created_by: str | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Delivery:
    """One attempt to deliver one message."""

    id: UUID
    webhook_id: UUID
    message_id: UUID
    event_type: str
    subject_id: UUID | None
    job_id: UUID
    attempt: int
    status: str
    response_status: int | None
    response_excerpt: str | None
    error: str | None
    duration_ms: int | None
    created_at: datetime
