"""What lists are narrowed and paged by."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field

from penstock.core.errors import Fault
from penstock.core.wire.base import MAX_OFFSET, MAX_PAGE, Label, Moment, Name, Request
from penstock.core.wire.jobs import JobFilter, SourceName, Status
from penstock.queue.observe import filter_of
from penstock.server.problems import Problem
from penstock.store.jobs import Filter

_CURSOR_MARK = b"c1"


class JobQuery(Request):
    """`definition_key` may contain `*`."""

    status: list[Status] | None = None
    source: SourceName | None = None
    definition_key: Name | None = None
    queue: Name | None = None
    correlation_id: Label | None = None
    group_id: UUID | None = None
    trigger_id: UUID | None = None
    root_id: UUID | None = None
    created_after: Moment | None = None
    created_before: Moment | None = None
    search: Name | None = None


class Paged(Request):
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 50
    offset: Annotated[int, Field(ge=0, le=MAX_OFFSET)] = 0


class Cursored(Request):
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 50
    cursor: Annotated[str, Field(max_length=200)] | None = None


class JobListQuery(JobQuery, Paged):
    cursor: Annotated[str, Field(max_length=200, description="`next_cursor` of the page before")] | None = None


def where(query: JobQuery | JobFilter, within: tuple[str, ...] | None, allowed: Iterable[str] | None = None) -> Filter:
    """The engine's filter, `within` the definitions that the caller's token is limited to; with `allowed`, only of jobs in
    one of these states."""
    statuses: list[str] | None = list(query.status) if query.status else None
    if allowed is not None:
        statuses = [status for status in allowed if statuses is None or status in statuses]
    names = ("source", "queue", "correlation_id", "group_id", "trigger_id", "created_after", "created_before", "search")
    given: dict[str, Any] = {name: getattr(query, name) for name in names}
    if isinstance(query, JobQuery):
        given["root_id"] = query.root_id
    return replace(filter_of(statuses, key=query.definition_key, **given), within=within)


def cursor_of(last: UUID) -> str:
    return base64.urlsafe_b64encode(_CURSOR_MARK + last.bytes).decode()


def from_cursor(text: str | None) -> UUID | None:
    if text is None:
        return None
    try:
        raw = base64.b64decode(text.encode(), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != len(_CURSOR_MARK) + 16 or not raw.startswith(_CURSOR_MARK):
        detail = "cursor is not one of ours; pass the next_cursor of an earlier answer, or leave it out."
        raise Problem(422, "bad_cursor", detail, [Fault("query.cursor", detail)])
    return UUID(bytes=raw[len(_CURSOR_MARK) :])
