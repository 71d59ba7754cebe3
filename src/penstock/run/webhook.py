"""Delivering one message: the name is resolved once, every address checked, the connection made to a checked address
and checked again, no redirect followed, and the whole bounded by one deadline, however slowly the other side speaks."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from ipaddress import ip_address
from typing import Any, BinaryIO, Protocol, cast
from urllib.parse import urlsplit
from uuid import UUID

from penstock.core.errors import CiphertextInvalid, InvalidInput, KeyMissing
from penstock.core.nouns import Claim
from penstock.core.outcomes import Failed, Outcome, Skipped, Snoozed, Succeeded
from penstock.core.payload import dumps
from penstock.core.settings.triggers import TriggerSettings
from penstock.core.version import VERSION
from penstock.core.webhook import DELIVERY_KEY, Attempt, Egress, Endpoint, headers
from penstock.run.context import Control

BODY_SECONDS = 2.0
"""Of those, for the body of an answer whose status is known."""

MAX_BODY = 16 * 1024
KEY_WAIT_SECONDS = 60.0
"""How long a delivery waits whose secret cannot be decrypted here."""
EXCERPT = 200


class Post(Protocol):
    """What the runner asks of the engine."""

    def endpoint(self, tenant_id: UUID, webhook_id: UUID) -> Endpoint | None: ...

    def record(self, tenant_id: UUID, attempt: Attempt) -> None: ...

    def now(self) -> datetime: ...


class Refused(Exception):
    """The message may not go there; trying again is of no use."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    excerpt: str


class WebhookRunner:
    """Runs the jobs that deliver messages."""

    def __init__(
        self,
        post: Post,
        egress: Egress | None = None,
        *,
        total_seconds: float = TriggerSettings.webhook_seconds,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._post = post
        self._egress = egress or Egress()
        self._total = total_seconds
        # A resolver has no timeout of its own: it is waited for on another thread.
        self._resolvers = ThreadPoolExecutor(max_workers=8, thread_name_prefix="penstock-resolve")
        self._tls = tls or ssl.create_default_context()

    @property
    def keys(self) -> frozenset[str]:
        return frozenset({DELIVERY_KEY})

    def close(self) -> None:
        self._resolvers.shutdown(wait=False, cancel_futures=True)

    def run(self, claim: Claim, control: Control) -> Outcome:
        try:
            params = claim.params
            attempt = Attempt(
                UUID(params["webhook_id"]), UUID(params["message_id"]), str(params["message"]["type"]),
                UUID(params["subject_id"]) if params["subject_id"] else None, claim.job_id, claim.attempt_no, "failed",
            )  # fmt: skip
        except (KeyError, TypeError, ValueError):
            return Failed("This is not a message of ours.", fatal=True)
        try:
            endpoint = self._post.endpoint(claim.tenant_id, attempt.webhook_id)
        except KeyMissing as error:
            return Snoozed(KEY_WAIT_SECONDS, f"KeyMissing: the secret of its webhook is {error.short}.")
        except CiphertextInvalid as error:
            return Failed(f"CiphertextInvalid: the secret of its webhook is {error.short}.", fatal=True)
        if endpoint is None or not endpoint.is_enabled:
            return Skipped("the webhook was deleted or disabled")
        began = time.monotonic()
        told, outcome = self._deliver(attempt, endpoint, dumps(claim.params["message"]).encode())
        took = round((time.monotonic() - began) * 1000)
        self._post.record(claim.tenant_id, replace(told, duration_ms=took))
        return outcome

    def _deliver(self, attempt: Attempt, endpoint: Endpoint, body: bytes) -> tuple[Attempt, Outcome]:
        signed = headers(endpoint.secrets, f"msg_{attempt.message_id.hex}", self._post.now(), body)
        try:
            answer = self._send(endpoint.url, signed, body)
        except Refused as error:
            return replace(attempt, error=str(error)), Failed(str(error), fatal=True)
        except (OSError, http.client.HTTPException, ValueError) as error:
            why = _plainly(error, self._total)
            return replace(attempt, error=why), Failed(why)
        told = replace(attempt, response_status=answer.status, response_excerpt=answer.excerpt or None)
        if 200 <= answer.status < 300:
            return replace(told, status="delivered"), Succeeded({"status": answer.status})
        why = f"the receiver answered {answer.status}"
        if 300 <= answer.status < 400:
            why += "; redirects are not followed"
        return replace(told, error=why), Failed(why, fatal=answer.status == 410)

    def _send(self, url: str, signed: dict[str, str], body: bytes) -> Answer:
        deadline = time.monotonic() + self._total
        try:
            self._egress.check_url(url)
        except InvalidInput as error:
            raise Refused(str(error)) from None
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = parts.port or (443 if parts.scheme == "https" else 80)
        raw = self._connect(self._resolve(host, port, deadline), port, deadline)
        with _Deadline(raw, deadline) as watch:
            connection = _Checked(host, port, raw, self._tls if parts.scheme == "https" else None)
            try:
                path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
                agent = {"content-type": "application/json", "user-agent": f"Penstock/{VERSION}", "connection": "close"}
                connection.request("POST", path, body=body, headers={**agent, **signed})
                response = connection.getresponse()
                watch.shorten(BODY_SECONDS)
                return Answer(response.status, _excerpt(response))
            except (OSError, http.client.HTTPException):
                if watch.expired:
                    raise TimeoutError from None
                raise
            finally:
                connection.close()

    def _resolve(self, host: str, port: int, deadline: float) -> list[str]:
        looked_up = self._resolvers.submit(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        try:
            found = looked_up.result(timeout=max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            raise OSError(f"the name {host} was not resolved in time") from None
        except (socket.gaierror, UnicodeError) as error:
            raise OSError(f"the name {host} cannot be resolved: {error}") from None
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        for address in addresses:
            self._check(host, address)
        return addresses

    def _check(self, host: str, address: str) -> None:
        why = self._egress.refusal(ip_address(address.split("%", 1)[0]))
        if why is not None:
            raise Refused(f"a webhook cannot go to {host}: {why}")

    def _connect(self, addresses: list[str], port: int, deadline: float) -> socket.socket:
        last: OSError = OSError("the name has no address")
        for address in addresses:
            left = deadline - time.monotonic()
            if left <= 0:
                break
            try:
                made = socket.create_connection((address, port), timeout=left)
            except OSError as error:
                last = error
                continue
            try:
                self._check(address, str(made.getpeername()[0]))
            except (Refused, OSError):
                made.close()
                raise
            return made
        raise last


class _Lines:
    """A response's stream that remembers the last line read from it."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        self.last = b""

    def readline(self, limit: int = -1) -> bytes:
        self.last = self.stream.readline(limit)
        return self.last

    def __getattr__(self, name: str) -> object:
        return getattr(self.stream, name)


class _WholeHead(http.client.HTTPResponse):
    """A response whose head ends with an empty line. The standard library takes the end of the stream for the end of a head."""

    def begin(self) -> None:
        stream = self.fp
        lines = _Lines(stream)
        self.fp = cast(Any, lines)
        super().begin()
        if lines.last not in (b"\r\n", b"\n"):
            raise http.client.HTTPException("the receiver's answer ended before its headers did")
        if self.fp is not None:  # None when there is no body to read
            self.fp = stream


class _Checked(http.client.HTTPConnection):
    """An HTTP connection over a socket that was made and checked before."""

    response_class = _WholeHead

    def __init__(self, host: str, port: int, raw: socket.socket, tls: ssl.SSLContext | None) -> None:
        super().__init__(host, port)
        self._raw = raw
        self._context = tls
        if tls is not None:
            self.default_port = 443

    def connect(self) -> None:
        self.sock = self._context.wrap_socket(self._raw, server_hostname=self.host) if self._context else self._raw

    def close(self) -> None:
        super().close()
        self._raw.close()


class _Deadline:
    """Shuts a connection down when its time is over. A timeout on each read would start anew with every byte."""

    def __init__(self, raw: socket.socket, at: float) -> None:
        self._raw = raw.dup()  # TLS takes the socket over; this handle stays ours
        self._at = at
        self.expired = False
        self._timer = self._set(at)

    def _set(self, at: float) -> threading.Timer:
        timer = threading.Timer(max(0.0, at - time.monotonic()), self._end)
        timer.daemon = True
        timer.start()
        return timer

    def _end(self) -> None:
        self.expired = True
        _quietly(lambda: self._raw.shutdown(socket.SHUT_RDWR))

    def shorten(self, seconds: float) -> None:
        self._timer.cancel()
        self._timer = self._set(min(self._at, time.monotonic() + seconds))

    def __enter__(self) -> _Deadline:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._timer.cancel()
        _quietly(self._raw.close)


def _quietly(call: Callable[[], object]) -> None:
    try:
        call()
    except OSError:
        pass


def _excerpt(response: http.client.HTTPResponse) -> str:
    """A few printable characters for the record. The status is what counts: a body that lies or stalls changes nothing."""
    try:
        start = response.read(MAX_BODY)
    except (OSError, http.client.HTTPException, ValueError):
        return ""
    text = start[: EXCERPT * 4].decode("utf-8", "replace")
    return "".join(char if char.isprintable() else " " for char in text)[:EXCERPT].strip()


def _plainly(error: Exception, total: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {total:g} s"
    if isinstance(error, http.client.RemoteDisconnected | ConnectionResetError | http.client.BadStatusLine):
        return "the connection ended before an answer came, or the answer was not HTTP"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or error}"
    return str(error) or type(error).__name__
