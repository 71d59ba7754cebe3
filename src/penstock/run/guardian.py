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
        if self._pipe is None:
            with self._lock:
                if self._process is None:
                    self._start()

    def _say(self, line: bytes) -> None:
        """No lock: so short a line goes into a pipe as a whole."""
        pipe = self._pipe
        if pipe is not None and self._wrote(pipe, line):
            return
        with self._lock:
            if self._pipe is None or self._pipe == pipe:
                self._stop()
                self._start()
            assert self._pipe is not None
            self._wrote(self._pipe, line)

    def _wrote(self, pipe: int, line: bytes) -> bool:
        """False if the guardian is gone."""
        try:
            os.write(pipe, line)
        except BlockingIOError:
            pass  # a guardian that cannot keep up still finds everything by its mark when it matters
        except OSError:
            return False
        return True

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_PROGRAM), self.mark, *self._facts()],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={},
            cwd="/",
            start_new_session=True,
            bufsize=0,
        )
        assert self._process.stdin is not None
        pipe = self._process.stdin.fileno()
        os.set_blocking(pipe, False)
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            with contextlib.suppress(OSError):
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)  # type: ignore[attr-defined,unused-ignore]
        self._pipe = pipe

    def _facts(self) -> list[str]:
        return [str(os.getpid()), self.workspaces.base, self.cells.base or ""]

    def _stop(self) -> None:
        process, self._process, self._pipe = self._process, None, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def close(self) -> None:
        """Let the guardian end what is left, and go."""
        if os.getpid() != self._owner:
            return
        with self._lock:
            self._stop()
        self.cells.close()
        self.workspaces.close()
        os.close(self.nothing)


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
