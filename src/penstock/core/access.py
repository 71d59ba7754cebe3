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
from uuid import UUID

ALPHABET = string.digits + string.ascii_letters
MARK = "pst"
SECRET_LENGTH = 43
CHECKSUM_LENGTH = 6


class Role(StrEnum):
    SUPER_ADMIN = "super_admin"
    TENANT_ADMIN = "tenant_admin"
    OPERATOR = "operator"
    VIEWER = "viewer"
    WORKER = "worker"


class Need(StrEnum):
    """What a route asks of its caller."""

    VIEW = "view"
    OPERATE = "operate"
    MANAGE = "manage"
    ADMIN = "admin"
    WORK = "work"


GRANTS: dict[Role, frozenset[Need]] = {
    Role.SUPER_ADMIN: frozenset(Need),
    Role.TENANT_ADMIN: frozenset({Need.VIEW, Need.OPERATE, Need.MANAGE}),
    Role.OPERATOR: frozenset({Need.VIEW, Need.OPERATE}),
    Role.VIEWER: frozenset({Need.VIEW}),
    Role.WORKER: frozenset({Need.WORK}),
}


@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody with a token. `tenant_id` is None for those of the whole installation."""

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

    def may(self, need: Need) -> bool:
        return need in GRANTS[self.role]

    @property
    def actor(self) -> str:
        """How the audit names it: the label people know, and the id that cannot be taken twice."""
        return f"{self.label} ({self.id})"


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
    """One change: who, what, before and after."""

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
