"""Figures for Prometheus, read from the database in bounded time: open jobs by index, ended runs from the tallies.

Counters count from the start of this process: the tallies of minutes that can no longer change are added up once,
those of the last two minutes are read with every scrape.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from uuid import UUID

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from penstock.core.histogram import quantile, upper_seconds
from penstock.queue import observe
from penstock.queue.ground import Ground
from penstock.queue.stats import WAIT
from penstock.store import stats
from penstock.store.database import Tx

SETTLED = timedelta(minutes=2)
WINDOW = timedelta(minutes=5)
FURTHEST = timedelta(hours=1)
DEPTH_CAP = 100_000
OTHER = "other"
EDGES = tuple(range(3, 60, 2))
Ended = Counter[tuple[UUID, str, int]]
"""Runs by tenant, how they ended and bucket of duration; waits by tenant, `wait` and bucket."""


class Metrics:
    """What /metrics answers. One for each app."""

    def __init__(self, ground: Ground, most_tenants: int) -> None:
        self._ground = ground
        self._most = most_tenants
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
            slugs = stats.tenant_slugs(tx, self._most)
            if only is not None:
                slugs = {only: slugs.get(only, "")} if only in slugs else stats.slug_of(tx, only)
            ended, recent = self._ended(tx, now), Counter(_counted(stats.summed(tx, now - WINDOW)))
            ids = list(slugs)
            depths = stats.depths(tx, ids, DEPTH_CAP)
            oldest = stats.oldest_queued(tx, ids)
            enqueued = stats.enqueued_since(tx, now - WINDOW, DEPTH_CAP)
        if only is not None:
            ended, recent = (Counter({k: n for k, n in each.items() if k[0] == only}) for each in (ended, recent))
            enqueued = {only: enqueued.get(only, 0)}
        found = [
            _gauge("penstock_jobs", "Jobs by status, counted up to 100,000", ("tenant", "status"),
                   ((( slugs[t], s.value), n) for (t, s), n in depths.items())),
            _gauge("penstock_oldest_queued_seconds", "Age of the longest-waiting job", ("tenant",),
                   (((slugs[t],), max(0.0, (now - at).total_seconds())) for t, at in oldest.items())),
            _gauge("penstock_enqueued_per_second", "Jobs asked for, over the last five minutes", ("tenant",),
                   (((name,), n / WINDOW.total_seconds()) for name, n in _by_label(enqueued, slugs).items())),
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
            self._settled.update(_counted(stats.summed(tx, self._settled_until, edge)))
            self._settled_until = edge
        return self._settled + Counter(_counted(stats.summed(tx, self._settled_until)))

    def _workers(self) -> Metric:
        found = observe.present_workers(self._ground)
        counts = Counter("stale" if row["stale"] else "alive" for row in found)
        samples = (((state,), counts[state]) for state in ("alive", "stale"))
        return _gauge("penstock_workers", "Workers by state", ("state",), samples)


class _Once:
    def __init__(self, found: Iterable[Metric]) -> None:
        self._found = list(found)

    def collect(self) -> Iterator[Metric]:
        yield from self._found


def _counted(rows: Iterable[tuple[UUID, str, int, int]]) -> dict[tuple[UUID, str, int], int]:
    return {(tenant, measure, bucket): n for tenant, measure, bucket, n in rows}


def _by_label(counts: dict[UUID, int], slugs: dict[UUID, str]) -> Counter[str]:
    found: Counter[str] = Counter(dict.fromkeys(slugs.values(), 0))
    for tenant, n in counts.items():
        found[slugs.get(tenant, OTHER)] += n
    return found


def _gauge(
    name: str, help: str, labels: tuple[str, ...], samples: Iterable[tuple[tuple[str, ...], float]]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, help, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def _histograms(ended: Ended, slugs: dict[UUID, str], waits: bool) -> dict[str, Counter[int]]:
    found: dict[str, Counter[int]] = defaultdict(Counter)
    for (tenant, measure, bucket), n in ended.items():
        if (measure == WAIT) == waits:
            found[slugs.get(tenant, OTHER)][bucket] += n
    return found


def _runs(ended: Ended, slugs: dict[UUID, str]) -> Iterator[Metric]:
    totals: Counter[tuple[str, str]] = Counter()
    for (tenant, measure, _), n in ended.items():
        if measure != WAIT:
            totals[slugs.get(tenant, OTHER), measure] += n
    runs = CounterMetricFamily("penstock_runs", "Runs by how they ended", labels=("tenant", "outcome"))
    for labels, n in sorted(totals.items()):
        runs.add_metric(labels, n)
    yield runs
    for waits, name, help in (
        (True, "penstock_queue_latency_seconds", "From claimable to started"),
        (False, "penstock_run_duration_seconds", "From started to ended"),
    ):
        family = HistogramMetricFamily(name, help, labels=("tenant",))
        for slug, buckets in sorted(_histograms(ended, slugs, waits).items()):
            family.add_metric((slug,), *_cumulated(buckets))
        yield family


def _cumulated(buckets: Counter[int]) -> tuple[list[tuple[str, float]], float]:
    below = [
        (repr(round(upper_seconds(edge), 6)), float(sum(n for b, n in buckets.items() if b <= edge))) for edge in EDGES
    ]
    total = float(sum(buckets.values()))
    # Exact durations are not kept: the sum takes each at the upper end of its bucket
    return [*below, ("+Inf", total)], sum(n * upper_seconds(b) for b, n in buckets.items())


def _quantiles(recent: Ended, slugs: dict[UUID, str]) -> Iterator[Metric]:
    for waits, name in (
        (True, "penstock_queue_latency_recent_seconds"),
        (False, "penstock_run_duration_recent_seconds"),
    ):
        family = GaugeMetricFamily(name, "Median and p95 of the last five minutes", labels=("tenant", "quantile"))
        for slug, buckets in sorted(_histograms(recent, slugs, waits).items()):
            for share in (0.5, 0.95):
                value = quantile(buckets, share)
                if value is not None:
                    family.add_metric((slug, str(share)), value)
        yield family
