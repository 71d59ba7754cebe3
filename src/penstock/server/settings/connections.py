"""Settings of the service's connections: deadlines, bounds, and what stands in front of it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.core.errors import InvalidInput
from penstock.core.forwarded import Proxies
from penstock.core.settings.base import SWITCH, Group, setting

_ROOT_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*")


@dataclass(frozen=True, kw_only=True)
class ConnectionSettings(Group):
    """How clients and proxies reach the service."""

    max_body_bytes: int = setting(2 * 1024 * 1024, more_than=0)
    """Bytes that a request's body may have. It is twice the largest params, so that a job with them always fits."""
    body_timeout: float = setting(30.0, more_than=0)
    """Seconds a request's body may take to arrive, as a whole; and a client may leave an answer unread that waits for it."""
    header_timeout: float = setting(10.0, more_than=0)
    """Seconds from a connection, or from the first byte of its next request, to the end of the request's head."""
    idle_timeout: float = setting(15.0, more_than=0)
    """Seconds a connection may stay open after an answer without the first byte of another request."""
    max_connections: int = setting(2000, more_than=0)
    """Connections open at once. If more come, those that have waited longest for a request are closed."""
    connections_per_address: int = setting(256, more_than=0)
    """Connections open at once of one address (IPv6: of one /64). Trusted proxies have no such bound."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks (CIDR) of the proxies in front of the service. Their `X-Forwarded-For`, `X-Forwarded-Proto` and
    `Forwarded` headers are believed; nobody else's are, also not those of this machine."""
    root_path: str = ""
    """The path below which a proxy serves Penstock, such as `/penstock`. The proxy may pass it on or take it off."""
    public_docs: str = setting("on", one_of=SWITCH)
    """`off` takes `/api/v1/openapi.json` and the pages under `/help` away."""
    hsts: str = "max-age=31536000; includeSubDomains"
    """The `Strict-Transport-Security` header of answers under TLS."""

    def __post_init__(self) -> None:
        super().__post_init__()
        Proxies.of(self.trusted_proxies)
        if not _ROOT_PATH.fullmatch(self.root_path):
            raise InvalidInput(
                f"root_path is {self.root_path!r}; expected a path such as /penstock, without a slash at its end."
            )
        if not self.hsts.isascii() or not self.hsts.isprintable():
            raise InvalidInput("hsts holds characters that a header cannot have; expected such as max-age=31536000.")
