"""Due moments become ticks and jobs, a page of schedules in one transaction.

The tick's key (trigger, moment) is what makes a moment fire once; the row lock on the trigger keeps two schedulers from
doing the same work; the leader's lock only saves them the trouble of looking.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

import structlog

from penstock.core.cipher import Unreadable
from penstock.core.cron import Cron
from penstock.core.errors import (
    CiphertextInvalid,
    Conflict,
    IllegalTransition,
    InvalidInput,
    KeyMissing,
    QuotaExceeded,
)
from penstock.core.nouns import Definition
from penstock.core.outside import Missing
from penstock.core.reach import Trigger
from penstock.core.schedule import Decision, Facts, Plan, Tick, decide
from penstock.core.status import Source
from penstock.queue.bounds import require_room
from penstock.queue.cancel import cancel_in
from penstock.queue.ground import Ground
from penstock.store import definitions, events, jobs, ticks, triggers
from penstock.store.database import Tx
from penstock.store.hot import NewJob
from penstock.store.ticks import NewTick
from penstock.store.triggers import Advance, Cursor, Due
from penstock.triggers import making
from penstock.triggers.making import Origin

PAGE = 500
"""Schedules decided in one transaction."""

MAX_REASON = 2000


@dataclass(slots=True)
class Harvest:
    """What a page of decisions comes to, gathered before anything is written."""

    ticks: list[NewTick] = field(default_factory=list)
    jobs: dict[tuple[UUID, datetime], NewJob] = field(default_factory=dict)
    moves: list[Advance] = field(default_factory=list)
    disabled: dict[str, list[UUID]] = field(default_factory=dict)
    to_cancel: list[Trigger] = field(default_factory=list)


def page(
    ground: Ground, tx: Tx, enabled: bool, after: Cursor | None = None, size: int = PAGE
) -> tuple[int, Cursor | None]:
    """Decide one page of due schedules. Answers how many ticks were written, and where the next page begins."""
    now = tx.time()
    found = triggers.due(tx, enabled, size, after)
    if not found:
        return 0, None
    written = settle(ground, tx, found, now)
    last = found[-1].trigger
    assert last.next_trigger_at is not None
    return written, (last.next_trigger_at, last.id) if len(found) == size else None


def settle(ground: Ground, tx: Tx, found: Sequence[Due], now: datetime) -> int:
    """Decide and write every due moment of these schedules, which are locked. Those that are encrypted with a key that this
    process does not have are left to a scheduler that has it."""
    known = definitions.by_ids(tx, {due.trigger.definition_id for due in found})
    sealed = [due for due in found if _lacks_key(due.trigger, known[due.trigger.definition_id])]
    if sealed:
        structlog.get_logger("penstock").warning("schedules_unreadable", schedules=len(sealed))
        found = [due for due in found if due not in sealed]
    facts = triggers.facts(tx, [d.trigger.id for d in found if d.trigger.is_enabled and d.trigger.overlap != "allow"])
    harvest, missing = Harvest(), Missing()
    for due in found:
        definition = known[due.trigger.definition_id]
        decision = decide(plan_of(due.trigger), _facts(due, definition, facts), _pending(due.trigger), now)
        _gather(ground, tx, harvest, due, definition, decision, missing)
    missing.check()
    return _write(ground, tx, harvest)


def _lacks_key(trigger: Trigger, definition: Definition) -> bool:
    documents = (trigger.payload_template, definition.default_params)
    return any(isinstance(each, Unreadable) and isinstance(each.error, KeyMissing) for each in documents)


def plan_of(trigger: Trigger) -> Plan:
    return Plan(
        trigger.id, cron_of(trigger), trigger.created_at, trigger.catch_up, float(trigger.catch_up_window_seconds),
        trigger.overlap, float(trigger.jitter_seconds),
    )  # fmt: skip


def cron_of(trigger: Trigger) -> Cron:
    if trigger.cron_expr is None:
        raise InvalidInput(f"The trigger {trigger.label!r} answers an event; it has no schedule.")
    return Cron.parse(trigger.cron_expr, trigger.timezone or "UTC", trigger.dst_gap, trigger.dst_overlap)


def _pending(trigger: Trigger) -> datetime:
    assert trigger.next_trigger_at is not None
    return trigger.next_trigger_at


def _facts(due: Due, definition: Definition, known: Mapping[UUID, Facts]) -> Facts:
    facts = known.get(due.trigger.id, Facts())
    if not due.trigger.is_enabled:
        return replace(facts, enabled=False, disabled_reason=due.trigger.disabled_reason)
    if not due.tenant_active:
        return replace(facts, enabled=False, disabled_reason="its tenant is inactive")
    if not definition.is_active:
        return replace(facts, fault=f"The definition {definition.key!r} is archived.")
    return facts


def _gather(
    ground: Ground,
    tx: Tx,
    harvest: Harvest,
    due: Due,
    definition: Definition,
    decision: Decision,
    missing: Missing,
) -> None:
    trigger = due.trigger
    fired_at: datetime | None = None
    for tick in decision.ticks:
        job_id: UUID | None = None
        if tick.outcome == "fired":
            job = None
            with missing.gathering():
                tick, job = _make(ground, tx, due, definition, tick)
            if job is not None:
                harvest.jobs[trigger.id, tick.moment] = job
                job_id, fired_at = job.id, tick.moment
        reason = tick.reason[:MAX_REASON] if tick.reason else None
        harvest.ticks.append(NewTick(trigger.id, trigger.tenant_id, tick.moment, tick.outcome, reason, job_id))
    if decision.next_at != trigger.next_trigger_at:
        harvest.moves.append(Advance(trigger.id, decision.next_at, fired_at))
    if decision.disable is not None:
        harvest.disabled.setdefault(decision.disable, []).append(trigger.id)
    if decision.cancel_active and fired_at is not None:
        harvest.to_cancel.append(trigger)


def _make(ground: Ground, tx: Tx, due: Due, definition: Definition, tick: Tick) -> tuple[Tick, NewJob | None]:
    """The job of a moment that fires; or why it does not after all."""
    trigger = due.trigger
    try:
        params = making.rendered(trigger, definition, making.schedule_context(trigger, due.tenant_slug, tick.moment))
    except (InvalidInput, CiphertextInvalid) as error:
        return Tick(tick.moment, "error", str(error)), None
    try:
        require_room(ground, tx, trigger.tenant_id, 1)
    except QuotaExceeded as error:
        return Tick(tick.moment, "skipped", str(error)), None
    origin = Origin(Source.SCHEDULE, str(trigger.id), tick.moment, tick.run_at)
    job = making.new_job(trigger, definition, params, origin, due.bounds)
    if trigger.dedupe_window_seconds:
        window = trigger.dedupe_window_seconds
        earlier = events.claim_fire(tx, trigger.id, making.fingerprint(params), job.id, window)
        if earlier is not None:
            return Tick(tick.moment, "skipped", f"job {earlier} has the same params and is within {window} s"), None
    return tick, job


def _write(ground: Ground, tx: Tx, harvest: Harvest) -> int:
    new = ticks.add(tx, harvest.ticks) if harvest.ticks else set()
    for trigger in harvest.to_cancel:
        _cancel_active(ground, tx, trigger)
    due = [job for key, job in harvest.jobs.items() if key in new]
    if due and len(jobs.insert(tx, due)) != len(due):
        raise Moved("A definition changed while its schedules were being decided; nothing was written.")
    triggers.advance(tx, harvest.moves)
    for reason, ids in harvest.disabled.items():
        triggers.disable(tx, ids, reason)
    return len(new)


def _cancel_active(ground: Ground, tx: Tx, trigger: Trigger) -> None:
    for job_id in triggers.active_jobs(tx, trigger.id):
        try:
            cancel_in(ground, tx, trigger.tenant_id, job_id, "replaced by the schedule's next moment")
        except IllegalTransition:
            pass  # it ended by itself between our look and our hand


class Moved(Conflict):
    """What was read changed before it was written: look again."""
