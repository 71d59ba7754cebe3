"""Real processes for races and kills, forked from a clean server so that starting one costs milliseconds.

>>> drained = together(8, drain, url)        # eight processes, released at one moment; their answers in order
>>> victim = start(enqueue_some, url, failpoints="commit.before=exit")
>>> victim.killed()
"""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["penstock.app", "psycopg", "sqlalchemy.dialects.postgresql", "alembic.command"])

PATIENCE = 120.0


class ChildFailed(AssertionError):
    """The child raised; its traceback is the message."""


class Child(Generic[T]):
    """One process doing one piece of work."""

    def __init__(self, work: Callable[..., T], args: tuple[Any, ...], failpoints: str, barrier: Barrier | None) -> None:
        self._answers, theirs = _context.Pipe(duplex=False)
        self._process = _context.Process(target=_body, args=(theirs, barrier, failpoints, work, args), daemon=True)
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def result(self, timeout: float = PATIENCE) -> T:
        """What the work returned."""
        told = self._told(timeout)
        if told is None:
            raise ChildFailed(f"the process ended with {self._process.exitcode} and no answer")
        ok, value = told
        if not ok:
            raise ChildFailed(value)
        return value  # type: ignore[no-any-return]

    def killed(self, timeout: float = PATIENCE) -> bool:
        """Whether SIGKILL ended it (a failpoint's `exit`, or `kill`); False if it came to its end."""
        told = self._told(timeout)
        if told is not None and not told[0]:
            raise ChildFailed(told[1])
        return self._process.exitcode == -9

    def ended_with(self, timeout: float = PATIENCE) -> int | None:
        """Its exit code, whatever ended it."""
        told = self._told(timeout)
        if told is not None and not told[0]:
            raise ChildFailed(told[1])
        return self._process.exitcode

    def said(self, timeout: float = PATIENCE) -> Any:
        """The next thing the work said with `say`."""
        assert self._answers.poll(timeout), "the child said nothing in time"
        return self._answers.recv()

    def kill(self) -> None:
        self._process.kill()

    def _told(self, timeout: float) -> tuple[bool, Any] | None:
        told = None
        try:
            while self._answers.poll(timeout):
                told = self._answers.recv()
                if isinstance(told, tuple) and len(told) == 2 and isinstance(told[0], bool):
                    break
        except EOFError:
            pass
        self._process.join(timeout)
        if self._process.is_alive():
            self._process.kill()
            raise ChildFailed(f"the process did not end within {timeout} s")
        return told


_voice: Connection | None = None


def say(what: Any) -> None:
    """Tell the parent something on the way; called in the child."""
    assert _voice is not None
    _voice.send(what)


def _body(
    answers: Connection, barrier: Barrier | None, failpoints: str, work: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    from penstock.store import failpoints as points

    global _voice
    _voice = answers
    points.disarm()
    points.arm_from(failpoints)
    try:
        if barrier is not None:
            barrier.wait(PATIENCE)
        answers.send((True, work(*args)))
    except BaseException:
        answers.send((False, traceback.format_exc()))


def start(work: Callable[..., T], *args: Any, failpoints: str = "") -> Child[T]:
    return Child(work, args, failpoints, None)


def race(*works: tuple[Any, ...], failpoints: str = "") -> list[Any]:
    """Start each (function, *args) in a process of its own, release them at one moment, and answer their results."""
    barrier = _context.Barrier(len(works))
    children = [Child(work[0], tuple(work[1:]), failpoints, barrier) for work in works]
    return [child.result() for child in children]


def together(number: int, work: Callable[..., T], *args: Any, failpoints: str = "") -> list[T]:
    """The same work in `number` processes at once; each is given its number last."""
    return race(*((work, *args, n) for n in range(number)), failpoints=failpoints)
