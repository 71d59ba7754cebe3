"""Commands per second: `penstock worker` with a commands file, beside a bare `subprocess` loop that captures the output.

With the defaults the output's tails go into the run's row; with `--log-dir` a file for each run is written beside them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sqlalchemy import func, select

from bench.bench import Bench
from bench.environment import Missing, call
from bench.peers import Peer
from penstock import Penstock
from penstock.core.status import JobStatus
from penstock.store.tables import runs

WORKLOAD, LOGGED = "commands", "commands, with a log file each"
COMMAND = ["/bin/echo", "hello"]
CONCURRENCY = 8
BARE = f"bare subprocess, {CONCURRENCY} threads"


def commands(bench: Bench) -> None:
    n = bench.scale.commands
    for _ in range(bench.scale.repeats):
        bench.each(WORKLOAD, lambda peer: through_a_worker(bench, peer, n, WORKLOAD), ours=True, times=1)
        started = time.perf_counter()
        with ThreadPoolExecutor(CONCURRENCY) as pool:
            list(pool.map(lambda _: subprocess.run(COMMAND, capture_output=True, check=True), range(n)))
        bench.note(WORKLOAD, BARE, n / (time.perf_counter() - started), "commands/s", n)
    bench.each(LOGGED, lambda peer: through_a_worker(bench, peer, n, LOGGED), ours=True, times=1)


def through_a_worker(bench: Bench, peer: Peer, n: int, workload: str) -> None:
    with bench.databases.fresh(peer.database) as url, tempfile.TemporaryDirectory() as folder:
        call(peer, "setup", url)
        logs = ["--log-dir", f"{folder}/logs"] if workload == LOGGED else []
        file = Path(folder, "commands.toml")
        file.write_text(f'[commands.hello]\nargv = ["{COMMAND[0]}", "{COMMAND[1]}"]\n')
        with Penstock(url) as app:
            app.define("hello", runner="command")
            app.enqueue_many("hello", [{}] * n)
            worker = subprocess.Popen(
                [sys.executable, "-m", "penstock.cli", "worker", "--commands", str(file), "--concurrency", str(CONCURRENCY),
                 *logs],
                env={**os.environ, "PENSTOCK_DATABASE_URL": url}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            until = time.perf_counter() + 120
            try:
                while app.jobs.list((JobStatus.QUEUED, JobStatus.RUNNING), limit=1):
                    time.sleep(0.25)  # seldom: whoever asks has one of the two cores
                    if time.perf_counter() > until or worker.poll() is not None:
                        raise Missing("the commands did not end in two minutes")
            finally:
                worker.send_signal(signal.SIGTERM)
                worker.wait()
            # As the rows have it, from the first start to the last end: the start of the interpreter is not of interest.
            with app.db.read() as tx:
                first, last = tx.first(select(func.min(runs.c.started_at), func.max(runs.c.finished_at)))
        bench.note(workload, peer.label, n / (last - first).total_seconds(), "commands/s", n)
