"""Tokens and sessions on the wire."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import ConfigDict, Field

from penstock.core.access import Need, Principal
from penstock.core.access import Session as SessionNoun
from penstock.core.limits import MOST
from penstock.core.scopes import Scope
from penstock.core.wire.base import Answer, Instant, Moment, Name, Request, Slug

RoleName = Literal["super_admin", "tenant_admin", "operator", "viewer", "worker"]
Right = Literal["view", "operate", "manage", "admin", "work"]
TenantRoleName = Literal["tenant_admin", "operator", "viewer", "worker"]


Scopes = Annotated[
    list[Scope],
    Field(min_length=1, max_length=MOST, description="What it is limited to; null is all that its role may"),
]
Keys = Annotated[
    list[Name],
    Field(
        min_length=1,
        max_length=MOST,
        description="The definitions it is limited to: keys, or beginnings such as `report.*`",
    ),
]
Addresses = Annotated[
    list[Name],
    Field(min_length=1, max_length=MOST, description="The networks it may be used from, such as `10.0.0.0/8`"),
]
Queues = Annotated[list[Name], Field(min_length=1, max_length=100)]


class NewToken(Request):
    """A token for somebody of a tenant, or with `super_admin` of the whole installation."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"tenant": "acme", "role": "tenant_admin", "label": "ann"}]}
    )

    role: RoleName
    label: Name
    tenant: Slug | None = None
    expires_at: Moment | None = None
    queues: Queues | None = None
    scopes: Scopes | None = None
    keys: Keys | None = None
    addresses: Addresses | None = None


class NewTenantToken(Request):
    """A token for somebody of the caller's own tenant."""

    role: TenantRoleName
    label: Name
    expires_at: Moment | None = None
    queues: Queues | None = None
    scopes: Scopes | None = None
    keys: Keys | None = None
    addresses: Addresses | None = None


class RotateToken(Request):
    """How long the old secret is still accepted; 0 ends it at once, with the sessions."""

    overlap_seconds: Annotated[float, Field(ge=0, le=30 * 86400)] = 86400.0


class Token(Answer):
    """Whose token, never the token itself. `parent_id` is the one that created it; `is_person` tells of somebody who signs in
    with an identity provider and has no token."""

    id: UUID
    tenant_id: UUID | None
    tenant: str | None
    role: RoleName
    label: str
    prefix: str
    queues: list[str] | None
    created_by: str | None
    created_at: Instant
    expires_at: Instant | None
    revoked_at: Instant | None
    last_used_at: Instant | None
    last_used_address: str | None
    parent_id: UUID | None
    scopes: list[str] | None
    keys: list[str] | None
    addresses: list[str] | None
    is_person: bool
    rotated_at: Instant | None
    previous_expires_at: Instant | None

    @classmethod
    def of(cls, principal: Principal) -> Token:
        return cls(**told(principal))


class TokenDetail(Token):
    """A token, and how many valid tokens came from it."""

    descendants: int


class RevokedToken(Token):
    """A revoked token, and how many tokens and sessions ended with it, itself counted."""

    revoked_tokens: int
    ended_sessions: int


class CreatedToken(Token):
    """`token` is shown this once; a repeated request with the same Idempotency-Key answers null for it."""

    token: str | None


class TokenList(Answer):
    items: list[Token]


def told(principal: Principal) -> dict[str, Any]:
    return {
        "id": principal.id, "tenant_id": principal.tenant_id, "tenant": principal.tenant_slug, "role": principal.role.value,
        "label": principal.label, "prefix": principal.token_prefix,
        "queues": _list(principal.queues), "created_by": principal.created_by,
        "created_at": principal.created_at, "expires_at": principal.expires_at, "revoked_at": principal.revoked_at,
        "last_used_at": principal.last_used_at, "last_used_address": principal.last_used_address,
        "parent_id": principal.parent_id, "scopes": _list(principal.scopes), "keys": _list(principal.keys),
        "addresses": _list(principal.addresses), "is_person": principal.is_person, "rotated_at": principal.rotated_at,
        "previous_expires_at": principal.previous_expires_at,
    }  # fmt: skip


def rights(principal: Principal) -> list[Right]:
    """What its role may do, by the words of the page."""
    known: tuple[Right, ...] = ("admin", "manage", "operate", "view", "work")
    return [each for each in known if principal.may(Need(each))]


def _list(given: tuple[str, ...] | None) -> list[str] | None:
    return None if given is None else list(given)


class SignIn(Request):
    """A token, the one-time code of a sign-in link, or a JWT."""

    token: Annotated[str, Field(min_length=1, max_length=4096)]


class Session(Answer):
    """Who is signed in, for which tenant, and what they may do. Send `csrf_token` as X-CSRF-Token with every change."""

    principal_id: UUID
    role: RoleName
    label: str
    tenant: str | None
    tenant_id: UUID | None
    timezone: str | None
    may: list[Right]
    csrf_token: str | None
    sign_out_url: str | None = None
    """Where the browser goes after signing out, to be signed out at the identity provider, too."""
    scopes: list[str] | None = None
    keys: list[str] | None = None
    idle_seconds: float | None = None
    """How long the session lasts without being used; null where a token was sent."""


class OpenSession(Answer):
    """A session of the page. `current` is the one that asks."""

    id: UUID
    created_at: Instant
    last_seen_at: Instant
    expires_at: Instant
    address: str | None
    user_agent: str | None
    current: bool

    @classmethod
    def of(cls, session: SessionNoun, current: UUID | None = None) -> OpenSession:
        given = {name: getattr(session, name) for name in cls.model_fields if name != "current"}
        return cls(**given, current=session.id == current)


class OpenSessionList(Answer):
    items: list[OpenSession]


class EndedSessions(Answer):
    ended: int
