"""A SQLite whose power can be cut. Every write, sync and acknowledgement goes into one log; `image` builds the disk as a
cut after any entry would leave it: what was synced is there, of the rest each write with a chance of its own."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import apsw
from sqlalchemy import Engine, create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.pool import StaticPool

from penstock.store.sqlite import SqliteDialect

KEPT = 0.3


class Disk(apsw.VFS):
    """The machine's VFS with a log. Entries are (file, what, …); a test adds its own acknowledgements."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.log: list[tuple[Any, ...]] = [(path.name, "write", 0, path.read_bytes()), (path.name, "sync")]
        super().__init__(name, "")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        return DiskFile(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        self.log.append((Path(filename).name, "delete"))
        super().xDelete(filename, syncdir)

    def image(self, until: int, into: Path, chance: random.Random) -> None:
        """The files as a power cut after entry `until` leaves them."""
        into.mkdir()
        for name in {entry[0] for entry in self.log[:until] if entry[0] is not None}:
            steps = [entry[1:] for entry in self.log[:until] if entry[0] == name]
            gone = max((n for n, step in enumerate(steps) if step[0] == "delete"), default=-1)
            if gone == len(steps) - 1:
                continue
            (into / name).write_bytes(_content(steps[gone + 1 :], chance))


def _content(steps: Sequence[tuple[Any, ...]], chance: random.Random) -> bytes:
    synced = max((n for n, step in enumerate(steps) if step[0] == "sync"), default=-1)
    content = bytearray()
    for number, step in enumerate(steps):
        if step[0] == "sync" or (number > synced and chance.random() > KEPT):
            continue
        if step[0] == "truncate":
            del content[step[1] :]
            continue
        _, offset, data = step
        content.extend(b"\0" * (offset - len(content)))
        content[offset : offset + len(data)] = data
    return bytes(content)


class DiskFile(apsw.VFSFile):
    def __init__(self, disk: Disk, name: Any, flags: list[int]) -> None:
        path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        self.disk, self.file = disk, Path(path).name
        super().__init__("", name, flags)

    def xWrite(self, data: Any, offset: int) -> None:
        self.disk.log.append((self.file, "write", offset, bytes(data)))
        super().xWrite(data, offset)

    def xTruncate(self, size: int) -> None:
        self.disk.log.append((self.file, "truncate", size))
        super().xTruncate(size)

    def xSync(self, flags: int) -> None:
        self.disk.log.append((self.file, "sync"))
        super().xSync(flags)


class Connection:
    """As much of sqlite3.Connection as our engine uses, on apsw, because only apsw takes a VFS from Python."""

    def __init__(self, path: Path, vfs: str) -> None:
        self.raw = apsw.Connection(str(path), vfs=vfs)
        self.isolation_level: str | None = ""

    def cursor(self) -> Cursor:
        return Cursor(self.raw)

    def create_function(self, *_args: Any, **_kwargs: Any) -> None:
        return None

    def commit(self) -> None:
        if self.raw.in_transaction:
            self.raw.execute("COMMIT")

    def rollback(self) -> None:
        if self.raw.in_transaction:
            self.raw.execute("ROLLBACK")

    def close(self) -> None:
        self.raw.close()


class Cursor:
    lastrowid = None

    def __init__(self, raw: apsw.Connection) -> None:
        self._raw = raw
        self.description: Any = None
        self.rowcount = -1
        self._rows: Iterator[Any] = iter(())

    def execute(self, sql: str, params: Sequence[Any] | Mapping[str, Any] = ()) -> Cursor:
        self._run(sql, params, many=False)
        return self

    def executemany(self, sql: str, params: Sequence[Any]) -> Cursor:
        self._run(sql, params, many=True)
        return self

    def _run(self, sql: str, params: Any, *, many: bool) -> None:
        cursor = self._raw.cursor()

        def before(cur: Any, _sql: str, _bindings: Any) -> bool:
            self.description = [(name, None, None, None, None, None, None) for name, _ in cur.get_description()] or None
            return True

        cursor.exec_trace = before
        rows = (cursor.executemany if many else cursor.execute)(sql, params)
        self._rows = iter([tuple(row) for row in rows])
        self.rowcount = self._raw.changes()

    def fetchall(self) -> list[Any]:
        return list(self._rows)

    def fetchone(self) -> Any:
        return next(self._rows, None)

    def fetchmany(self, size: int = 100) -> list[Any]:
        return [row for _, row in zip(range(size), self._rows, strict=False)]

    def close(self) -> None:
        self._rows = iter(())


def engine_on(disk: Disk, path: Path) -> Engine:
    """Our own engine, with our own settings, on that disk."""

    def factory(url: Any, **_options: Any) -> Engine:
        return create_engine(url, creator=lambda: Connection(path, disk.name), poolclass=StaticPool)

    return SqliteDialect().create_engine(make_url(f"sqlite:///{path}"), factory, 1, 5.0)
