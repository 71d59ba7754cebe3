"""`--processes N`: keeps that many worker processes running, starts the fallen again, and ends with them."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from types import FrameType

from penstock.core.utc_logs import worker_log
from penstock.run.shield import handed_over, without_secret_options
from penstock.worker.service import full_jitter

PR_SET_PDEATHSIG = 1
HEALTHY_SECONDS = 10.0
"""A process that lived this long did not fall at its start."""


def supervise(processes: int, grace: float) -> int:
    """Run `processes` copies of this very command line, each as one worker, until told to stop. Answers the exit code."""
    command, variables = _command_line()
    return Supervisor(processes, grace, command, variables).run()


def _command_line() -> tuple[list[str], dict[str, str]]:
    """What starts one worker, and the variables that say what must not be seen among its arguments."""
    arguments, variables = without_secret_options(sys.argv[1:])
    for index, argument in enumerate(arguments):
        if argument == "--processes":
            del arguments[index : index + 2]
            break
        if argument.startswith("--processes="):
            del arguments[index]
            break
    return [sys.executable, "-m", "penstock.cli", *arguments, "--supervised-by", str(os.getpid())], variables


class Supervisor:
    """Watches its worker processes."""

    def __init__(
        self, processes: int, grace: float, command: list[str], variables: Mapping[str, str] | None = None
    ) -> None:
        self._count = processes
        self._grace = grace
        self._command = command
        self._variables = dict(variables or {})
        self._signals = 0
        self._heard = threading.Event()
        self._children: dict[int, tuple[subprocess.Popen[bytes], float]] = {}
        self._log = worker_log

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        failures, start_at = 0, 0.0
        usage_error = False
        while not self._signals and not usage_error:
            if len(self._children) < self._count and time.monotonic() >= start_at:
                self._start()
                continue
            self._heard.wait(0.2)
            for code, lived in self._reap():
                usage_error = usage_error or (code == 2 and lived < HEALTHY_SECONDS)
                failures = 0 if lived >= HEALTHY_SECONDS else failures + 1
                start_at = time.monotonic() + full_jitter(failures, base=0.2)
                self._log.warning("worker_process_ended", code=code, lived=round(lived, 1))
        return self._end(2 if usage_error else 0)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._signals += 1
        self._heard.set()
        # A terminal sends Ctrl-C to the whole group, a service manager often only to us: our word reaches all.
        self._tell(signal.SIGTERM)

    def _start(self) -> None:
        # A session of their own: Ctrl-C reaches them once, through us.
        with handed_over({**os.environ, **self._variables}) as (environment, handles):
            child = subprocess.Popen(self._command, env=environment, pass_fds=handles, start_new_session=True)
        self._children[child.pid] = child, time.monotonic()

    def _reap(self) -> list[tuple[int, float]]:
        ended = []
        for pid, (child, started) in list(self._children.items()):
            code = child.poll()
            if code is not None:
                del self._children[pid]
                ended.append((code, time.monotonic() - started))
        return ended

    def _tell(self, number: int) -> None:
        for child, _ in list(self._children.values()):
            if child.poll() is None:
                child.send_signal(number)

    def _end(self, code: int) -> int:
        if not self._signals:
            self._tell(signal.SIGTERM)
        until = time.monotonic() + self._grace + 30
        while self._children and time.monotonic() < until:
            self._reap()
            time.sleep(0.05)
        self._tell(signal.SIGKILL)
        for child, _ in self._children.values():
            child.wait()
        return code


def die_with_parent(parent: int) -> None:
    """Have the kernel tell us when our supervisor dies, so that no worker outlives it unseen."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it died before we could ask
        os.kill(os.getpid(), signal.SIGTERM)
