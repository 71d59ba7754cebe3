"""Who a request really comes from: which proxies are trusted, and what they say about the client."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from penstock.core.errors import InvalidInput

Address = IPv4Address | IPv6Address
Headers = Iterable[tuple[bytes, bytes]]

_PAIR = re.compile(r'\s*([A-Za-z]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s";,]*))\s*(?:(;)|(,)|$)')
_PORT = re.compile(r":[0-9_A-Za-z.-]+$")
_MARKS = frozenset({b"forwarded", b"via", b"x-real-ip"})
_PREFIX = b"x-forwarded"
SCHEMES = ("http", "https")


@dataclass(frozen=True, slots=True)
class Origin:
    """The client's address and the scheme it used, as far as they are known."""

    address: str
    scheme: str


@dataclass(frozen=True, slots=True)
class Proxies:
    """The proxies whose word about the client is believed.

    >>> proxies = Proxies.of(["10.0.0.0/8"])
    >>> headers = [(b"x-forwarded-for", b"198.51.100.7, 10.0.0.9"), (b"x-forwarded-proto", b"https")]
    >>> proxies.origin("10.0.0.1", "http", headers)
    Origin(address='198.51.100.7', scheme='https')
    >>> proxies.origin("203.0.113.5", "http", headers)
    Origin(address='203.0.113.5', scheme='http')
    """

    networks: tuple[IPv4Network | IPv6Network, ...] = ()

    @classmethod
    def of(cls, named: Sequence[str]) -> Proxies:
        """Read addresses and networks in CIDR notation."""
        return cls(tuple(_network(each) for each in named))

    def trusts(self, address: str) -> bool:
        if not self.networks:
            return False
        found = parse_address(address)
        return found is not None and self._trusted(found)

    def _trusted(self, address: Address) -> bool:
        return any(address in network for network in self.networks)

    def origin(self, peer: str, scheme: str, headers: Headers) -> Origin:
        """Return where a request comes from that arrived over a connection from `peer`.

        Only a trusted proxy's headers are read, from the nearest hop outwards, up to the first address that is not trusted.
        A proxy sets one of the two kinds of header and passes on what the client wrote into the other. So where both are
        present and differ, neither is believed.
        """
        unknown = Origin(peer, scheme)
        if not self.trusts(peer):
            return unknown
        de_facto, standard = self._by_x_forwarded(unknown, headers), self._by_forwarded(unknown, headers)
        if de_facto is not None and standard is not None:
            return de_facto if de_facto == standard else unknown
        return de_facto or standard or unknown

    def _by_x_forwarded(self, unknown: Origin, headers: Headers) -> Origin | None:
        nodes = _listed(headers, b"x-forwarded-for")
        if not nodes:
            return None
        address, index = self._walk(unknown.address, nodes)
        schemes = [each.lower() for each in _listed(headers, b"x-forwarded-proto")]
        if not schemes:
            return Origin(address, unknown.scheme)
        named = schemes[index] if len(schemes) == len(nodes) else schemes[-1]
        return Origin(address, named if named in SCHEMES else unknown.scheme)

    def _by_forwarded(self, unknown: Origin, headers: Headers) -> Origin | None:
        hops = parse_forwarded(_joined(headers, b"forwarded"))
        if not hops:
            return None
        address, index = self._walk(unknown.address, [hop.get("for", "") for hop in hops])
        named = hops[index].get("proto", "").lower()
        return Origin(address, named if named in SCHEMES else unknown.scheme)

    def _walk(self, peer: str, nodes: Sequence[str]) -> tuple[str, int]:
        """Return the nearest address that is not a trusted proxy, and which of the nodes it is."""
        found, index = peer, len(nodes) - 1
        for position in range(len(nodes) - 1, -1, -1):
            address = parse_address(nodes[position])
            if address is None:
                break  # `unknown`, or a name that hides the address: the hop before is the last that is known
            found, index = str(address), position
            if not self._trusted(address):
                break
        return found, index


def _network(text: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(text, strict=False)
    except ValueError:
        raise InvalidInput(
            f"trusted_proxies has {text!r}; expected an address such as 10.0.0.5 or a network such as 10.0.0.0/8."
        ) from None


def parse_address(text: str) -> Address | None:
    """Read an address as proxies write it: with or without a port, IPv6 with or without brackets.

    >>> parse_address('"[2001:db8::1]:4711"'), parse_address("192.0.2.1:80"), parse_address("unknown")
    (IPv6Address('2001:db8::1'), IPv4Address('192.0.2.1'), None)
    """
    bare = text.strip().strip('"')
    if bare.startswith("["):
        bare = bare[1:].partition("]")[0]
    elif bare.count(":") == 1:
        bare = _PORT.sub("", bare)
    try:
        found = ip_address(bare.partition("%")[0])
    except ValueError:
        return None
    return (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found


def parse_forwarded(text: str) -> list[dict[str, str]]:
    """Read a `Forwarded` header (RFC 7239), the outermost hop first; an empty list if it is malformed.

    >>> parse_forwarded('for=192.0.2.60;proto=https, for="[2001:db8::1]"')
    [{'for': '192.0.2.60', 'proto': 'https'}, {'for': '[2001:db8::1]'}]
    """
    hops: list[dict[str, str]] = []
    hop: dict[str, str] = {}
    position = 0
    while position < len(text):
        found = _PAIR.match(text, position)
        if found is None:
            return []
        name, quoted, token, _, comma = found.groups()
        if name.lower() in hop:
            return []
        hop[name.lower()] = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else token
        if comma or found.end() == len(text):
            hops.append(hop)
            hop = {}
        position = found.end()
    return hops


def came_through_a_proxy(headers: Headers) -> bool:
    """Whether a request carries any mark of a proxy.

    >>> came_through_a_proxy([(b"via", b"1.1 cache")]), came_through_a_proxy([(b"host", b"localhost")])
    (True, False)
    """
    return any(name in _MARKS or name.startswith(_PREFIX) for name, _ in headers)


def counted_as(address: str) -> str:
    """Return the name under which an address is counted and throttled: an IPv6 client has a whole /64 to itself.

    >>> counted_as("192.0.2.1"), counted_as("2001:db8::7"), counted_as("::ffff:192.0.2.1")
    ('192.0.2.1', '2001:db8::/64', '192.0.2.1')
    """
    if ":" not in address:
        return address
    found = parse_address(address)
    return str(ip_network((found, 64), strict=False)) if isinstance(found, IPv6Address) else str(found or address)


def _joined(headers: Headers, name: bytes) -> str:
    return ",".join(value.decode("latin-1") for key, value in headers if key == name)


def _listed(headers: Headers, name: bytes) -> list[str]:
    return [part for each in _joined(headers, name).split(",") if (part := each.strip())]
