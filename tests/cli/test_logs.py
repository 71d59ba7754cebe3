"""What the command line logs: requests with -v, and what jobs log by `logging`, with the ids of their runs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock import Penstock

JOBS = """
import asyncio, logging, warnings
from penstock import Penstock

app = Penstock()
log = logging.getLogger("shop")

@app.job(key="thread")
def thread(n: int):
    log.info("packing %d", n, extra={"box": "large"})
    log.debug("only with -v")

@app.job(key="async")
async def later(n: int):
    await asyncio.sleep(0)
    logging.warning("running low on %d", n)
    warnings.warn("the old way")

@app.job(key="process", isolation="process")
def process(n: int):
    try:
        1 / 0
    except ZeroDivisionError:
        log.exception("cannot divide %d", n)
"""


@contextmanager
def running(folder: Path, url: str, *arguments: str) -> Iterator[Path]:
    """`penstock …` beside the test; gives the file that its stderr goes to."""
    written = folder / "stderr"
    environment = {**os.environ, "PENSTOCK_DATABASE_URL": url, "PYTHONPATH": str(folder)}
    with written.open("wb") as errors, (folder / "stdout").open("wb") as out:
        child = subprocess.Popen(
            [sys.executable, "-c", "from penstock.cli import main; main()", *arguments],
            cwd=folder,
            env=environment,
            stdout=out,
            stderr=errors,
        )
        try:
            yield written
        finally:
            child.send_signal(signal.SIGTERM)
            child.wait(60)


def soon(true: Callable[[], Any]) -> Any:
    until = time.monotonic() + 90
    while not (found := true()):
        assert time.monotonic() < until
        time.sleep(0.05)
    return found


def lines(written: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in written.read_text().splitlines() if line.startswith("{")]


@pytest.mark.parametrize("backend", ["sqlite"])
@pytest.mark.parametrize("verbose", [False, True])
def test_what_jobs_log_is_in_the_workers_log_with_the_ids_of_the_run(url: str, tmp_path: Path, verbose: bool) -> None:
    (tmp_path / "shop.py").write_text(JOBS)
    more = ["-v"] if verbose else []
    with running(tmp_path, url, "worker", "--app", "shop:app", "--json-logs", *more) as written, Penstock(url) as app:
        soon(lambda: {"thread", "async", "process"} <= {each.key for each in app.definitions.list()})
        jobs = {key: app.enqueue(key, {"n": 7}) for key in ("thread", "async", "process")}
        soon(lambda: all(app.jobs.get(job.id).status == "succeeded" for job in jobs.values()))
        (run,) = app.jobs.runs(jobs["process"].id)
        assert "cannot divide 7" in str(run.stderr_tail)
    found = {line["event"].splitlines()[0]: line for line in lines(written)}
    for event, key, level in (
        ("packing 7", "thread", "info"), ("running low on 7", "async", "warning"), ("cannot divide 7", "process", "error"),
    ):  # fmt: skip
        line, job = found[event], jobs[key]
        assert (line["job_id"], line["tenant_id"], line["definition_key"]) == (str(job.id), str(job.tenant_id), key)
        assert (line["level"], line["attempt_no"]) == (level, 1) and line["run_id"]
    assert (found["packing 7"]["logger"], found["packing 7"]["box"]) == ("shop", "large")
    assert "ZeroDivisionError" in found["cannot divide 7"]["exception"]
    (warned,) = [line for event, line in found.items() if "the old way" in event]
    assert warned["job_id"] == str(jobs["async"].id)
    assert ("only with -v" in found) == verbose


@pytest.mark.parametrize("backend", ["sqlite"])
@pytest.mark.parametrize("verb", ["api", "up"])
def test_verbose_logs_each_request_without_what_may_be_secret(url: str, tmp_path: Path, verb: str) -> None:
    with running(tmp_path, url, verb, "-v", "--port", "0", "--json-logs") as written:
        address = soon(lambda: re.search(r"http://[0-9.:]+", (tmp_path / "stdout").read_text()))[0]
        asked = httpx.get(f"{address}/api/v1/jobs?token=pst_hush&q=%0aX", headers={"X-Request-Id": "mine-1"})
        assert asked.status_code == 401
        httpx.get(f"{address}/healthz%0aforged")
        found = soon(lambda: [line for line in lines(written) if line["event"] == "request"][1:] and lines(written))
    first, second = [line for line in found if line["event"] == "request"][:2]
    assert (first["method"], first["path"], first["status"], first["request_id"]) == (
        "GET", "/api/v1/jobs", 401, "mine-1",
    )  # fmt: skip
    assert first["ms"] >= 0 and first["level"] == "debug"
    assert second["path"] == "/healthz%0aforged"
    assert "pst_hush" not in written.read_text()


@pytest.mark.parametrize("backend", ["sqlite"])
def test_without_verbose_no_request_is_logged(url: str, tmp_path: Path) -> None:
    with running(tmp_path, url, "api", "--port", "0", "--human-logs") as written:
        address = soon(lambda: re.search(r"http://[0-9.:]+", (tmp_path / "stdout").read_text()))[0]
        httpx.get(f"{address}/api/v1/jobs")
    assert "request" not in written.read_text()


WRITERS = """
import logging, sys, threading, structlog
from penstock.cli._logs import configure_logs
sys.setswitchinterval(1e-6)
configure_logs(as_json=True)
ours, theirs = structlog.get_logger(), logging.getLogger("shop")
together = threading.Barrier(8)
def write(number):
    together.wait()
    for n in range(300):
        (ours.info if number % 2 else theirs.info)(f"line {number} {n}")
threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def test_lines_of_many_threads_stay_apart() -> None:
    done = subprocess.run([sys.executable, "-c", WRITERS], capture_output=True, text=True, check=True)
    events = {json.loads(line)["event"] for line in done.stderr.splitlines()}
    assert events == {f"line {number} {n}" for number in range(8) for n in range(300)}
