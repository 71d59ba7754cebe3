"""The jobs of the campaign, one of each kind. Effects go into a ledger, in the run's own transaction and without a unique key,
so that one that happened twice is seen."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path

from sqlalchemy import text

from penstock import Config, Context, Penstock, Snooze

app = Penstock(config=Config(lease_seconds=5.0, poll_seconds=0.3, busy_timeout=1.0))

MANY = 60
"""Attempts enough for any number of faults: in the end every job is to succeed."""
SOON = {"base": 0.05, "cap": 0.5}
CREATE_LEDGER = "CREATE TABLE ledger (job text NOT NULL, run text NOT NULL)"


@app.job(key="progress", max_attempts=MANY, retry_policy=SOON)
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


@app.job(key="pay", max_attempts=MANY, retry_policy=SOON)
def pay(ctx: Context, n: int) -> int:
    with ctx.transaction() as conn:
        conn.execute(text("INSERT INTO ledger VALUES (:job, :run)"), {"job": str(ctx.job_id), "run": str(ctx.run_id)})
        ctx.progress(1, 1, "paid")
    return n


@app.job(key="await", max_attempts=MANY, retry_policy=SOON)
async def wait(ctx: Context, n: int) -> int:
    await asyncio.sleep(0.05)
    ctx.progress(1, 1)
    return n


@app.job(key="apart", max_attempts=MANY, retry_policy=SOON, isolation="process")
def apart(ctx: Context, n: int) -> int:
    ctx.progress(1, 1)
    return n


@app.job(key="again", max_attempts=MANY, retry_policy=SOON, retry_mode="chain")
def again(ctx: Context, n: int) -> int:
    """Fails once, and is retried by a new job."""
    ctx.progress(ctx.attempt, 2)
    if ctx.attempt == 1:
        raise ValueError("the first time")
    return n


@app.job(key="later", max_attempts=MANY, retry_policy=SOON)
def later(ctx: Context, n: int) -> int:
    """Is put off once."""
    ctx.progress(1, 1)
    if ctx.attempt == 1:
        raise Snooze(0.2)
    return n


@app.job(key="long", max_attempts=MANY, retry_policy=SOON)
def long(ctx: Context, n: int) -> int:
    """Takes longer than most outages."""
    until = time.monotonic() + 1.5
    while time.monotonic() < until and not ctx.canceled():
        ctx.progress(n, None, "still here")
        time.sleep(0.05)
    return n


@app.job(key="member", max_attempts=MANY, retry_policy=SOON)
def member(ctx: Context, n: int) -> int:
    ctx.progress(n, 3)
    return n


@app.job(key="who", max_attempts=MANY, retry_policy=SOON)
def who() -> int:
    """Tells which worker runs it, and leaves the others time to take one."""
    time.sleep(0.2)
    return os.getpid()
