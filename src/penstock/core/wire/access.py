"""Tokens and sessions on the wire."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import ConfigDict, Field

from penstock.core.access import Principal
from penstock.core.wire.base import Answer, Instant, Moment, Name, Request, Slug

RoleName = Literal["super_admin", "tenant_admin", "operator", "viewer", "worker"]
TenantRoleName = Literal["tenant_admin", "operator", "viewer", "worker"]


class NewToken(Request):
    """A token for somebody of a tenant, or with `super_admin` of the whole installation."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"tenant": "acme", "role": "tenant_admin", "label": "ann"}]}
    )

    role: RoleName
    label: Name
    tenant: Slug | None = None
    expires_at: Moment | None = None
    queues: Annotated[list[Name], Field(min_length=1, max_length=100)] | None = None


class NewTenantToken(Request):
    """A token for somebody of the caller's own tenant."""

    role: TenantRoleName
    label: Name
    expires_at: Moment | None = None
    queues: Annotated[list[Name], Field(min_length=1, max_length=100)] | None = None


class Token(Answer):
    """Whose token, never the token itself."""

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

    @classmethod
    def of(cls, principal: Principal) -> Token:
        return cls(**told(principal))


class CreatedToken(Token):
    """`token` is shown this once; a repeated request with the same Idempotency-Key answers null for it."""

    token: str | None


class TokenList(Answer):
    items: list[Token]


def told(principal: Principal) -> dict[str, Any]:
    return {
        "id": principal.id, "tenant_id": principal.tenant_id, "tenant": principal.tenant_slug, "role": principal.role.value,
        "label": principal.label, "prefix": principal.token_prefix,
        "queues": None if principal.queues is None else list(principal.queues), "created_by": principal.created_by,
        "created_at": principal.created_at, "expires_at": principal.expires_at, "revoked_at": principal.revoked_at,
        "last_used_at": principal.last_used_at,
    }  # fmt: skip


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
    may: list[Literal["view", "operate", "manage", "admin", "work"]]
    csrf_token: str | None
    sign_out_url: str | None = None
    """Where the browser goes after signing out, to be signed out at the identity provider, too."""
