"""Named seams where the tests make things go wrong. Off in production at no cost: `reach` is then a plain no-op.

Arm with `PENSTOCK_FAILPOINTS="claim.after_running=exit;finish.before=pause:0.5"` in a child process, or with
`arm()` in-process. Actions: `exit` (as kill -9), `pause:SECONDS`, `error`, `timeout` (the work is done, but is
reported as a lost connection). In-process also a function, which is called once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

NAMES = (
    "enqueue.before",
    "enqueue.after",
    "claim.before",
    "claim.after_running",
    "claim.after_ready",
    "finish.before",
    "finish.after_runs",
    "finish.after_running",
    "finish.before_retry",
    "finish.before_group",
    "recover.before",
    "recover.after_close",
    "group.after_insert",
    "reserve.after_insert",
    "tick.after_insert",
    "rotate.after_update",
    "commit.before",
    "commit.after",
    "worker.before_run",
    "worker.after_run",
    "worker.before_report",
    "erase.before_commit",
)


class InjectedError(RuntimeError):
    """What the `error` action raises."""


class InjectedDisconnect(ConnectionError):
    """What the `timeout` action raises: the work may have been done."""


Action = str | Callable[[], object]

_armed: dict[str, tuple[Action, float, int]] = {}


def _reach_off(name: str) -> None:
    return None


def _reach_on(name: str) -> None:
    if name not in _armed:
        return
    action, argument, skip = _armed[name]
    if skip > 0:
        _armed[name] = (action, argument, skip - 1)
        return
    if callable(action):
        del _armed[name]
        action()
    elif action == "exit":
        os.kill(os.getpid(), 9)
    elif action == "pause":
        time.sleep(argument)
    elif action == "error":
        raise InjectedError(name)
    elif action == "timeout":
        raise InjectedDisconnect(name)


reach = _reach_off


def arm(name: str, action: Action, argument: float = 0.0, skip: int = 0) -> None:
    """Make `name` misbehave; `skip` lets it pass that many times first."""
    global reach
    if name not in NAMES:
        raise ValueError(f"{name!r} is not a failpoint; known: {', '.join(NAMES)}")
    _armed[name] = (action, argument, skip)
    reach = _reach_on


def disarm() -> None:
    global reach
    _armed.clear()
    reach = _reach_off


@contextmanager
def armed(name: str, action: Action, argument: float = 0.0, skip: int = 0) -> Iterator[None]:
    arm(name, action, argument, skip)
    try:
        yield
    finally:
        disarm()


def arm_from(text: str) -> None:
    for item in filter(None, text.split(";")):
        name, _, rest = item.partition("=")
        action, *arguments = rest.split(":")
        numbers = [float(argument) for argument in arguments]
        arm(name, action, numbers[0] if numbers else 0.0, int(numbers[1]) if len(numbers) > 1 else 0)


if "PENSTOCK_FAILPOINTS" in os.environ:
    arm_from(os.environ["PENSTOCK_FAILPOINTS"])
