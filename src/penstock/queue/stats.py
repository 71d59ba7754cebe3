"""How it goes: throughput and latency over time, failures by cause."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from penstock.core import check
from penstock.core.histogram import quantile
from penstock.core.status import RunStatus
from penstock.core.worker_names import unnamed
from penstock.queue.ground import Ground
from penstock.store import stats
from penstock.store.hot import WAIT

ENDINGS = tuple(status.value for status in RunStatus if status is not RunStatus.RUNNING)
MAX_POINTS = 1500
FAILURES_READ = 5000
_VARIABLE = re.compile(r"0x[0-9a-fA-F]+|[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}|\d+")


@dataclass(frozen=True, slots=True)
class Point:
    """One step of time: runs by how they ended, and how long they waited and took."""

    at: datetime
    ended: Mapping[str, int]
    wait_p50: float | None
    wait_p95: float | None
    run_p50: float | None
    run_p95: float | None


def timeline(ground: Ground, tenant_id: UUID, minutes: int, step: int, key: str | None = None) -> list[Point]:
    """The last `minutes`, in steps of `step` minutes, oldest first, without holes."""
    check.integer("minutes", minutes, 1, 60 * 24 * 31)
    check.integer("step", step, 1, minutes)
    count = -(-minutes // step)
    check.integer("minutes / step", count, 1, MAX_POINTS)
    width = timedelta(minutes=step)
    with ground.db.read() as tx:
        start = _floor(tx.time(), step) - width * (count - 1)
        found = [each for each in stats.tallied(tx, start, tenant_id) if key in (None, each.definition_key)]
    ended: dict[datetime, Counter[str]] = defaultdict(Counter)
    waits: dict[datetime, Counter[int]] = defaultdict(Counter)
    takes: dict[datetime, Counter[int]] = defaultdict(Counter)
    for each in found:
        at = _floor(each.minute, step)
        if each.measure == WAIT:
            waits[at][each.bucket] += each.n
        elif each.measure in ENDINGS:
            ended[at][each.measure] += each.n
            takes[at][each.bucket] += each.n
    return [
        Point(
            at, {name: ended[at][name] for name in ENDINGS}, quantile(waits[at], 0.5), quantile(waits[at], 0.95),
            quantile(takes[at], 0.5), quantile(takes[at], 0.95),
        )
        for at in (start + width * number for number in range(count))
    ]  # fmt: skip


def _floor(moment: datetime, step: int) -> datetime:
    return datetime.fromtimestamp(int(moment.timestamp()) // (60 * step) * 60 * step, UTC)


@dataclass(frozen=True, slots=True)
class Failure:
    """Jobs that ended badly for the same reason."""

    error: str
    definition_key: str
    count: int
    dead_letter: int
    last_at: datetime | None
    example_id: UUID


def failures(ground: Ground, tenant_id: UUID, limit: int, hours: float | None = None) -> list[Failure]:
    """The newest failures, grouped by definition and error, most frequent first. Numbers and ids in an error do not
    tell groups apart."""
    with ground.db.read() as tx:
        since = None if hours is None else tx.time() - timedelta(hours=hours)
        rows = stats.newest_failures(tx, tenant_id, FAILURES_READ, since)
    grouped: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for row in rows:
        grouped[row.definition_key, _cause(row.last_error)].append(row)
    found = [
        Failure(
            error, key, len(group), sum(row.status == "dead_letter" for row in group), group[0].finished_at, group[0].id
        )
        for (key, error), group in grouped.items()
    ]
    return sorted(found, key=lambda each: (-each.count, each.definition_key, each.error))[:limit]


def _cause(error: str | None) -> str:
    """The line that names the cause: a traceback's last, else the first."""
    lines = unnamed(error or "").strip().splitlines() or ["no reason was recorded"]
    return _VARIABLE.sub("#", lines[-1] if lines[0].startswith("Traceback") else lines[0])[:300]
