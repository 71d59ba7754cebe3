"""Definitions, tenants and queues on the wire."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import ConfigDict, Field

from penstock.core.marks import marks_of_schema
from penstock.core.masking import hidden_params
from penstock.core.nouns import Definition as DefinitionNoun
from penstock.core.nouns import Tenant as TenantNoun
from penstock.core.redact import redact_schema
from penstock.core.wire.base import Answer, Count, Flag, Instant, Int32, JsonObject, Name, Request, Slug, Text

Timeout = Annotated[int, Field(strict=True, ge=1, le=365 * 86400)]
Attempts = Annotated[int, Field(strict=True, ge=1, le=1000)]
Action = Literal["created", "changed", "unchanged", "archived"]
RetryModeName = Literal["requeue", "chain"]


class DefinitionFields(Request):
    description: Text | None = None
    runner: Name | None = None
    queue: Name | None = None
    arg_schema: JsonObject | None = None
    default_params: JsonObject | None = None
    timeout_seconds: Timeout | None = None
    max_attempts: Attempts | None = None
    retry_mode: RetryModeName | None = None
    retry_policy: JsonObject | None = None
    priority: Int32 | None = None
    max_running: Count | None = None

    def values(self) -> dict[str, Any]:
        """What was given, as the engine takes it. `max_running: null` lifts the limit; other nulls say nothing."""
        given = self.model_dump(exclude_unset=True, exclude={"key", "tenant", "is_active", "paused"})
        return {name: value for name, value in given.items() if value is not None or name == "max_running"}


class NewDefinition(DefinitionFields):
    """What may be asked for. With `tenant` it is offered to that tenant alone."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "key": "sync-dropbox",
                    "description": "Sync provider updates for tenant",
                    "arg_schema": {
                        "type": "object",
                        "properties": {
                            "provider_id": {"type": "string", "format": "uuid"},
                            "path_prefix": {"type": "string"},
                        },
                        "required": ["provider_id"],
                        "additionalProperties": False,
                    },
                    "timeout_seconds": 3600,
                    "max_attempts": 3,
                }
            ]
        }
    )

    key: Name
    tenant: Slug | None = None


class ChangeDefinition(DefinitionFields):
    """What is given changes; `is_active: false` archives it, and disables its triggers."""

    is_active: Flag | None = None
    paused: Flag | None = None


class Definition(Answer):
    id: UUID
    tenant_id: UUID | None
    key: str
    description: str
    runner: str
    queue: str
    arg_schema: JsonObject
    default_params: JsonObject
    timeout_seconds: int
    max_attempts: int
    retry_mode: RetryModeName
    retry_policy: JsonObject
    priority: int
    max_running: int | None
    is_active: bool
    paused: bool
    version: int
    created_at: Instant
    updated_at: Instant

    @classmethod
    def of(cls, definition: DefinitionNoun) -> Definition:
        values = {name: getattr(definition, name) for name in cls.model_fields}
        values["retry_mode"] = definition.retry_mode.value
        values["retry_policy"] = definition.retry_policy.as_dict()
        values["default_params"] = hidden_params(definition.default_params, marks_of_schema(definition.arg_schema))
        values["arg_schema"] = redact_schema(definition.arg_schema)
        return cls(**values)


class DefinitionList(Answer):
    items: list[Definition]


class ApplyDefinitions(Request):
    """The definitions as they shall be. With `archive_others`, those of the same owner that are not named end."""

    definitions: Annotated[list[NewDefinition], Field(max_length=500)]
    archive_others: Flag = False
    dry_run: Flag = False


class FieldChange(Answer):
    field: str
    before: Any
    after: Any


class DefinitionDiff(Answer):
    key: str
    tenant: str | None
    action: Action
    changes: list[FieldChange]


class Applied(Answer):
    dry_run: bool
    items: list[DefinitionDiff]


QuotaName = Literal[
    "tokens", "triggers", "webhooks", "queued_jobs", "jobs_per_event", "jobs_per_request", "streams", "workers",
    "requests_per_second",
]  # fmt: skip
Quota = Count | Literal["unlimited", "default"]
Quotas = Annotated[
    dict[QuotaName, Quota],
    Field(description="Numbers by name; `unlimited` for no limit, `default` to forget what was set", max_length=50),
]


class NewTenant(Request):
    model_config = ConfigDict(json_schema_extra={"examples": [{"slug": "acme", "name": "Acme"}]})

    slug: Slug
    name: Name | None = None
    timezone: Name = "UTC"
    weight: Annotated[int, Field(strict=True, ge=1, le=100)] = 1
    max_running: Count | None = None
    quotas: Quotas | None = None
    min_priority: Int32 | None = None
    max_priority: Int32 | None = None


class ChangeTenant(Request):
    name: Name | None = None
    timezone: Name | None = None
    weight: Annotated[int, Field(strict=True, ge=1, le=100)] | None = None
    max_running: Count | None = None
    is_active: Flag | None = None
    quotas: Quotas | None = None
    min_priority: Int32 | None = None
    max_priority: Int32 | None = None


class Tenant(Answer):
    id: UUID
    slug: str
    name: str
    timezone: str
    weight: int
    max_running: int | None
    is_active: bool
    created_at: Instant
    quotas: Annotated[
        dict[QuotaName, int | None],
        Field(description="What the operator has set; null for no limit. The others have their defaults"),
    ]
    min_priority: int | None
    max_priority: int | None

    @classmethod
    def of(cls, tenant: TenantNoun) -> Tenant:
        return cls(**{name: getattr(tenant, name) for name in cls.model_fields})


class TenantList(Answer):
    items: list[Tenant]


class Queue(Answer):
    name: str
    paused: bool


class QueueList(Answer):
    items: list[Queue]
