"""What commands could read of their worker's secrets because of the user they run as."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Mapping
from pathlib import Path

from penstock.run.commands import Command


def exposures(commands: Mapping[str, Command], database_file: str | None) -> list[str]:
    """One sentence for each thing that an operator should know before these commands run."""
    found = []
    if as_root := sorted(key for key, command in commands.items() if _uid(command) == 0):
        found.append(
            f"{_named(as_root)} as root, and root can read everything on this machine, the memory of this worker too. "
            'Set user = "…" for them in the commands file.'
        )
    readers = sorted(key for key, command in commands.items() if _uid(command) != 0 and _reads(command, database_file))
    if readers:
        found.append(
            f"{_named(readers)} as a user who may read the database file {database_file}, with the params and results of every job. "
            'Set user = "…" for them in the commands file, and keep the file from that user (mode 600).'
        )
    return found


def _named(keys: list[str]) -> str:
    shown = ", ".join(keys[:5]) + (f" and {len(keys) - 5} more" if len(keys) > 5 else "")
    return f"The command {shown} runs" if len(keys) == 1 else f"The commands {shown} run"


def _uid(command: Command) -> int:
    return os.geteuid() if command.account is None else command.account.uid


def _reads(command: Command, path: str | None) -> bool:
    if path is None:
        return False
    if command.account is None:
        return os.access(path, os.R_OK)
    return may_read(Path(path).absolute(), command.account.uid, command.account.groups)


def may_read(path: Path, uid: int, groups: Collection[int]) -> bool:
    """Whether a user who is not root may open this file, by the permissions of the file and of the directories above it."""
    try:
        steps = [(path, stat.S_IROTH), *((folder, stat.S_IXOTH) for folder in path.parents)]
        return all(_allowed(step.stat(), bit, uid, groups) for step, bit in steps)
    except OSError:
        return False


def _allowed(found: os.stat_result, bit: int, uid: int, groups: Collection[int]) -> bool:
    if found.st_uid == uid:
        bit <<= 6
    elif found.st_gid in groups:
        bit <<= 3
    return bool(found.st_mode & bit)
