"""The jobs of the fault tests, in a module that worker processes import. Every effect is a line in a file."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from penstock import Config, Context, Penstock

CLOCK = os.environ.get("FAULT_CLOCK")
"""A file with the seconds by which this machine's clock is wrong at the moment."""

if CLOCK:
    _true_time = time.time

    def _wrong_time() -> float:
        return _true_time() + float(Path(CLOCK).read_text() or 0)

    time.time = _wrong_time

EFFECTS = Path(os.environ.get("FAULT_EFFECTS", os.devnull))

CALM = "FAULT_CALM" in os.environ
"""Many share this machine: not in a hurry."""

app = Penstock(config=Config(lease_seconds=10.0) if CALM else Config(lease_seconds=2.0, poll_seconds=0.3))


def leave(line: object) -> None:
    fd = os.open(EFFECTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, f"{line}\n".encode())
    os.close(fd)


@app.job(key="effect", max_attempts=10, retry_policy={"base": 0.05, "cap": 0.2})
def effect(n: int, seconds: float = 0.0) -> int:
    time.sleep(seconds)
    leave(n)
    return n


@app.job(key="hold", max_attempts=5, retry_policy={"base": 0.05})
def hold(ctx: Context, seconds: float) -> int:
    """Begins, waits, ends; tells which process did."""
    leave(f"begin {os.getpid()}")
    time.sleep(seconds)
    leave(f"end {os.getpid()}")
    return os.getpid()


@app.job(key="poison", max_attempts=10, retry_policy={"base": 0.05})
def poison() -> None:
    leave("poison")
    os.kill(os.getpid(), signal.SIGKILL)
