"""Is the file that a connection has open still the one at its path?

SQLite goes on with an open file that was deleted, renamed or replaced: what is written then is lost with the last process
that has it open. So every transaction looks before it begins, and again after its COMMIT, before anybody is told of it. A look
is one `stat`, about a microsecond.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy.engine import URL

from penstock.core.errors import DatabaseUnavailable, InvalidInput
from penstock.store.dialect import FileLost

FILE = "penstock_file"


class Identity(NamedTuple):
    path: str
    device: int
    inode: int


def prepare(url: URL) -> None:
    """A new file is for its owner alone; SQLite gives its log the same mode."""
    if url.database in (None, "", ":memory:"):
        raise InvalidInput("An in-memory SQLite database forgets everything. Give a file: sqlite:///jobs.db")
    path = Path(url.database or "")
    if url.query.get("uri") is not None:
        return  # a name that only SQLite can read
    if not path.exists() and path.parent.is_dir():
        try:
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        except OSError:
            return  # opening it will say what is wrong


def identify(path: str) -> Identity | None:
    """Return which file lies at the path; None if there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116  (a Path would take as long as the call itself)
    except OSError:
        return None
    return Identity(path, found.st_dev, found.st_ino)


def note_before_connect(dialect: Any, record: Any, args: Any, params: Any) -> None:
    """Note which file is about to be opened. One that was there before is not created again: it would be empty."""
    record.info.pop(FILE, None)
    path = str(args[0]) if args else ""
    if params.get("uri") or path in ("", ":memory:"):
        return
    found = identify(path)
    if found is not None:
        record.info[FILE] = found


def refuse_to_create(dialect: Any, record: Any, args: Any, params: Any) -> None:
    note_before_connect(dialect, record, args, params)
    if FILE not in record.info and args and not params.get("uri"):
        raise _lost(str(args[0]), None)


def check(connection: Any) -> Identity | None:
    """Raise unless the connection's file lies at its path. A connection that somebody else opened is believed at first sight."""
    info = connection.info
    if FILE not in info:
        info[FILE] = _opened(connection)
    opened: Identity | None = info[FILE]
    if opened is None:  # in memory
        return None
    compare(opened)
    return opened


def compare(opened: Identity) -> None:
    try:
        found = os.stat(opened.path)  # noqa: PTH116
    except OSError:
        raise _lost(opened.path, None) from None
    if found.st_ino != opened.inode or found.st_dev != opened.device:
        raise _lost(opened.path, found.st_ino)


def require(path: str) -> None:
    """Raise if there is no file."""
    if identify(path) is None:
        raise _lost(path, None)


class SqliteFiles:
    """The file as it was last seen."""

    def __init__(self) -> None:
        self._file: Identity | None = None
        self._path: str | None = None

    def check_file(self, connection: Any) -> None:
        self._file = check(connection)
        if self._file is not None:
            self._path = self._file.path

    def check_known_file(self) -> None:
        if self._file is not None:
            compare(self._file)
        elif self._path is not None:
            require(self._path)

    def forget_file(self) -> None:
        self._file = None


NETWORK_FILE_SYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "fuse.sshfs", "glusterfs", "ceph"}


def refuse_network_file_system(path: str | None) -> None:
    """SQLite's locks do not hold across a network file system: two machines would corrupt the file."""
    if not path or path == ":memory:":
        return
    target = str(Path(path).resolve())
    try:
        mounts = Path("/proc/mounts").read_text().splitlines()
    except OSError:
        return
    best = ("", "")
    for line in mounts:
        fields = line.split()
        if (
            len(fields) > 2
            and (target == fields[1] or target.startswith(fields[1].rstrip("/") + "/"))
            and len(fields[1]) >= len(best[0])
        ):
            best = (fields[1], fields[2])
    if best[1] in NETWORK_FILE_SYSTEMS:
        raise DatabaseUnavailable(
            f"{path} is on a network file system ({best[1]}), where SQLite's locks do not hold. Use a local disk, or PostgreSQL."
        )


def _opened(connection: Any) -> Identity | None:
    cursor = connection.cursor()
    path = next((row[2] for row in cursor.execute("PRAGMA database_list").fetchall() if row[1] == "main"), "")
    cursor.close()
    if not path:
        return None
    found = identify(path)
    if found is None:
        raise _lost(path, None)
    return found


def _lost(path: str, other: int | None) -> FileLost:
    if other is None:
        return FileLost(
            f"The database file {path} is gone: it was deleted or renamed while Penstock used it. Nothing was acknowledged. "
            "Put it back, or stop all processes and restore a backup."
        )
    return FileLost(
        f"The database file {path} was replaced by another while Penstock used it. Nothing was acknowledged. "
        "The next call opens the file that is there now."
    )
