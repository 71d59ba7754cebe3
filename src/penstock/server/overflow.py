"""The overflow process: who keeps the service computing is served there, so that nobody else waits for the interpreter.

Python computes on one thread at a time, so in one process every request waits for what another tenant's requests compute, however
well the threads are shared. So there is a second process of the service. When the head of a request has come, and the share of the
processor of the tenant whose token it carries is used up (`core.share`), the connection is passed on to that process with what was
read of it; it is served there, and closed after the response, because behind a proxy the next request on it may be somebody else's.

Nothing is decided here but which process reads the request: the other one parses and authenticates it from its first byte.
docs/decisions/0012-an-overflow-process.md says why not otherwise.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import struct
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast
from uuid import UUID

import structlog
import uvicorn
from fastapi import FastAPI

from penstock.server.auth import COOKIE, SECURE_COOKIE, Gate
from penstock.server.middleware import CLOSE, safe_headers
from penstock.server.problems import render
from penstock.server.settings import Settings
from penstock.server.threads import Threads

REQUEST_SECONDS = 0.002
"""What a request costs the event loop, about: its connection, its head and its response."""
BYTE_SECONDS = 3e-8
"""What a byte of a body costs it, about."""
INLINE = 32 * 1024
"""As much as is passed on in the message itself. More goes along as a file in memory."""
REPORT_SECONDS = 0.25
"""How often the overflow process says how much of the processor each tenant used there."""
MOST_TOLD = 500
"""Tenants in one such message."""
AT_A_TIME = 64
"""Connections that the overflow process takes before it looks at those it has."""
START, READY, ENDED = b"start", b"ready", b"ended"
_USED = struct.Struct("!16sd")
_END = re.compile(rb"\r?\n\r?\n")
_TARGET = re.compile(rb"[A-Z]+ ([^ ?\r\n]*)")
_BEARER = re.compile(rb"\nauthorization:[ \t]*bearer[ \t]+([!-~]+)", re.I)
_SESSION = re.compile(
    rb"\ncookie:[^\r\n]*?\b(?:" + SECURE_COOKIE.encode() + b"|" + COOKIE.encode() + rb")=([^;\s]+)", re.I
)
_LENGTH = re.compile(rb"\ncontent-length:[ \t]*([0-9]{1,15})[ \t]*\r?\n", re.I)
_OWN = re.compile(rb"/health/|/metrics\b|/api/v1/session\b")
"""What the first process always serves itself: what an operator asks, and sign-ins, which it has begun."""


class Overflow:
    """The first process's side. Used on the event loop alone."""

    def __init__(self, channel: socket.socket, app: FastAPI) -> None:
        self._channel = channel
        self._gate: Gate = app.state.gate
        self._threads: Threads = app.state.threads
        self._refusal = _refusal(app.state.settings)
        self._started = False
        self._ready = False
        self._gone = False
        channel.setblocking(False)

    def takes(self, received: bytes, transport: asyncio.Transport) -> bool:
        """Pass the connection on, if the request that begins with these bytes belongs there. Returns whether it was passed on; then it
        is closed here. The bytes are all that came since the response before, and those that nobody has read yet."""
        end = _END.search(received)
        if end is None or self._gone or transport.get_write_buffer_size():
            return False
        head = received[: end.end()]
        tenant_id = self._tenant_of(head)
        if tenant_id is None:
            return False
        length = _LENGTH.search(head)
        self._threads.charge(tenant_id, REQUEST_SECONDS + (BYTE_SECONDS * int(length[1]) if length else 0.0))
        return self._threads.has_used_up(tenant_id) and self._is_ready() and self._pass_on(received, transport)

    def _tenant_of(self, head: bytes) -> UUID | None:
        target = _TARGET.match(head)
        if target is None or _OWN.search(target[1]):
            return None
        for kind, pattern in (("token", _BEARER), ("session", _SESSION)):
            found = pattern.search(head)
            if found is not None:
                return self._gate.tenant_of(kind, found[1].decode("ascii", "replace"))
        return None

    def _is_ready(self) -> bool:
        """Start the process if it does not run. Until it is ready, the service serves everybody itself, and nobody waits for it."""
        if not self._started:
            self._started = True
            asyncio.get_running_loop().add_reader(self._channel, self._hear)
            self._send(START)
        return self._ready

    def _pass_on(self, received: bytes, transport: asyncio.Transport) -> bool:
        files = [transport.get_extra_info("socket").fileno()]
        try:
            if len(received) > INLINE:
                files.append(_in_memory(received))
                received = b"\0"
            taken = self._send(received, files)
        finally:
            for each in files[1:]:
                os.close(each)
        if self._gone:
            return False
        if taken:
            transport.abort()  # the other process has the connection; here, only the descriptor is closed
        else:
            transport.write(self._refusal)
            transport.close()
        return True

    def _send(self, message: bytes, files: Sequence[int] = ()) -> bool:
        """Returns False if there is more on the way than the other process can take at the moment, or if it is gone."""
        try:
            socket.send_fds(self._channel, [message], files)
        except BlockingIOError:
            return False
        except OSError as error:
            self._leave(error)
            return False
        return True

    def _hear(self) -> None:
        try:
            told = self._channel.recv(_USED.size * MOST_TOLD)
        except BlockingIOError:
            return
        except OSError as error:
            self._leave(error)
            return
        if not told:
            self._leave("it has ended")
        elif told == READY:
            self._ready = True
        elif told == ENDED:
            self._ready = self._started = False
            asyncio.get_running_loop().remove_reader(self._channel)
        else:
            for tenant, seconds in _USED.iter_unpack(told):
                self._threads.charge(UUID(bytes=tenant), seconds)

    def _leave(self, why: object) -> None:
        if not self._gone:
            self._gone = True
            structlog.get_logger("penstock.server").warning("overflow.gone", error=str(why))
            asyncio.get_running_loop().remove_reader(self._channel)


def _refusal(settings: Settings) -> bytes:
    """What a request gets whose tenant has more of them on the way than the overflow process can take."""
    told = render(429, "rate_limited", "This tenant keeps the service busy. Try again later.", (), {"retry-after": "1"})
    headers = [*told.raw_headers, *safe_headers(settings, "http"), CLOSE]
    lines = b"".join(b"%s: %s\r\n" % pair for pair in headers)
    return b"HTTP/1.1 429 Too Many Requests\r\n" + lines + b"\r\n" + bytes(told.body)


def _in_memory(content: bytes) -> int:
    """A descriptor from which the content can be read. It is no file that anybody else could open."""
    made = os.memfd_create("penstock", os.MFD_CLOEXEC)
    with os.fdopen(made, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(made, 0, os.SEEK_SET)
    return made


class OverflowServer(uvicorn.Server):
    """The overflow process's side: a server that gets its connections from the first process. It ends when that one has ended, or when
    there was nothing to do for a while."""

    def __init__(self, config: uvicorn.Config, channel: socket.socket, threads: Threads, idle_seconds: float) -> None:
        super().__init__(config)
        self._channel = channel
        self._idle_seconds = idle_seconds
        self._used: dict[UUID, float] = defaultdict(float)
        threads.used = self._count
        channel.setblocking(False)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])
        self._loop = asyncio.get_running_loop()
        self._quiet_since = self._loop.time()
        self._connecting: set[asyncio.Task[Any]] = set()
        self._loop.add_reader(self._channel, self._take)
        self._channel.send(READY)
        self._loop.call_later(REPORT_SECONDS, self._report)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop.remove_reader(self._channel)
        await super().shutdown(sockets=[])

    def _take(self) -> None:
        for _ in range(AT_A_TIME):
            try:
                received, files, _, _ = socket.recv_fds(self._channel, INLINE, 2, socket.MSG_CMSG_CLOEXEC)
            except BlockingIOError:
                return
            except OSError:
                received, files = b"", []
            if not received:
                self._loop.remove_reader(self._channel)
                self.should_exit = True
                return
            if not files:
                continue  # it was only to start
            self._quiet_since = self._loop.time()
            task = self._loop.create_task(self._connect(received, files))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

    async def _connect(self, received: bytes, files: list[int]) -> None:
        if len(files) > 1:
            with os.fdopen(files[1], "rb") as file:
                received = file.read()
        accepted = socket.socket(fileno=files[0])
        accepted.setblocking(False)

        kind: Any = self.config.http_protocol_class

        def protocol() -> asyncio.Protocol:
            made = kind(
                config=self.config, server_state=self.server_state, app_state=self.lifespan.state, _loop=self._loop
            )
            made.passed_on = received
            return cast(asyncio.Protocol, made)

        with suppress(OSError):  # its client has gone already
            await self._loop.connect_accepted_socket(protocol, accepted)

    def _count(self, tenant_id: UUID, seconds: float) -> None:
        self._used[tenant_id] += seconds

    def _report(self) -> None:
        told = b"".join(_USED.pack(tenant_id.bytes, used) for tenant_id, used in list(self._used.items())[:MOST_TOLD])
        self._used.clear()
        with suppress(OSError):
            if told:
                self._channel.send(told)
        if self.server_state.connections:
            self._quiet_since = self._loop.time()
        elif self._loop.time() - self._quiet_since > self._idle_seconds:
            self.should_exit = True
        self._loop.call_later(REPORT_SECONDS, self._report)
