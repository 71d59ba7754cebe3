"""The audit: list, export, and the heads of its hash chains."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Literal
from uuid import UUID

from fastapi import Query
from fastapi.responses import StreamingResponse

from penstock.core.access import Need
from penstock.core.audit_export import csv_lines, json_lines
from penstock.core.errors import NotFound
from penstock.core.wire import audit as wire
from penstock.core.wire.base import Moment, Name, Slug
from penstock.core.wire.base import Request as Wire
from penstock.queue import audit
from penstock.server.calls import Call
from penstock.server.queries import Cursored, cursor_of, from_cursor
from penstock.server.routing import Caller, Routes
from penstock.store import tenants
from penstock.store.audit import Filter

routes = Routes("audit")
LINES = 200
"""Lines of an export that are sent together."""


class Narrowed(Wire):
    """`action` may end with `*`. `text` is looked for in every field, `actor` anywhere in the actor."""

    actor: Name | None = None
    action: Name | None = None
    subject_type: Name | None = None
    subject_id: Name | None = None
    address: Name | None = None
    request_id: Name | None = None
    since: Moment | None = None
    until: Moment | None = None
    text: Name | None = None


class Exported(Narrowed):
    format: Literal["jsonl", "csv"] = "jsonl"


class Everywhere(Wire):
    """`tenant` narrows to one tenant, `operator` to what belongs to no tenant."""

    tenant: Slug | None = None
    operator: bool = False


class AuditQuery(Narrowed, Cursored):
    pass


class AdminAuditQuery(Everywhere, AuditQuery):
    pass


class AdminExport(Everywhere, Exported):
    pass


def _where(query: Narrowed) -> Filter:
    return Filter(**{name: getattr(query, name) for name in Narrowed.model_fields})


def _whose(call: Call, query: Everywhere) -> UUID | None:
    if query.tenant is None:
        return None
    with call.read() as tx:
        found = tenants.by_slug(tx, query.tenant)
    if found is None:
        raise NotFound("tenant", query.tenant)
    return found.id


def _page(call: Call, query: AuditQuery, tenant_id: UUID | None, operator: bool = False) -> wire.AuditPage:
    before = from_cursor(query.cursor)
    found = audit.listed(call.ground, tenant_id, _where(query), query.limit, before, operator=operator)
    more = cursor_of(found[-1].id) if len(found) == query.limit else None
    return wire.AuditPage(items=[wire.AuditEntry.of(each) for each in found], next_cursor=more)


def _file(call: Call, query: Exported, tenant_id: UUID | None, operator: bool = False) -> StreamingResponse:
    found = audit.exported(call.ground, tenant_id, _where(query), operator=operator)
    lines = csv_lines(found) if query.format == "csv" else json_lines(found)
    kind = "text/csv; charset=utf-8; header=present" if query.format == "csv" else "application/jsonl"
    name = {"content-disposition": f'attachment; filename="audit.{query.format}"', "cache-control": "no-store"}
    return StreamingResponse(_together(lines), media_type=kind, headers=name)


def _together(lines: Iterator[str]) -> Iterator[str]:
    while chunk := "".join(islice(lines, LINES)):
        yield chunk


@routes.get("/audit", Need.MANAGE)
def list_audit(call: Caller, query: Annotated[AuditQuery, Query()]) -> wire.AuditPage:
    """Who did what in the caller's tenant, newest first."""
    return _page(call, query, call.tenant_id)


@routes.get("/audit/export", Need.MANAGE, response_class=StreamingResponse)
def export_audit(call: Caller, query: Annotated[Exported, Query()]) -> StreamingResponse:
    """The audit of the caller's tenant as a file, oldest first: JSON Lines or CSV."""
    return _file(call, query, call.tenant_id)


@routes.get("/audit/head", Need.MANAGE)
def audit_head(call: Caller) -> wire.AuditHead:
    """The head of the tenant's hash chain. Kept elsewhere, it shows later whether an entry before it was changed."""
    return wire.AuditHead.of(audit.head(call.ground, call.tenant_id, call.tenant))


@routes.get("/admin/audit", Need.ADMIN)
def list_all_audit(call: Caller, query: Annotated[AdminAuditQuery, Query()]) -> wire.AuditPage:
    """Who did what anywhere, newest first."""
    return _page(call, query, _whose(call, query), query.operator)


@routes.get("/admin/audit/export", Need.ADMIN, response_class=StreamingResponse)
def export_all_audit(call: Caller, query: Annotated[AdminExport, Query()]) -> StreamingResponse:
    """The whole audit as a file, oldest first: JSON Lines or CSV."""
    return _file(call, query, _whose(call, query), query.operator)


@routes.get("/admin/audit/head", Need.ADMIN)
def audit_heads(call: Caller) -> wire.AuditHeads:
    """The heads of every hash chain, the operator's first."""
    return wire.AuditHeads(items=[wire.AuditHead.of(each) for each in audit.heads(call.ground)])
