"""Drain: no-op jobs that wait, worked off by one worker process and by two; and the limit, without Python."""

from __future__ import annotations

from bench import limit
from bench.bench import Bench
from bench.environment import Missing, call
from bench.peers import Peer
from bench.workers import Workers

ONE, TWO, LIMIT, BULK = "drain, 1 process", "drain, 2 processes", "drain, in the database alone", "enqueue in bulk"


def fill(bench: Bench, peer: Peer, url: str) -> int:
    """Set up and fill a fresh database; how fast it was filled is the bulk enqueue's figure."""
    jobs = max(20, int(bench.scale.drained * peer.share))
    call(peer, "setup", url)
    seconds = call(peer, "enqueue_many" if peer.bulk else "enqueue", url, jobs)
    assert seconds is not None
    if peer.bulk:
        bench.note(BULK, peer.label, jobs / seconds, "jobs/s", jobs)
    return jobs


def drain(bench: Bench) -> None:
    """One process and two in turn, all systems in each; and ours once more, since they are compared with each other too."""
    rounds = [False] * bench.scale.repeats + [True] * bench.scale.everyone_twice
    for ours in rounds:
        for workload, processes in ((ONE, 1), (TWO, 2)):

            def measure(peer: Peer, workload: str = workload, processes: int = processes) -> None:
                if processes > peer.processes:
                    raise Missing("its store may be used by one process only")
                with bench.databases.fresh(peer.database) as url:
                    jobs = fill(bench, peer, url)
                    with Workers(peer, url, processes) as workers:
                        bench.note(workload, peer.label, jobs / workers.wait_for(jobs), "jobs/s", jobs)

            alone = ours or (processes > 1 and not bench.scale.everyone_twice)
            bench.each(workload, measure, ours=alone, times=1)
        bench.each(LIMIT, lambda peer: in_the_database(bench, peer), ours=True, times=1)


def in_the_database(bench: Bench, peer: Peer) -> None:
    with bench.databases.fresh(peer.database) as url:
        jobs = fill(bench, peer, url)
        seconds = limit.drain(url)
        bench.note(LIMIT, peer.label, jobs / seconds, "jobs/s", jobs)
