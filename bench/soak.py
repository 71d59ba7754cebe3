"""Does a worker stay as it was? Fifty thousand jobs through one worker process, watched from outside.

    python bench/soak.py [--jobs 50000] [--commands 200] [--url postgresql://…]

Every two seconds: open file descriptors, threads, resident memory, children and zombies of the worker. At the end they
must be what they were after the warm-up, the first tenth, in which SQLite's page caches fill: descriptors within 5, memory within 20 MiB, no zombie, no child but the guardian.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from penstock import Penstock
from penstock.worker.tuning import tuned_for_work

BATCH = 5_000


@dataclass(frozen=True, slots=True)
class Look:
    descriptors: int
    threads: int
    megabytes: float
    children: int
    zombies: int


def look(worker: psutil.Process) -> Look:
    children = worker.children(recursive=True)
    zombies = sum(child.status() == psutil.STATUS_ZOMBIE for child in children)
    return Look(
        worker.num_fds(), worker.num_threads(), worker.memory_info().rss / 2**20, len(children) - zombies, zombies
    )


def make_app(url: str) -> Penstock:
    app = Penstock(url)

    @app.job(key="noop")
    def noop(i: int) -> int:
        return i

    app.define("true", runner="command", max_attempts=1)
    app.sync_definitions()
    return app


def drained(app: Penstock, worker: psutil.Process, done: int) -> None:
    shown = 0.0
    while app.jobs.list(("queued", "running"), limit=1):
        if time.monotonic() - shown > 2:
            shown = time.monotonic()
            seen = look(worker)
            print(f"{done:8,} enqueued  {seen.descriptors:4} fds  {seen.threads:3} threads  {seen.megabytes:7.1f} MiB  "
                  f"{seen.children} children  {seen.zombies} zombies", flush=True)  # fmt: skip
        time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=50_000)
    parser.add_argument("--commands", type=int, default=200)
    parser.add_argument("--url")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        with tuned_for_work():
            make_app(given.worker[0]).worker(8, commands=given.worker[1]).run()
        return
    with tempfile.TemporaryDirectory(prefix="penstock-soak-") as directory:
        url = given.url or f"sqlite:///{directory}/soak.db"
        commands = Path(directory) / "commands.toml"
        commands.write_text('[commands.true]\nargv = ["true"]\n')
        app = make_app(url)
        child = subprocess.Popen([sys.executable, __file__, "--worker", url, str(commands)])
        try:
            sys.exit(soak(app, psutil.Process(child.pid), given.jobs, given.commands))
        finally:
            child.terminate()
            child.wait()
            app.close()


def soak(app: Penstock, worker: psutil.Process, jobs: int, commands: int) -> int:
    done = 0
    first: Look | None = None
    while done < jobs:
        app.enqueue_many("noop", [{"i": i} for i in range(min(BATCH, jobs - done))])
        app.enqueue_many("true", [{} for _ in range(max(1, commands * BATCH // jobs))])
        done += BATCH
        drained(app, worker, done)
        if first is None and done >= min(max(2 * BATCH, jobs // 10), jobs):
            first = look(worker)
    last = look(worker)
    assert first is not None
    print(f"after the warm-up {first}\nat the end        {last}")
    well = (
        abs(last.descriptors - first.descriptors) <= 5
        and last.megabytes - first.megabytes < 20
        and last.zombies == 0
        and last.children <= 1
        and app.doctor().clean
    )
    print("flat" if well else "NOT FLAT")
    return 0 if well else 1


if __name__ == "__main__":
    os.environ.pop("PENSTOCK_DATABASE_URL", None)
    main()
