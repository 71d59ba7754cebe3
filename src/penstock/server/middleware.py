"""Around every request: an id, a size limit, a time limit, and headers that keep browsers safe.

Plain ASGI, because these see every request and must cost next to nothing.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.core.forwarded import Proxies
from penstock.server.origin import resolve
from penstock.server.problems import Problem, render, root_path, unexpected
from penstock.server.settings import Settings

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,100}")

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; "
    "manifest-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
_log: Any = structlog.get_logger("penstock.server")
MAX_PATH = 500
HEALTH = "/health/"
CLOSE = (b"connection", b"close")


def _tell(scope: Scope, status: int, began: float, request_id: str) -> None:
    """One line for the request, where the log is set up to show it. Without the query string, which may hold secrets, and with
    the path as it was sent, which cannot break the line."""
    if not (structlog.is_configured() and _log.is_enabled_for(logging.DEBUG)):
        return
    path = (
        (scope.get("raw_path") or quote(scope["path"]).encode()).partition(b"?")[0].decode("ascii", "backslashreplace")
    )
    milliseconds = round((time.perf_counter() - began) * 1000, 1)
    _log.debug(
        "request", method=scope["method"], path=path[:MAX_PATH], status=status, ms=milliseconds, request_id=request_id
    )


PERMISSIONS = ", ".join(
    f"{feature}=()"
    for feature in (
        "accelerometer", "autoplay", "camera", "display-capture", "encrypted-media", "fullscreen", "geolocation", "gyroscope",
        "magnetometer", "microphone", "midi", "payment", "publickey-credentials-get", "screen-wake-lock", "usb",
        "xr-spatial-tracking",
    )
)  # fmt: skip
"""What the page may use of a browser's devices: nothing."""
SAFE_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", PERMISSIONS.encode()),
    (b"content-security-policy", PAGE_POLICY.encode()),
]


def safe_headers(settings: Settings, scheme: str) -> list[tuple[bytes, bytes]]:
    """Return the headers that every answer carries which does not set them itself."""
    always = [*SAFE_HEADERS, (b"cache-control", b"no-store")]
    return [*always, (b"strict-transport-security", settings.hsts.encode())] if scheme == "https" else always


def _crowded() -> Problem:
    return Problem(
        503, "too_many_connections", "Too many connections are open, of your address or in all. Try again soon.",
        headers={"retry-after": "5"},
    )  # fmt: skip


class Edge:
    """The outermost layer of the service."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.settings = settings
        self._proxies = Proxies.of(settings.trusted_proxies)
        self._safe = {scheme: safe_headers(settings, scheme) for scheme in ("http", "https")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        given = headers.get(b"x-request-id", b"")
        request_id = given.decode() if _REQUEST_ID.fullmatch(given) else uuid4().hex
        resolve(scope, self._proxies)
        path = self._rooted(scope)
        scope["state"]["request_id"] = request_id
        began, status = time.perf_counter(), 0
        started = False
        crowded = scope["state"].get("crowded", False)
        closes = crowded or scope["state"].get("closes", False)
        safe = self._safe.get(scope["scheme"], self._safe["http"])

        async def send_safely(message: Message) -> None:
            nonlocal started, status
            if message["type"] == "http.response.start":
                started, status = True, message["status"]
                present = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    (b"x-request-id", request_id.encode()),
                    *(pair for pair in safe if pair[0] not in present),
                    *((CLOSE,) if closes and b"connection" not in present else ()),
                ]
            await send(message)

        try:
            refusal = self._refusal(headers) if not crowded or path.startswith(HEALTH) else _crowded()
            if refusal is not None:
                raise refusal
            await self.app(scope, self._bounded(receive), send_safely)
        except Problem as problem:
            if started:
                raise
            answer = render(problem.status_code, problem.code, problem.detail, problem.faults, problem.headers)
            await answer(scope, receive, send_safely)
        except Exception as error:
            if started:
                raise
            with structlog.contextvars.bound_contextvars(request_id=request_id):
                answer = unexpected(error)
            await answer(scope, receive, send_safely)
        finally:
            _tell(scope, status, began, request_id)

    def _rooted(self, scope: Scope) -> str:
        """Let the scope have the root path, whether the proxy took it off or not. Return the path below it."""
        root, path = self.settings.root_path, str(scope["path"])
        if not root:
            return path
        root_path.set(root)
        scope["root_path"] = root
        if path == root or path.startswith(f"{root}/"):
            return path[len(root) :] or "/"
        scope["path"] = root + path
        if scope.get("raw_path") is not None:
            scope["raw_path"] = root.encode() + scope["raw_path"]
        return path

    def _refusal(self, headers: dict[bytes, bytes]) -> Problem | None:
        length = headers.get(b"content-length")
        if length is not None and b"transfer-encoding" in headers:
            # Two programs on the way could disagree about where this request ends; so nothing after it is read.
            return Problem(
                400, "ambiguous_length", "The request has both Content-Length and Transfer-Encoding.",
                headers={"connection": "close"},
            )  # fmt: skip
        if length is not None and (not length.isdigit() or int(length) > self.settings.max_body_bytes):
            return self._too_large()
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            return Problem(415, "unsupported_encoding", "Bodies are taken as they are, without a content encoding.")
        return None

    def _too_large(self) -> Problem:
        return Problem(413, "too_large", f"The body is larger than {self.settings.max_body_bytes} bytes.")

    def _bounded(self, receive: Receive) -> Receive:
        seen = 0
        whole = False
        deadline = asyncio.get_running_loop().time() + self.settings.body_timeout

        async def bounded() -> Message:
            nonlocal seen, whole
            if whole:
                return await receive()  # waits for the disconnect, as long as the answer takes
            try:
                async with asyncio.timeout_at(deadline):  # for the whole body, not for each piece
                    message = await receive()
            except TimeoutError:
                raise Problem(408, "too_slow", "The body did not arrive in time.") from None
            if message["type"] == "http.request":
                seen += len(message.get("body", b""))
                whole = not message.get("more_body", False)
                if seen > self.settings.max_body_bytes:
                    raise self._too_large()
            return message

        return bounded
