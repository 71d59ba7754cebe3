"""Groups, and reservations of a tenant's next slot."""

from __future__ import annotations

from functools import partial
from typing import Annotated
from uuid import UUID

import anyio
from fastapi import Body, Query
from fastapi import Request as HttpRequest
from pydantic import Field

from penstock.core.access import Need
from penstock.core.errors import NotFound
from penstock.core.nouns import Reservation
from penstock.core.wire import groups as wire
from penstock.core.wire.base import MAX_OFFSET, Request
from penstock.queue import group, reserve
from penstock.server.calls import Call, Unit
from penstock.server.routing import Caller, Routes
from penstock.server.waits import Places, WaitingRoom
from penstock.store import reservations

routes = Routes("groups")
POLL = 0.1
"""Seconds between looks for a reservation: nothing is heard of a job that ends."""


class GroupQuery(Request):
    """Smaller pages than elsewhere: a group comes with all its jobs."""

    limit: Annotated[int, Field(ge=1, le=100)] = 20
    offset: Annotated[int, Field(ge=0, le=MAX_OFFSET)] = 0


@routes.post("/groups", Need.OPERATE, status_code=201)
def create_group(call: Caller, body: wire.NewGroup) -> wire.Group:
    """All jobs of the group, or none."""
    members = [(each.definition_key, each.payload) for each in body.jobs]

    def work(unit: Unit) -> wire.Group:
        made = unit.groups().create(
            members, body.mode, body.on_failure, label=body.label, priority=body.priority,
            correlation_id=body.correlation_id, created_by=call.principal.actor, trace=call.trace,
        )  # fmt: skip
        told = {"mode": body.mode, "label": body.label, "jobs": [str(job.id) for job in made.jobs]}
        unit.audit("group.create", "group", made.id, after=told)
        return wire.Group.of(made, unit.marks(*{job.definition_id for job in made.jobs}))

    prepare = partial(group.prepare_members, call.ground, call.tenant_id, members)
    return call.change(work, status=201, prepare=prepare)


@routes.get("/groups", Need.VIEW)
def list_groups(call: Caller, query: Annotated[GroupQuery, Query()]) -> wire.GroupList:
    """Newest first."""
    found = call.groups().list(query.limit, query.offset)
    marks = call.marks(*{job.definition_id for each in found for job in each.jobs})
    return wire.GroupList(items=[wire.Group.of(each, marks) for each in found])


@routes.get("/groups/{group_id}", Need.VIEW)
def get_group(call: Caller, group_id: UUID) -> wire.Group:
    """A group with its jobs, each the last of its retry chain."""
    found = call.groups().get(group_id)
    return wire.Group.of(found, call.marks(*{job.definition_id for job in found.jobs}))


@routes.post("/groups/{group_id}/cancel", Need.OPERATE)
def cancel_group(call: Caller, group_id: UUID) -> wire.Group:
    """Cancel what waits, ask what runs to stop."""

    def work(unit: Unit) -> wire.Group:
        before = unit.groups().get(group_id)
        after = unit.groups().cancel(group_id)
        unit.audit("group.cancel", "group", group_id, {"status": before.status}, {"status": after.status})
        return wire.Group.of(after, unit.marks(*{job.definition_id for job in after.jobs}))

    return call.change(work)


@routes.get("/reservations", Need.VIEW)
def list_reservations(call: Caller) -> wire.ReservationList:
    """The tenant's active reservation, if there is one."""
    with call.read() as tx:
        held = reservations.active(tx, call.tenant_id)
    return wire.ReservationList(items=[] if held is None else [wire.Reservation.of(held)])


@routes.post("/reservations", Need.OPERATE, status_code=201)
async def create_reservation(
    call: Caller, request: HttpRequest, body: Annotated[wire.NewReservation, Body(default_factory=wire.NewReservation)]
) -> wire.Reservation:
    """Hold the tenant's next slot: nothing of the tenant is claimed until it is released, or expires. With `wait_seconds` the
    request waits for what runs to end; 429 if too many requests of the token or the tenant wait already.

    409 if what runs does not end in time, or somebody else holds it."""
    taking = reserve.Taking(
        call.ground, call.tenant_id, body.wait_seconds, body.expires_in_seconds, f"api:{call.principal.id}"
    )
    if not body.wait_seconds:
        return await call.on_thread(lambda: _reserved(call, body, None))
    # One that may have to wait is taken before the transaction that tells of it: claims must see it meanwhile
    waits: Places = request.app.state.waits
    with waits.taken(call.principal, call.tenant_id):
        held = await _wait_for(call, request, taking, body.wait_seconds)
    return await call.on_thread(lambda: _reserved(call, body, held))


async def _wait_for(call: Call, request: HttpRequest, taking: reserve.Taking, seconds: float) -> Reservation:
    room: WaitingRoom = request.app.state.room
    held: Reservation | None = None
    try:
        held = await room.wait(
            request,
            seconds,
            taking.step,
            lambda taken: reserve.release(call.ground, taken.id),
            tenant_id=call.tenant_id,
            line="reserve",
            poll=POLL,
        )
    finally:
        if held is None:  # also if the client has gone
            with anyio.CancelScope(shield=True):
                busy = await room.on_thread(taking.give_up)
    if held is None:
        raise busy
    return held


def _reserved(call: Call, body: wire.NewReservation, waited: Reservation | None) -> wire.Reservation:
    def work(unit: Unit) -> wire.Reservation:
        held = waited or reserve.take(
            unit.ground, call.tenant_id, 0, body.expires_in_seconds, f"api:{call.principal.id}"
        )
        made = wire.Reservation.of(held)
        unit.audit("reservation.create", "reservation", made.id, after=made)
        return made

    return call.change(work, status=201)


@routes.delete("/reservations/{reservation_id}", Need.OPERATE)
def release_reservation(call: Caller, reservation_id: UUID) -> wire.Reservation:
    """The queue goes on."""

    def work(unit: Unit) -> wire.Reservation:
        held = reservations.active(unit.tx, call.tenant_id)
        if held is None or held.id != reservation_id:
            raise NotFound("reservation", reservation_id)
        reservations.release(unit.tx, reservation_id)
        after = wire.Reservation.of(held).model_copy(update={"status": "released"})
        unit.audit("reservation.release", "reservation", reservation_id, wire.Reservation.of(held), after)
        return after

    return call.change(work)
