"""The gate: who asks, and may they."""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from penstock.app import Penstock
from penstock.core.access import Need, Principal, Role, csrf_token, digest, is_well_formed
from penstock.core.errors import DatabaseError, Forbidden, UnknownTenant
from penstock.core.forwarded import counted_as
from penstock.core.ids import DEFAULT_TENANT_ID
from penstock.server.calls import Call
from penstock.server.jwts import Tokens
from penstock.server.limits import Buckets
from penstock.server.problems import Problem
from penstock.server.settings import Settings
from penstock.server.tracing import current_trace
from penstock.store import principals

COOKIE = "penstock_session"
SECURE_COOKIE = "__Host-penstock_session"
REMEMBER_SECONDS = 0.5
"""How long a look at the database holds. A token revoked by this process is forgotten at once; by another, after this."""
MAX_REMEMBERED = 10_000
MAX_TOKEN = 4096
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_KEY = re.compile(r"[\x21-\x7e]{1,200}")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


@dataclass(frozen=True, slots=True)
class Known:
    principal: Principal
    csrf_hash: str | None
    until: float


class Gate:
    """Lets requests in. One for each app."""

    def __init__(self, penstock: Penstock, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self.penstock = penstock
        self.settings = settings
        self.clock = clock
        self._known: OrderedDict[tuple[str, str], Known] = OrderedDict()
        self._welcome: OrderedDict[tuple[str, str], None] = OrderedDict()
        """Who was let in before. Guessing by others at their address does not shut them out."""
        self._tenants = {"default": DEFAULT_TENANT_ID}
        self._rate = Buckets(settings.rate_limit, 2 * settings.rate_limit)
        self._refused = Buckets(5.0, 300.0)
        self._jwts = Tokens(settings, penstock.ground) if settings.jwt_jwks else None

    def forget(self) -> None:
        """Look everyone up again: a token was revoked, a session closed, a tenant changed."""
        self._known.clear()

    async def admit(self, request: Request, need: Need) -> Call:
        """The call that this request may make; a Problem when it may not."""
        known, by_session = await self._authenticated(request)
        principal = known.principal
        wait = self._rate.take(principal.id)
        if wait:
            raise Problem(
                429, "rate_limited", "Too many requests for this token.", headers={"retry-after": str(int(wait) + 1)}
            )
        if not principal.may(need):
            raise Forbidden(f"The role {principal.role.value} may not do this.")
        if by_session and request.method not in SAFE_METHODS:
            self._check_csrf(request, known)
        tenant, tenant_id = await self._tenant(request, principal)
        key = request.headers.get("idempotency-key")
        if key is not None and not _KEY.fullmatch(key):
            raise Problem(
                400, "bad_idempotency_key", "Idempotency-Key is 1 to 200 printable characters without spaces."
            )
        keyed = key is not None and request.method == "POST"
        return Call(
            self.penstock, self.settings, principal, tenant, tenant_id, request.state.request_id, by_session,
            key if keyed else None, await _hash(request) if keyed else "", self._trace_of(request),
        )  # fmt: skip

    def _trace_of(self, request: Request) -> dict[str, str] | None:
        return current_trace() if self.settings.tracing == "on" else _trace(request)

    async def _authenticated(self, request: Request) -> tuple[Known, bool]:
        given = request.headers.getlist("authorization")
        if len(given) > 1:
            raise _unauthenticated("Several Authorization headers; send one.")
        if given:
            scheme, _, token = given[0].partition(" ")
            token = token.strip()
            if scheme.lower() != "bearer" or not token or len(token) > MAX_TOKEN:
                raise _unauthenticated("Send the token as: Authorization: Bearer <token>")
            return await self._by("token", token, request), False
        cookie = request.cookies.get(cookie_name(request))
        if cookie and len(cookie) <= MAX_TOKEN:
            return await self._by("session", cookie, request), True
        raise _unauthenticated("A token is needed. Send it as: Authorization: Bearer <token>")

    async def _by(self, kind: str, secret: str, request: Request) -> Known:
        name = (kind, digest(secret))
        known = self._known.get(name)
        if known is None or known.until < self.clock() or self._expired(known.principal):
            self._known.pop(name, None)
            if name not in self._welcome:
                self.check_attempts(request)
            if not is_well_formed(secret):
                known = None
            else:
                known = await run_in_threadpool(self._look_up, kind, secret)
            if known is None:
                self._welcome.pop(name, None)
                raise self.refuse(request)
            self._known[name] = known
            self._welcome[name] = None
            for remembered in (self._known, self._welcome):
                if len(remembered) > MAX_REMEMBERED:
                    remembered.popitem(last=False)
        return known

    def _expired(self, principal: Principal) -> bool:
        now = self.penstock.db.moment() or datetime.now(UTC)
        return principal.expires_at is not None and principal.expires_at <= now

    def _look_up(self, kind: str, secret: str) -> Known | None:
        until = self.clock() + REMEMBER_SECONDS
        hashed = digest(secret)
        with self.penstock.db.read() as tx:
            if kind == "session":
                session = principals.valid_by_session(tx, hashed)
                return None if session is None else Known(session[0], session[1], until)
            found = principals.valid_by_hash(tx, hashed)
        if found is not None and hmac.compare_digest(found[1], hashed):
            self._touch(found[0])
            return Known(found[0], None, until)
        if self._jwts is not None and secret.count(".") == 2:
            named = self._jwts.principal(secret)
            return None if named is None else Known(named, None, until)
        return None

    def _touch(self, principal: Principal) -> None:
        now = self.penstock.db.moment() or datetime.now(UTC)
        last = principal.last_used_at
        if last is not None and (now - last).total_seconds() < principals.TOUCH_SECONDS:
            return
        try:
            self.penstock.db.transact(lambda tx: principals.touch(tx, principal.id))
        except DatabaseError:
            pass  # a database that cannot be written can still be read

    async def whoever(self, request: Request) -> tuple[Principal, bool, str]:
        """Who asks, whether by a session, and the tenant they act for."""
        known, by_session = await self._authenticated(request)
        tenant, _ = await self._tenant(request, known.principal)
        return known.principal, by_session, tenant

    def check_attempts(self, request: Request) -> None:
        """Refuse those who have guessed too often, before anything is looked up for them."""
        if self._refused.empty(_address(request)):
            raise _guessing(10)

    def refuse(self, request: Request) -> Problem:
        wait = self._refused.take(_address(request))
        if wait:
            return _guessing(wait)
        return _unauthenticated("The token or session is not valid: unknown, expired or revoked.")

    def _check_csrf(self, request: Request, known: Known) -> None:
        sent = request.headers.get("x-csrf-token", "")
        if not (same_origin(request) and known.csrf_hash and hmac.compare_digest(digest(sent), known.csrf_hash)):
            raise Problem(403, "csrf", "A change by session needs the X-CSRF-Token that GET /api/v1/session answers.")

    async def _tenant(self, request: Request, principal: Principal) -> tuple[str, UUID]:
        wanted = request.headers.get("x-tenant")
        if principal.role is not Role.SUPER_ADMIN:
            own = principal.tenant_slug or "default"
            if wanted is not None and wanted != own:
                raise Forbidden("X-Tenant is for super admins; the tenant comes from the token.")
            return own, principal.tenant_id or DEFAULT_TENANT_ID
        slug = wanted or "default"
        if slug not in self._tenants:
            try:
                self._tenants[slug] = await run_in_threadpool(self.penstock.ground.tenant_id, slug)
            except UnknownTenant:
                raise Problem(404, "unknown_tenant", "There is no tenant of the slug in X-Tenant.") from None
        return slug, self._tenants[slug]


def _guessing(wait: float) -> Problem:
    return Problem(429, "rate_limited", "Too many wrong tokens.", headers={"retry-after": str(int(wait) + 1)})


def _address(request: Request) -> str:
    return counted_as(request.client.host) if request.client else ""


def _unauthenticated(detail: str) -> Problem:
    return Problem(401, "unauthenticated", detail, headers={"www-authenticate": 'Bearer realm="penstock"'})


async def _hash(request: Request) -> str:
    body = await request.body()
    return hashlib.sha256(f"{request.method} {request.url.path}\n".encode() + body).hexdigest()


def _trace(request: Request) -> dict[str, str] | None:
    parent = request.headers.get("traceparent", "")
    if not _TRACEPARENT.fullmatch(parent):
        return None
    state = request.headers.get("tracestate", "")
    return {"traceparent": parent, **({"tracestate": state} if 0 < len(state) <= 512 and state.isascii() else {})}


def same_origin(request: Request) -> bool:
    """Whether a browser says that the request comes from our own page; clients that are no browsers say nothing."""
    site = request.headers.get("sec-fetch-site")
    if site is not None and site not in ("same-origin", "none"):
        return False
    origin = request.headers.get("origin")
    return origin is None or origin == f"{request.url.scheme}://{request.headers.get('host', '')}"


def cookie_name(request: Request) -> str:
    """Return the name of the session's cookie. Under TLS it is one that no other host of the site can set."""
    return SECURE_COOKIE if request.url.scheme == "https" else COOKIE


def csrf_of(request: Request) -> str | None:
    """The CSRF token of the session that the request carries."""
    cookie = request.cookies.get(cookie_name(request))
    return csrf_token(cookie) if cookie else None
