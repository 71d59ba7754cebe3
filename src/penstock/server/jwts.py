"""Principals by JSON Web Token, for those who have an identity provider."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import jwt

from penstock.core.access import Principal, Role
from penstock.core.errors import InvalidInput, UnknownTenant
from penstock.queue.ground import Ground
from penstock.server.settings import Settings
from penstock.store import tenants


class Tokens:
    """Reads JWTs of one issuer for one audience. Only signatures by key pairs, only with an expiry."""

    def __init__(self, settings: Settings, ground: Ground) -> None:
        self._settings = settings
        self._ground = ground
        assert settings.jwt_jwks is not None
        self._client: jwt.PyJWKClient | None = None
        self._keys: jwt.PyJWKSet | None = None
        if settings.jwt_jwks.startswith("https://"):
            self._client = jwt.PyJWKClient(settings.jwt_jwks, timeout=5)
        else:
            try:
                self._keys = jwt.PyJWKSet.from_dict(json.loads(Path(settings.jwt_jwks).read_text()))
            except (OSError, ValueError, jwt.PyJWTError) as error:
                raise InvalidInput(
                    f"jwt_jwks is {settings.jwt_jwks!r}, which is neither an https URL nor a readable file of keys: {error}"
                ) from error

    def principal(self, token: str) -> Principal | None:
        """Whom the token names, or None when it is not to be trusted."""
        try:
            claims = jwt.decode(
                token,
                self._key(token),
                algorithms=list(self._settings.jwt_algorithms),
                issuer=self._settings.jwt_issuer,
                audience=self._settings.jwt_audience,
                options={"require": ["exp", "sub", "iss", "aud"]},
                leeway=30,
            )
            return self._named(claims)
        except (jwt.PyJWTError, UnknownTenant, ValueError, KeyError, TypeError, OverflowError):
            return None

    def _key(self, token: str) -> Any:
        if self._client is not None:
            return self._client.get_signing_key_from_jwt(token)
        assert self._keys is not None
        wanted = jwt.get_unverified_header(token).get("kid")
        candidates = [key for key in self._keys.keys if wanted is None or key.key_id == wanted]
        if len(candidates) != 1:
            raise jwt.InvalidKeyError("no single key fits")
        return candidates[0]

    def _named(self, claims: dict[str, Any]) -> Principal | None:
        role = Role(claims[self._settings.jwt_role_claim])
        tenant_id, slug = None, claims.get(self._settings.jwt_tenant_claim)
        if role is Role.SUPER_ADMIN:
            slug = None
        elif not isinstance(slug, str):
            return None
        else:
            with self._ground.db.read() as tx:
                tenant = tenants.by_slug(tx, slug)
            if tenant is None or not tenant.is_active:
                return None
            tenant_id = tenant.id
        subject = str(claims["sub"])[:200]
        return Principal(
            id=uuid5(NAMESPACE_URL, f"{claims['iss']}#{subject}"), role=role, label=subject, tenant_id=tenant_id,
            tenant_slug=slug, token_prefix="jwt", queues=None, created_by=None,
            created_at=datetime.fromtimestamp(claims.get("iat", 0), UTC),
            expires_at=datetime.fromtimestamp(claims["exp"], UTC), revoked_at=None, last_used_at=None,
        )  # fmt: skip
