"""The keys by which an issuer signs, and the check of a signature."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import jwt

from penstock.server.fetching import Cached, Unreachable

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA")
"""Only signatures by key pairs: with HS256, whoever can check a token can write one."""
MAX_KEYS = 100
MAX_JWT = 16 * 1024
MAX_AGE = 600.0
MAX_STALE = 24 * 3600.0
REFRESH_SECONDS = 30.0
"""How often an unknown key may send us to the issuer: a thousand made-up keys cost one request."""


class Keys:
    """The public keys of one issuer."""

    def __init__(
        self, load: Callable[[], Awaitable[Mapping[str, Any]]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        async def checked() -> Sequence[Mapping[str, Any]]:
            return usable(await load())

        self._cached = Cached(checked, MAX_AGE, MAX_STALE, clock)

    async def key_for(self, token: str, algorithms: Sequence[str]) -> jwt.PyJWK:
        """Return the key that a token says it is signed by; `jwt.PyJWTError` when there is none, `Unreachable` when the
        issuer's keys cannot be had."""
        if len(token) > MAX_JWT:
            raise jwt.DecodeError("the token is too long")
        header = jwt.get_unverified_header(token)
        if header.get("alg") not in algorithms:
            raise jwt.InvalidAlgorithmError("the algorithm is not allowed")
        found = _matching(await self._cached.get(), header)
        if found is None:
            found = _matching(await self._cached.get(at_least=REFRESH_SECONDS), header)
        if found is None:
            raise jwt.InvalidKeyError("no single key fits")
        return jwt.PyJWK.from_dict(dict(found), header["alg"])


def usable(document: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the signing keys of a JWKS document."""
    keys = document.get("keys")
    if not isinstance(keys, list) or len(keys) > MAX_KEYS:
        raise Unreachable(f"the key set has no list of at most {MAX_KEYS} keys")
    return [key for key in keys if isinstance(key, dict) and key.get("use", "sig") == "sig" and key.get("kty") != "oct"]


def _matching(keys: Sequence[Mapping[str, Any]], header: Mapping[str, Any]) -> Mapping[str, Any] | None:
    wanted = header.get("kid")
    fitting = [
        key
        for key in keys
        if (wanted is None or key.get("kid") == wanted) and key.get("alg", header["alg"]) == header["alg"]
    ]
    return fitting[0] if len(fitting) == 1 else None
