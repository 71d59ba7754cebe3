"""The two clients: the same calls, sent synchronously or asynchronously."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar
from uuid import uuid4

import httpx

from penstock.client.calls import ApiError, Ask, Calls
from penstock.core.errors import Fault
from penstock.core.version import VERSION

P = ParamSpec("P")
T = TypeVar("T")
RETRYABLE = frozenset({429, 502, 503, 504})


def _sync(make: Callable[P, Ask[T]]) -> Callable[Concatenate[Client, P], T]:
    def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.send(make(*args, **kwargs))

    call.__doc__, call.__name__ = make.__doc__, make.__name__
    return call


def _async(make: Callable[P, Ask[T]]) -> Callable[Concatenate[AsyncClient, P], Awaitable[T]]:
    def call(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        return self.send(make(*args, **kwargs))

    call.__doc__, call.__name__ = make.__doc__, make.__name__
    return call


class _Wire:
    """What both clients share: how a request is made, and what its answer means."""

    def __init__(self, url: str, token: str, tenant: str | None, retries: int) -> None:
        self.url = url.rstrip("/")
        self.retries = retries
        self.headers = {"authorization": f"Bearer {token}", "user-agent": f"penstock/{VERSION}"}
        if tenant is not None:
            self.headers["x-tenant"] = tenant

    def _options(self, ask: Ask[Any]) -> dict[str, Any]:
        headers = {"idempotency-key": uuid4().hex} if ask.keyed else {}
        given: dict[str, Any] = {"params": ask.query, "headers": headers}
        return {**given, "json": ask.body} if ask.body is not None else given

    def _pause(self, ask: Ask[Any], attempt: int, response: httpx.Response | None) -> float | None:
        """Seconds to wait before sending again, or None when that is no use."""
        if attempt >= self.retries or (response is not None and response.status_code not in RETRYABLE):
            return None
        if not ask.safe and (response is None or response.status_code != 429):
            return None
        wanted = response.headers.get("retry-after", "") if response is not None else ""
        return float(wanted) if wanted.isdigit() and int(wanted) <= 30 else min(5.0, 0.1 * 2**attempt)

    def _read(self, ask: Ask[T], response: httpx.Response) -> T:
        if response.is_success:
            return ask.answer(response.json() if response.content else None)
        raise _error(response)


def _error(response: httpx.Response) -> ApiError:
    try:
        problem = response.json()
        faults = [Fault(each["path"], each["message"]) for each in problem.get("faults", [])]
        return ApiError(response.status_code, problem["code"], problem["detail"], faults)
    except (ValueError, KeyError, TypeError, AttributeError):
        return ApiError(
            response.status_code,
            "not_penstock",
            f"{response.url} answered {response.status_code}, but not as Penstock does.",
        )


def _unreachable(url: str, error: httpx.TransportError) -> ApiError:
    return ApiError(0, "unreachable", f"{url} cannot be reached: {error}")


class Client(_Wire):
    """The API, synchronously.

    ```python
    with Client("http://127.0.0.1:8080", token) as client:
        job = client.enqueue("resize", {"image_id": 7})
        client.job(job.id).status
    ```
    """

    def __init__(
        self, url: str, token: str, *, tenant: str | None = None, timeout: float = 30.0, retries: int = 3,
        transport: httpx.BaseTransport | None = None,
    ) -> None:  # fmt: skip
        super().__init__(url, token, tenant, retries)
        self._http = httpx.Client(base_url=self.url, headers=self.headers, timeout=timeout, transport=transport)

    def send(self, ask: Ask[T]) -> T:
        """Send one call; again, if that is safe and the answer was lost."""
        options = self._options(ask)
        for attempt in range(self.retries + 1):
            response = None
            try:
                response = self._http.request(ask.method, ask.path, **options)
            except httpx.TransportError as error:
                pause = self._pause(ask, attempt, None)
                if pause is None:
                    raise _unreachable(self.url, error) from error
            else:
                pause = None if response.is_success else self._pause(ask, attempt, response)
                if pause is None:
                    return self._read(ask, response)
            time.sleep(pause)
        raise AssertionError("unreachable")

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    enqueue = _sync(Calls.enqueue)
    job = _sync(Calls.job)
    jobs = _sync(Calls.jobs)
    summary = _sync(Calls.summary)
    attempts = _sync(Calls.attempts)
    why = _sync(Calls.why)
    logs = _sync(Calls.logs)
    cancel = _sync(Calls.cancel)
    retry = _sync(Calls.retry)
    move = _sync(Calls.move)
    change = _sync(Calls.change)
    cancel_many = _sync(Calls.cancel_many)
    retry_many = _sync(Calls.retry_many)
    create_group = _sync(Calls.create_group)
    group = _sync(Calls.group)
    emit = _sync(Calls.emit)
    triggers = _sync(Calls.triggers)
    create_trigger = _sync(Calls.create_trigger)
    change_trigger = _sync(Calls.change_trigger)
    delete_trigger = _sync(Calls.delete_trigger)
    fire_trigger = _sync(Calls.fire_trigger)
    definitions = _sync(Calls.definitions)
    apply_definitions = _sync(Calls.apply_definitions)
    create_tenant = _sync(Calls.create_tenant)
    create_token = _sync(Calls.create_token)
    session = _sync(Calls.session)
    workers = _sync(Calls.workers)
    claim = _sync(Calls.claim)
    heartbeat = _sync(Calls.heartbeat)
    complete = _sync(Calls.complete)
    fail = _sync(Calls.fail)


class AsyncClient(_Wire):
    """The API, asynchronously: `await client.enqueue(…)`. The same calls as `Client`."""

    def __init__(
        self, url: str, token: str, *, tenant: str | None = None, timeout: float = 30.0, retries: int = 3,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:  # fmt: skip
        super().__init__(url, token, tenant, retries)
        self._http = httpx.AsyncClient(base_url=self.url, headers=self.headers, timeout=timeout, transport=transport)

    async def send(self, ask: Ask[T]) -> T:
        """Send one call; again, if that is safe and the answer was lost."""
        options = self._options(ask)
        for attempt in range(self.retries + 1):
            response = None
            try:
                response = await self._http.request(ask.method, ask.path, **options)
            except httpx.TransportError as error:
                pause = self._pause(ask, attempt, None)
                if pause is None:
                    raise _unreachable(self.url, error) from error
            else:
                pause = None if response.is_success else self._pause(ask, attempt, response)
                if pause is None:
                    return self._read(ask, response)
            await asyncio.sleep(pause)
        raise AssertionError("unreachable")

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.close()

    enqueue = _async(Calls.enqueue)
    job = _async(Calls.job)
    jobs = _async(Calls.jobs)
    summary = _async(Calls.summary)
    attempts = _async(Calls.attempts)
    why = _async(Calls.why)
    logs = _async(Calls.logs)
    cancel = _async(Calls.cancel)
    retry = _async(Calls.retry)
    move = _async(Calls.move)
    change = _async(Calls.change)
    cancel_many = _async(Calls.cancel_many)
    retry_many = _async(Calls.retry_many)
    create_group = _async(Calls.create_group)
    group = _async(Calls.group)
    emit = _async(Calls.emit)
    triggers = _async(Calls.triggers)
    create_trigger = _async(Calls.create_trigger)
    change_trigger = _async(Calls.change_trigger)
    delete_trigger = _async(Calls.delete_trigger)
    fire_trigger = _async(Calls.fire_trigger)
    definitions = _async(Calls.definitions)
    apply_definitions = _async(Calls.apply_definitions)
    create_tenant = _async(Calls.create_tenant)
    create_token = _async(Calls.create_token)
    session = _async(Calls.session)
    workers = _async(Calls.workers)
    claim = _async(Calls.claim)
    heartbeat = _async(Calls.heartbeat)
    complete = _async(Calls.complete)
    fail = _async(Calls.fail)
