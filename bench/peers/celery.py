"""Celery on Redis with the solo pool (the fastest for no-op tasks), results off, acknowledged after the task has run."""

from __future__ import annotations

import os

from celery import Celery

from bench.peers import kit

app = Celery("bench", broker=os.environ.get("BENCH_URL"))
app.conf.update(
    task_ignore_result=True,
    task_acks_late=True,
    worker_prefetch_multiplier=64,
    broker_connection_retry_on_startup=True,
    worker_enable_remote_control=False,
    worker_send_task_events=False,
)


@app.task(name="noop")
def noop(sent: int) -> None:
    kit.ran(sent)


def setup(url: str) -> None:
    """Nothing to make: Redis needs no tables."""


def enqueue(url: str, n: int) -> float:
    app.conf.broker_url = url
    with kit.timed() as timer:
        for _ in range(n):
            noop.delay(0)
    return timer.seconds


def work(url: str) -> None:
    app.conf.broker_url = url
    name = f"worker-{os.getpid()}@bench"
    app.worker_main(
        [
            "worker",
            "--pool=solo",
            "-n",
            name,
            "--without-gossip",
            "--without-mingle",
            "--without-heartbeat",
            "-l",
            "ERROR",
        ]
    )


def probe(url: str, count: int, gap: float) -> None:
    app.conf.broker_url = url
    kit.probing(count, gap, noop.delay)
