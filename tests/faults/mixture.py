"""The jobs of the campaign, one of each kind. Effects go into a ledger, in the run's own transaction and without a unique key,
so that one that happened twice is seen. Only workers import this: it opens the database of their environment."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path

from sqlalchemy import text

from penstock import Config, Context, Penstock, Snooze
from tests.faults.attempts import PATIENT

app = Penstock(config=Config(lease_seconds=5.0, poll_seconds=0.3, busy_timeout=1.0))


@app.job(key="progress", **PATIENT)
def progress(ctx: Context, n: int) -> int:
    """Says how far it is until its very end, and leaves a file."""
    for done in range(3):
        ctx.progress(done, 3, f"step {done}")
        time.sleep(0.01)
    with tempfile.NamedTemporaryFile(delete=False) as made:
        made.write(b"x")
    ctx.artifact(made.name, n=n)
    Path(made.name).unlink()
    return n


@app.job(key="pay", **PATIENT)
def pay(ctx: Context, n: int) -> int:
    with ctx.transaction() as conn:
        conn.execute(text("INSERT INTO ledger VALUES (:job, :run)"), {"job": str(ctx.job_id), "run": str(ctx.run_id)})
        ctx.progress(1, 1, "paid")
    return n


@app.job(key="await", **PATIENT)
async def wait(ctx: Context, n: int) -> int:
    await asyncio.sleep(0.05)
    ctx.progress(1, 1)
    return n


@app.job(key="apart", **PATIENT, isolation="process")
def apart(ctx: Context, n: int) -> int:
    ctx.progress(1, 1)
    return n


@app.job(key="again", **PATIENT, retry_mode="chain")
def again(ctx: Context, n: int) -> int:
    """Fails once, and is retried by a new job."""
    ctx.progress(ctx.attempt, 2)
    if ctx.attempt == 1:
        raise ValueError("the first time")
    return n


@app.job(key="later", **PATIENT)
def later(ctx: Context, n: int) -> int:
    """Is put off once."""
    ctx.progress(1, 1)
    if ctx.attempt == 1:
        raise Snooze(0.2)
    return n


@app.job(key="long", **PATIENT)
def long(ctx: Context, n: int) -> int:
    """Takes longer than most outages."""
    until = time.monotonic() + 1.5
    while time.monotonic() < until and not ctx.canceled():
        ctx.progress(n, None, "still here")
        time.sleep(0.05)
    return n


@app.job(key="member", **PATIENT)
def member(ctx: Context, n: int) -> int:
    ctx.progress(n, 3)
    return n


@app.job(key="who", **PATIENT)
def who() -> int:
    """Tells which worker runs it, and leaves the others time to take one."""
    time.sleep(0.2)
    return os.getpid()
