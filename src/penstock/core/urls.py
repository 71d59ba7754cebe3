"""Which addresses are safe to send secrets to, or to believe."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


def is_safe_url(url: str, *, loopback: bool = True) -> bool:
    """Whether nobody on the way can read or change what goes to this URL: https, or this machine itself."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        _ = parts.port
    except ValueError:
        return False
    if (
        not host
        or parts.username is not None
        or parts.fragment
        or " " in url
        or not (url.isascii() and url.isprintable())
    ):
        return False
    if parts.scheme == "https":
        return True
    return loopback and parts.scheme == "http" and is_loopback_host(host)


def is_loopback_host(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
