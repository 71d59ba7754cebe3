"""Webhooks: signatures by the Standard Webhooks specification, and the rules for where a message may go.

    webhook-id: msg_…          webhook-timestamp: 1731705121          webhook-signature: v1,<base64> v1,<base64>

The signature is HMAC-SHA256 over `id.timestamp.body`. While a secret is being rotated both sign, so that a receiver may
change over when it likes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from penstock.core.errors import InvalidInput

PREFIX = "whsec_"
TOLERANCE = 300.0
MAX_URL = 2048
DELIVERY_KEY = "penstock.webhook"
"""The key of the jobs that deliver messages."""

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What a delivery needs: where to, and the secrets that sign, the newest first."""

    url: str
    secrets: tuple[str, ...]
    is_enabled: bool


@dataclass(frozen=True, slots=True)
class Attempt:
    """How one attempt to deliver one message went."""

    webhook_id: UUID
    message_id: UUID
    event_type: str
    subject_id: UUID | None
    job_id: UUID
    attempt: int
    status: str
    response_status: int | None = None
    response_excerpt: str | None = None
    error: str | None = None
    duration_ms: int | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def new_secret() -> str:
    """A fresh signing secret, shown once."""
    return PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def sign(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """One `v1` signature.

    >>> sign("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE='
    """
    mac = hmac.new(_key(secret), f"{message_id}.{timestamp}.".encode() + body, hashlib.sha256)
    return "v1," + base64.b64encode(mac.digest()).decode()


def headers(signing: Sequence[str], message_id: str, moment: datetime, body: bytes) -> dict[str, str]:
    """The three headers of a message, signed with every active secret, the newest first."""
    timestamp = int(moment.timestamp())
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(sign(secret, message_id, timestamp, body) for secret in signing),
    }


def verify(secret: str, given: Mapping[str, str], body: bytes, now: datetime) -> bool:
    """What a receiver does: the signature fits the id, the time and the body, and the time is within five minutes."""
    found = {name.lower(): value for name, value in given.items()}
    try:
        timestamp = int(found["webhook-timestamp"])
        expected = sign(secret, found["webhook-id"], timestamp, body)
        offered = found["webhook-signature"].split(" ")
    except (KeyError, ValueError):
        return False
    fits = [hmac.compare_digest(expected.encode(), each.encode()) for each in offered]
    return any(fits) and abs(now.timestamp() - timestamp) <= TOLERANCE


def _key(secret: str) -> bytes:
    try:
        return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except binascii.Error as error:
        raise InvalidInput("A webhook secret is 'whsec_' followed by base64.") from error


# Python's `is_global` says yes to NAT64, 6to4, site-local, multicast and IPv4-compatible addresses: this is our own list.
_DENIED_V4 = tuple(
    IPv4Network(each)
    for each in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
        "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24",
        "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
    )
)  # fmt: skip
_NEVER_RESOLVED = frozenset({"invalid", "onion"})
_PRIVATE_NAMES = frozenset({"local", "internal", "intranet", "lan", "home", "corp", "arpa"})
# Only global unicast is routed; within it, these are for documentation, or carry an IPv4 address inside.
_GLOBAL_V6 = IPv6Network("2000::/3")
_DENIED_V6 = tuple(
    IPv6Network(each) for each in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", "2620:4f:8000::/48")
)


@dataclass(frozen=True, slots=True)
class Egress:
    """Where messages may go. The default is https on the usual ports of public addresses; the operator may widen it.

    >>> Egress.of(["10.0.0.0/8"], allow_http=True).refusal(ip_address("10.1.2.3")) is None
    True
    """

    allowed: tuple[Network, ...] = ()
    allow_http: bool = False
    ports: frozenset[int] | None = frozenset({443, 8443})
    """None: any port."""

    @classmethod
    def of(cls, networks: Sequence[str], allow_http: bool = False, ports: Sequence[int] | None = (443, 8443)) -> Egress:
        try:
            parsed = tuple(ip_network(each) for each in networks)
        except ValueError as error:
            raise InvalidInput(f"The networks that webhooks may reach must be like 10.0.0.0/8: {error}.") from error
        return cls(parsed, allow_http, None if ports is None else frozenset(ports))

    def refusal(self, address: Address) -> str | None:
        """Why a message may not go to this address, or None."""
        if any(address.version == network.version and address in network for network in self.allowed):
            return None
        return refuse_address(address)

    def check_url(self, url: str) -> None:
        """Refuse a URL that could not be delivered to, or is written to mislead. Names are checked when resolved."""
        if not isinstance(url, str) or not url or len(url) > MAX_URL:
            raise InvalidInput(f"A webhook's url is text of 1 to {MAX_URL} characters.")
        if not url.isascii() or any(ord(char) <= 32 or char in "\\\x7f" for char in url):
            raise InvalidInput(
                "A webhook's url has no spaces, control characters, backslashes or non-ASCII characters."
            )
        try:
            parts = urlsplit(url)
            port = parts.port
            host = parts.hostname or ""
        except ValueError as error:
            raise InvalidInput(f"The webhook's url cannot be read: {error}.") from error
        self._check_shape(parts.scheme, parts.netloc, parts.fragment, port, host)

    def _check_shape(self, scheme: str, netloc: str, fragment: str, port: int | None, host: str) -> None:
        if scheme not in (("https", "http") if self.allow_http else ("https",)):
            raise InvalidInput(f"A webhook's url begins with https://, not {scheme or 'nothing'}://.")
        if not host or host.endswith(".") or "@" in netloc or fragment:
            raise InvalidInput("A webhook's url has a host name without a final dot, no user name and no #fragment.")
        default = 443 if scheme == "https" else 80
        allowed = self.ports if self.ports is None or scheme == "https" else self.ports | {80}
        if port == 0:
            raise InvalidInput("A webhook's port is a number from 1 to 65535; nothing can listen on port 0.")
        if allowed is not None and (port or default) not in allowed:
            raise InvalidInput(f"A webhook's port is one of {', '.join(map(str, sorted(allowed)))}, not {port}.")
        address = literal_address(host)
        why = self.refusal(address) if address is not None else self._refuse_name(host)
        if why:
            raise InvalidInput(f"A webhook cannot go to {host}: {why}.")

    def _refuse_name(self, host: str) -> str | None:
        """Why no message can ever be delivered to a host of this name, or None. What the name resolves to is checked at delivery."""
        labels = host.lower().split(".")
        if len(host) > 253 or not all(0 < len(label) <= 63 for label in labels):
            return "it is not a host name"
        if labels[-1] in _NEVER_RESOLVED:
            return f"names that end in .{labels[-1]} never resolve"
        if labels[-1] == "localhost":
            loopback = self.refusal(IPv4Address("127.0.0.1")) and self.refusal(IPv6Address("::1"))
            return "it is this machine" if loopback else None
        if not self.allowed and (len(labels) == 1 or labels[-1] in _PRIVATE_NAMES):
            return "it is a name of a private network, and the operator allows public addresses only"
        return None


def literal_address(host: str) -> Address | None:
    """The address that the host is, if it is one; a number in any other form than dotted decimal is refused."""
    try:
        return ip_address(host)
    except ValueError:
        pass
    last = host.rsplit(".", 1)[-1].lower()
    if last.isdigit() or last.startswith("0x") or ":" in host or "%" in host:
        raise InvalidInput(f"{host!r} is neither a host name nor an address in its usual form.")
    return None


def refuse_address(address: Address | str) -> str | None:
    """Why an address is not a public one, or None.

    >>> refuse_address("169.254.169.254")
    'it is a private or reserved address (169.254.0.0/16)'
    """
    if isinstance(address, str):
        address = ip_address(address)
    if isinstance(address, IPv4Address):
        found = next((network for network in _DENIED_V4 if address in network), None)
        return f"it is a private or reserved address ({found})" if found else None
    if address.ipv4_mapped is not None:
        return refuse_address(address.ipv4_mapped)
    if address not in _GLOBAL_V6:
        return "it is not a global IPv6 address"
    inside = next((network for network in _DENIED_V6 if address in network), None)
    return f"it is a reserved address ({inside})" if inside else None
