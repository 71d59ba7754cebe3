"""`app.triggers`: when jobs are asked for, by time or by event. A change applies to the next moment, never to jobs made."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from penstock.core import check
from penstock.core.clock import require_aware
from penstock.core.cron import Cron
from penstock.core.errors import Conflict, DefinitionArchived, InvalidInput, NotFound, UnknownDefinition
from penstock.core.nouns import Definition, Job
from penstock.core.outside import in_transaction, preparing, steady
from penstock.core.payload import require_object
from penstock.core.reach import TickRecord, Trigger
from penstock.core.status import Source
from penstock.queue import bounds
from penstock.queue.ground import Ground
from penstock.store import definitions, events, jobs, tenants, ticks, triggers
from penstock.store.database import Tx
from penstock.store.triggers import Due
from penstock.triggers import making, ticking
from penstock.triggers.fields import POLICIES, checked_policies, checked_template, event_pattern, renamed

Id = UUID | str
MAX_TRIGGERS = 20_000
"""Of one tenant."""

MAX_PREVIEW = 1000


def _nothing_to_define(_key: str) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Triggers:
    """The triggers of one tenant.

    `ensure_defined` is called with a definition's key before it is looked up, so that a program's own functions are
    known by then.
    """

    ground: Ground
    tenant: str
    ensure_defined: Callable[[str], None] = _nothing_to_define

    @property
    def tenant_id(self) -> UUID:
        return self.ground.tenant_id(self.tenant)

    def schedule(
        self,
        label: str,
        cron: str,
        key: str,
        params: Mapping[str, Any] | None = None,
        *,
        timezone: str | None = None,
        priority: int | None = None,
        enabled: bool | None = None,
        replace: bool = True,
        created_by: str | None = None,
        **policies: Any,
    ) -> Trigger:
        """Ask for `key` at every moment of `cron` in `timezone` (the tenant's, if not given). `params` go over the definition's defaults, and may
        look into `tick`, `trigger` and `tenant`: `{"day": "{{tick.date}}"}`.

        Policies: catch_up, catch_up_window_seconds, overlap, jitter_seconds, dst_gap, dst_overlap,
        dedupe_window_seconds. A trigger of this label is changed to what is given, unless `replace` is false."""
        values = checked_policies(policies)
        timezone = self._own_timezone() if timezone is None else timezone
        parsed = Cron.parse(cron, timezone, values.get("dst_gap", "shift"), values.get("dst_overlap", "first"))
        values |= {
            "trigger_type": "schedule",
            "cron_expr": parsed.expression,
            "timezone": timezone,
            "priority": priority,
        }
        return self._put(label, key, params or {}, values, enabled, replace, created_by)

    def on_event(
        self,
        label: str,
        event_name: str,
        key: str,
        params: Mapping[str, Any] | None = None,
        *,
        dedupe_window_seconds: int = 300,
        priority: int | None = None,
        enabled: bool | None = None,
        replace: bool = True,
        created_by: str | None = None,
    ) -> Trigger:
        """Ask for `key` whenever an event of this name is emitted; `orders.*` answers every name that begins so.
        `params` may look into `event`, `emitted`, `trigger` and `tenant`. The same params fire once in the window."""
        values = checked_policies({"dedupe_window_seconds": dedupe_window_seconds})
        values |= {"trigger_type": "event", "event_name": event_pattern(event_name), "priority": priority}
        return self._put(label, key, params or {}, values, enabled, replace, created_by)

    def get(self, id: Id) -> Trigger:
        with self.ground.db.read() as tx:
            return self._found(tx, id)

    def find(self, name: str) -> Trigger:
        """By its label, else by its id."""
        with self.ground.db.read() as tx:
            found = triggers.by_label(tx, self.tenant_id, name)
            if found is not None:
                return found
            try:
                return self._found(tx, name)
            except InvalidInput:
                raise NotFound("trigger", repr(name)) from None

    def list(self, trigger_type: str | None = None, limit: int = 100, offset: int = 0) -> list[Trigger]:
        """By label."""
        check.integer("limit", limit, 1, 1000)
        check.integer("offset", offset, 0)
        with self.ground.db.read() as tx:
            return triggers.listed(tx, self.tenant_id, trigger_type, limit, offset)

    def update(self, id: Id, *, if_version: int | None = None, **changes: Any) -> Trigger:
        """Change label, cron, timezone, event_name, key, params, priority, enabled or a policy. With `if_version`,
        only if nobody changed it since."""
        if isinstance(key := changes.get("key"), str):
            self.ensure_defined(key)
        return self.ground.db.transact(lambda tx: self._update(tx, id, if_version, dict(changes)))

    def enable(self, id: Id) -> Trigger:
        """Its next moment is the first one from now; those it missed while disabled stay skipped."""
        return self.update(id, enabled=True)

    def disable(self, id: Id, reason: str = "disabled by hand") -> Trigger:
        """Its moments go on being recorded, as skipped."""
        return self.update(id, enabled=False, disabled_reason=reason)

    def delete(self, id: Id) -> None:
        """It fires no more. Its ticks and jobs stay."""

        def work(tx: Tx) -> None:
            if not triggers.delete(tx, self.tenant_id, check.identifier("id", id)):
                raise NotFound("trigger", id)

        self.ground.db.transact(work)

    def fire(
        self,
        id: Id,
        params: Mapping[str, Any] | None = None,
        *,
        event: Mapping[str, Any] | None = None,
        created_by: str | None = None,
    ) -> Job:
        """Make its job now, by hand: whatever its schedule, its state and its policies say. `params` go over the
        template's; `event` is what an event trigger's template looks into."""
        given, told = {} if params is None else params, {} if event is None else event
        with preparing():
            if not in_transaction():
                self.prepare_fire(id, given, told)
            return self.ground.db.transact(lambda tx: self._fire(tx, id, given, told, created_by))

    def preview(self, id: Id, n: int = 5, after: datetime | None = None) -> Sequence[datetime]:
        """The next `n` moments of a schedule, in UTC."""
        with self.ground.db.read() as tx:
            cron, start = ticking.cron_of(self._found(tx, id)), after or tx.time()
        return cron.preview(check.integer("n", n, 1, MAX_PREVIEW), require_aware("after", start))

    def preview_cron(
        self, cron: str, timezone: str = "UTC", n: int = 5, after: datetime | None = None, **dst: str
    ) -> Sequence[datetime]:
        """The next `n` moments of an expression that need not belong to a trigger yet."""
        parsed = Cron.parse(cron, timezone, **dst)
        with self.ground.db.read() as tx:
            start = after or tx.time()
        return parsed.preview(check.integer("n", n, 1, MAX_PREVIEW), require_aware("after", start))

    def ticks(self, id: Id, limit: int = 50, before: datetime | None = None) -> Sequence[TickRecord]:
        """What became of its moments, newest first."""
        check.integer("limit", limit, 1, 1000)
        with self.ground.db.read() as tx:
            return ticks.listed(tx, self.tenant_id, self._found(tx, id).id, limit, before)

    def _own_timezone(self) -> str:
        with self.ground.db.read() as tx:
            tenant = tenants.by_id(tx, self.tenant_id)
        return tenant.timezone if tenant is not None else "UTC"

    def _found(self, tx: Tx, id: Id, *, lock: bool = False) -> Trigger:
        found = triggers.get(tx, self.tenant_id, check.identifier("id", id), lock=lock)
        if found is None:
            raise NotFound("trigger", id)
        return found

    def _put(
        self,
        label: str,
        key: str,
        params: Mapping[str, Any],
        values: dict[str, Any],
        enabled: bool | None,
        replace: bool,
        created_by: str | None,
    ) -> Trigger:
        check.text("label", label)
        check.maybe_text("created_by", created_by)
        if values["priority"] is not None:
            check.integer("priority", values["priority"])
            self.ground.bounds(self.tenant_id).require_priority(values["priority"])
        checked_template(params, values["trigger_type"])
        self.ensure_defined(key)

        def work(tx: Tx) -> Trigger:
            definition = self._definition(tx, key)
            found = triggers.by_label(tx, self.tenant_id, label)
            if found is not None:
                return self._replace(tx, found, definition, params, values, enabled, replace)
            bounds.require(self.ground, tx, self.tenant_id, "triggers", triggers.count)
            if triggers.count(tx, self.tenant_id) >= MAX_TRIGGERS:
                raise Conflict(f"This tenant has {MAX_TRIGGERS} triggers, the most it may have. Delete some first.")
            row = {**POLICIES, **values, "label": label, "payload_template": dict(params), "created_by": created_by}
            row |= {
                "definition_id": definition.id,
                "definition_key": definition.key,
                "is_enabled": enabled is not False,
            }
            if enabled is False:
                row["disabled_reason"] = "made disabled"
            made = triggers.add(tx, self.tenant_id, row)
            return self._restarted(tx, self._checked(tx, made, definition))

        return self.ground.db.transact(work)

    def _replace(
        self,
        tx: Tx,
        found: Trigger,
        definition: Definition,
        params: Mapping[str, Any],
        values: dict[str, Any],
        enabled: bool | None,
        replace: bool,
    ) -> Trigger:
        if not replace or found.trigger_type != values["trigger_type"]:
            raise Conflict(f"There is a trigger {found.label!r} of type {found.trigger_type} already: {found.id}.")
        wanted = {**POLICIES, **values, "payload_template": dict(params), "definition_id": definition.id}
        wanted["definition_key"] = definition.key
        if enabled is not None and enabled != found.is_enabled:
            wanted |= {"is_enabled": enabled, "disabled_reason": None if enabled else "disabled by hand"}
        return self._apply(tx, found, wanted, definition)

    def _update(self, tx: Tx, id: Id, if_version: int | None, changes: dict[str, Any]) -> Trigger:
        found = self._found(tx, id, lock=True)
        if if_version is not None and found.version != if_version:
            raise Conflict(
                f"The trigger {found.label!r} was changed meanwhile: version {found.version}, not {if_version}."
            )
        wanted = renamed(found, changes)
        if wanted.get("priority") != found.priority:
            self.ground.bounds(self.tenant_id, tx).require_priority(wanted.get("priority"))
        definition = self._definition(tx, changes["key"]) if "key" in changes else None
        if definition is not None:
            wanted |= {"definition_id": definition.id, "definition_key": definition.key}
        elif wanted.get("is_enabled"):
            self._definition(tx, found.definition_key)  # an archived definition takes no new jobs
        if (
            "label" in wanted
            and wanted["label"] != found.label
            and triggers.by_label(tx, self.tenant_id, wanted["label"])
        ):
            raise Conflict(f"There is a trigger {wanted['label']!r} already.")
        return self._apply(tx, found, wanted, definition)

    def _apply(self, tx: Tx, found: Trigger, wanted: dict[str, Any], definition: Definition | None) -> Trigger:
        changed = {name: value for name, value in wanted.items() if getattr(found, name) != value}
        if not changed:
            return found
        again = changed.get("is_enabled") or {"cron_expr", "timezone", "dst_gap", "dst_overlap"} & changed.keys()
        if again and found.trigger_type == "schedule":
            self._settle(tx, found)
        if {"payload_template", "definition_id", "dedupe_window_seconds"} & changed.keys():
            events.forget_fires(tx, [found.id])
        after = triggers.change(tx, self.tenant_id, found.id, changed)
        if {"payload_template", "definition_id"} & changed.keys():
            self._checked(tx, after, definition or definitions.by_ids(tx, {after.definition_id})[after.definition_id])
        return self._restarted(tx, after) if again else after

    def _settle(self, tx: Tx, trigger: Trigger) -> None:
        """Decide what was due under the old schedule or state before it changes, so that no moment goes untold."""
        if trigger.next_trigger_at is None:
            return
        tenant = tenants.by_id(tx, self.tenant_id)
        assert tenant is not None
        ticking.settle(self.ground, tx, [Due(trigger, tenant.slug, tenant.is_active, tenant.bounds)], tx.time())

    def _restarted(self, tx: Tx, trigger: Trigger) -> Trigger:
        if trigger.trigger_type != "schedule":
            return trigger
        now = max(tx.time(), trigger.created_at)
        return triggers.change(
            tx, self.tenant_id, trigger.id, {"next_trigger_at": ticking.cron_of(trigger).next_after(now)}
        )

    def _checked(self, tx: Tx, trigger: Trigger, definition: Definition) -> Trigger:
        """A schedule's params are known when it is made: refuse what is wrong now rather than at two in the morning.
        What is missing may still come from the definition's defaults; seed 002's own example counts on that."""
        if trigger.trigger_type == "schedule":
            schema = {name: part for name, part in definition.arg_schema.items() if name != "required"}
            context = making.schedule_context(trigger, self.tenant, steady("checked", tx.time))
            making.rendered(trigger, dataclasses.replace(definition, arg_schema=schema), context)
        return trigger

    def _definition(self, tx: Tx, key: str) -> Definition:
        check.text("key", key)
        found = definitions.by_key(tx, self.tenant_id, key)
        if found is None:
            raise UnknownDefinition(key, [each.key for each in definitions.visible(tx, self.tenant_id)])
        if not found.is_active:
            raise DefinitionArchived(key)
        return found

    def _fire(self, tx: Tx, id: Id, params: Mapping[str, Any], event: Mapping[str, Any], created_by: str | None) -> Job:
        trigger, definition = self._to_fire(tx, id)
        moment = steady(("fire", trigger.id), tx.time)
        merged = self._fired(trigger, definition, moment, params, event)
        bounds.admit(self.ground, tx, self.tenant_id)
        origin = making.Origin(Source.MANUAL, f"trigger:{trigger.id}", created_by=created_by)
        job = making.new_job(trigger, definition, merged, origin, self.ground.bounds(self.tenant_id, tx))
        if job.id not in jobs.insert(tx, [job]):
            raise Conflict(f"The definition {definition.key!r} changed while the job was being written. Try again.")
        made = jobs.get(tx, self.tenant_id, job.id)
        assert made is not None
        return made

    def prepare_fire(self, id: Id, params: Mapping[str, Any], event: Mapping[str, Any]) -> None:
        """Render and check the params before the transaction that writes the job."""
        with self.ground.db.read() as tx:
            trigger, definition = self._to_fire(tx, id)
            moment = steady(("fire", trigger.id), tx.time)
        self._fired(trigger, definition, moment, params, event)

    def _to_fire(self, tx: Tx, id: Id) -> tuple[Trigger, Definition]:
        trigger = self._found(tx, id)
        definition = definitions.by_ids(tx, {trigger.definition_id})[trigger.definition_id]
        if not definition.is_active:
            raise DefinitionArchived(definition.key)
        return trigger, definition

    def _fired(
        self,
        trigger: Trigger,
        definition: Definition,
        moment: datetime,
        params: Mapping[str, Any],
        event: Mapping[str, Any],
    ) -> dict[str, Any]:
        if trigger.trigger_type == "schedule":
            context = making.schedule_context(trigger, self.tenant, moment)
        else:
            require_object("event", event)
            context = making.event_context(trigger, self.tenant, trigger.id, trigger.event_name or "", event, moment)
        return making.rendered(trigger, definition, context, require_object("params", params))
