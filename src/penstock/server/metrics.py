"""Figures for Prometheus, read from the database in bounded time: open jobs by index, ended runs from the tallies.

Counters count from the start of this process: the tallies of minutes that can no longer change are added up once,
those of the last two minutes are read with every scrape.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from uuid import UUID

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric

from penstock.core.histogram import quantile, upper_seconds
from penstock.core.status import JobStatus
from penstock.queue import observe
from penstock.queue.ground import Ground
from penstock.queue.stats import ENDINGS
from penstock.server.series import OTHER, FirstComers, deepest, family, folded
from penstock.store import stats, waiting
from penstock.store.database import Tx
from penstock.store.hot import DEAD_LETTER, RETRY, WAIT
from penstock.store.waiting import Depth, Lane

SETTLED = timedelta(minutes=2)
WINDOW = timedelta(minutes=5)
FURTHEST = timedelta(hours=1)
DEPTH_CAP = 100_000
EDGES = tuple(range(3, 60, 2))
Ended = Counter[tuple[Lane, str, int]]
"""Runs by lane, how they ended and bucket of duration; waits by lane, `wait` and bucket; retries and dead letters."""
Slugs = Mapping[UUID, str]


class Metrics:
    """What /metrics answers. One for each app."""

    def __init__(self, ground: Ground, most_tenants: int, most_lanes: int) -> None:
        self._ground = ground
        self._most_tenants = most_tenants
        self._most_lanes = most_lanes
        self._labels = FirstComers(most_lanes)
        self._lock = threading.Lock()
        self._settled: Ended = Counter()
        self._settled_until: datetime | None = None

    def render(self, only: UUID | None = None) -> bytes:
        """The text for everyone's, or for one tenant's figures alone."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Once(self._collect(only)))
        return generate_latest(registry)

    def _collect(self, only: UUID | None) -> list[Metric]:
        with self._lock, self._ground.db.read() as tx:
            now = tx.time()
            slugs = stats.tenant_slugs(tx, self._most_tenants)
            if only is not None:
                slugs = {only: slugs.get(only, "")} if only in slugs else stats.slug_of(tx, only)
            ended, recent = self._ended(tx, now), self._labelled(stats.summed(tx, now - WINDOW))
            ids = list(slugs)
            counts = stats.depths(tx, ids, DEPTH_CAP)
            lanes, running = waiting.depths(tx, ids), waiting.running(tx)
            enqueued = stats.enqueued_since(tx, now - WINDOW, DEPTH_CAP)
        if only is not None:
            ended, recent = (
                Counter({k: n for k, n in each.items() if k[0].tenant_id == only}) for each in (ended, recent)
            )
            enqueued = {only: enqueued.get(only, 0)}
            lanes = {lane: depth for lane, depth in lanes.items() if lane.tenant_id == only}
            running = {lane: n for lane, n in running.items() if lane.tenant_id == only}
        found = [
            *_open(counts, lanes, running, slugs, self._most_lanes, now),
            family("penstock_enqueued_per_second", (
                ((name,), n / WINDOW.total_seconds()) for name, n in _by_slug(enqueued, slugs).items()
            )),
            *_runs(ended, slugs), *_quantiles(recent, slugs),
        ]  # fmt: skip
        if only is None:
            found.append(self._workers())
        return found

    def _ended(self, tx: Tx, now: datetime) -> Ended:
        edge = (now - SETTLED).replace(second=0, microsecond=0)
        if self._settled_until is None:
            self._settled_until = edge
        self._settled_until = max(self._settled_until, edge - FURTHEST)
        if edge > self._settled_until:
            self._settled.update(self._labelled(stats.summed(tx, self._settled_until, edge)))
            self._settled_until = edge
        return self._settled + self._labelled(stats.summed(tx, self._settled_until))

    def _labelled(self, rows: Iterable[tuple[Lane, str, int, int]]) -> Ended:
        counts: Ended = Counter()
        for lane, measure, bucket, n in rows:
            counts[self._labels.label(lane), measure, bucket] += n
        return counts

    def _workers(self) -> Metric:
        found = observe.present_workers(self._ground)
        counts = Counter("stale" if row["stale"] else "alive" for row in found)
        return family("penstock_workers", (((state,), counts[state]) for state in ("alive", "stale")))


class _Once:
    def __init__(self, found: Iterable[Metric]) -> None:
        self._found = list(found)

    def collect(self) -> Iterator[Metric]:
        yield from self._found


def _open(
    counts: Mapping[tuple[UUID, JobStatus], int],
    lanes: Mapping[Lane, Depth],
    running: Mapping[Lane, int],
    slugs: Slugs,
    most: int,
    now: datetime,
) -> Iterator[Metric]:
    """What is open, by lane; beyond the bound, and beyond what was looked at, summed as `other`."""
    chosen = deepest(Counter({lane: d.queued for lane, d in lanes.items()}) + Counter(running), most)
    queued, ready, busy = (Counter[tuple[str, str, str]]() for _ in range(3))
    oldest: dict[tuple[str, str, str], datetime] = {}
    for lane in lanes.keys() | running.keys():
        label = _label(lane if lane in chosen else folded(lane), slugs)
        depth = lanes.get(lane, Depth())
        queued[label] += depth.queued
        ready[label] += depth.ready
        busy[label] += running.get(lane, 0)
        if depth.oldest is not None:
            oldest[label] = min(depth.oldest, oldest.get(label, depth.oldest))
    for tenant_id, slug in slugs.items():
        seen = sum(depth.queued for lane, depth in lanes.items() if lane.tenant_id == tenant_id)
        queued[slug, OTHER, OTHER] += max(0, counts[tenant_id, JobStatus.QUEUED] - seen)
        for of_status in (queued, busy):  # zero is a figure, too
            if not any(n for label, n in of_status.items() if label[0] == slug):
                of_status[slug, "", ""] = 0
    samples = [
        ((tenant, status.value, queue, key), float(n))
        for status, of_status in ((JobStatus.QUEUED, queued), (JobStatus.RUNNING, busy))
        for (tenant, queue, key), n in sorted(of_status.items())
        if n or not queue
    ]
    samples += [((slugs[t], s.value, "", ""), float(n)) for (t, s), n in counts.items() if s not in _OPEN]
    yield family("penstock_jobs", samples)
    yield family("penstock_ready_jobs", sorted(ready.items()))
    ages = ((label, max(0.0, (now - at).total_seconds())) for label, at in sorted(oldest.items()))
    yield family("penstock_oldest_queued_seconds", ages)


_OPEN = (JobStatus.QUEUED, JobStatus.RUNNING)


def _label(lane: Lane, slugs: Slugs) -> tuple[str, str, str]:
    return slugs.get(lane.tenant_id, OTHER), lane.queue, lane.definition_key


def _by_slug(counts: Mapping[UUID, int], slugs: Slugs) -> Counter[str]:
    found: Counter[str] = Counter(dict.fromkeys(slugs.values(), 0))
    for tenant, n in counts.items():
        found[slugs.get(tenant, OTHER)] += n
    return found


def _histograms(ended: Ended, slugs: Slugs, waits: bool) -> dict[str, Counter[int]]:
    found: dict[str, Counter[int]] = defaultdict(Counter)
    for (lane, measure, bucket), n in ended.items():
        if measure == WAIT if waits else measure in ENDINGS:
            found[slugs.get(lane.tenant_id, OTHER)][bucket] += n
    return found


def _runs(ended: Ended, slugs: Slugs) -> Iterator[Metric]:
    runs: Counter[tuple[str, str, str, str]] = Counter()
    follows: dict[str, Counter[tuple[str, str, str]]] = {RETRY: Counter(), DEAD_LETTER: Counter()}
    for (lane, measure, _), n in ended.items():
        tenant, queue, key = _label(lane, slugs)
        if measure in ENDINGS:
            runs[tenant, measure, queue, key] += n
            for counter in follows.values():
                counter[tenant, queue, key] += 0  # there from the first run on, so that a rate sees the first one
        elif measure in follows:
            follows[measure][tenant, queue, key] += n
    yield family("penstock_runs_total", sorted(runs.items()))
    yield family("penstock_retries_total", sorted(follows[RETRY].items()))
    yield family("penstock_dead_letters_total", sorted(follows[DEAD_LETTER].items()))
    for waits, name in ((True, "penstock_queue_latency_seconds"), (False, "penstock_run_duration_seconds")):
        histograms = sorted(_histograms(ended, slugs, waits).items())
        yield family(name, (((slug,), _cumulated(buckets)) for slug, buckets in histograms))


def _cumulated(buckets: Counter[int]) -> tuple[list[tuple[str, float]], float]:
    below = [
        (repr(round(upper_seconds(edge), 6)), float(sum(n for b, n in buckets.items() if b <= edge))) for edge in EDGES
    ]
    total = float(sum(buckets.values()))
    # Exact durations are not kept: the sum takes each at the upper end of its bucket
    return [*below, ("+Inf", total)], sum(n * upper_seconds(b) for b, n in buckets.items())


def _quantiles(recent: Ended, slugs: Slugs) -> Iterator[Metric]:
    for waits, name in (
        (True, "penstock_queue_latency_recent_seconds"),
        (False, "penstock_run_duration_recent_seconds"),
    ):
        yield family(name, (
            ((slug, str(share)), value)
            for slug, buckets in sorted(_histograms(recent, slugs, waits).items())
            for share in (0.5, 0.95)
            if (value := quantile(buckets, share)) is not None
        ))  # fmt: skip
