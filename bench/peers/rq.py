"""RQ on Redis with `SimpleWorker`, which runs jobs in its own process, results off: the fastest of its workers."""

from __future__ import annotations

from redis import Redis
from rq import Queue, SimpleWorker

from bench.peers import kit


def noop(sent: int) -> None:
    kit.ran(sent)


def setup(url: str) -> None:
    """Nothing to make: Redis needs no tables."""


def enqueue(url: str, n: int) -> float:
    queue = Queue(connection=Redis.from_url(url))
    with kit.timed() as timer:
        for _ in range(n):
            queue.enqueue("bench.peers.rq.noop", 0, result_ttl=0)
    return timer.seconds


def enqueue_many(url: str, n: int) -> float:
    queue = Queue(connection=Redis.from_url(url))
    with kit.timed() as timer:
        for start in range(0, n, 1_000):
            data = [Queue.prepare_data("bench.peers.rq.noop", [0], result_ttl=0) for _ in range(min(1_000, n - start))]
            queue.enqueue_many(data)
    return timer.seconds


def work(url: str) -> None:
    connection = Redis.from_url(url)
    SimpleWorker([Queue(connection=connection)], connection=connection).work(logging_level="ERROR")


def probe(url: str, count: int, gap: float) -> None:
    queue = Queue(connection=Redis.from_url(url))
    kit.probing(count, gap, lambda sent: queue.enqueue("bench.peers.rq.noop", sent, result_ttl=0))
