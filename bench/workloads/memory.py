"""Memory of a worker process: idle, and at its largest while it drains."""

from __future__ import annotations

import time
from pathlib import Path

from bench.bench import Bench
from bench.environment import call
from bench.peers import Peer
from bench.workers import Workers

IDLE, BUSY = "memory, idle worker", "memory, busy worker at its largest"


def mebibytes(pid: int, name: str) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(name)) / 1024


def memory(bench: Bench) -> None:
    def measure(peer: Peer) -> None:
        with bench.databases.fresh(peer.database) as url:
            call(peer, "setup", url)
            with Workers(peer, url) as workers:
                call(peer, "probe", url, 3, 0.1)
                workers.wait_for_latencies(3)
                time.sleep(0.5)
                pid = workers.processes[0].pid
                bench.note(IDLE, peer.label, mebibytes(pid, "VmRSS"), "MiB")
                jobs = max(20, int(bench.scale.drained * peer.share))
                call(peer, "enqueue_many" if peer.bulk else "enqueue", url, jobs)
                workers.wait_for(jobs)
                bench.note(BUSY, peer.label, mebibytes(pid, "VmHWM"), "MiB", jobs)

    bench.each(IDLE, measure, ours=True)
