"""DBOS: a workflow without steps on a database-backed queue, polled every 10 ms, enqueued by its client."""

from __future__ import annotations

import os
import signal
import threading

from dbos import DBOS, DBOSClient, DBOSConfig, EnqueueOptions

from bench.peers import kit

QUEUE = "default"
POLLING = 0.01
VERSION = "bench"


@DBOS.workflow(name="noop")
def noop(sent: int) -> None:
    kit.ran(sent)


def launched(url: str) -> None:
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": url,
        "application_version": VERSION,
        "executor_id": str(os.getpid()),
        "console_log_level": "ERROR",
    }
    DBOS(config=config)
    DBOS.launch()


def client(url: str) -> DBOSClient:
    return DBOSClient(system_database_url=url, application_name="bench")


def options() -> EnqueueOptions:
    return {"workflow_name": "noop", "queue_name": QUEUE, "app_version": VERSION}


def setup(url: str) -> None:
    launched(url)
    DBOS.register_queue(QUEUE, polling_interval_sec=POLLING)
    DBOS.destroy()


def enqueue(url: str, n: int) -> float:
    sender = client(url)
    with kit.timed() as timer:
        for _ in range(n):
            sender.enqueue(options(), 0)
    sender.destroy()
    return timer.seconds


def work(url: str) -> None:
    launched(url)
    DBOS.register_queue(QUEUE, polling_interval_sec=POLLING)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    stop.wait()
    DBOS.destroy()


def probe(url: str, count: int, gap: float) -> None:
    sender = client(url)
    kit.probing(count, gap, lambda sent: sender.enqueue(options(), sent))
    sender.destroy()
