"""Who may what: roles, what each may do, and the tokens that prove who asks."""

from __future__ import annotations

import hashlib
import secrets
import string
import zlib
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

ALPHABET = string.digits + string.ascii_letters
MARK = "pst"
SECRET_LENGTH = 43
CHECKSUM_LENGTH = 6
PERSON_PREFIX = "person"
"""What stands in place of a token's beginning where there is no token."""


class Role(StrEnum):
    SUPER_ADMIN = "super_admin"
    TENANT_ADMIN = "tenant_admin"
    OPERATOR = "operator"
    VIEWER = "viewer"
    WORKER = "worker"


class Need(StrEnum):
    """What a route asks of its caller."""

    SELF = "self"
    """To be somebody: for what concerns the caller alone."""
    VIEW = "view"
    OPERATE = "operate"
    MANAGE = "manage"
    ADMIN = "admin"
    WORK = "work"


GRANTS: dict[Role, frozenset[Need]] = {
    Role.SUPER_ADMIN: frozenset(Need),
    Role.TENANT_ADMIN: frozenset({Need.SELF, Need.VIEW, Need.OPERATE, Need.MANAGE}),
    Role.OPERATOR: frozenset({Need.SELF, Need.VIEW, Need.OPERATE}),
    Role.VIEWER: frozenset({Need.SELF, Need.VIEW}),
    Role.WORKER: frozenset({Need.SELF, Need.WORK}),
}


GIVES: dict[Role, frozenset[Role]] = {
    Role.SUPER_ADMIN: frozenset(Role),
    Role.TENANT_ADMIN: frozenset({Role.TENANT_ADMIN, Role.OPERATOR, Role.VIEWER, Role.WORKER}),
    Role.OPERATOR: frozenset(),
    Role.VIEWER: frozenset(),
    Role.WORKER: frozenset(),
}
"""The roles of the tokens that each role may create."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody with a token, or a person known by an identity provider. `tenant_id` is None for those of the whole installation."""

    id: UUID
    role: Role
    label: str
    tenant_id: UUID | None
    tenant_slug: str | None
    token_prefix: str
    queues: tuple[str, ...] | None
    created_by: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    parent_id: UUID | None = None
    """Who created it. It ends with its parent, and may no more than its parent."""
    scopes: tuple[str, ...] | None = None
    """What it is limited to, beside its role; None is everything that its role may."""
    keys: tuple[str, ...] | None = None
    """The definitions it is limited to: keys, or beginnings of keys such as `report.*`."""
    addresses: tuple[str, ...] | None = None
    """The networks it may be used from, such as `10.0.0.0/8`."""
    issuer: str | None = None
    """The identity provider that vouches for a person; a principal without one has a token."""
    subject: str | None = None
    last_used_address: str | None = None
    rotated_at: datetime | None = None
    previous_expires_at: datetime | None = None
    """Until when the secret before the last rotation is still accepted."""

    def may(self, need: Need) -> bool:
        return need in GRANTS[self.role]

    @property
    def is_person(self) -> bool:
        return self.issuer is not None

    @property
    def actor(self) -> str:
        """How the audit names it: the label people know, and the id that cannot be taken twice."""
        return f"{self.label} ({self.id})"


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody for whom an identity provider vouches: who they are there, and what they may do here."""

    issuer: str
    subject: str
    label: str
    role: Role
    tenant_id: UUID | None = None

    @property
    def id(self) -> UUID:
        """Always the same for the same subject and tenant."""
        tenant = "" if self.tenant_id is None else f"#{self.tenant_id}"
        return uuid5(NAMESPACE_URL, f"{self.issuer}#{self.subject}{tenant}")


@dataclass(frozen=True, slots=True)
class Session:
    """A person at the page. It ends at `expires_at`, when it was not used for long, and with its principal."""

    id: UUID
    principal_id: UUID
    created_at: datetime
    last_seen_at: datetime
    expires_at: datetime
    address: str | None
    user_agent: str | None
    issuer: str | None
    sid: str | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt to come in, to leave or to do something ended: `session.open`, `session.refused`, `session.close`,
    `token.refused` or `access.refused`."""

    kind: str
    principal: Principal | None
    """None where nobody is known: the token or session was not valid."""
    address: str
    detail: str
    request_id: str | None


def new_token() -> tuple[str, str]:
    """A fresh token and its prefix: `pst_<prefix>_<random and checksum>`, so that scanners know a leaked one.

    >>> token, prefix = new_token()
    >>> token.startswith(f"pst_{prefix}_") and is_well_formed(token)
    True
    """
    prefix = _random(8)
    body = f"{MARK}_{prefix}_{_random(SECRET_LENGTH)}"
    return body + _checksum(body), prefix


def is_well_formed(token: str) -> bool:
    """Whether a token that has our mark has its checksum too; what lacks the mark is not ours to judge."""
    if not token.startswith(f"{MARK}_"):
        return True
    return len(token) > CHECKSUM_LENGTH and _checksum(token[:-CHECKSUM_LENGTH]) == token[-CHECKSUM_LENGTH:]


def digest(secret: str) -> str:
    """What is stored of a secret. Plain SHA-256: there is nothing to guess in 256 random bits."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def csrf_token(session_secret: str) -> str:
    """The token that a page must send along, derived from what its scripts cannot read."""
    return hashlib.sha256(b"csrf:" + session_secret.encode("utf-8", "surrogatepass")).hexdigest()


def new_secret() -> str:
    return secrets.token_urlsafe(32)


def _random(length: int) -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(length))


def _checksum(text: str) -> str:
    number = zlib.crc32(text.encode("utf-8", "surrogatepass"))
    found = ""
    for _ in range(CHECKSUM_LENGTH):
        number, digit = divmod(number, len(ALPHABET))
        found = ALPHABET[digit] + found
    return found


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One entry of the audit: who did what, from where, and what it was before and after."""

    id: UUID
    tenant_id: UUID | None
    actor: str
    action: str
    subject_type: str
    subject_id: str | None
    before: Any
    after: Any
    request_id: str | None
    at: datetime
    address: str | None = None
    """The network address that the request came from."""
    seq: int | None = None
    """Its number in the chain of its tenant. None for a moment after it was written, until it is sealed."""
    prev_hash: str | None = None
    hash: str | None = None
