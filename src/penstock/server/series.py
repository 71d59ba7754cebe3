"""The series of /metrics: their names and labels, and how their number stays bounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from penstock.store.waiting import Lane

OTHER = "other"
_LANE = ("tenant", "queue", "definition_key")
_KINDS: dict[str, Any] = {
    "gauge": GaugeMetricFamily,
    "counter": CounterMetricFamily,
    "histogram": HistogramMetricFamily,
}


class Series(NamedTuple):
    """One metric: what it is, and what tells its series apart. A counter's name ends in `_total`."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...]


SERIES = {
    series.name: series
    for series in (
        Series(
            "penstock_jobs", "gauge",
            "Jobs by status, counted up to 100,000. What is queued or running is told apart by queue and key; of what has "
            "ended both labels are empty.", ("tenant", "status", "queue", "definition_key"),
        ),
        Series(
            "penstock_ready_jobs", "gauge",
            "Queued jobs that could run now: claimable, or due although no worker has taken them up. What to scale workers by.",
            _LANE,
        ),
        Series(
            "penstock_oldest_queued_seconds", "gauge",
            "How long the longest-waiting job has been able to run, whether or not a worker is alive.", _LANE,
        ),
        Series(
            "penstock_enqueued_per_second", "gauge", "Jobs enqueued, over the last five minutes.", ("tenant",),
        ),
        Series("penstock_runs_total", "counter", "Runs by how they ended.", ("tenant", "outcome", "queue", "definition_key")),
        Series("penstock_retries_total", "counter", "Runs that failed or timed out and whose job is tried again.", _LANE),
        Series("penstock_dead_letters_total", "counter", "Jobs that became dead letters. Pruning does not lower it.", _LANE),
        Series("penstock_queue_latency_seconds", "histogram", "From when a job could run to when it started.", ("tenant",)),
        Series("penstock_run_duration_seconds", "histogram", "From a run's start to its end.", ("tenant",)),
        Series(
            "penstock_queue_latency_recent_seconds", "gauge",
            "Median and p95 of the time from when a job could run to its start, over the last five minutes.",
            ("tenant", "quantile"),
        ),
        Series(
            "penstock_run_duration_recent_seconds", "gauge", "Median and p95 of the runs of the last five minutes.",
            ("tenant", "quantile"),
        ),
        Series("penstock_workers", "gauge", "Workers that are alive or stale. For super admins alone.", ("state",)),
    )
}  # fmt: skip
"""Every metric that the service has; the reference is written from this."""


def family(name: str, samples: Iterable[tuple[tuple[str, ...], Any]]) -> Metric:
    """The metric with its samples: label values, and the value (of a histogram: its buckets and its sum)."""
    series = SERIES[name]
    made: Metric = _KINDS[series.kind](name.removesuffix("_total"), series.help, labels=series.labels)
    for labels, value in samples:
        given = value if series.kind == "histogram" else (value,)
        made.add_metric(labels, *given)  # type: ignore[attr-defined]
    return made


def folded(lane: Lane) -> Lane:
    return Lane(lane.tenant_id, OTHER, OTHER)


def deepest(counts: Mapping[Lane, int], most: int) -> set[Lane]:
    """The lanes that get labels of their own: of each tenant the `most` deepest. No tenant takes another's."""
    taken: Counter[UUID] = Counter()
    chosen = set()
    for lane in sorted(counts, key=lambda each: (-counts[each], each.queue, each.definition_key)):
        if taken[lane.tenant_id] < most:
            taken[lane.tenant_id] += 1
            chosen.add(lane)
    return chosen


class FirstComers:
    """Which lanes have counters of their own: of each tenant the first, for as long as the process lives. A counter that
    went over to another label would seem to fall."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[UUID, set[tuple[str, str]]] = {}

    def label(self, lane: Lane) -> Lane:
        known = self._known.setdefault(lane.tenant_id, set())
        pair = (lane.queue, lane.definition_key)
        if pair not in known and len(known) >= self._most:
            return folded(lane)
        known.add(pair)
        return lane
