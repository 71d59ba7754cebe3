"""A browser made of httpx: it keeps cookies, goes where it is sent, and can sign in at the provider."""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx

from tests.server.support import Transport, World

HOME = "http://127.0.0.1:8765"
"""The public URL of the service under test, which is spoken to over ASGI: nobody listens there."""
HTML = {"accept": "text/html,application/xhtml+xml"}


class Browser:
    def __init__(self, world: World, home: str = HOME) -> None:
        self.home = home
        self.client = httpx.Client(mounts={home: Transport(world.app, world.loop)}, headers=HTML, timeout=60)

    def get(self, url: str, **rest: object) -> httpx.Response:
        return self.client.get(urljoin(self.home, url), **rest)  # type: ignore[arg-type]

    def post(self, url: str, **rest: object) -> httpx.Response:
        return self.client.post(urljoin(self.home, url), **rest)  # type: ignore[arg-type]

    def begin(self, **query: str) -> str:
        """Begin a sign-in. Returns where the browser is sent."""
        answer = self.get("/api/v1/sign-in/oidc", params=query)
        assert answer.status_code == 303, answer.text
        return str(answer.headers["location"])

    def log_in(self, url: str, user: str, allow: bool = True) -> str:
        """Sign in at the provider. Returns where the browser is sent back to."""
        while not url.startswith(self.home):
            answer = self.client.get(url)
            if answer.status_code == 200:
                fields = {
                    name: unescape(value)
                    for name, value in re.findall(
                        r'<input type="hidden" name="(\w+)"(?: value="([^"]*)")?', answer.text
                    )
                }
                known = (
                    {"username": user, "password": "pw"}
                    if "username" in answer.text
                    else {"allow": "yes"}
                    if allow
                    else {}
                )
                answer = self.client.post(url, data={**fields, **known}, headers={"referer": url})
            assert answer.status_code == 302, answer.text
            url = urljoin(url, answer.headers["location"])
        return url

    def sign_in(self, user: str, **query: str) -> httpx.Response:
        return self.get(self.log_in(self.begin(**query), user))

    def session(self) -> dict[str, object] | None:
        answer = self.get("/api/v1/session")
        return answer.json() if answer.status_code == 200 else None


def asked(url: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
