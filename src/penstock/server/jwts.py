"""Principals by JSON Web Token, for programs and people who have an identity provider."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jwt
from starlette.concurrency import run_in_threadpool

from penstock.core.access import Person, Principal, Role
from penstock.core.errors import InvalidInput
from penstock.core.urls import is_safe_url
from penstock.queue.ground import Ground
from penstock.queue.revoke import sid_of
from penstock.server.fetching import Fetcher, Unreachable
from penstock.server.keys import Keys, usable
from penstock.server.problems import Problem
from penstock.server.settings import Settings
from penstock.store import principals, revocations, tenants

LEEWAY_SECONDS = 30
PREFIX = "jwt"


@dataclass(frozen=True, slots=True)
class Jwt:
    """A token that is good now: whom it names, as a principal of the API and as somebody who may sign in."""

    principal: Principal
    person: Person
    sid: str | None
    """What finds the sessions that it opened when it is revoked."""


class Tokens:
    """Reads JWTs of one issuer for one audience. Accepts only signatures by key pairs and bounded lifetimes."""

    def __init__(self, settings: Settings, ground: Ground) -> None:
        assert settings.jwt_jwks is not None
        self._settings = settings
        self._ground = ground
        self._source = settings.jwt_jwks
        self._fetcher = Fetcher()
        if not is_safe_url(self._source):
            try:
                usable(json.loads(Path(self._source).read_text()))
            except (OSError, ValueError, AttributeError, Unreachable) as error:
                raise InvalidInput(
                    f"jwt_jwks is {self._source!r}, which is neither an https URL nor a readable file of keys: {error}"
                ) from error
        self._keys = Keys(self._load)

    async def _load(self) -> Mapping[str, Any]:
        if is_safe_url(self._source):
            status, found = await self._fetcher.json(self._source)
            if status != 200:
                raise Unreachable(f"{self._source} gave status {status}")
            return found
        try:
            read: Mapping[str, Any] = json.loads(Path(self._source).read_text())
        except (OSError, ValueError) as error:
            raise Unreachable(f"{self._source}: {error}") from error
        return read

    async def read(self, token: str) -> Jwt | None:
        """Return whom the token names, or None when it is not to be trusted."""
        claims = await self._claims(token)
        return None if claims is None else await run_in_threadpool(self._named, claims)

    async def _claims(self, token: str) -> dict[str, Any] | None:
        """Return the claims of a token that is good now. Its lifetime must be bounded, so that a revocation need not be kept
        for ever."""
        allowed = list(self._settings.jwt_algorithms)
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                await self._keys.key_for(token, allowed),
                algorithms=allowed,
                issuer=self._settings.jwt_issuer,
                audience=self._settings.jwt_audience,
                options={"require": ["exp", "iat", "sub", "iss", "aud"]},
                leeway=LEEWAY_SECONDS,
            )
            good = claims["exp"] - claims["iat"] <= self._settings.jwt_max_seconds and _can_be_stored(claims)
        except Unreachable as error:
            raise Problem(
                503, "provider_unavailable", "The keys that sign JWTs cannot be read now; try again soon.",
                headers={"retry-after": "5"},
            ) from error  # fmt: skip
        except (jwt.PyJWTError, ValueError, KeyError, TypeError, OverflowError):
            return None
        return claims if good else None

    def _named(self, claims: dict[str, Any]) -> Jwt | None:
        try:
            role = Role(claims[self._settings.jwt_role_claim])
            issued, expires = (datetime.fromtimestamp(claims[name], UTC) for name in ("iat", "exp"))
        except (ValueError, KeyError, TypeError, OverflowError, OSError):
            return None
        slug = None if role is Role.SUPER_ADMIN else claims.get(self._settings.jwt_tenant_claim)
        if role is not Role.SUPER_ADMIN and not (isinstance(slug, str) and slug.isprintable()):
            return None
        issuer, subject, own = claims["iss"], claims["sub"], claims.get("jti")
        with self._ground.db.read() as tx:
            tenant = None if slug is None else tenants.by_slug(tx, slug)
            if slug is not None and (tenant is None or not tenant.is_active):
                return None
            person = Person(issuer, subject, subject[:200], role, tenant.id if tenant else None)
            known = principals.by_id(tx, person.id)
            revoked = known is not None and known.revoked_at is not None
            if revoked or revocations.holds(tx, issuer, subject, own, issued, LEEWAY_SECONDS):
                return None
        principal = Principal(
            id=person.id, role=role, label=person.label, tenant_id=person.tenant_id, tenant_slug=slug, token_prefix=PREFIX,
            queues=None, created_by=None, created_at=issued, expires_at=expires, revoked_at=None, last_used_at=None,
            issuer=issuer, subject=subject,
        )  # fmt: skip
        return Jwt(principal, person, None if own is None else sid_of(own))


def _can_be_stored(claims: Mapping[str, Any]) -> bool:
    """Whether the database can be asked about the token: it takes neither NUL nor lone surrogates."""
    names = [claims["sub"], *([claims["jti"]] if "jti" in claims else [])]
    return all(isinstance(name, str) and name and name.isprintable() for name in names)
