"""Asking an identity provider: bounded in time and size, and on the event loop, so that a slow one holds nobody up."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, TypeVar

import httpx

T = TypeVar("T")

SECONDS = 10.0
"""How long one request to a provider may take, from the first byte sent to the last one read."""
MAX_BYTES = 256 * 1024
RETRY_SECONDS = 5.0
"""How long a provider that failed is left alone."""


class Unreachable(Exception):
    """The provider did not give a usable reply. The message says why, for the log and not for the browser."""


class Fetcher:
    """Sends requests that end within `SECONDS` and read at most `MAX_BYTES`. Follows no redirect."""

    def __init__(self) -> None:
        self._context: ssl.SSLContext | None = None

    async def json(
        self, url: str, *, data: str | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Return the status and the JSON object that `url` gave. With `data`, the form is posted."""
        if self._context is None:  # reads some hundred certificates, so once, and beside the event loop
            self._context = await asyncio.to_thread(httpx.create_ssl_context)
        sent = {"accept": "application/json", "accept-encoding": "identity", **(headers or {})}
        try:
            async with asyncio.timeout(SECONDS):
                status, content = await self._read(url, data, sent)
            found = json.loads(content)
        except TimeoutError:
            raise Unreachable(f"{url} took more than {SECONDS:.0f} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ssl.SSLError) as error:
            raise Unreachable(f"{url}: {type(error).__name__}: {error}") from error
        except (ValueError, RecursionError) as error:
            raise Unreachable(f"{url} gave something that is not JSON") from error
        if not isinstance(found, dict):
            raise Unreachable(f"{url} gave JSON that is not an object")
        return status, found

    async def _read(self, url: str, data: str | None, headers: Mapping[str, str]) -> tuple[int, bytes]:
        assert self._context is not None
        async with (
            httpx.AsyncClient(verify=self._context, follow_redirects=False, timeout=SECONDS) as client,
            client.stream("GET" if data is None else "POST", url, content=data, headers=dict(headers)) as reply,
        ):
            if reply.headers.get("content-encoding", "identity") != "identity":
                raise Unreachable(f"{url} gave a compressed reply that was not asked for")
            content = bytearray()
            async for piece in reply.aiter_raw():
                content += piece
                if len(content) > MAX_BYTES:
                    raise Unreachable(f"{url} gave more than {MAX_BYTES} bytes")
            return reply.status_code, bytes(content)


class Cached(Generic[T]):
    """A document of the provider, kept for `max_age` seconds. Whoever needs it waits for one request that all share.

    When it cannot be fetched again, the last one is used for up to `max_stale` seconds.
    """

    def __init__(
        self,
        load: Callable[[], Awaitable[T]],
        max_age: float,
        max_stale: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._load = load
        self._max_age = max_age
        self._max_stale = max_stale
        self._clock = clock
        self._value: T | None = None
        self._loaded = 0.0
        self._failure: tuple[float, str] | None = None
        self._pending: asyncio.Task[T] | None = None

    async def get(self, at_least: float | None = None) -> T:
        """Return the document, not older than `at_least` seconds where that is given."""
        age = self._clock() - self._loaded
        if self._value is not None and age < (self._max_age if at_least is None else at_least):
            return self._value
        try:
            return await self._fetched()
        except Unreachable:
            if self._value is not None and self._clock() - self._loaded < self._max_stale:
                return self._value
            raise

    async def _fetched(self) -> T:
        if self._pending is None:
            if self._failure is not None and self._clock() - self._failure[0] < RETRY_SECONDS:
                raise Unreachable(self._failure[1])
            self._pending = asyncio.get_running_loop().create_task(self._fetch())
            self._pending.add_done_callback(_noticed)
        return await asyncio.shield(self._pending)

    async def _fetch(self) -> T:
        try:
            self._value = await self._load()
            self._loaded, self._failure = self._clock(), None
            return self._value
        except Unreachable as error:
            self._failure = (self._clock(), str(error))
            raise
        finally:
            self._pending = None


def _noticed(task: asyncio.Task[Any]) -> None:
    """Look at the failure of a request whose every waiter has gone, so that asyncio does not report it as forgotten."""
    if not task.cancelled():
        task.exception()
