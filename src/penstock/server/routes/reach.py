"""Events and webhooks."""

from __future__ import annotations

from functools import partial
from typing import Annotated
from uuid import UUID

from fastapi import Query

from penstock.core.access import Need
from penstock.core.wire import jobs as jobs_wire
from penstock.core.wire import reach as wire
from penstock.core.wire.base import Name
from penstock.queue.ground import Ground
from penstock.queue.shown import secrets_of_jobs
from penstock.server.calls import Call, Unit
from penstock.server.queries import Cursored, cursor_of, from_cursor
from penstock.server.routing import Caller, Routes
from penstock.triggers.events import Events
from penstock.triggers.webhooks import Webhooks

routes = Routes("events and webhooks")
HIDDEN = frozenset({"secret"})


class EventQuery(Cursored):
    name: Name | None = None


@routes.post("/events", Need.OPERATE, status_code=201)
def emit_event(call: Caller, body: wire.NewEvent) -> wire.Event:
    """Say that something happened. The answer tells what each matching trigger made of it."""

    def work(unit: Unit) -> wire.Event:
        events = Events(unit.ground, call.tenant)
        made = events.emit(body.name, body.context, correlation_id=body.correlation_id, emitted_by=call.principal.actor)
        told = wire.Event.of(made, secrets_of_jobs(unit.tx, made.job_ids))
        unit.audit("event.emit", "event", made.id, after={"name": made.name, "jobs": [str(i) for i in made.job_ids]})
        return told

    prepare = partial(Events(call.ground, call.tenant).prepare, body.name, body.context)
    return call.change(work, status=201, prepare=prepare)


@routes.get("/events", Need.VIEW)
def list_events(call: Caller, query: Annotated[EventQuery, Query()]) -> wire.EventPage:
    """Newest first."""
    found = Events(call.ground, call.tenant).list(query.name, query.limit, from_cursor(query.cursor))
    more = cursor_of(found[-1].id) if len(found) == query.limit else None
    with call.read() as tx:
        items = [wire.Event.of(each, secrets_of_jobs(tx, each.job_ids)) for each in found]
    return wire.EventPage(items=items, next_cursor=more)


@routes.get("/events/{event_id}", Need.VIEW)
def get_event(call: Caller, event_id: UUID) -> wire.Event:
    """One event, and what each matching trigger made of it."""
    found = Events(call.ground, call.tenant).get(event_id)
    with call.read() as tx:
        return wire.Event.of(found, secrets_of_jobs(tx, found.job_ids))


def _webhooks(call: Call, ground: Ground | None = None) -> Webhooks:
    return Webhooks(ground or call.ground, call.tenant, call.penstock.webhooks.egress)


@routes.get("/webhooks", Need.MANAGE)
def list_webhooks(call: Caller) -> wire.WebhookList:
    """The webhooks of the tenant, without their secrets."""
    return wire.WebhookList(items=[wire.Webhook.of(each) for each in _webhooks(call).list()])


@routes.post("/webhooks", Need.MANAGE, status_code=201)
def create_webhook(call: Caller, body: wire.NewWebhook) -> wire.CreatedWebhook:
    """Subscribe. The answer shows the secret that signs the messages this once."""

    def work(unit: Unit) -> wire.CreatedWebhook:
        verbs = _webhooks(call, unit.ground)
        types = {} if body.event_types is None else {"event_types": body.event_types}
        made = verbs.create(body.url, description=body.description, created_by=call.principal.actor, **types)
        unit.audit("webhook.create", "webhook", made.webhook.id, after=wire.Webhook.of(made.webhook))
        return wire.CreatedWebhook(**wire.told(made.webhook), secret=made.secret)

    return call.change(work, status=201, hide=HIDDEN)


@routes.get("/webhooks/{webhook_id}", Need.MANAGE)
def get_webhook(call: Caller, webhook_id: UUID) -> wire.Webhook:
    """One webhook, without its secret."""
    return wire.Webhook.of(_webhooks(call).get(webhook_id))


@routes.patch("/webhooks/{webhook_id}", Need.MANAGE)
def change_webhook(call: Caller, webhook_id: UUID, body: wire.ChangeWebhook) -> wire.Webhook:
    """Change where it goes, what it tells of, or whether it is on."""
    given = body.model_dump(exclude_unset=True, exclude_none=True)
    changes = {"enabled" if name == "is_enabled" else name: value for name, value in given.items()}

    def work(unit: Unit) -> wire.Webhook:
        verbs = _webhooks(call, unit.ground)
        before = wire.Webhook.of(verbs.get(webhook_id))
        after = wire.Webhook.of(verbs.update(webhook_id, **changes)) if changes else before
        unit.audit("webhook.change", "webhook", webhook_id, before, after)
        return after

    return call.change(work)


@routes.delete("/webhooks/{webhook_id}", Need.MANAGE, status_code=204)
def delete_webhook(call: Caller, webhook_id: UUID) -> None:
    """It tells nobody any more. Its deliveries are forgotten."""

    def work(unit: Unit) -> wire.Webhook:
        verbs = _webhooks(call, unit.ground)
        before = wire.Webhook.of(verbs.get(webhook_id))
        verbs.delete(webhook_id)
        unit.audit("webhook.delete", "webhook", webhook_id, before)
        return before

    call.change(work)


@routes.post("/webhooks/{webhook_id}/rotate-secret", Need.MANAGE)
def rotate_webhook_secret(call: Caller, webhook_id: UUID) -> wire.CreatedWebhook:
    """A new secret signs from now on, the old one too for a day."""

    def work(unit: Unit) -> wire.CreatedWebhook:
        made = _webhooks(call, unit.ground).rotate_secret(webhook_id)
        unit.audit("webhook.rotate_secret", "webhook", webhook_id)
        return wire.CreatedWebhook(**wire.told(made.webhook), secret=made.secret)

    return call.change(work, hide=HIDDEN)


@routes.post("/webhooks/{webhook_id}/test", Need.MANAGE, status_code=201)
def test_webhook(call: Caller, webhook_id: UUID) -> jobs_wire.Job:
    """Send a `webhook.test` message; the answer is the job that delivers it."""

    def work(unit: Unit) -> jobs_wire.Job:
        job = _webhooks(call, unit.ground).test(webhook_id)
        unit.audit("webhook.test", "webhook", webhook_id, after={"job_id": str(job.id)})
        return unit.show(job)

    return call.change(work, status=201)


@routes.get("/webhooks/{webhook_id}/deliveries", Need.MANAGE)
def list_deliveries(call: Caller, webhook_id: UUID, query: Annotated[Cursored, Query()]) -> wire.DeliveryPage:
    """Every attempt, newest first."""
    found = _webhooks(call).deliveries(webhook_id, query.limit, from_cursor(query.cursor))
    more = cursor_of(found[-1].id) if len(found) == query.limit else None
    return wire.DeliveryPage(items=[wire.Delivery.of(each) for each in found], next_cursor=more)
