"""Dramatiq on Redis with 100 threads in one process, the best we found."""

from __future__ import annotations

import signal
import threading

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.peers import kit

THREADS = 100


def open_broker(url: str) -> RedisBroker:
    broker = RedisBroker(url=url)
    dramatiq.set_broker(broker)
    return broker


def actor():  # type: ignore[no-untyped-def]
    @dramatiq.actor(actor_name="noop")
    def noop(sent: int) -> None:
        kit.ran(sent)

    return noop


def setup(url: str) -> None:
    """Nothing to make: Redis needs no tables."""


def enqueue(url: str, n: int) -> float:
    open_broker(url)
    noop = actor()
    with kit.timed() as timer:
        for _ in range(n):
            noop.send(0)
    return timer.seconds


def work(url: str) -> None:
    broker = open_broker(url)
    actor()
    worker = dramatiq.Worker(broker, worker_threads=THREADS)
    worker.start()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    stop.wait()
    worker.stop(timeout=2_000)


def probe(url: str, count: int, gap: float) -> None:
    open_broker(url)
    kit.probing(count, gap, actor().send)
