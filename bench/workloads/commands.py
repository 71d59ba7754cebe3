"""Commands per second: a worker with a commands file, beside a bare `subprocess` loop that captures the output."""

from __future__ import annotations

import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.bench import Bench
from bench.environment import Missing, call
from bench.peers import Peer
from penstock import Penstock
from penstock.core.status import JobStatus

WORKLOAD = "commands"
COMMAND = ["/bin/echo", "hello"]
CONCURRENCY = 8
BARE = f"bare subprocess, {CONCURRENCY} threads"


def commands(bench: Bench) -> None:
    n = bench.scale.commands
    bench.each(WORKLOAD, lambda peer: through_a_worker(bench, peer, n), ours=True)
    for _ in range(bench.scale.repeats):
        started = time.perf_counter()
        with ThreadPoolExecutor(CONCURRENCY) as pool:
            list(pool.map(lambda _: subprocess.run(COMMAND, capture_output=True, check=True), range(n)))
        bench.note(WORKLOAD, BARE, n / (time.perf_counter() - started), "commands/s", n)


def through_a_worker(bench: Bench, peer: Peer, n: int) -> None:
    with bench.databases.fresh(peer.database) as url, tempfile.TemporaryDirectory() as folder:
        call(peer, "setup", url)
        file = Path(folder, "commands.toml")
        file.write_text(f'[commands.hello]\nargv = ["{COMMAND[0]}", "{COMMAND[1]}"]\n')
        with Penstock(url) as app:
            app.define("hello", runner="command")
            app.enqueue_many("hello", [{}] * n)
            worker = app.worker(concurrency=CONCURRENCY, commands=file, log_dir=Path(folder, "logs"))
            started = time.perf_counter()
            worker.start()
            try:
                while app.jobs.list((JobStatus.QUEUED, JobStatus.RUNNING), limit=1):
                    time.sleep(0.05)  # seldom: whoever asks shares the worker's interpreter
                    if time.perf_counter() - started > 120:
                        raise Missing("the commands did not end in two minutes")
                took = time.perf_counter() - started
            finally:
                worker.stop(grace=1)
        bench.note(WORKLOAD, peer.label, n / took, "commands/s", n)
