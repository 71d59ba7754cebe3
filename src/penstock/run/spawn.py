"""Start a child process as the root of a tree that can be ended as a whole."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import IO, Any

from penstock.run.account import Account
from penstock.run.cgroup import Cell
from penstock.run.guardian import guardian
from penstock.run.limits import default_limits, processes_in_session
from penstock.run.tree import Tree


class Child:
    """A child process, everything it starts, and the means to end all of it.

    It leads a session of its own, carries `mark` (an environment variable) and sits in a control group where there is
    one. It is known to the guardian, so that it does not outlive this process.
    """

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        mark: tuple[str, str],
        *,
        cwd: str | None = None,
        umask: int = -1,
        limits: Mapping[int, int] | None = None,
        contained: bool = False,
        pass_fds: Sequence[int] = (),
        stdin: IO[bytes] | None = None,
        account: Account | None = None,
    ) -> None:
        """Raises OSError when it cannot be started.

        A command's `limits` go over the default ones; a child without any has none but that it dumps no core.
        `contained` has it enter its control group before the program starts, not right after: then not even a program
        that forks in its first moment has anything outside. It costs about as much as another start.
        """
        keeper = guardian()
        limiter = _limiter(limits or {})
        # Pipes and the null device of our own: Popen would wrap each in a file object that nobody reads
        (self.stdout, out), (self.stderr, err) = two_pipes()
        cell = keeper.cells.take()
        first, identity = _start_as(account, cell if contained else None)
        # No preexec_fn: it would force fork where vfork does, and is unsafe in a process with threads
        try:
            self._process = subprocess.Popen(
                [*first, *limiter, *argv],
                stdin=keeper.nothing if stdin is None else stdin,
                stdout=out,
                stderr=err,
                env={**env, **keeper.environment, mark[0]: mark[1]},
                cwd=cwd,
                umask=umask,
                pass_fds=pass_fds,
                start_new_session=True,
                **identity,
            )
        except BaseException:
            os.close(self.stdout)
            os.close(self.stderr)
            if cell is not None:
                keeper.cells.give_back(cell)
            raise
        finally:
            os.close(out)
            os.close(err)
        self.pid = self._process.pid
        self._cell = _enclose(self.pid, cell)
        self._name = mark[1]
        self._tree = Tree(self.pid, "=".join(mark).encode())
        keeper.started(self.pid)
        _settle(self.pid, limits, set_already=bool(limiter))

    def poll(self) -> int | None:
        """Its exit code once it has ended; negative for the signal that ended it."""
        return self._process.poll()

    def wait(self) -> int:
        return self._process.wait()

    def terminate(self) -> None:
        """Ask the whole tree to end."""
        self._tree.terminate()

    def kill(self) -> None:
        """End the whole tree."""
        if self._cell is not None:
            self._cell.kill()
        self._tree.kill()

    def close(self) -> None:
        """Whatever happened, nothing of it goes on and nothing is left open."""
        clean = self._process.returncode is not None and not self._leaves_something()
        if not clean:
            self.kill()
        self._process.wait()
        os.close(self.stdout)
        os.close(self.stderr)
        keeper = guardian()
        keeper.ended(self.pid, self._name)
        if self._cell is not None:
            keeper.cells.give_back(self._cell, clean)

    def processes(self) -> int:
        """Count the processes that it consists of now."""
        return processes_in_session(self.pid) if self._cell is None else self._cell.count()

    def _leaves_something(self) -> bool:
        return self._tree.group_lives() or (self._cell is not None and self._cell.populated())


EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM, errno.ENOSPC})
"""What the machine has run out of when nothing can be started. It passes, and is no fault of the job."""


def is_exhausted(error: OSError) -> bool:
    """Whether a process could not be started because the machine has no descriptors, processes, memory or space left."""
    return error.errno in EXHAUSTED


def two_pipes() -> tuple[tuple[int, int], tuple[int, int]]:
    """Two pipes, or none: what was opened is closed if the second cannot be had."""
    first = os.pipe()
    try:
        return first, os.pipe()
    except OSError:
        for fd in first:
            os.close(fd)
        raise


def _start_as(account: Account | None, cell: Cell | None) -> tuple[list[str], dict[str, Any]]:
    """What comes before the program's own arguments, and how `Popen` changes the user. A program that enters its control
    group first does that as root, and becomes the other user after it."""
    if cell is not None:
        return [*cell.enter_first, *(account.become if account is not None else ())], {}
    if account is None:
        return [], {}
    return [], {"user": account.uid, "group": account.gid, "extra_groups": account.groups}


def _enclose(pid: int, cell: Cell | None) -> Cell | None:
    if cell is None or cell.enter(pid):
        return cell
    guardian().cells.give_up()
    cell.remove()
    return None


_LIMIT_OPTIONS = {
    resource.RLIMIT_AS: "as",
    resource.RLIMIT_CPU: "cpu",
    resource.RLIMIT_FSIZE: "fsize",
    resource.RLIMIT_NPROC: "nproc",
    resource.RLIMIT_NOFILE: "nofile",
}


def _limiter(limits: Mapping[int, int]) -> list[str]:
    """A prefix that sets the limits before the program starts; without it `_settle` sets them right after."""
    program = shutil.which("prlimit", path=os.defpath) if limits else None
    if program is None:
        return []
    return [program, *(f"--{_LIMIT_OPTIONS[which]}={soft}:{_hard(which, soft)}" for which, soft in limits.items())]


def _settle(pid: int, limits: Mapping[int, int] | None, set_already: bool) -> None:
    """Set the limits that were not set before the start, and let it be the first to go when memory runs out: the worker is to
    survive its jobs."""
    if hasattr(resource, "prlimit"):
        given = {which: (soft, _hard(which, soft)) for which, soft in (limits or {}).items()}
        for which, pair in {**_defaults(command=limits is not None), **given}.items():
            if not (set_already and which in given):
                with contextlib.suppress(OSError, ValueError):
                    resource.prlimit(pid, which, pair)
    with contextlib.suppress(OSError):
        fd = os.open(f"/proc/{pid}/oom_score_adj", os.O_WRONLY)
        try:
            os.write(fd, b"500")
        finally:
            os.close(fd)


@lru_cache
def _defaults(command: bool) -> dict[int, tuple[int, int]]:
    """What every child gets: no core dumps, and for a command the default limits. Nothing to set where it is inherited."""
    return default_limits(command)


def _hard(which: int, soft: int) -> int:
    """Over its CPU time a program first gets SIGXCPU, which says why, and SIGKILL five seconds later."""
    return soft + 5 if which == resource.RLIMIT_CPU else soft
