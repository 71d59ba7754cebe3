"""Jobs for the tests of the Python runner; at the top level of a module, so that a process of the pool finds them."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from functools import wraps
from pathlib import Path
from typing import Any

from penstock.core.outcomes import Fatal, Skip, Snooze
from penstock.run.context import Context


def add(a: int, b: int = 1) -> dict[str, int]:
    return {"sum": a + b, "pid": os.getpid()}


def fail(kind: str, password: str = "") -> None:
    if kind == "value":
        raise ValueError(f"cannot log in with {password}")
    if kind == "skip":
        raise Skip("nothing new")
    if kind == "snooze":
        raise Snooze(30, "busy")
    if kind == "fatal":
        raise Fatal("the account is gone")
    if kind == "exit":
        sys.exit(3)
    if kind == "interrupt":
        raise KeyboardInterrupt
    if kind == "die":
        os._exit(9)
    if kind == "segfault":
        ctypes.string_at(0)


async def fail_async(kind: str) -> None:
    fail(kind)


def report(ctx: Context, folder: str) -> str:
    for done in range(3):
        ctx.progress(done + 1, 3, f"step {done + 1}")
    path = Path(folder) / "made.csv"
    path.write_text("a,b\n")
    ctx.artifact(path, kind="table")
    ctx.heartbeat()
    ctx.log.warning("almost done", left=1)
    print("printed")
    print("complained", file=sys.stderr)
    return f"{ctx.tenant}/{ctx.key}/{ctx.attempt}"


def until_canceled(ctx: Context) -> str:
    while not ctx.canceled():
        time.sleep(0.01)
    return "stopped early"


def hang(pid_file: str) -> None:
    """Deaf to everything, and not alone."""
    helper = subprocess.Popen(["sleep", "300"])
    Path(pid_file).write_text(str(helper.pid))
    while True:
        time.sleep(1)


def transact(ctx: Context) -> None:
    with ctx.transaction():
        pass


def decorate(function: Any) -> Any:
    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("the pool calls the function itself")

    return wrapper


@decorate
def decorated(a: int) -> int:
    return a
