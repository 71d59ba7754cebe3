"""Keep a process's secrets out of reach of the commands it starts.

A command gets a clean environment, but `/proc` shows what its ancestors were started with: their environment and their
arguments stay where the kernel put them, whatever a program does to its variables later. So the values are moved to the heap
and the old places are overwritten, and the process is marked as not dumpable, which closes its memory and its descriptors in
`/proc` to other processes of the same user. Against a command that runs as root nothing of this helps but the overwriting:
that is what `user` in the commands file is for.

Overwriting was chosen over starting the program a second time: it needs no second start of the interpreter, keeps the process id
that a service manager knows, and covers the arguments as well. Elsewhere than on Linux there is no `/proc`, and nothing is done.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.core.redact import Redactor

HANDED = "PENSTOCK_HANDED_FD"
"""Names the descriptor from which a child of ours reads the variables that were not to be seen in its environment."""

SECRET_OPTIONS = {"--token": "PENSTOCK_TOKEN", "--database-url": "PENSTOCK_DATABASE_URL"}
"""Options whose values may be secrets, and the variables that say the same."""

PR_SET_DUMPABLE = 4
_HARMLESS = frozenset(
    {
        "PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "OLDPWD", "SHLVL", "LANG", "LANGUAGE", "TZ", "TERM", "COLORTERM",
        "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "HOSTNAME", "TMPDIR", "TMP", "TEMP", "VIRTUAL_ENV", "DISPLAY",
        "PENSTOCK_RUN_ID", "PENSTOCK_JOB_ID", "PENSTOCK_TENANT_ID", "PENSTOCK_ATTEMPT", "PENSTOCK_KEEPER", "PENSTOCK_CHILD",
    }
)  # fmt: skip
_HARMLESS_STARTS = ("LC_", "LD_", "XDG_", "PYTHON", "MALLOC_", "GLIBC_")


def shield() -> bool:
    """Hide this process's secrets from others of the same user. Returns whether one stood in the arguments, where every user of
    the machine could see it until now."""
    if sys.platform != "linux":
        return False
    found = False
    with suppress(OSError, ValueError, IndexError):
        argument_start, argument_end, environment_start, environment_end = _places()
        _move_environment(environment_start, environment_end)
        found = _hide_arguments(argument_start, argument_end)
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    return found


def _places() -> tuple[int, int, int, int]:
    """Where the kernel put the arguments and the environment: fields 48 to 51 of proc(5)'s stat."""
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    start, end, first, last = (int(field) for field in fields[45:49])
    return start, end, first, last


def _move_environment(start: int, end: int) -> None:
    """Set every variable to what it is, which copies it, and overwrite the values at the old place."""
    at = start
    for entry in ctypes.string_at(start, end - start).split(b"\0"):
        name, _, value = entry.partition(b"=")
        if value and not _is_harmless(os.fsdecode(name), os.fsdecode(value)):
            if name in os.environb:
                os.environb[name] = os.environb[name]
            ctypes.memset(at + len(name) + 1, ord("*"), len(value))
        at += len(entry) + 1


def _is_harmless(name: str, value: str) -> bool:
    known = name in _HARMLESS or name.startswith(_HARMLESS_STARTS)
    return known and Redactor().redact_text(value) == value


def _hide_arguments(start: int, end: int) -> bool:
    block = ctypes.string_at(start, end - start)
    spans = list(secret_spans(block))
    for first, last in spans:
        ctypes.memset(start + first, ord("*"), last - first)
    return bool(spans)


def secret_spans(block: bytes) -> Iterator[tuple[int, int]]:
    """Where secrets stand in a list of arguments, each of which ends with NUL: passwords in URLs, tokens, and what follows
    `--token`."""
    redactor = Redactor()
    at, hide_next = 0, False
    for argument in block.split(b"\0"):
        name, _, value = argument.partition(b"=")
        if argument and hide_next:
            yield at, at + len(argument)
        elif name == b"--token" and value:
            yield at + len(name) + 1, at + len(argument)
        else:
            yield from ((at + first, at + last) for _match, (first, last) in redactor.spans(argument))
        hide_next = argument == b"--token"
        at += len(argument) + 1


@contextmanager
def handed_over(variables: Mapping[str, str]) -> Iterator[tuple[dict[str, str], tuple[int, ...]]]:
    """The environment for a child of our own program, and the descriptors it inherits: what may be secret goes by an
    anonymous file, which `receive` reads, so that the child's environment shows nothing from its first moment on."""
    shown = {name: value for name, value in variables.items() if _is_harmless(name, value)}
    hidden = {name: value for name, value in variables.items() if name not in shown}
    if not hidden or not hasattr(os, "memfd_create"):
        yield dict(variables), ()
        return
    handle = os.memfd_create("penstock")
    try:
        with os.fdopen(os.dup(handle), "wb") as file:
            file.write(json.dumps(hidden).encode("ascii"))
        os.lseek(handle, 0, os.SEEK_SET)
        yield {**shown, HANDED: str(handle)}, (handle,)
    finally:
        os.close(handle)


def receive() -> None:
    """Take the variables that our parent handed over, if it did."""
    number = os.environ.pop(HANDED, "")
    if not number.isdecimal():
        return
    with suppress(OSError, ValueError), os.fdopen(int(number), "rb") as file:
        os.environ.update(json.load(file))


def without_secret_options(arguments: list[str]) -> tuple[list[str], dict[str, str]]:
    """A command line without the options that may hold secrets, and the variables that say the same.

    >>> without_secret_options(["worker", "--token", "abc", "-c", "1"])
    (['worker', '-c', '1'], {'PENSTOCK_TOKEN': 'abc'})
    """
    kept: list[str] = []
    given: dict[str, str] = {}
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if name in SECRET_OPTIONS:
            given[SECRET_OPTIONS[name]] = value if equals else next(rest, "")
        else:
            kept.append(argument)
    return kept, given
