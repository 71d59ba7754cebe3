"""The two clients: the same calls, sent synchronously or asynchronously."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from copy import copy
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

    def __init__(self, url: str, token: str, tenant: str | None, timeout: float, retries: int) -> None:
        self.url = url.rstrip("/")
        self.timeout = timeout
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
        wanted = "" if response is None else str(response.headers.get("retry-after", ""))
        if wanted.isascii() and wanted.isdigit() and len(wanted) <= 2 and int(wanted) <= 30:
            return float(wanted)
        return min(5.0, 0.1 * float(2**attempt))

    def _read(self, ask: Ask[T], response: httpx.Response) -> T:
        if not response.is_success:
            raise _error(response)
        try:
            return ask.answer(response.json() if response.content else None)
        except (ValueError, RecursionError) as error:
            raise _not_penstock(response) from error


def _error(response: httpx.Response) -> ApiError:
    try:
        problem = response.json()
        faults = [Fault(str(each["path"]), str(each["message"])) for each in problem.get("faults", [])]
        code, detail = problem["code"], problem["detail"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return _not_penstock(response)
    if not isinstance(code, str) or not isinstance(detail, str):
        return _not_penstock(response)
    return ApiError(response.status_code, code, detail, faults)


def _not_penstock(response: httpx.Response) -> ApiError:
    kind = response.headers.get("content-type", "").partition(";")[0] or "no content type"
    return ApiError(
        response.status_code,
        "not_penstock",
        f"{response.url} returned {response.status_code} with a body that is not Penstock's ({kind}, "
        f"{len(response.content)} bytes). Check the address, and what stands between here and the service: a proxy, a "
        "load balancer or a sign-in page.",
    )


def _unreachable(url: str, error: httpx.RequestError) -> ApiError:
    if isinstance(error, httpx.DecodingError):
        return ApiError(0, "not_penstock", f"{url} returned a body that cannot be decompressed: {error}")
    return ApiError(0, "unreachable", f"{url} cannot be reached: {str(error) or type(error).__name__}")


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
        super().__init__(url, token, tenant, timeout, retries)
        self._transport = transport
        self._http = httpx.Client(base_url=self.url, headers=self.headers, timeout=timeout, transport=transport)

    def with_options(self, *, timeout: float | None = None, retries: int | None = None) -> Client:
        """Return a client of the same service, token and tenant that has connections of its own. Close it, too."""
        made = copy(self)
        made.timeout = self.timeout if timeout is None else timeout
        made.retries = self.retries if retries is None else retries
        made._http = httpx.Client(
            base_url=self.url, headers=self.headers, timeout=made.timeout, transport=self._transport
        )
        return made

    def send(self, ask: Ask[T]) -> T:
        """Send one call; again, if that is safe and the answer was lost."""
        options = self._options(ask)
        for attempt in range(self.retries + 1):
            response = None
            try:
                response = self._http.request(ask.method, ask.path, **options)
            except httpx.RequestError as error:
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
    run_now = _sync(Calls.run_now)
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
    change_tenant = _sync(Calls.change_tenant)
    delete_tenant = _sync(Calls.delete_tenant)
    deletion = _sync(Calls.deletion)
    audit = _sync(Calls.audit)
    audit_head = _sync(Calls.audit_head)
    create_token = _sync(Calls.create_token)
    revoke_jwt = _sync(Calls.revoke_jwt)
    revoked_jwts = _sync(Calls.revoked_jwts)
    create_tenant_token = _sync(Calls.create_tenant_token)
    tokens = _sync(Calls.tokens)
    token = _sync(Calls.token)
    rotate_token = _sync(Calls.rotate_token)
    revoke_token = _sync(Calls.revoke_token)
    sign_out_token = _sync(Calls.sign_out_token)
    sessions = _sync(Calls.sessions)
    end_session = _sync(Calls.end_session)
    sign_out_everywhere = _sync(Calls.sign_out_everywhere)
    session = _sync(Calls.session)
    workers = _sync(Calls.workers)
    claim = _sync(Calls.claim)
    heartbeat = _sync(Calls.heartbeat)
    heartbeat_many = _sync(Calls.heartbeat_many)
    release = _sync(Calls.release)
    complete = _sync(Calls.complete)
    fail = _sync(Calls.fail)


class AsyncClient(_Wire):
    """The API, asynchronously: `await client.enqueue(…)`. The same calls as `Client`."""

    def __init__(
        self, url: str, token: str, *, tenant: str | None = None, timeout: float = 30.0, retries: int = 3,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:  # fmt: skip
        super().__init__(url, token, tenant, timeout, retries)
        self._http = httpx.AsyncClient(base_url=self.url, headers=self.headers, timeout=timeout, transport=transport)

    async def send(self, ask: Ask[T]) -> T:
        """Send one call; again, if that is safe and the answer was lost."""
        options = self._options(ask)
        for attempt in range(self.retries + 1):
            response = None
            try:
                response = await self._http.request(ask.method, ask.path, **options)
            except httpx.RequestError as error:
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
    run_now = _async(Calls.run_now)
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
    change_tenant = _async(Calls.change_tenant)
    delete_tenant = _async(Calls.delete_tenant)
    deletion = _async(Calls.deletion)
    audit = _async(Calls.audit)
    audit_head = _async(Calls.audit_head)
    create_token = _async(Calls.create_token)
    revoke_jwt = _async(Calls.revoke_jwt)
    revoked_jwts = _async(Calls.revoked_jwts)
    create_tenant_token = _async(Calls.create_tenant_token)
    tokens = _async(Calls.tokens)
    token = _async(Calls.token)
    rotate_token = _async(Calls.rotate_token)
    revoke_token = _async(Calls.revoke_token)
    sign_out_token = _async(Calls.sign_out_token)
    sessions = _async(Calls.sessions)
    end_session = _async(Calls.end_session)
    sign_out_everywhere = _async(Calls.sign_out_everywhere)
    session = _async(Calls.session)
    workers = _async(Calls.workers)
    claim = _async(Calls.claim)
    heartbeat = _async(Calls.heartbeat)
    heartbeat_many = _async(Calls.heartbeat_many)
    release = _async(Calls.release)
    complete = _async(Calls.complete)
    fail = _async(Calls.fail)
