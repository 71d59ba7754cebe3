"""Where a request comes from, as the rest of the service sees it."""

from __future__ import annotations

from starlette.requests import HTTPConnection
from starlette.types import Scope

from penstock.core.forwarded import Proxies, came_through_a_proxy, parse_address


def resolve(scope: Scope, proxies: Proxies) -> None:
    """Put the client's real address and scheme into the scope; of the proxies' headers only those of trusted ones count."""
    client = scope.get("client")
    state = scope.setdefault("state", {})
    state["proxied"] = came_through_a_proxy(scope["headers"])
    if client is None or not proxies.trusts(client[0]):
        return
    state["proxied"] = True
    origin = proxies.origin(client[0], scope["scheme"], scope["headers"])
    scope["client"] = (origin.address, 0)
    scope["scheme"] = origin.scheme


def is_this_machine(request: HTTPConnection) -> bool:
    """Whether a program on this machine asks, and no proxy for somebody else.

    The name in `Host` is looked at as well, because a browser that was led here by a foreign name says that name.
    """
    if request.client is None or request.scope["state"].get("proxied", True):
        return False
    peer = parse_address(request.client.host)
    return peer is not None and peer.is_loopback and _names_this_machine(request.headers.get("host", ""))


def _names_this_machine(host: str) -> bool:
    if host.partition(":")[0].lower() == "localhost":
        return True
    named = parse_address(host)
    return named is not None and named.is_loopback
