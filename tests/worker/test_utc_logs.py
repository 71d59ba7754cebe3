"""The log of an embedded worker says UTC, whatever the zone of the machine, and leaves a program's own setup alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
import structlog
from penstock import Penstock
if "own" in sys.argv:
    structlog.configure(processors=[structlog.processors.KeyValueRenderer(key_order=["event"])])
with Penstock("sqlite:///jobs.db") as app:
    @app.job
    def hello(): ...
    worker = app.worker(1).start()
    worker.stop()
"""


def output(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        cwd=folder,
        env={**os.environ, "TZ": "Asia/Tokyo"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout + done.stderr


def test_an_embedded_worker_logs_in_utc(tmp_path: Path) -> None:
    told = output(tmp_path)
    assert "worker" in told
    stamps = re.findall(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*", told)
    assert stamps and all(stamp.endswith("Z") for stamp in stamps), told


def test_a_programs_own_setup_of_structlog_stays(tmp_path: Path) -> None:
    told = output(tmp_path, "own")
    assert "event='worker" in told and "Z" not in told.split("event=", 1)[0]
