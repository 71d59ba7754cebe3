"""Who this process is, in a form that tells later whether it still lives."""

from __future__ import annotations

import hashlib
import os
import socket
from functools import lru_cache
from pathlib import Path
from uuid import UUID


def process_identity() -> str:
    """`host:pid:boot-uuid`. The uuid's first half names this boot and pid namespace, its second half the process's start."""
    return _identity(os.getpid())


@lru_cache(maxsize=4)
def _identity(pid: int) -> str:
    return f"{socket.gethostname()}:{pid}:{UUID(bytes=_where() + _start_of(pid))}"


def is_dead(identity: str) -> bool:
    """Known to be gone: a process of this machine, this boot and this pid namespace that is there no more.

    Anything else (another host, another container, a name we did not make) is not known, and so is not dead."""
    named = _of_this_boot(identity)
    return named is not None and _start_of(named[0]) != named[1]


def is_of_this_boot(identity: str) -> bool:
    """Whether it names a process of this machine, this boot and this pid namespace, living or not."""
    return _of_this_boot(identity) is not None


def _of_this_boot(identity: str) -> tuple[int, bytes] | None:
    """The pid, and which life of it; None if it is not of here, or not known to be."""
    host, _, rest = identity.partition(":")
    pid_text, _, uuid_text = rest.partition(":")
    if host != socket.gethostname() or not pid_text.isdigit():
        return None
    try:
        made = UUID(uuid_text).bytes
    except ValueError:
        return None
    return (int(pid_text), made[8:]) if made[:8] == _where() else None


def _where() -> bytes:
    boot, namespace = "", ""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        namespace = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - the link's text is the answer
    except OSError:
        pass
    return hashlib.sha256(f"{boot}{namespace}".encode()).digest()[:8]


def _start_of(pid: int) -> bytes:
    """Eight bytes that name this life of the pid; all zero when no such process lives."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return bytes(8)
        except PermissionError:
            pass
        return bytes([1] * 8)
    if fields[0] in "ZX":
        return bytes(8)
    return hashlib.sha256(fields[19].encode()).digest()[:8]
