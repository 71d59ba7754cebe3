"""Sign-in with OpenID Connect: the authorization code flow with PKCE, as a client of one provider.

Nothing is stored while a person is away at the provider. A cookie holds one random secret; the state, the nonce and the PKCE
verifier are derived from it, so that only the browser that began a sign-in can end it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit

import jwt
from authlib.oauth2.auth import ClientAuth
from authlib.oauth2.client import OAuth2Client
from authlib.oauth2.rfc6749.parameters import prepare_token_request
from authlib.oidc.core import CodeIDToken
from joserfc.errors import JoseError

from penstock.core.access import new_secret
from penstock.core.sign_in import MAX_SUBJECT, safe_return
from penstock.core.urls import is_safe_url
from penstock.server.fetching import Cached, Fetcher, Unreachable
from penstock.server.keys import ALGORITHMS, Keys
from penstock.server.settings import Settings

CALLBACK = "/api/v1/sign-in/oidc/callback"
SKEW_SECONDS = 60
METADATA_SECONDS = 3600.0
STALE_SECONDS = 24 * 3600.0
MAX_COOKIE = 3000
LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"
SIGNATURE_ONLY: Any = {
    "verify_signature": True,
    **{f"verify_{name}": False for name in ("exp", "nbf", "iat", "aud", "iss", "sub", "jti")},
}
_SECRET = re.compile(r"[A-Za-z0-9_-]{43}")


class Untrusted(Exception):
    """What the provider sent is not proof of who somebody is. The message says why, for the log and the audit."""


class Refused(Exception):
    """The provider said no; `code` is its own word for why."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True)
class Attempt:
    """One sign-in under way, as the browser's cookie holds it."""

    secret: str
    return_to: str = "/"
    tenant: str | None = None

    @classmethod
    def begin(cls, return_to: str | None, tenant: str | None) -> Attempt:
        return cls(new_secret(), safe_return(return_to), tenant)

    @classmethod
    def from_cookie(cls, text: str | None) -> Attempt | None:
        """Return the attempt that a cookie holds; None for a cookie that is missing or not ours."""
        secret, _, rest = (text or "").partition(".")
        if not _SECRET.fullmatch(secret) or len(rest) > MAX_COOKIE:
            return None
        try:
            return_to, tenant = json.loads(base64.urlsafe_b64decode(rest + "=" * (-len(rest) % 4)))
        except (ValueError, TypeError, binascii.Error, RecursionError):
            return None
        if not isinstance(return_to, str) or not (tenant is None or isinstance(tenant, str)):
            return None
        return cls(secret, safe_return(return_to), tenant)

    def to_cookie(self) -> str:
        rest = json.dumps([self.return_to, self.tenant]).encode()
        return f"{self.secret}.{_encoded(rest)}"

    @property
    def state(self) -> str:
        return self._derived("state")

    @property
    def nonce(self) -> str:
        return self._derived("nonce")

    @property
    def verifier(self) -> str:
        return self._derived("verifier")

    def _derived(self, purpose: str) -> str:
        made = hmac.digest(self.secret.encode(), purpose.encode(), hashlib.sha256)
        return _encoded(made)

    def began(self, state: str | None) -> bool:
        """Whether a reply with this state belongs to this attempt."""
        return state is not None and hmac.compare_digest(state.encode("utf-8", "replace"), self.state.encode())


@dataclass(frozen=True, slots=True)
class Metadata:
    """What we need of a provider's discovery document."""

    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str | None
    end_session_endpoint: str | None
    auth_methods: tuple[str, ...]
    sends_issuer: bool


class Provider:
    """The one identity provider that an operator configured."""

    def __init__(
        self,
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        fetcher: Fetcher | None = None,
    ) -> None:
        assert settings.oidc_issuer and settings.oidc_client_id and settings.public_url
        self.issuer = settings.oidc_issuer
        self.client_id = settings.oidc_client_id
        self.home = settings.public_url.rstrip("/")
        self.redirect_uri = self.home + CALLBACK
        self.name = settings.oidc_name or urlsplit(self.issuer).hostname or self.issuer
        self._settings = settings
        self._now = now
        self._fetcher = fetcher or Fetcher()
        self._metadata = Cached(self._discover, METADATA_SECONDS, STALE_SECONDS, clock)
        self._keys = Keys(self._load_keys, clock)

    async def _discover(self) -> Metadata:
        url = self.issuer.rstrip("/") + "/.well-known/openid-configuration"
        status, found = await self._fetcher.json(url)
        if status != 200:
            raise Unreachable(f"{url} gave status {status}")
        return read_metadata(found, self.issuer)

    async def _load_keys(self) -> Mapping[str, Any]:
        metadata = await self._metadata.get()
        status, found = await self._fetcher.json(metadata.jwks_uri)
        if status != 200:
            raise Unreachable(f"{metadata.jwks_uri} gave status {status}")
        return found

    async def authorization_url(self, attempt: Attempt) -> str:
        """Return where to send the browser so that the person signs in there."""
        metadata = await self._metadata.get()
        client = OAuth2Client(
            None, self.client_id, scope=" ".join(self._settings.oidc_scopes), redirect_uri=self.redirect_uri,
            code_challenge_method="S256",
        )  # fmt: skip
        url, _ = client.create_authorization_url(
            metadata.authorization_endpoint, attempt.state, attempt.verifier, nonce=attempt.nonce
        )
        return str(url)

    async def check_issuer(self, given: str | None) -> None:
        """Refuse a reply that another provider sent (RFC 9207), so that its code goes to nobody."""
        metadata = await self._metadata.get()
        if given is None and metadata.sends_issuer:
            raise Untrusted("the provider always names itself in `iss`, and this reply does not")
        if given is not None and given != self.issuer:
            raise Untrusted("the reply names another issuer")

    async def redeem(self, code: str, attempt: Attempt) -> dict[str, Any]:
        """Exchange the code for an ID token. Returns its claims once every check has passed."""
        metadata = await self._metadata.get()
        body = prepare_token_request(
            "authorization_code", code=code, redirect_uri=self.redirect_uri, code_verifier=attempt.verifier
        )
        headers = {"content-type": "application/x-www-form-urlencoded"}
        auth: Any = self._client_auth(metadata)
        url, sent, form = auth.prepare("POST", metadata.token_endpoint, headers, body)
        status, found = await self._fetcher.json(url, data=form, headers=sent)
        if status != 200 or "error" in found:
            raise Refused(str(found.get("error", f"status {status}")))
        id_token, access_token = found.get("id_token"), found.get("access_token")
        if not isinstance(id_token, str) or not isinstance(access_token, str):
            raise Untrusted("the token endpoint gave no ID token")
        claims = await self.validated(id_token, attempt.nonce, access_token)
        if self._settings.oidc_userinfo == "on":
            claims = {**await self._userinfo(metadata, access_token, claims["sub"]), **claims}
        return claims

    def _client_auth(self, metadata: Metadata) -> ClientAuth:
        secret = self._settings.oidc_client_secret
        if secret is None:
            return ClientAuth(self.client_id, None, "none")
        if "client_secret_basic" in metadata.auth_methods or "client_secret_post" not in metadata.auth_methods:
            # RFC 6749, 2.3.1: both parts are encoded as in a form before they are joined
            return ClientAuth(quote_plus(self.client_id), quote_plus(secret), "client_secret_basic")
        return ClientAuth(self.client_id, secret, "client_secret_post")

    async def validated(self, id_token: str, nonce: str, access_token: str | None = None) -> dict[str, Any]:
        """Return the claims of an ID token that this provider signed for this client and this attempt, and that is still
        good."""
        header, claims = await self._signed(id_token)
        try:
            CodeIDToken(
                claims,
                header,
                {
                    "iss": {"essential": True, "value": self.issuer},
                    "sub": {"essential": True},
                    "aud": {"essential": True, "value": self.client_id},
                    "nonce": {"essential": True, "value": nonce},
                },
                {"client_id": self.client_id, "nonce": nonce, "access_token": access_token},
            ).validate(now=int(self._now()), leeway=SKEW_SECONDS)
        except (JoseError, ValueError, TypeError, OverflowError) as error:
            raise Untrusted(f"the ID token is not valid: {error}") from error
        if len(claims["sub"]) > MAX_SUBJECT:
            raise Untrusted("the ID token's sub is too long")
        return claims

    async def _signed(self, token: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the header and the claims of a token that the provider signed; its claims are not checked yet."""
        try:
            key = await self._keys.key_for(token, ALGORITHMS)
            decoded = jwt.decode_complete(token, key, algorithms=list(ALGORITHMS), options=SIGNATURE_ONLY)
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise Untrusted(f"the signature is not valid: {error}") from error
        return decoded["header"], decoded["payload"]

    async def _userinfo(self, metadata: Metadata, access_token: str, subject: str) -> dict[str, Any]:
        if metadata.userinfo_endpoint is None:
            raise Untrusted("the provider has no userinfo endpoint, and oidc_userinfo is on")
        status, found = await self._fetcher.json(
            metadata.userinfo_endpoint, headers={"authorization": f"Bearer {access_token}"}
        )
        if status != 200 or found.get("sub") != subject:
            raise Untrusted("the userinfo endpoint told of nobody, or of somebody else")
        return found

    async def sign_out_url(self) -> str:
        """Return where to send the browser to end the provider's own session; our home where it has no such place."""
        try:
            end = (await self._metadata.get()).end_session_endpoint
        except Unreachable:
            end = None
        if end is None:
            return self.home + "/"
        query = urlencode({"client_id": self.client_id, "post_logout_redirect_uri": self.home + "/"})
        return f"{end}{'&' if '?' in end else '?'}{query}"

    async def ended(self, logout_token: str) -> tuple[str | None, str | None, str]:
        """Read a logout token of the provider. Returns the `sub` and the `sid` that are over, and the token's own id."""
        _, claims = await self._signed(logout_token)
        now = self._now()
        audience = claims.get("aud")
        events, issued, expires = claims.get("events"), claims.get("iat"), claims.get("exp", now + 1)
        subject, sid, own = claims.get("sub"), claims.get("sid"), claims.get("jti")
        good = (
            claims.get("iss") == self.issuer
            and self.client_id in (audience if isinstance(audience, list) else [audience])
            and isinstance(events, dict) and isinstance(events.get(LOGOUT_EVENT), dict)
            and "nonce" not in claims
            and isinstance(issued, int) and abs(now - issued) < 300 + SKEW_SECONDS
            and isinstance(expires, int | float) and expires > now - SKEW_SECONDS
            and isinstance(own, str)
            and all(each is None or (isinstance(each, str) and each) for each in (subject, sid))
            and (subject or sid)
        )  # fmt: skip
        if not good:
            raise Untrusted("the logout token is not valid")
        return subject, sid, str(own)


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def read_metadata(found: Mapping[str, Any], issuer: str) -> Metadata:
    """Check a discovery document and return what is needed of it."""
    if found.get("issuer") != issuer:
        raise Unreachable(f"the discovery document is of the issuer {str(found.get('issuer'))[:200]!r}, not {issuer!r}")
    loopback = issuer.startswith("http://")
    urls: dict[str, str | None] = {}
    for name in ("authorization_endpoint", "token_endpoint", "jwks_uri", "userinfo_endpoint", "end_session_endpoint"):
        given = found.get(name)
        needed = name in ("authorization_endpoint", "token_endpoint", "jwks_uri")
        if given is None and not needed:
            urls[name] = None
        elif isinstance(given, str) and is_safe_url(given, loopback=loopback):
            urls[name] = given
        else:
            raise Unreachable(f"the discovery document has no usable {name}")
    challenges = found.get("code_challenge_methods_supported")
    if isinstance(challenges, list) and "S256" not in challenges:
        raise Unreachable("the provider does not support PKCE with S256")
    methods = found.get("token_endpoint_auth_methods_supported")
    given_methods = tuple(each for each in methods if isinstance(each, str)) if isinstance(methods, list) else ()
    return Metadata(
        **urls,  # type: ignore[arg-type]
        auth_methods=given_methods or ("client_secret_basic",),
        sends_issuer=found.get("authorization_response_iss_parameter_supported") is True,
    )
