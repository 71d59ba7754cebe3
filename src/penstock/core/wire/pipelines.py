"""Pipelines on the wire: tables that compute themselves, their counts, and the jobs that went wrong."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from penstock.core.wire.base import Answer, JsonObject, Request

JobState = Literal["pending", "reserved", "success", "error", "ignore"]


class PipelineTable(Answer):
    """A box of the diagram. `jobs` counts by status; tables that do not compute themselves have none."""

    id: str
    name: str
    tier: str
    layer: int
    rows: int
    computes: bool
    jobs: dict[str, int]


class PipelineEdge(Answer):
    """From parent to child; `in_key` when the child's key depends on it."""

    parent: str
    child: str
    in_key: bool


class Pipeline(Answer):
    schema_name: str
    module: str
    tables: list[PipelineTable]
    edges: list[PipelineEdge]


class PipelineList(Answer):
    items: list[Pipeline]


class ErrorGroup(Answer):
    error: str
    count: int
    example: JsonObject


class TableStatus(Answer):
    """How far a table is: keys made and to go, its jobs by status, its errors grouped."""

    schema_name: str
    table: str
    made: int
    remaining: int
    total: int
    jobs: dict[str, int]
    errors: list[ErrorGroup]


class TableJob(Answer):
    """One key of a table, and how its job stands."""

    key: JsonObject
    status: JobState
    priority: int | None
    error_message: str | None
    error_stack: str | None
    duration: float | None
    host: str | None
    pid: int | None
    scheduled_time: str | None
    reserved_time: str | None
    completed_time: str | None


class TableJobList(Answer):
    items: list[TableJob]


class RefreshTable(Request):
    """Bring the table's jobs in step with its sources."""

    priority: Annotated[int, Field(strict=True, ge=0, le=255)] | None = None
    delay_seconds: Annotated[float, Field(ge=0, le=365 * 86400)] = 0


class Refreshed(Answer):
    counts: dict[str, int]


class Keys(Request):
    """Some keys, or with null all of that status."""

    keys: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=1000)] | None = None


class ClearJobs(Keys):
    """Forget jobs, so that a refresh queues their keys anew."""

    status: Literal["error", "ignore", "pending", "success"] = "error"


class IgnoreKeys(Request):
    keys: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=1000)]


class Changed(Answer):
    changed: int
