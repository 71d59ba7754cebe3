"""An HTTP proxy on loopback that misbehaves as it is told: what stands between a worker and its service in real life."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

PATIENCE = 60.0
HTML = b"<!doctype html><title>Sign in</title><h1>Welcome to the hotel's network</h1>"


@dataclass(eq=False)
class Seen:
    """One request that came to the proxy."""

    path: str
    body: Any
    delivered: bool = False
    """Whether the service has answered it, whatever the worker then got."""


@dataclass
class Answer:
    """What the service said, or what is said in its place. `length` False leaves out Content-Length."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)
    length: bool = True


class Cut(Exception):
    """Reset the connection, after so many bytes of the answer."""

    def __init__(self, after: int = 0) -> None:
        self.after = after


Trouble = Callable[["Proxy", Answer | None], Answer | None]
"""Takes the service's answer and returns what the worker gets. Called with None before the request is delivered; what it
returns then is sent without troubling the service."""


def instead(status: int, body: bytes, **headers: str) -> Trouble:
    """Deliver the request, and answer something else."""
    return lambda _proxy, answer: answer and Answer(status, body, {k.replace("_", "-"): v for k, v in headers.items()})


def undelivered(status: int, body: bytes, **headers: str) -> Trouble:
    """Answer without delivering the request."""
    return lambda _proxy, _answer: Answer(status, body, {k.replace("_", "-"): v for k, v in headers.items()})


def unreachable(_proxy: Proxy, _answer: Answer | None) -> Answer | None:
    raise Cut


def reply_lost(_proxy: Proxy, answer: Answer | None) -> Answer | None:
    if answer is not None:
        raise Cut
    return None


def cut_midway(_proxy: Proxy, answer: Answer | None) -> Answer | None:
    if answer is not None:
        raise Cut(after=len(answer.body) // 2)
    return None


def truncated(_proxy: Proxy, answer: Answer | None) -> Answer | None:
    """Half of the JSON, and nothing that says so."""
    return answer and Answer(answer.status, answer.body[: len(answer.body) // 2], length=False)


MALFORMED: dict[str, Trouble] = {
    "html": instead(200, HTML, content_type="text/html"),
    "empty": instead(200, b"", content_type="application/json"),
    "wrong shape": instead(200, b'{"items": {"run": 7}, "status": []}', content_type="application/json"),
    "a list": instead(200, b"[1, 2]", content_type="application/json"),
    "deep": instead(200, b"[" * 100_000, content_type="application/json"),
    "not utf-8": instead(200, b'{"items": "\xff\xfe"}', content_type="application/json"),
    "no gzip": instead(200, b"this is not gzip", content_encoding="gzip"),
    "gzipped html": instead(200, gzip.compress(HTML), content_encoding="gzip"),
    "redirect": instead(302, b"", location="http://127.0.0.1:9/login"),
    "bad gateway": instead(502, HTML, content_type="text/html"),
    "not found": instead(404, HTML, content_type="text/html"),
    "error of another shape": instead(500, b'{"code": 17, "detail": ["x"]}', content_type="application/json"),
    "no content": instead(204, b""),
    "reply lost": reply_lost,
    "cut midway": cut_midway,
    "truncated": truncated,
}


class Proxy:
    """Forwards requests to one service. `trouble` maps the end of a path to what goes wrong there, and how often."""

    def __init__(self, target: str) -> None:
        self.target = urlsplit(target).netloc
        self.seen: list[Seen] = []
        self.released = threading.Event()
        """Set to let go what `hang` holds."""
        self._trouble: dict[str, tuple[Trouble, float]] = {}
        self._changed = threading.Condition()
        proxy = self

        class Handler(_Handler):
            owner = proxy

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def trouble(self, ending: str, what: Trouble, times: float = float("inf")) -> None:
        """Let the next `times` requests whose path ends so go wrong."""
        with self._changed:
            self._trouble[ending] = (what, times)

    def mend(self) -> None:
        with self._changed:
            self._trouble.clear()

    def requests(self, ending: str, delivered: bool = False) -> list[Seen]:
        with self._changed:
            return [each for each in self.seen if each.path.endswith(ending) and (each.delivered or not delivered)]

    def wait(self, ending: str, number: int = 1, delivered: bool = False) -> list[Seen]:
        """The requests of this kind, once there are so many."""
        with self._changed:
            came = self._changed.wait_for(lambda: len(self.requests(ending, delivered)) >= number, PATIENCE)
            assert came, f"{number} requests for {ending} did not come: {[each.path for each in self.seen]}"
        return self.requests(ending, delivered)

    def hang(self, _proxy: Proxy, answer: Answer | None) -> Answer | None:
        """Deliver, and keep the answer back until `released` is set."""
        if answer is not None:
            self.released.wait(PATIENCE)
        return answer

    def drip(self, _proxy: Proxy, answer: Answer | None) -> Answer | None:
        """Deliver, and let the answer's header come a byte at a time until `released` is set: no single read takes long."""
        if answer is not None:
            raise _Drip(answer)
        return None

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()

    def take(self, path: str) -> Trouble | None:
        with self._changed:
            for ending, (what, left) in self._trouble.items():
                if path.endswith(ending) and left > 0:
                    self._trouble[ending] = (what, left - 1)
                    return what
        return None

    def note(self, seen: Seen, delivered: bool) -> None:
        with self._changed:
            seen.delivered = delivered
            if seen not in self.seen:
                self.seen.append(seen)
            self._changed.notify_all()


class _Drip(Exception):
    def __init__(self, answer: Answer) -> None:
        self.answer = answer


class _Handler(BaseHTTPRequestHandler):
    owner: Proxy
    protocol_version = "HTTP/1.1"

    def log_message(self, *_args: object) -> None:
        pass

    def do_GET(self) -> None:
        self._forward()

    def do_POST(self) -> None:
        self._forward()

    def _forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        seen = Seen(self.path, json.loads(body) if body else None)
        what = self.owner.take(self.path)
        self.owner.note(seen, False)
        try:
            given = what(self.owner, None) if what else None
            if given is None:
                answer = self._ask(body)
                self.owner.note(seen, True)
                given = what(self.owner, answer) if what else answer
            assert given is not None
            self._send(given)
        except Cut as cut:
            if cut.after:
                self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n" + b"x" * cut.after)
            self._reset()
        except _Drip as drip:
            self._drip(drip.answer)
        except OSError:
            self.close_connection = True

    def _ask(self, body: bytes) -> Answer:
        service = http.client.HTTPConnection(self.owner.target, timeout=PATIENCE)
        try:
            headers = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "connection")}
            service.request(self.command, self.path, body, headers)
            response = service.getresponse()
            kept = {"content-type": response.headers.get("content-type", ""), **_retry_after(response)}
            return Answer(response.status, response.read(), kept)
        finally:
            service.close()

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if answer.length:
            self.send_header("content-length", str(len(answer.body)))
        else:
            self.send_header("connection", "close")
            self.close_connection = True
        self.end_headers()
        self.wfile.write(answer.body)

    def _drip(self, answer: Answer) -> None:
        text = b"HTTP/1.1 200 OK\r\nx-slow: " + b"z" * 10_000
        for byte in text:
            if self.owner.released.wait(0.05):
                break
            self.wfile.write(bytes([byte]))
        self._reset()

    def _reset(self) -> None:
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()


def _retry_after(response: http.client.HTTPResponse) -> dict[str, str]:
    value = response.headers.get("retry-after")
    return {} if value is None else {"retry-after": value}


@contextmanager
def misbehaving(target: str) -> Iterator[Proxy]:
    proxy = Proxy(target)
    try:
        yield proxy
    finally:
        proxy.close()
