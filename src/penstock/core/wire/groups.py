"""Groups and reservations on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field

from penstock.core.marks import Marks
from penstock.core.nouns import Group as GroupNoun
from penstock.core.nouns import Reservation as ReservationNoun
from penstock.core.outside import Missing
from penstock.core.wire.base import Answer, Instant, Int32, JsonObject, Label, Name, Request
from penstock.core.wire.jobs import Job
from penstock.core.worker_names import masked

Mode = Literal["sequential", "parallel"]
OnFailure = Literal["stop", "continue", "skip"]


class Member(Request):
    definition_key: Name
    payload: JsonObject = Field(default_factory=dict)


class NewGroup(Request):
    """Jobs that belong together: one after another, or all at once."""

    jobs: Annotated[list[Member], Field(min_length=1, max_length=1000)]
    mode: Mode = "sequential"
    on_failure: OnFailure = "stop"
    label: Label | None = None
    priority: Int32 | None = None
    correlation_id: Label | None = None


class Group(Answer):
    id: UUID
    tenant_id: UUID
    mode: Mode
    on_failure: OnFailure
    label: str | None
    status: Literal["queued", "running", "completed", "partial", "canceled"]
    created_at: Instant
    jobs: list[Job]

    @classmethod
    def of(cls, group: GroupNoun, marks: Mapping[UUID | None, Marks]) -> Group:
        """As people may see it: `marks` are those of its jobs' definitions."""
        names = ("id", "tenant_id", "mode", "on_failure", "label", "status", "created_at")
        given = {name: getattr(group, name) for name in names}
        jobs, missing = [], Missing()
        for job in group.jobs:
            with missing.gathering():
                jobs.append(Job.of(job, marks[job.definition_id]))
        missing.check()
        return cls.model_construct(**given, jobs=jobs)


class GroupList(Answer):
    items: list[Group]


class NewReservation(Request):
    """Hold the tenant's next slot. Waits up to `wait_seconds` for what runs to end."""

    wait_seconds: Annotated[float, Field(ge=0, le=20)] = 0
    expires_in_seconds: Annotated[float, Field(ge=0.1, le=86400)] = 600


class Reservation(Answer):
    id: UUID
    tenant_id: UUID
    reserved_by: str
    reserved_at: Instant
    expires_at: Instant
    status: Literal["active", "released", "expired"]

    @classmethod
    def of(cls, held: ReservationNoun) -> Reservation:
        values = {name: getattr(held, name) for name in cls.model_fields}
        return cls(**{**values, "reserved_by": masked(held.tenant_id, held.reserved_by)})


class ReservationList(Answer):
    items: list[Reservation]
