"""One small process per worker process that outlives it by a moment and ends what it left running.

The usual way to make a child die with its parent is PR_SET_PDEATHSIG, set between fork and exec. From Python that
means `preexec_fn`, hence fork instead of vfork (3.1 ms a start instead of 0.9, more with a large worker), or a
wrapper such as setpriv (2.0 ms). It also spares the grandchildren. The guardian costs nothing per start, ends whole
trees, and sweeps up what outlived its run by leaving the process group.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import subprocess
import sys
import threading
import uuid
from pathlib import Path

from penstock.run.cgroup import Cells
from penstock.run.workspace import Workspaces

PIPE_BYTES = 512 * 1024
"""Room for what is said between two readings of the guardian, a second apart."""

_PROGRAM = Path(__file__).with_name("guardian_main.py")


class Guardian:
    """Ends the children of this process when this process ends, however it ends."""

    def __init__(self) -> None:
        self.mark = f"PENSTOCK_KEEPER={uuid.uuid4().hex}"
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: int | None = None
        self.nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        """What children have for stdin."""
        self.workspaces = Workspaces()
        self.cells = Cells()

    @property
    def environment(self) -> dict[str, str]:
        """What a child carries so that the guardian knows it."""
        name, _, value = self.mark.partition("=")
        return {name: value}

    def started(self, pid: int) -> None:
        """A run's main process was started, as the leader of a session of its own."""
        self._say(b"+%d\n" % pid)

    def ended(self, pid: int, run_id: str) -> None:
        """A run has ended; whatever still carries its id is to go."""
        self._say(b"-%d %s\n" % (pid, run_id.encode()))

    def ready(self) -> None:
        """Have the guardian running before the first child is."""
        if self._process is None:
            with self._lock:
                if self._process is None:
                    self._start()

    def _say(self, line: bytes) -> None:
        """No lock: so short a line goes into a pipe as a whole."""
        process = self._process
        if process is not None and self._wrote(line):
            return
        with self._lock:
            if self._process is process:  # nobody has started another meanwhile
                self._start()
            self._wrote(line)

    def _wrote(self, line: bytes) -> bool:
        """False if the guardian is gone."""
        pipe = self._pipe
        try:
            if pipe is not None:
                os.write(pipe, line)
        except BlockingIOError:
            pass  # a guardian that cannot keep up still finds everything by its mark when it matters
        except OSError:
            return False
        return pipe is not None

    def _start(self) -> None:
        gone = self._process
        made = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_PROGRAM), self.mark, *self._facts()],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={},
            cwd="/",
            start_new_session=True,
            bufsize=0,
        )
        assert made.stdin is not None
        pipe = made.stdin.fileno()
        os.set_blocking(pipe, False)
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            with contextlib.suppress(OSError):
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)  # type: ignore[attr-defined,unused-ignore]
        # One descriptor for good: whoever is about to write must not find another file under its number
        if self._pipe is None:
            self._pipe = os.dup(pipe)
        else:
            os.dup2(pipe, self._pipe, inheritable=False)
        made.stdin.close()
        self._process = made
        if gone is not None:
            _await(gone)

    def _facts(self) -> list[str]:
        return [str(os.getpid()), self.workspaces.base, self.cells.base or ""]

    def close(self) -> None:
        """Let the guardian end what is left, and go."""
        if os.getpid() != self._owner:
            return
        with self._lock:
            process, self._process = self._process, None
            if self._pipe is not None:
                os.close(self._pipe)
                self._pipe = None
            if process is not None:
                _await(process)
        self.cells.close()
        self.workspaces.close()
        os.close(self.nothing)


def _await(process: subprocess.Popen[bytes]) -> None:
    """Its pipe is closed, so it ends what is left, and goes."""
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


_guardian: Guardian | None = None
_lock = threading.Lock()
_inherited: list[Guardian] = []


def guardian() -> Guardian:
    """The guardian of this process, made when first needed."""
    global _guardian
    if _guardian is None:
        with _lock:
            if _guardian is None:
                _guardian = Guardian()
                atexit.register(_guardian.close)
            return _guardian
    return _guardian


def _after_fork() -> None:
    """A forked process gets a guardian of its own; its parent's stays the parent's."""
    global _guardian, _lock
    _lock = threading.Lock()
    if _guardian is not None:
        _inherited.append(_guardian)
        _guardian = None


os.register_at_fork(after_in_child=_after_fork)
