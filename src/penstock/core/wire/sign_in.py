"""Signing in elsewhere, and what was issued elsewhere, on the wire."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, StringConstraints
from pydantic.functional_validators import AfterValidator

from penstock.core.revocations import Revocation
from penstock.core.wire.base import Answer, Instant, Request, _printable

Claim = Annotated[str, StringConstraints(min_length=1, max_length=500), AfterValidator(_printable)]


class OpenIdProvider(Answer):
    """The identity provider to sign in with: its name, and where the browser goes to begin."""

    name: str
    url: str


class SignInWays(Answer):
    """How somebody may sign in to the page. A token and a sign-in link always work."""

    openid: OpenIdProvider | None


class RevokeJwt(Request):
    """Which JWT is to end: one by its `jti`, or all that a `subject` was issued until now."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"subject": "ann"}]})

    jti: Claim | None = None
    subject: Claim | None = None
    issuer: Claim | None = None


class RevokedJwt(Answer):
    """It is forgotten at `expires_at`, when no JWT that it holds for could be accepted any more."""

    issuer: str
    kind: Literal["jti", "subject"]
    value: str
    revoked_at: Instant
    expires_at: Instant
    created_by: str | None

    @classmethod
    def of(cls, found: Revocation) -> RevokedJwt:
        return cls(**{name: getattr(found, name) for name in cls.model_fields})


class RevokedJwtList(Answer):
    items: list[RevokedJwt]
