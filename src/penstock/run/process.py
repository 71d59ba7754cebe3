"""One child process from start to end: spawned, pumped, timed, stopped with everything it started, waited for."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import IO

from penstock.core.redact import Redactor
from penstock.run.account import Account
from penstock.run.context import Control
from penstock.run.guardian import guardian
from penstock.run.limits import LOOK_SECONDS, PROCESSES
from penstock.run.output import LogFile, Stream
from penstock.run.spawn import Child

CHUNK = 64 * 1024
TICK = 0.1
"""How often cancellation is looked for. The end of the child and its output wake us at once."""

REFRESH_SECONDS = 1.0
DRAIN_SECONDS = 1.0
"""How long output is still read after the main process has ended, if a grandchild holds the pipe."""


class Ending(Enum):
    """Why a child ended."""

    EXITED = "exited"
    TIMED_OUT = "timed out"
    CANCELED = "canceled"
    TOO_MANY = "too many processes"


@dataclass(frozen=True, slots=True)
class Order:
    """What to run, and within which bounds."""

    run_id: str
    argv: Sequence[str]
    env: Mapping[str, str]
    redactor: Redactor
    cwd: Path | None = None
    timeout: float | None = None
    kill_grace: float = 30.0
    log_path: Path | None = None
    log_limit: int = 64 * 1024 * 1024
    limits: Mapping[int, int] = field(default_factory=dict)
    processes: int = PROCESSES
    contained: bool = False
    stdin: bytes | None = None
    account: Account | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """How it went. `exit_code` is negative for the signal that ended it."""

    ending: Ending
    exit_code: int
    stdout: str
    stderr: str
    log_path: str | None
    trouble: str | None
    """What could not be kept of the log, and why."""
    pid: int


def run_process(order: Order, control: Control) -> Ended:
    """Run it to its end. Raises OSError when it cannot be started."""
    keeper = guardian()
    keeper.ready()
    workspace = None if order.cwd else keeper.workspaces.take()
    log = LogFile(order.log_path, order.log_limit)
    given = None
    try:
        if workspace is not None and order.account is not None:
            keeper.workspaces.let_others_pass()
            order.account.own(workspace.path)
        given = None if order.stdin is None else _input(order.stdin, keeper.workspaces.base)
        child = Child(
            order.argv,
            order.env,
            ("PENSTOCK_RUN_ID", order.run_id),
            cwd=workspace.path if workspace is not None else str(order.cwd),
            umask=0o077,
            limits=order.limits,
            contained=order.contained,
            stdin=given,
            account=order.account,
        )
        try:
            return _Watch(order, control, child, log).follow()
        finally:
            child.close()
    finally:
        log.close()
        if given is not None:
            given.close()
        if workspace is not None and order.account is not None:
            workspace.remove()  # it is another user's now
        elif workspace is not None:
            keeper.workspaces.give_back(workspace)


def _input(text: bytes, folder: str) -> IO[bytes]:
    """A file without a name to read stdin from: it needs nobody to feed a pipe, and nothing of it is left, whatever happens."""
    made = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed when the run has ended
    made.write(text)
    made.seek(0)
    return made


class _Watch:
    """Follows one child: reads what it prints, stops it when it must, sees it end."""

    def __init__(self, order: Order, control: Control, child: Child, log: LogFile) -> None:
        self._order = order
        self._control = control
        self._child = child
        self._log = log
        self._out = Stream(order.redactor, log)
        self._err = Stream(order.redactor, log)
        self._streams = {child.stdout: self._out, child.stderr: self._err}
        self._poll = select.poll()
        self._started = time.monotonic()
        self._kill_at: float | None = None
        self._ending = Ending.EXITED
        self._refresh_at = self._started + REFRESH_SECONDS
        self._count_at = self._started + LOOK_SECONDS
        self._reported = 0

    def follow(self) -> Ended:
        for fd in self._streams:
            self._poll.register(fd, select.POLLIN)
        self._control.report_pid(self._child.pid)
        handle = _process_handle(self._child.pid)
        try:
            if handle is None:
                while self._child.poll() is None:
                    self._step(TICK if self._streams else TICK / 10)
            else:
                self._poll.register(handle, select.POLLIN)
                while handle not in self._step(TICK):
                    pass
                self._poll.unregister(handle)
        finally:
            if handle is not None:
                os.close(handle)
        self._drain()
        return self._result()

    def _step(self, wait: float) -> Collection[int]:
        seen = self._read(wait)
        self._stop_when_due()
        self._count_when_due()
        self._refresh_when_due()
        return seen

    def _read(self, wait: float) -> Collection[int]:
        """Take what there is to read; answers what there was something of. A pipe that is ready does not block."""
        ready = [fd for fd, _event in self._poll.poll(wait * 1000)]
        for fd in ready:
            stream = self._streams.get(fd)
            if stream is None:
                continue
            if data := os.read(fd, CHUNK):
                stream.feed(data)
            else:
                self._poll.unregister(fd)
                del self._streams[fd]
        return ready

    def _stop_when_due(self) -> None:
        now = time.monotonic()
        if self._kill_at is not None:
            if now >= self._kill_at:
                self._child.kill()
            return
        timeout = self._order.timeout
        if self._control.canceled.is_set():
            self._ending = Ending.CANCELED
        elif timeout is not None and now - self._started >= timeout:
            self._ending = Ending.TIMED_OUT
        else:
            return
        self._kill_at = now + self._order.kill_grace
        self._child.terminate()

    def _count_when_due(self) -> None:
        """A run with too many processes is ended at once: asking a fork bomb to end gives it time to grow."""
        now = time.monotonic()
        if now < self._count_at:
            return
        self._count_at = now + LOOK_SECONDS
        if self._child.processes() > self._order.processes:
            if self._ending is Ending.EXITED:
                self._ending, self._kill_at = Ending.TOO_MANY, now
            self._child.kill()

    def _refresh_when_due(self) -> None:
        now = time.monotonic()
        total = self._out.tail.total + self._err.tail.total
        if now < self._refresh_at or total == self._reported:
            return
        self._refresh_at, self._reported = now + REFRESH_SECONDS, total
        # A report that fails is the worker's trouble to log; the next one carries the same and more
        with contextlib.suppress(Exception):
            self._control.report_tails(self._out.tail.text(), self._err.tail.text())

    def _drain(self) -> None:
        if self._ending is not Ending.EXITED:
            self._child.kill()
        until = time.monotonic() + DRAIN_SECONDS
        while self._streams and (left := until - time.monotonic()) > 0:
            self._read(left)
        if self._streams:
            self._child.kill()

    def _result(self) -> Ended:
        for stream in (self._out, self._err):
            stream.finish()
        self._log.close()
        return Ended(
            self._ending,
            self._child.wait(),
            self._out.tail.text(),
            self._err.tail.text(),
            str(self._log.path) if self._log.path else None,
            self._log.trouble,
            self._child.pid,
        )


def _process_handle(pid: int) -> int | None:
    """A descriptor that becomes readable when the process ends, where the system has such a thing."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def signal_name(number: int) -> str:
    """SIGKILL for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
