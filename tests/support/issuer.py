"""An issuer of tokens on loopback that does what a test tells it: also what no honest provider would do."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

Reply = tuple[int, Any]


class Issuer:
    """Its discovery document, its keys, and a token endpoint whose reply the test sets as `token_reply`."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.counts: Counter[str] = Counter()
        self.forms: list[dict[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.token_reply: Callable[[dict[str, str]], Reply] = lambda form: (400, {"error": "invalid_grant"})
        self.replies: dict[str, Callable[[], Reply]] = {}
        self.asked = threading.Event()
        self.metadata: dict[str, Any] = {}
        self.held: threading.Event | None = None
        """While set and not released, every request is accepted and not replied to."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.jwks = {"keys": [self.jwk(self.key, "k1")]}
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    @staticmethod
    def jwk(key: Any, kid: str) -> dict[str, Any]:
        public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key()))
        return {**public, "kid": kid, "use": "sig", "alg": "ES256"}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._reply(issuer._document(self.path))

            def do_POST(self) -> None:
                text = self.rfile.read(int(self.headers["content-length"])).decode()
                form = {name: values[0] for name, values in parse_qs(text).items()}
                issuer.forms.append(form)
                issuer.headers.append({name.lower(): value for name, value in self.headers.items()})
                self._reply(lambda: issuer.token_reply(form))

            def _reply(self, make: Callable[[], Reply]) -> None:
                issuer.counts[self.path] += 1
                issuer.asked.set()
                if issuer.held is not None:
                    issuer.held.wait(60)
                status, body = make()
                content = body if isinstance(body, bytes) else json.dumps(body).encode()
                try:
                    self.send_response(status)
                    self.send_header("content-type", "application/json")
                    self.send_header("content-length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)
                except OSError:
                    pass  # the client has gone

            def log_message(self, *_args: Any) -> None:
                pass

        return Handler

    def _document(self, path: str) -> Callable[[], Reply]:
        if path in self.replies:
            return self.replies[path]
        if path == "/.well-known/openid-configuration":
            return lambda: (200, self.discovery())
        if path == "/jwks":
            return lambda: (200, self.jwks)
        return lambda: (404, {})

    def discovery(self) -> dict[str, Any]:
        return {
            "issuer": self.url, "authorization_endpoint": f"{self.url}/authorize", "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/jwks", "code_challenge_methods_supported": ["S256"], **self.metadata,
        }  # fmt: skip

    def claims(self, **given: Any) -> dict[str, Any]:
        now = int(time.time())
        made = {"iss": self.url, "aud": "penstock", "sub": "ann", "iat": now, "exp": now + 300, **given}
        return {name: value for name, value in made.items() if value is not None}

    def sign(self, claims: dict[str, Any], key: Any = None, algorithm: str = "ES256", kid: str | None = "k1") -> str:
        return jwt.encode(claims, key or self.key, algorithm, headers={"kid": kid} if kid else None)

    def close(self) -> None:
        if self.held is not None:
            self.held.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


@contextmanager
def issuing() -> Iterator[Issuer]:
    found = Issuer()
    try:
        yield found
    finally:
        found.close()
