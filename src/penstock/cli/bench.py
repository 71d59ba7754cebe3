"""`penstock bench`: what this database, on this machine, gives. Nothing of what is in it is read or changed."""

from __future__ import annotations

import logging
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import structlog
import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from penstock.app import DEFAULT_URL, Penstock
from penstock.cli._common import AsJson, DatabaseUrl, err, out
from penstock.cli._show import print_facts, print_json
from penstock.core.errors import PenstockError
from penstock.core.status import JobStatus
from penstock.store.scratch import scratch
from penstock.worker.tuning import tuned_for_work

KEY = "bench.noop"
PATIENCE_SECONDS = 600.0


def bench(
    jobs: Annotated[int, typer.Option(min=10, help="How many no-op jobs are drained.")] = 10_000,
    probes: Annotated[int, typer.Option(min=5, help="How many jobs are timed from enqueue to start.")] = 100,
    processes: Annotated[int, typer.Option(min=1, max=64, help="Worker processes that drain.")] = 1,
    concurrency: Annotated[int, typer.Option(min=1, max=1000, help="Jobs at once in each.")] = 8,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Measure enqueue, drain and latency on this database's server or disk, with full durability.

    The work is done in a file or a schema of its own, which is removed afterwards. To measure beside other systems, see
    docs/benchmarks.md.
    """
    url = database_url or DEFAULT_URL
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with (
        Progress(*columns, console=err(), transient=True, disable=not sys.stderr.isatty()) as progress,
        scratch(url) as place,
        opened(place) as app,
    ):
        step = progress.add_task("Enqueue …", total=None)
        found: dict[str, Any] = {"database": app.db.name, **enqueueing(app, jobs)}
        progress.update(step, description=f"Drain {jobs:,} jobs …")
        with workers(place, processes, concurrency):
            found["drained_per_second"] = draining(app)
            progress.update(step, description="Latency …")
            found.update(waiting(app, probes))
        found["promises_kept"] = app.doctor().clean
    if as_json:
        print_json(found)
        return
    print_facts((name.replace("_", " "), _figure(value)) for name, value in found.items())
    if sys.stdout.isatty():
        out().print("Only ratios carry over to another machine.", style="dim")


def _figure(value: Any) -> Any:
    if isinstance(value, bool):
        return "yes" if value else "NO: run penstock doctor"
    return f"{value:,.1f}" if isinstance(value, float) and value < 100 else f"{value:,.0f}" if isinstance(value, float) else value  # fmt: skip


@contextmanager
def opened(url: str) -> Iterator[Penstock]:
    with Penstock(url) as app:

        @app.job(key=KEY)
        def noop(sent: float = 0.0) -> float:
            """How long it took until this began, in milliseconds."""
            return (time.time() - sent) * 1000

        app.sync_definitions()
        yield app


def enqueueing(app: Penstock, jobs: int) -> dict[str, float]:
    single = min(500, jobs // 2)
    began = time.perf_counter()
    for _ in range(single):
        app.enqueue(KEY)
    one_by_one = single / (time.perf_counter() - began)
    began = time.perf_counter()
    app.enqueue_many(KEY, [{}] * (jobs - single))
    return {
        "enqueued_per_second": one_by_one,
        "enqueued_in_bulk_per_second": (jobs - single) / (time.perf_counter() - began),
    }


def draining(app: Penstock) -> float:
    """Jobs a second, between the first look that finds some done and the one that finds all done."""
    first: tuple[float, int] | None = None
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        counts = app.jobs.summary().counts
        now, done = time.monotonic(), counts[JobStatus.SUCCEEDED]
        if first is None and done:
            first = now, done
        if first and done == sum(counts.values()):
            return (done - first[1]) / max(now - first[0], 1e-3) if done > first[1] else float(done)
        if now > until:
            raise PenstockError(f"The jobs were not drained in {PATIENCE_SECONDS:g} seconds; {done:,} were.")
        time.sleep(0.02)


def waiting(app: Penstock, probes: int) -> dict[str, float]:
    jobs = []
    for _ in range(probes + 5):
        jobs.append(app.enqueue(KEY, {"sent": time.time()}))
        time.sleep(0.03)
    until = time.monotonic() + PATIENCE_SECONDS
    while app.jobs.get(jobs[-1].id).status is not JobStatus.SUCCEEDED and time.monotonic() < until:
        time.sleep(0.02)
    taken = [float(app.jobs.get(job.id).result) for job in jobs[5:]]
    parts: Sequence[float] = statistics.quantiles(taken, n=100, method="inclusive")
    return {"latency_p50_ms": parts[49], "latency_p95_ms": parts[94], "latency_p99_ms": parts[98]}


@contextmanager
def workers(url: str, processes: int, concurrency: int) -> Iterator[None]:
    command = [sys.executable, "-c", f"from penstock.cli.bench import work; work({concurrency})"]
    env = {**os.environ, "PENSTOCK_DATABASE_URL": url}
    children = [subprocess.Popen(command, env=env) for _ in range(processes)]
    try:
        yield
    finally:
        for child in children:
            child.terminate()
        for child in children:
            child.wait()


def work(concurrency: int) -> None:
    """A worker process of the bench; it keeps its log to itself."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    with opened(os.environ["PENSTOCK_DATABASE_URL"]) as app, tuned_for_work():
        app.worker(concurrency, grace=1).run()
