"""Latency: from just before a job is asked for until it starts, with a worker that has nothing else to do."""

from __future__ import annotations

from bench.bench import Bench
from bench.environment import Missing, call
from bench.peers import Peer
from bench.workers import Workers

WORKLOAD = "latency, idle worker"
WARM_UP = 5


def percentile(values: list[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def note(bench: Bench, workload: str, peer: Peer, milliseconds: list[float]) -> None:
    for name, part in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        bench.note(f"{workload}, {name}", peer.label, percentile(milliseconds, part), "ms", len(milliseconds))


def probed(bench: Bench, peer: Peer, url: str) -> list[float]:
    """Milliseconds of each probe; the first few, which meet cold caches and unprepared statements, are left out."""
    probes = bench.scale.probes
    with Workers(peer, url) as workers:
        call(peer, "probe", url, WARM_UP, 0.2)
        workers.wait_for_latencies(WARM_UP)
        call(peer, "probe", url, probes, peer.gap)
        return workers.wait_for_latencies(WARM_UP + probes)[WARM_UP:]


def latency(bench: Bench) -> None:
    def measure(peer: Peer) -> None:
        if not peer.hears:
            raise Missing("a scheduler that runs does not hear of what another process adds")
        with bench.databases.fresh(peer.database) as url:
            call(peer, "setup", url)
            note(bench, WORKLOAD, peer, probed(bench, peer, url))

    bench.each(WORKLOAD, measure)
