"""`app.webhooks`: subscriptions to what happens to jobs and groups. A delivery is a durable job, written in the
transaction that ended what it tells of; its attempts are recorded one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from penstock.core import check
from penstock.core.errors import Conflict, InvalidInput, NotFound
from penstock.core.groups import derive
from penstock.core.ids import new_id
from penstock.core.message import TEST_TYPE, TYPES, body, group_type, job_data, job_types
from penstock.core.nouns import Job
from penstock.core.payload import plain
from penstock.core.reach import Delivery, Webhook
from penstock.core.settings.triggers import TriggerSettings
from penstock.core.status import RetryMode, Source
from penstock.core.webhook import DELIVERY_KEY, Attempt, Egress, Endpoint, new_secret
from penstock.queue import bounds
from penstock.queue.ground import Ended, Ground
from penstock.queue.shown import marks_for
from penstock.store import groups, jobs, webhooks
from penstock.store.database import Tx
from penstock.store.hot import NewJob

Id = UUID | str
MAX_WEBHOOKS = 100
"""Of one tenant."""

ROTATION_SECONDS = 24 * 3600
PUBLIC_ONLY = Egress()


@dataclass(frozen=True, slots=True)
class NewWebhook:
    """A subscription as it was just made, with its secret. Nobody is shown the secret again."""

    webhook: Webhook
    secret: str


@dataclass(frozen=True, slots=True)
class Webhooks:
    """The webhooks of one tenant."""

    ground: Ground
    tenant: str
    egress: Egress = PUBLIC_ONLY

    @property
    def tenant_id(self) -> UUID:
        return self.ground.tenant_id(self.tenant)

    def create(
        self, url: str, event_types: Sequence[str] = TYPES, *, description: str = "", created_by: str | None = None
    ) -> NewWebhook:
        """Tell `url` of these things. Answers the secret that signs the messages: keep it, it is not shown again."""
        self.egress.check_url(url)
        secret = new_secret()
        values = {
            "url": url,
            "event_types": checked_types(event_types),
            "description": check.text("description", description, 1000, empty=True),
            "secret": secret,
            "is_enabled": True,
            "created_by": check.maybe_text("created_by", created_by),
        }

        def work(tx: Tx) -> Webhook:
            bounds.require(self.ground, tx, self.tenant_id, "webhooks", webhooks.count)
            if webhooks.count(tx, self.tenant_id) >= MAX_WEBHOOKS:
                raise Conflict(f"This tenant has {MAX_WEBHOOKS} webhooks, the most it may have. Delete some first.")
            return webhooks.add(tx, self.tenant_id, values)

        return NewWebhook(self.ground.db.transact(work), secret)

    def get(self, id: Id) -> Webhook:
        with self.ground.db.read() as tx:
            return _known(webhooks.get(tx, self.tenant_id, check.identifier("id", id)), id)

    def list(self) -> Sequence[Webhook]:
        with self.ground.db.read() as tx:
            return webhooks.listed(tx, self.tenant_id)

    def update(self, id: Id, **changes: Any) -> Webhook:
        """Change url, event_types, description or enabled."""
        unknown = changes.keys() - {"url", "event_types", "description", "enabled"}
        if unknown:
            raise InvalidInput(f"A webhook has no {', '.join(sorted(unknown))}.")
        values: dict[str, Any] = {}
        if "url" in changes:
            self.egress.check_url(changes["url"])
            values["url"] = changes["url"]
        if "event_types" in changes:
            values["event_types"] = checked_types(changes["event_types"])
        if "description" in changes:
            values["description"] = check.text("description", changes["description"], 1000, empty=True)
        if "enabled" in changes:
            values["is_enabled"] = bool(changes["enabled"])
        webhook_id = check.identifier("id", id)
        return _known(self.ground.db.transact(lambda tx: webhooks.change(tx, self.tenant_id, webhook_id, values)), id)

    def delete(self, id: Id) -> None:
        webhook_id = check.identifier("id", id)
        if not self.ground.db.transact(lambda tx: webhooks.delete(tx, self.tenant_id, webhook_id)):
            raise NotFound("webhook", id)

    def rotate_secret(self, id: Id, overlap_seconds: int = ROTATION_SECONDS) -> NewWebhook:
        """A new secret signs from now on; the old one too, for `overlap_seconds`, so that receivers can change over."""
        check.integer("overlap_seconds", overlap_seconds, 0, 30 * 86400)
        webhook_id, secret = check.identifier("id", id), new_secret()
        changed = self.ground.db.transact(
            lambda tx: webhooks.rotate(tx, self.tenant_id, webhook_id, secret, overlap_seconds)
        )
        return NewWebhook(_known(changed, id), secret)

    def test(self, id: Id) -> Job:
        """Send a `webhook.test` message; the job that delivers it."""
        webhook_id = check.identifier("id", id)

        def work(tx: Tx) -> Job:
            found = _known(webhooks.get(tx, self.tenant_id, webhook_id), id)
            job = _delivery(self.ground.config, found, TEST_TYPE, None, tx.time(), {"webhook_id": str(found.id)})
            jobs.insert(tx, [job])
            made = jobs.get(tx, self.tenant_id, job.id)
            assert made is not None
            return made

        return self.ground.db.transact(work)

    def deliveries(self, id: Id, limit: int = 50, before: Id | None = None) -> Sequence[Delivery]:
        """Every attempt, newest first."""
        check.integer("limit", limit, 1, 1000)
        cursor = check.identifier("before", before) if before is not None else None
        with self.ground.db.read() as tx:
            found = _known(webhooks.get(tx, self.tenant_id, check.identifier("id", id)), id)
            return webhooks.delivered(tx, self.tenant_id, found.id, limit, cursor)


def checked_types(given: Sequence[str]) -> Sequence[str]:
    if isinstance(given, str) or not given or not all(isinstance(each, str) for each in given):
        raise InvalidInput(f"event_types is a list of one or more of {', '.join(TYPES)}.")
    unknown = sorted(set(given) - set(TYPES))
    if unknown:
        raise InvalidInput(f"There is no event type {', '.join(unknown)}; known are {', '.join(TYPES)}.")
    return sorted(set(given))


def install_outbox(ground: Ground) -> None:
    """From now on, what ends on this ground is told to those who subscribed."""
    ground.outbox = partial(outbox, ground)


def outbox(ground: Ground, tx: Tx, ended: Sequence[Ended]) -> None:
    """Write the deliveries of what has just ended, in the transaction that ended it."""
    listening = webhooks.listening(tx, {each.tenant_id for each in ended})
    if not listening:
        return
    now, config = tx.time(), ground.config
    told = {job.id: job for job in jobs.get_many(tx, [each.job_id for each in ended])}
    marks = marks_for(tx, {job.definition_id for job in told.values()})
    new: list[NewJob] = []
    for each in ended:
        job = told.get(each.job_id)
        if job is None or job.definition_key == DELIVERY_KEY:
            continue  # a delivery that told of deliveries would never end
        hooks = [hook for hook in listening if hook.tenant_id == each.tenant_id]
        types = job_types(each.resolution)
        data = job_data(job, each.resolution, marks[job.definition_id])
        new += [_delivery(config, hook, t, job.id, now, data) for t in types for hook in hooks if t in hook.event_types]
        if each.group_ended and each.group_id is not None:
            new += _group_deliveries(tx, config, hooks, each.tenant_id, each.group_id, now)
    if new:
        jobs.insert(tx, new)


def _group_deliveries(
    tx: Tx, config: TriggerSettings, hooks: Sequence[Webhook], tenant_id: UUID, group_id: UUID, now: datetime
) -> Sequence[NewJob]:
    header = groups.header(tx, tenant_id, group_id)
    members = groups.members(tx, group_id)
    if header is None:
        return []
    status = derive([member.status for member in members], str(header["on_failure"]))
    told = group_type(status)
    data = {
        "id": str(group_id),
        "tenant_id": str(tenant_id),
        "status": str(status),
        "mode": header["mode"],
        "label": header["label"],
        "jobs": [
            {"id": str(m.id), "definition_key": m.definition_key, "status": str(m.status)} for m in members[:1000]
        ],
    }
    return [
        _delivery(config, hook, told, group_id, now, data)
        for hook in hooks
        if told is not None and told in hook.event_types
    ]


def _delivery(
    config: TriggerSettings,
    hook: Webhook,
    type_: str,
    subject_id: UUID | None,
    now: datetime,
    data: Mapping[str, Any],
) -> NewJob:
    params = {
        "webhook_id": str(hook.id),
        "message_id": str(new_id()),
        "subject_id": str(subject_id) if subject_id else None,
        "message": body(type_, now, data),
    }
    return NewJob(
        id=new_id(), tenant_id=hook.tenant_id, definition_id=None, definition_version=None, definition_key=DELIVERY_KEY,
        queue="default", priority=config.webhook_priority, params=plain("message", params), max_attempts=config.webhook_attempts,
        retry_mode=RetryMode.REQUEUE, source=Source.SYSTEM, source_ref=f"webhook:{hook.id}",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Post:
    """What the runner of deliveries is given in place of the store."""

    ground: Ground

    def endpoint(self, tenant_id: UUID, webhook_id: UUID) -> Endpoint | None:
        """Where to, and the secrets that sign now; None if the subscription is gone."""
        with self.ground.db.read() as tx:
            return webhooks.endpoint(tx, tenant_id, webhook_id)

    def record(self, tenant_id: UUID, attempt: Attempt) -> None:
        """Write how an attempt went."""
        self.ground.db.transact(lambda tx: webhooks.record(tx, tenant_id, attempt.as_dict()))

    def now(self) -> datetime:
        with self.ground.db.read() as tx:
            return tx.time()


def _known(found: Webhook | None, id: Id) -> Webhook:
    if found is None:
        raise NotFound("webhook", id)
    return found
