"""The whole installation: tenants, definitions, queues."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import Path, Query, Request

from penstock.core.access import Need
from penstock.core.errors import Conflict, InvalidInput, NotFound
from penstock.core.redact import unmasked
from penstock.core.scopes import allows_key
from penstock.core.wire import definitions as wire
from penstock.core.wire.base import Name, Slug
from penstock.core.wire.base import Request as Wire
from penstock.queue import define
from penstock.queue.apply import apply_definitions
from penstock.server.calls import Call, Unit
from penstock.server.routing import Caller, Routes
from penstock.store import catalogue, definitions, tenants

routes = Routes("admin")


class DefinitionQuery(Wire):
    archived: bool = False


@routes.get("/admin/jobs/definitions", Need.ADMIN)
def list_all_definitions(call: Caller, query: Annotated[DefinitionQuery, Query()]) -> wire.DefinitionList:
    """Every definition of the installation, those of single tenants included."""
    with call.read() as tx:
        found = catalogue.every(tx, archived=query.archived)
    return wire.DefinitionList(items=[wire.Definition.of(each) for each in found])


@routes.post("/admin/jobs/definitions", Need.ADMIN, status_code=201)
def create_definition(call: Caller, body: wire.NewDefinition) -> wire.Definition:
    """Offer a new definition to every tenant, or to one. Without `runner` it is a command, unless the service's own app has
    a function of this key."""
    owner = None if body.tenant is None else call.ground.tenant_id(body.tenant)

    def work(unit: Unit) -> wire.Definition:
        if definitions.owned(unit.tx, owner, body.key) is not None:
            raise Conflict(f"There is a definition {body.key!r} already; change it with PATCH.")
        runner = "python" if body.key in call.penstock.functions else "command"
        made = wire.Definition.of(define.define(unit.ground, owner, body.key, **{"runner": runner, **body.values()}))
        unit.audit("definition.create", "definition", made.id, after=made, tenant_id=owner)
        return made

    return call.change(work, status=201, prepare=lambda: define.checked(body.values()))


@routes.patch("/admin/jobs/definitions/{definition_id}", Need.ADMIN)
def change_definition(call: Caller, definition_id: UUID, body: wire.ChangeDefinition) -> wire.Definition:
    """Change it; `is_active: false` archives it. Jobs there already are unaffected."""

    def work(unit: Unit) -> wire.Definition:
        found = definitions.by_id(unit.tx, definition_id)
        if found is None:
            raise NotFound("definition", definition_id)
        owner, values = found.tenant_id, body.values()
        for name in ("default_params", "arg_schema"):
            if name in values:
                values[name] = unmasked(values[name], getattr(found, name))
        if body.is_active is True and not found.is_active:
            values["is_active"] = True
        elif not found.is_active:
            values["is_active"] = False
        after = define.define(unit.ground, owner, found.key, **values) if values else found
        if body.paused is not None and body.paused != found.paused:
            after = define.pause(unit.ground, owner, found.key, body.paused)
        if body.is_active is False and found.is_active:
            after = define.archive(unit.ground, owner, found.key).definition
        told = wire.Definition.of(after)
        unit.audit("definition.change", "definition", definition_id, wire.Definition.of(found), told, owner)
        return told

    return call.change(work)


@routes.post("/admin/jobs/definitions/apply", Need.ADMIN)
def apply_all_definitions(call: Caller, body: wire.ApplyDefinitions) -> wire.Applied:
    """Make the definitions what the request says, and answer the difference. With `dry_run`, only the difference."""

    def work(unit: Unit) -> wire.Applied:
        done = apply_definitions(unit.ground, unit.tx, body)
        for each in done.items:
            if each.action != "unchanged" and not body.dry_run:
                owner = None if each.tenant is None else unit.ground.tenant_id(each.tenant)
                unit.audit(f"definition.{each.action}", "definition", each.key, after=each, tenant_id=owner)
        return done

    return call.change(work, prepare=lambda: [define.checked(each.values()) for each in body.definitions])


@routes.get("/definitions", Need.VIEW)
def list_definitions(call: Caller, query: Annotated[DefinitionQuery, Query()]) -> wire.DefinitionList:
    """What the caller's tenant may ask for."""
    found = define.listed(call.ground, call.tenant_id, query.archived)
    keys = call.principal.keys
    return wire.DefinitionList(items=[wire.Definition.of(each) for each in found if allows_key(keys, each.key)])


@routes.get("/admin/tenants", Need.ADMIN)
def list_tenants(call: Caller) -> wire.TenantList:
    """Every tenant, by slug."""
    return wire.TenantList(items=[wire.Tenant.of(each) for each in call.penstock.tenants.list()])


@routes.post("/admin/tenants", Need.ADMIN, status_code=201)
def create_tenant(call: Caller, body: wire.NewTenant) -> wire.Tenant:
    """A new wall: a tenant sees nothing of another."""

    def work(unit: Unit) -> wire.Tenant:
        values: dict[str, Any] = body.model_dump()
        made = wire.Tenant.of(define.create_tenant(unit.ground, **values))
        unit.audit("tenant.create", "tenant", made.slug, after=made, tenant_id=made.id)
        return made

    return call.change(work, status=201)


@routes.patch("/admin/tenants/{slug}", Need.ADMIN)
def change_tenant(
    call: Caller, request: Request, slug: Annotated[Slug, Path()], body: wire.ChangeTenant
) -> wire.Tenant:
    """Change a tenant; `is_active: false` shuts it out: its tokens end, and it takes no new jobs."""

    def work(unit: Unit) -> wire.Tenant:
        before = tenants.by_slug(unit.tx, slug)
        if before is None:
            raise NotFound("tenant", slug)
        given = body.model_dump(exclude_unset=True)
        cleared = {"max_running", "min_priority", "max_priority"}
        values = {name: value for name, value in given.items() if value is not None or name in cleared}
        if values.get("is_active") is False and slug == "default":
            raise InvalidInput("The tenant default cannot be shut out: embedded programs use it.")
        after = wire.Tenant.of(define.update_tenant(unit.ground, slug, **values))
        unit.audit("tenant.change", "tenant", slug, wire.Tenant.of(before), after, before.id)
        return after

    changed = call.change(work)
    request.app.state.gate.forget()
    return changed


@routes.get("/queues", Need.ADMIN)
def list_queues(call: Caller) -> wire.QueueList:
    """Queues are the installation's: every tenant's jobs go through them."""
    found = call.penstock.queues.list()
    return wire.QueueList(items=[wire.Queue(name=name, paused=paused) for name, paused in found.items()])


def _set_paused(call: Call, name: str, paused: bool) -> wire.Queue:
    def work(unit: Unit) -> wire.Queue:
        known = define.queue_names(unit.ground)
        if name not in known:
            raise NotFound("queue", name)
        define.pause_queue(unit.ground, name, paused)
        action = "queue.pause" if paused else "queue.resume"
        unit.audit(action, "queue", name, {"paused": known[name]}, {"paused": paused}, None)
        return wire.Queue(name=name, paused=paused)

    return call.change(work)


@routes.post("/queues/{name}/pause", Need.ADMIN)
def pause_queue(call: Caller, name: Annotated[Name, Path()]) -> wire.Queue:
    """Nothing of a paused queue is claimed, by anyone."""
    return _set_paused(call, name, True)


@routes.post("/queues/{name}/resume", Need.ADMIN)
def resume_queue(call: Caller, name: Annotated[Name, Path()]) -> wire.Queue:
    """Its jobs are claimed again."""
    return _set_paused(call, name, False)
