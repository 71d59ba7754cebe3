"""The user of this machine that a command runs as."""

from __future__ import annotations

import os
import pwd
import shutil
from dataclasses import dataclass

from penstock.core.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Account:
    """A user with its groups, looked up once."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]

    def own(self, *paths: str) -> None:
        """Give it these files and directories."""
        for path in paths:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)

    @property
    def become(self) -> list[str]:
        """Arguments to put before a program's own, so that it starts as this user. For where the process has something to do
        as root first; else `subprocess` changes the user by itself."""
        program = setpriv()
        assert program is not None, "checked when the commands file was read"
        groups = f"--groups={','.join(map(str, self.groups))}" if self.groups else "--clear-groups"
        return [program, f"--reuid={self.uid}", f"--regid={self.gid}", groups, "--"]


def setpriv() -> str | None:
    return shutil.which("setpriv", path=os.defpath)


def account(name: str | None, *, contained: bool = False) -> Account | None:
    """The account of this name; None for the worker's own. Raises InvalidInput if this process cannot start programs as it."""
    if name is None:
        return None
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise InvalidInput(f"there is no user {name!r} on this machine") from None
    if found.pw_uid == os.geteuid():
        return None
    if os.geteuid() != 0:
        raise InvalidInput(
            f"only a worker that runs as root can start a program as {name!r}; start this worker as {name!r} instead"
        )
    if contained and setpriv() is None:
        raise InvalidInput(
            "a contained command with a user of its own needs the program setpriv (util-linux), which is not there"
        )
    groups = tuple(os.getgrouplist(found.pw_name, found.pw_gid))
    return Account(found.pw_name, found.pw_uid, found.pw_gid, groups)
