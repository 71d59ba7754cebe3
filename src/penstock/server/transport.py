"""HTTP on a socket, with deadlines and bounds that uvicorn does not have. docs/decisions/0007-deadlines-in-uvicorn.md says why here."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from typing import Any

import h11
import structlog
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from penstock.core.forwarded import Proxies, counted_as
from penstock.server.connections import Connections, Place
from penstock.server.middleware import safe_headers
from penstock.server.overflow import Overflow
from penstock.server.problems import render
from penstock.server.settings import Settings

try:
    import resource
except ModuleNotFoundError:  # not a POSIX system
    resource = None  # type: ignore[assignment]

BACKLOG = 256
"""Connections that the system holds for us, and that are accepted in one go."""
OTHER_FILES = 256
"""File descriptors that are left for the database, logs and everything else."""
MIN_CONNECTIONS = 64
NO_LINGER = struct.pack("ii", 1, 0)


def uvicorn_config(app: FastAPI, overflow: Overflow | None = None, **options: Any) -> uvicorn.Config:
    """Return what uvicorn needs to serve the app with the deadlines and bounds of its settings.

    With `overflow`, who keeps the service computing is served by another process: `penstock api` and `penstock up` have one.

    ```python
    uvicorn.Server(uvicorn_config(create_app(penstock), host="0.0.0.0", port=8080)).run()
    ```
    """
    settings: Settings = app.state.settings
    return uvicorn.Config(
        app,
        **{
            "http": protocol_of(settings, overflow), "ws": "none", "proxy_headers": False, "log_config": None, "access_log": False,
            "server_header": False, "timeout_keep_alive": settings.idle_timeout, "timeout_graceful_shutdown": 5,
            "backlog": BACKLOG, "lifespan": "on", **options,
        },
    )  # fmt: skip


def protocol_of(settings: Settings, overflow: Overflow | None = None) -> type[Protocol]:
    """Return the protocol of one server: its connections share the bounds."""
    found = Connections(affordable(settings.max_connections), settings.connections_per_address)
    chosen, proxies, other = settings, Proxies.of(settings.trusted_proxies), overflow

    class Bounded(Protocol):
        bounds = found
        settings = chosen
        trusted = proxies
        overflow = other

    return Bounded


def raise_open_files(connections: int) -> None:
    """Raise this process's limit of open files as far as so many connections need and the system allows. Only for a process that is
    our own: its children inherit the limit."""
    if resource is None:
        return
    needed = connections + BACKLOG + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    raised = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft != resource.RLIM_INFINITY and raised > soft:
        with suppress(OSError, ValueError):  # what we have is what there is
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))


def affordable(wanted: int) -> int:
    """Return how many connections the file descriptors of this process allow."""
    if resource is None:
        return wanted
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted + BACKLOG + OTHER_FILES:
        return wanted
    affords = max(MIN_CONNECTIONS, soft - BACKLOG - OTHER_FILES)
    if affords < wanted:
        structlog.get_logger("penstock.server").warning(
            "connections", detail=f"{soft} open files allow {affords} connections, not {wanted}. Raise `ulimit -n`."
        )
    return min(wanted, affords)


class Protocol(H11Protocol):
    """One connection. Whoever is waited for has a deadline that no single byte prolongs."""

    bounds: Connections
    settings: Settings
    trusted: Proxies
    overflow: Overflow | None = None
    passed_on: bytes | None = None
    """What another process has read of this connection."""
    _place: Place | None = None
    _timer: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None
    _working = False
    _idle = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        peer = self.client[0] if self.client else ""
        address = None if self.trusted.trusts(peer) else counted_as(peer)
        self._place = self.bounds.enter(address, self._close)
        if self._place is None:
            transport.abort()
            return
        if self._place.crowded:
            self._tell_that_it_is_crowded()
        self._expect(self.settings.header_timeout)
        if self.passed_on is not None:
            self.app_state = {**self.app_state, "closes": True}
            self.data_received(self.passed_on)

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect(None)
        self._cancel_stalled()
        if self._place is not None:
            self.bounds.leave(self._place)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.conn.their_state is h11.IDLE and b"\n" in data and self._is_passed_on(data):
            return
        if len(self.tasks) >= self.bounds.most:  # requests whose clients have gone still hold their memory
            self._tell_that_it_is_crowded()
        super().data_received(data)
        self._look()

    def _is_passed_on(self, data: bytes) -> bool:
        """Whether another process serves the request that begins with what h11 has not read yet, and with this."""
        if self.overflow is None or self.scheme != "http" or self._place is None or self._place.crowded:
            return False
        return self.overflow.takes(self.conn.trailing_data[0] + data, self.transport)

    def on_response_complete(self) -> None:
        if self.conn.our_state is h11.DONE and self.conn.their_state is h11.DONE:
            self._is_passed_on(b"")  # what was sent before the response had come
        super().on_response_complete()
        self._look()

    def _look(self) -> None:
        """Note whether a request is being answered or waited for, and since when."""
        if self.transport.is_closing() or self._place is None:
            self._expect(None)
        elif self.cycle is not None and not self.cycle.response_complete:
            if not self._working:
                self._working, self._idle = True, False
                self.bounds.work(self._place)
            self._expect(None)
        elif self._working:
            self._working, self._idle = False, True
            self.bounds.wait(self._place)
            self._expect(self.settings.idle_timeout)
            self._begin_head()
        elif self._idle:
            self._begin_head()

    def _begin_head(self) -> None:
        """Give the next request its own deadline with its first byte. What is left of an old body is none."""
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            self._idle = False
            self._expect(self.settings.header_timeout)

    def _expect(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, self._close)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._cancel_stalled()
        self._stalled = self.loop.call_later(self.settings.body_timeout, self._reset)

    def resume_writing(self) -> None:
        self._cancel_stalled()
        super().resume_writing()

    def _cancel_stalled(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _close(self) -> None:
        if self.transport.get_write_buffer_size():
            self._reset()
        else:
            self.transport.close()

    def _reset(self) -> None:
        """Drop the connection with what its client has not fetched: else the system would keep that for minutes."""
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
        self.transport.abort()

    def _tell_that_it_is_crowded(self) -> None:
        self.app_state = {**self.app_state, "crowded": True}

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP as everything else is refused."""
        answer = render(400, "bad_request", "The request is not HTTP/1.1 as this service understands it.")
        headers = [*answer.raw_headers, *safe_headers(self.settings, "http"), (b"connection", b"close")]
        try:
            for event in (
                h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
                h11.Data(data=bytes(answer.body)),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        except h11.LocalProtocolError:
            pass  # another answer is under way already
        self.transport.close()
