"""What a child prints, in bounded memory: the tails for the run's row, the whole for the log file."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.core.redact import Redactor

TAIL_BYTES = 64 * 1024


class Tail:
    """The last 64 KiB of a stream, as text that both databases can hold."""

    def __init__(self, limit: int = TAIL_BYTES) -> None:
        self._limit = limit
        self._kept = bytearray()
        self.total = 0

    def write(self, data: bytes) -> None:
        self.total += len(data)
        if len(data) >= self._limit:
            self._kept[:] = data[-self._limit :]
            return
        self._kept += data
        if len(self._kept) > 2 * self._limit:
            del self._kept[: -self._limit]

    def text(self) -> str:
        """The tail, cut between characters; what is not UTF-8 shows as U+FFFD, and so does NUL."""
        text = _from_first_character(self._kept[-self._limit :]).decode("utf-8", "replace").replace("\0", "\ufffd")
        encoded = text.encode()
        if len(encoded) > self._limit:
            text = _from_first_character(encoded[-self._limit :]).decode("utf-8", "replace")
        return text


def _from_first_character(data: bytes | bytearray) -> bytes | bytearray:
    start = 0
    while start < min(3, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    return data[start:]


def _create(path: Path) -> int:
    """A run has one log of its own: a name that is taken already, or a link, was put there by somebody else."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


class LogFile:
    """The whole output of a run, up to a limit. Trouble with the disk is noted and never fails the run."""

    def __init__(self, path: Path | None, limit: int) -> None:
        self.path = path
        self.trouble: str | None = None
        self._room = limit
        self._limit = limit
        self._fd: int | None = None
        if path is not None:
            self._open(path)

    def _open(self, path: Path) -> None:
        try:
            try:
                self._fd = _create(path)
            except FileNotFoundError:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._fd = _create(path)
        except OSError as error:
            self.path = None
            self.trouble = f"no log was kept: {error.strerror}"

    def write(self, data: bytes) -> None:
        if self._fd is None or not data:
            return
        allowed = data[: self._room]
        try:
            while allowed:
                written = os.write(self._fd, allowed)
                self._room -= written
                allowed = allowed[written:]
        except OSError as error:
            self._stop(f"the log is incomplete: {error.strerror}")
            return
        if self._room == 0:
            self._stop(f"the log is cut off at its limit of {self._limit} bytes")

    def _stop(self, trouble: str) -> None:
        self.trouble = trouble
        self.close()

    def close(self) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            try:
                os.close(fd)
            except OSError as error:
                self.trouble = self.trouble or f"the log is incomplete: {error.strerror}"


class Stream:
    """One output stream of a child: masked first, then kept as tail and written to the log."""

    def __init__(self, redactor: Redactor, log: LogFile) -> None:
        self._redactor = redactor.stream()
        self._log = log
        self.tail = Tail()

    def feed(self, data: bytes) -> None:
        self._take(self._redactor.feed(data))

    def finish(self) -> None:
        self._take(self._redactor.flush())

    def _take(self, data: bytes) -> None:
        if data:
            self.tail.write(data)
            self._log.write(data)
