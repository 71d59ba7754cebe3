"""Delete a tenant."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import Path, Query, Request

from penstock.core.access import Need
from penstock.core.errors import Fault, InvalidInput
from penstock.core.wire import tenancy as wire
from penstock.core.wire.base import Request as Wire
from penstock.core.wire.base import Slug
from penstock.queue import erase
from penstock.server.problems import Problem
from penstock.server.routing import Caller, Routes

routes = Routes("admin")


class Confirmed(Wire):
    """`confirm` is the slug once more, so that nobody deletes a tenant by a slip."""

    confirm: Slug | None = None


@routes.delete("/admin/tenants/{slug}", Need.ADMIN, status_code=202)
def delete_tenant(
    call: Caller, request: Request, slug: Annotated[Slug, Path()], query: Annotated[Confirmed, Query()]
) -> wire.Deletion:
    """Close a tenant at once and have everything of it erased. This cannot be undone.

    It returns while the service and the workers erase; `GET /admin/deletions/{tenant_id}` says how far they are and, in the end,
    gives the certificate."""
    if query.confirm != slug:
        told = f"Add confirm={slug} to delete the tenant and everything of it for good."
        raise Problem(422, InvalidInput.code, told, [Fault("query.confirm", "is not the slug of the tenant")])
    tenant_id = erase.close(call.ground, slug, call.principal.actor, call.request_id)
    request.app.state.gate.forget()
    request.app.state.audit_log.wake()
    return wire.Deletion.of(erase.status(call.ground, tenant_id))


@routes.get("/admin/deletions/{tenant_id}", Need.ADMIN)
def get_deletion(call: Caller, tenant_id: UUID) -> wire.Deletion:
    """How far the deletion of a tenant is, or its certificate."""
    return wire.Deletion.of(erase.status(call.ground, tenant_id))
