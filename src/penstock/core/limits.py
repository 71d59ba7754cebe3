"""What a token is limited to, and that none hands on more than it has."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from penstock.core.access import GIVES, Principal, Role
from penstock.core.errors import ExceedsParent, InvalidInput
from penstock.core.scopes import Scope

MOST = 100
"""How many scopes, definitions or networks a token may name."""
_PATTERN = re.compile(r"[^*\s]{1,199}\*?|\*")
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Limits:
    """Everything that bounds a token. None is no bound."""

    role: Role
    tenant_id: UUID | None = None
    scopes: tuple[str, ...] | None = None
    keys: tuple[str, ...] | None = None
    addresses: tuple[str, ...] | None = None
    queues: tuple[str, ...] | None = None
    expires_at: datetime | None = None

    def checked(self) -> Limits:
        """The same in one spelling; InvalidInput where something cannot be understood."""
        if self.role is Role.SUPER_ADMIN and self.tenant_id is not None:
            raise InvalidInput("A super admin belongs to no tenant; leave the tenant out.")
        if self.role not in (Role.SUPER_ADMIN, Role.WORKER) and self.tenant_id is None:
            raise InvalidInput(f"A token of the role {self.role.value} belongs to a tenant; name it.")
        if self.queues is not None and self.role is not Role.WORKER:
            raise InvalidInput("Only a worker's token is limited to queues.")
        return replace(self, scopes=_scopes(self.scopes), keys=_keys(self.keys), addresses=_addresses(self.addresses))


def limits_of(principal: Principal) -> Limits:
    return Limits(**{name: getattr(principal, name) for name in Limits.__dataclass_fields__})


def _scopes(given: Sequence[str] | None) -> tuple[str, ...] | None:
    return _each("scopes", given, _scope)


def _scope(text: str) -> str:
    known = [each.value for each in Scope]
    if text not in known:
        raise InvalidInput(f"scopes has {text!r}; known are {', '.join(known)}.")
    return text


def _keys(given: Sequence[str] | None) -> tuple[str, ...] | None:
    return _each("keys", given, _pattern)


def _pattern(text: str) -> str:
    if not _PATTERN.fullmatch(text):
        raise InvalidInput(
            f"keys has {text!r}; expected the key of a definition, or a beginning with * at its end such as report.*"
        )
    return text


def _addresses(given: Sequence[str] | None) -> tuple[str, ...] | None:
    return _each("addresses", given, lambda text: str(_network(text)))


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise InvalidInput(
            f"addresses has {text!r}; expected an address or a network such as 10.0.0.0/8 or 2001:db8::/32."
        ) from None


def _each(name: str, given: Sequence[str] | None, read: object) -> tuple[str, ...] | None:
    assert callable(read)
    if given is None:
        return None
    if isinstance(given, str) or not given or len(given) > MOST:
        raise InvalidInput(f"{name} is a list of 1 to {MOST} texts; leave it out for no limit.")
    return tuple(sorted({read(each) for each in given}))


def narrowed(parent: Limits, asked: Limits) -> Limits:
    """The limits of a token that `parent` creates: what is left open is taken from the parent; what is wider is refused.

    >>> narrowed(Limits(Role.SUPER_ADMIN, scopes=("jobs:read",)), Limits(Role.WORKER)).scopes
    ('jobs:read',)
    """
    if asked.role not in GIVES[parent.role]:
        raise ExceedsParent(
            f"A token of the role {parent.role.value} cannot create one of the role {asked.role.value}."
        )
    if parent.role is not Role.SUPER_ADMIN and asked.tenant_id != parent.tenant_id:
        raise ExceedsParent("A token creates tokens of its own tenant only.")
    expires_at = asked.expires_at or parent.expires_at
    if expires_at is not None and parent.expires_at is not None and expires_at > parent.expires_at:
        raise ExceedsParent(
            f"expires_at is {expires_at:%Y-%m-%d %H:%M:%S}Z, later than the end of the token that creates it, "
            f"{parent.expires_at:%Y-%m-%d %H:%M:%S}Z. Leave it out to end with that token."
        )
    return replace(
        asked,
        scopes=_within("scopes", parent.scopes, asked.scopes),
        keys=_within("keys", parent.keys, asked.keys),
        addresses=_within("addresses", parent.addresses, asked.addresses),
        queues=_within("queues", parent.queues, asked.queues),
        expires_at=expires_at,
    )


def covers(holder: Limits, target: Limits) -> bool:
    """Whether `holder` may do all that `target` may, for as long."""
    try:
        return narrowed(holder, target) == target
    except ExceedsParent:
        return False


def _within(name: str, parent: tuple[str, ...] | None, asked: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if parent is None:
        return asked
    if asked is None:
        return parent
    wider = [each for each in asked if not any(_includes(name, bound, each) for bound in parent)]
    if wider:
        raise ExceedsParent(
            f"{name} has {', '.join(wider)}, which the token that creates it does not have. It has: {', '.join(parent)}."
        )
    return asked


def _includes(name: str, bound: str, asked: str) -> bool:
    if name == "keys" and bound.endswith("*"):
        return asked.startswith(bound[:-1])
    if name == "addresses":
        outer, inner = ipaddress.ip_network(bound), ipaddress.ip_network(asked)
        return outer.version == inner.version and inner.subnet_of(outer)  # type: ignore[arg-type]
    return bound == asked


def allows_address(addresses: tuple[str, ...] | None, address: str) -> bool:
    """Whether a token may be used from here.

    >>> allows_address(("10.0.0.0/8",), "10.1.2.3"), allows_address(("10.0.0.0/8",), "::ffff:10.1.2.3")
    (True, True)
    """
    if addresses is None:
        return True
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return any(found in ipaddress.ip_network(each) for each in addresses)
