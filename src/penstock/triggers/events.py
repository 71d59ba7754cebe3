"""`app.emit`: a named fact, written with the jobs that its triggers make of it, in one transaction: the caller's own
if one is given. What one trigger cannot use is told on the event, and the others still fire."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from penstock.core import check
from penstock.core.caller import OWN, joins
from penstock.core.cause import causing_job
from penstock.core.errors import CiphertextInvalid, InvalidInput, NotFound, UnknownTenant
from penstock.core.ids import new_id
from penstock.core.nouns import Definition, Tenant
from penstock.core.outside import Missing, in_transaction, outside_if_large, preparing, steady
from penstock.core.payload import plain, require_object
from penstock.core.quota import FREE, Bounds
from penstock.core.reach import Event, Trigger
from penstock.core.settings.triggers import TriggerSettings
from penstock.core.status import Source
from penstock.queue.bounds import require_room
from penstock.queue.enqueue import TRIES
from penstock.queue.ground import Ground
from penstock.store import definitions, events, jobs, tenants, triggers
from penstock.store.database import Tx
from penstock.store.hot import NewJob
from penstock.store.unit import savepoint
from penstock.triggers import making
from penstock.triggers.fields import event_name, patterns_for
from penstock.triggers.making import Origin

Id = UUID | str
Outcome = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Emission:
    """An event about to be written."""

    id: UUID
    tenant: Tenant
    name: str
    context: Mapping[str, Any]
    depth: int
    emitted_by: str | None
    correlation_id: str | None
    moment: datetime
    bounds: Bounds = FREE
    most_depth: int = TriggerSettings.event_depth
    """How long a chain of job → event → job may get before it is taken for a loop."""


@dataclass(frozen=True, slots=True)
class Events:
    """The events of one tenant."""

    ground: Ground
    tenant: str

    @property
    def tenant_id(self) -> UUID:
        return self.ground.tenant_id(self.tenant)

    def emit(
        self,
        name: str,
        context: Mapping[str, Any] | None = None,
        *,
        connection: Any = OWN,
        correlation_id: str | None = None,
        emitted_by: str | None = None,
        cause: Id | None = None,
    ) -> Event:
        """Say that something happened. With `connection`, the event and its jobs exist exactly if the caller's
        transaction commits. `cause` is the job that emits it (known by itself inside a job's function): a chain of
        jobs and events longer than eight is taken for a loop, and stopped."""
        event_name(name)
        given = context if context is not None else {}
        require_object("context", given)
        outside_if_large("event", given, lambda: plain("context", given))
        check.maybe_text("correlation_id", correlation_id)
        check.maybe_text("emitted_by", emitted_by)
        because = check.identifier("cause", cause) if cause is not None else causing_job.get()

        def work(tx: Tx) -> Event:
            return self._emit(tx, name, given, correlation_id, emitted_by, because)

        with preparing():
            if not joins(connection):
                if not in_transaction():
                    self.prepare(name, given)
                return self.ground.db.transact(work)
            if not self.ground.db.dialect.many_writers:
                self.prepare(name, given)  # elsewhere nothing is read beside the caller's transaction
            with self.ground.db.joined(connection) as tx, savepoint(tx):
                return work(tx)

    def prepare(self, name: str, context: Mapping[str, Any]) -> None:
        """Render and check what the triggers will make of an event, before the transaction that writes it."""
        with self.ground.db.read() as tx:
            found = [each for each in triggers.answering(tx, self.tenant_id, patterns_for(name)) if each.is_enabled]
            known = definitions.by_ids(tx, {each.definition_id for each in found}) if found else {}
            event_id, moment = _which(tx)
        for trigger in found:
            told = making.event_context(trigger, self.tenant, event_id, name, context, moment)
            with suppress(InvalidInput):  # told on the event, in the transaction
                making.rendered(trigger, known[trigger.definition_id], told)

    def get(self, id: Id) -> Event:
        with self.ground.db.read() as tx:
            found = events.get(tx, self.tenant_id, check.identifier("id", id))
        if found is None:
            raise NotFound("event", id)
        return found

    def list(self, name: str | None = None, limit: int = 50, before: Id | None = None) -> Sequence[Event]:
        """Newest first; `before` pages on from an id."""
        check.integer("limit", limit, 1, 1000)
        cursor = check.identifier("before", before) if before is not None else None
        with self.ground.db.read() as tx:
            return events.listed(tx, self.tenant_id, name, limit, cursor)

    def _emit(
        self,
        tx: Tx,
        name: str,
        context: Mapping[str, Any],
        correlation_id: str | None,
        emitted_by: str | None,
        cause: UUID | None,
    ) -> Event:
        tenant = tenants.by_id(tx, self.tenant_id)
        if tenant is None or not tenant.is_active:
            raise UnknownTenant(self.tenant)
        depth = self._depth(tx, cause)
        by = emitted_by or (f"job:{cause}" if cause is not None else None)
        limits = self.ground.bounds(tenant.id, tx)
        event_id, moment = _which(tx)
        emission = Emission(
            event_id, tenant, name, context, depth, by, correlation_id, moment, limits, self.ground.config.event_depth
        )
        outcomes = _answer(self.ground, tx, emission, triggers.answering(tx, tenant.id, patterns_for(name)))
        row = {"id": event_id, "tenant_id": tenant.id, "name": name, "context": dict(context), "depth": depth}
        return events.add(tx, {**row, "emitted_by": by, "outcomes": outcomes})

    def _depth(self, tx: Tx, cause: UUID | None) -> int:
        """One more than the event that made the job that emits this one."""
        job = jobs.get(tx, self.tenant_id, cause) if cause is not None else None
        if job is None:
            return 0
        if job.source != Source.EVENT or job.source_ref is None:
            return 1
        before = events.depth(tx, self.tenant_id, UUID(job.source_ref))
        return 1 + (before or 0)


def _which(tx: Tx) -> tuple[UUID, datetime]:
    """The id and the time of the event under way. What is rendered may hold them, so they stay if the transaction begins again."""
    return steady("event", lambda: (new_id(), tx.time()))


def _answer(ground: Ground, tx: Tx, emission: Emission, found: Sequence[Trigger]) -> list[Outcome]:
    """What each trigger makes of it. The jobs are written together."""
    outcomes: list[Outcome] = []
    made: dict[UUID, tuple[Outcome, Trigger, NewJob]] = {}
    known = definitions.by_ids(tx, {trigger.definition_id for trigger in found}) if found else {}
    missing = Missing()
    for trigger in found:
        with missing.gathering():
            outcome, job = _decide(tx, emission, trigger, known[trigger.definition_id])
            outcomes.append(outcome)
            if job is not None:
                made[job.id] = outcome, trigger, job
    missing.check()
    if emission.bounds is not FREE:
        # All or nothing: an event that some triggers answer and others cannot, for want of room, would be hard to repair
        emission.bounds.require("jobs_per_event", 0, len(made))
        require_room(ground, tx, emission.tenant.id, len(made))
    for _ in range(TRIES):
        written = jobs.insert(tx, [job for _, _, job in made.values()]) if made else {}
        made = {job_id: each for job_id, each in made.items() if job_id not in written}
        if not made:
            return outcomes
        made = _decided_again(tx, emission, made)
    for outcome, _, _ in made.values():
        _fail(outcome, "its definition kept changing while the job was being written")
    return outcomes


def _decided_again(
    tx: Tx, emission: Emission, made: Mapping[UUID, tuple[Outcome, Trigger, NewJob]]
) -> dict[UUID, tuple[Outcome, Trigger, NewJob]]:
    """The jobs whose definitions changed before they were written, under the same ids, as the definitions are now."""
    known = definitions.by_ids(tx, {trigger.definition_id for _, trigger, _ in made.values()})
    again, missing = {}, Missing()
    for job_id, (outcome, trigger, _) in made.items():
        definition = known[trigger.definition_id]
        if not definition.is_active:
            _fail(outcome, f"The definition {definition.key!r} is archived.")
            continue
        try:
            with missing.gathering():
                again[job_id] = outcome, trigger, _job_of(emission, trigger, definition)._replace(id=job_id)
        except InvalidInput as error:
            _fail(outcome, str(error)[:2000])
    missing.check()
    return again


def _fail(outcome: Outcome, reason: str) -> None:
    outcome.pop("job_id", None)
    outcome |= {"outcome": "error", "reason": reason}


def _job_of(emission: Emission, trigger: Trigger, definition: Definition) -> NewJob:
    context = making.event_context(
        trigger, emission.tenant.slug, emission.id, emission.name, emission.context, emission.moment
    )
    params = making.rendered(trigger, definition, context)
    origin = Origin(
        Source.EVENT, str(emission.id), correlation_id=emission.correlation_id, created_by=emission.emitted_by
    )
    return making.new_job(trigger, definition, params, origin, emission.bounds)


def _decide(tx: Tx, emission: Emission, trigger: Trigger, definition: Definition) -> tuple[Outcome, NewJob | None]:
    def told(outcome: str, **more: str) -> Outcome:
        return {"trigger_id": str(trigger.id), "label": trigger.label, "outcome": outcome, **more}

    if not trigger.is_enabled:
        return told("skipped", reason=f"disabled: {trigger.disabled_reason or 'by hand'}"), None
    if not definition.is_active:
        reason = f"The definition {definition.key!r} is archived."
        triggers.disable(tx, [trigger.id], reason)
        return told("error", reason=reason), None
    if emission.depth >= emission.most_depth:
        return told("skipped", reason=f"loop guard: events and jobs caused one another {emission.depth} times"), None
    try:
        job = _job_of(emission, trigger, definition)
    except (InvalidInput, CiphertextInvalid) as error:
        return told("error", reason=str(error)[:2000]), None
    if trigger.dedupe_window_seconds:
        window = trigger.dedupe_window_seconds
        earlier = events.claim_fire(tx, trigger.id, making.fingerprint(json.loads(job.params)), job.id, window)
        if earlier is not None:
            return told("deduped", job_id=str(earlier), reason=f"the same params fired within {window} s"), None
    return told("fired", job_id=str(job.id)), job
