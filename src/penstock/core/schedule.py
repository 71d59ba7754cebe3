"""What becomes of a schedule's due moments: a tick each, fired or with its reason. Pure.

A moment is **on time** for GRACE seconds, or, while a job of the schedule was still active, until that job ended.
On-time moments always fire, if `overlap` lets them. Later than that:

- `catch_up="skip"`: it is skipped.
- `catch_up="latest"`: the newest due moment fires, the others are skipped.
- `catch_up="all"`: each fires.

Moments older than the catch-up window never fire, and share one tick: a year of missed minutes is one row, not half a
million. `overlap` decides what a moment does while an earlier job of the same schedule is queued or running:

- `allow`: it fires.
- `skip`: it is skipped.
- `buffer_one`: it waits, and the newest waiting moment fires when that job has ended.
- `cancel_running`: it fires, and the earlier jobs are canceled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Literal
from uuid import UUID

from penstock.core.cron import Cron

CATCH_UP = ("skip", "latest", "all")
OVERLAP = ("allow", "skip", "buffer_one", "cancel_running")
GRACE = 60.0
MAX_WINDOW = 31 * 86400
MAX_JITTER = 86400
BATCH = 1000
"""Moments decided at once for one schedule; the rest stay due."""

Outcome = Literal["fired", "skipped", "error"]


@dataclass(frozen=True, slots=True)
class Plan:
    """A schedule and its policies."""

    trigger_id: UUID
    cron: Cron
    created_at: datetime
    catch_up: str = "latest"
    catch_up_window: float = 86400.0
    overlap: str = "allow"
    jitter: float = 0.0


@dataclass(frozen=True, slots=True)
class Facts:
    """What is true of the schedule now, read in the transaction that writes the ticks."""

    enabled: bool = True
    disabled_reason: str | None = None
    fault: str | None = None
    """Why no job can be made: its definition is archived or gone."""
    active: int = 0
    """Jobs of this schedule that are queued or running."""
    busy_until: datetime | None = None
    """When the last job of this schedule ended."""


@dataclass(frozen=True, slots=True)
class Tick:
    """One due moment, decided. A fired one runs at `run_at`: its moment, plus jitter."""

    moment: datetime
    outcome: Outcome
    reason: str | None = None
    run_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The ticks to write, the next moment not yet decided, and what else must happen."""

    ticks: tuple[Tick, ...]
    next_at: datetime
    cancel_active: bool = False
    disable: str | None = None


def decide(plan: Plan, facts: Facts, pending: datetime, now: datetime) -> Decision:
    """Decide every moment in `[pending, now]`. Nothing before the schedule existed is ever a moment of it."""
    start = max(pending - timedelta(microseconds=1), plan.created_at)
    oldest = now - timedelta(seconds=plan.catch_up_window)
    ticks: list[Tick] = []
    if start < oldest and (first := plan.cron.next_after(start)) < oldest:
        start = oldest - timedelta(microseconds=1)
        ticks.append(_too_old(plan, first, oldest))
    due = _due(plan.cron, start, now)
    if due and _must_wait(plan, facts):
        # Held: undecided until the active job has ended.
        return Decision(tuple(ticks), due[0])
    last = due[-1] if due else max(start, ticks[-1].moment if ticks else start)
    next_at = _next(plan.cron, last)
    newest = due[-1] if due and next_at > now else None
    decided = _decide(plan, facts, due, newest, now)
    fired = any(tick.outcome == "fired" for tick in decided)
    return Decision(
        (*ticks, *decided),
        next_at,
        cancel_active=fired and plan.overlap == "cancel_running" and facts.active > 0,
        disable=facts.fault if facts.enabled and any(tick.outcome == "error" for tick in decided) else None,
    )


def jitter(trigger_id: UUID, moment: datetime, seconds: float) -> timedelta:
    """A delay in `[0, seconds]`, the same on every scheduler for the same moment."""
    if seconds <= 0:
        return timedelta()
    digest = hashlib.sha256(trigger_id.bytes + moment.isoformat().encode()).digest()
    return timedelta(seconds=seconds * int.from_bytes(digest[:8], "big") / 2**64)


# Thousands of schedules share one expression and one moment: what it means is worked out once.
@lru_cache(maxsize=1024)
def _due(cron: Cron, start: datetime, now: datetime) -> tuple[datetime, ...]:
    return tuple(cron.between(start, now, BATCH))


@lru_cache(maxsize=1024)
def _next(cron: Cron, moment: datetime) -> datetime:
    return cron.next_after(moment)


def _must_wait(plan: Plan, facts: Facts) -> bool:
    return plan.overlap == "buffer_one" and facts.active > 0 and facts.enabled and facts.fault is None


def _too_old(plan: Plan, first: datetime, oldest: datetime) -> Tick:
    window = timedelta(seconds=plan.catch_up_window)
    return Tick(
        first,
        "skipped",
        f"missed, with every other moment before {oldest.isoformat(timespec='seconds')}: older than the catch-up window of {window}",
    )


def _decide(plan: Plan, facts: Facts, due: Sequence[datetime], newest: datetime | None, now: datetime) -> list[Tick]:
    if not facts.enabled:
        why = f"disabled: {facts.disabled_reason}" if facts.disabled_reason else "disabled"
        return [Tick(moment, "skipped", why) for moment in due]
    ticks = [_by_time(plan, facts, moment, newest, now) for moment in due]
    if facts.fault is not None:
        return [replace(t, outcome="error", reason=facts.fault, run_at=None) if _fires(t) else t for t in ticks]
    if plan.overlap == "skip":
        return _one_at_a_time(ticks, facts.active)
    if plan.overlap in ("buffer_one", "cancel_running"):
        return _newest_only(ticks, "waited together with" if plan.overlap == "buffer_one" else "replaced by")
    return ticks


def _by_time(plan: Plan, facts: Facts, moment: datetime, newest: datetime | None, now: datetime) -> Tick:
    waited_since = max(moment, facts.busy_until) if facts.busy_until and plan.overlap == "buffer_one" else moment
    late = (now - waited_since).total_seconds()
    on_time = late <= GRACE
    if on_time or plan.catch_up == "all" or (plan.catch_up == "latest" and moment == newest):
        return Tick(moment, "fired", run_at=moment + jitter(plan.trigger_id, moment, plan.jitter))
    if plan.catch_up == "skip":
        return Tick(moment, "skipped", f"missed: decided {round(late)} s late, and catch_up is skip")
    return Tick(moment, "skipped", "missed: a later moment is due too, and catch_up is latest")


def _one_at_a_time(ticks: Sequence[Tick], active: int) -> list[Tick]:
    decided = []
    for tick in ticks:
        if _fires(tick) and active:
            tick = Tick(tick.moment, "skipped", "an earlier job of this schedule is still active, and overlap is skip")
        active += _fires(tick)
        decided.append(tick)
    return decided


def _newest_only(ticks: Sequence[Tick], why: str) -> list[Tick]:
    fired = [tick.moment for tick in ticks if _fires(tick)]
    return [
        Tick(tick.moment, "skipped", f"{why} {fired[-1].isoformat()}")
        if _fires(tick) and tick.moment != fired[-1]
        else tick
        for tick in ticks
    ]


def _fires(tick: Tick) -> bool:
    return tick.outcome == "fired"
