"""What is measured. A workload is a function of a `Bench` that notes what it finds."""

from __future__ import annotations

from collections.abc import Callable

from bench.bench import Bench
from bench.workloads import beside, commands, drain, enqueue, history, latency, memory

WORKLOADS: dict[str, Callable[[Bench], None]] = {
    "enqueue": enqueue.enqueue,
    "drain": drain.drain,
    "latency": latency.latency,
    "history": history.history,
    "commands": commands.commands,
    "memory": memory.memory,
    "schedules": beside.schedules,
    "pipelines": beside.pipelines,
    "http": beside.http,
}
