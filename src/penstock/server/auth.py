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
from functools import partial
from uuid import UUID

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from penstock.app import Penstock
from penstock.core.access import Need, Outcome, Principal, Role, Session, csrf_token, digest, is_well_formed
from penstock.core.errors import AddressRefused, DatabaseError, Forbidden, UnknownTenant
from penstock.core.forwarded import counted_as
from penstock.core.ids import DEFAULT_TENANT_ID
from penstock.core.limits import allows_address
from penstock.core.scopes import Rule, check_scope
from penstock.queue.sign_in import Opened, Visit
from penstock.server.calls import Call
from penstock.server.definition_limits import check_keys
from penstock.server.jwts import Jwt, Tokens
from penstock.server.limits import Buckets, TenantRate
from penstock.server.looks import Looks
from penstock.server.problems import Problem
from penstock.server.settings import Settings
from penstock.server.tracing import current_trace
from penstock.store import principals, sessions
from penstock.store.database import Tx

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
    until: float
    csrf_hash: str | None = None
    session: Session | None = None


class Gate:
    """Lets requests in. One for each app."""

    def __init__(self, penstock: Penstock, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self.penstock = penstock
        self.settings = settings
        self.clock = clock
        self._known: OrderedDict[tuple[str, str], Known] = OrderedDict()
        self._looks = Looks()
        self._forgotten = 0
        self._welcome: OrderedDict[tuple[str, str], None] = OrderedDict()
        """Who was let in before. Guessing by others at their address does not shut them out."""
        self._rate = Buckets(settings.rate_limit, 2 * settings.rate_limit)
        self._tenant_rate = TenantRate(penstock.ground, settings)
        self._refused = Buckets(5.0, 300.0)
        self._jwts = Tokens(settings, penstock.ground) if settings.jwt_jwks else None
        self.listeners: list[Callable[[Outcome], None]] = []
        """Told of every sign-in, sign-out and refusal. They are called on the event loop, too, so they must not wait."""

    def forget(self) -> None:
        """Look everyone up again: a token was revoked, a session closed, a tenant changed."""
        self._forgotten += 1
        self._known.clear()
        self._looks.forget()

    def outcome(self, kind: str, request: Request, principal: Principal | None = None, detail: str = "") -> None:
        """Tell the listeners how an attempt ended: the one place that every authentication passes."""
        told = Outcome(kind, principal, address_of(request), detail, getattr(request.state, "request_id", None))
        for listener in self.listeners:
            listener(told)

    def visit(self, request: Request, longest: float | None = None) -> Visit:
        """How the one who signs in comes to us, for the list of their sessions. `longest` bounds the session further."""
        seconds = self.settings.session_seconds
        return Visit(
            seconds if longest is None else min(seconds, longest), address_of(request), request.headers.get("user-agent"),
            request.cookies.get(cookie_name(request)),
        )  # fmt: skip

    def admit_session(self, request: Request, response: Response, opened: Opened, how: str) -> None:
        """Give the browser the cookie of a session that was opened just now. `how` is told to the listeners."""
        name = cookie_name(request)
        left = (opened.session.expires_at - opened.session.created_at).total_seconds()
        response.set_cookie(
            name, opened.secret, max_age=int(left), path="/", httponly=True, samesite="strict",
            secure=name == SECURE_COOKIE,
        )  # fmt: skip
        self.forget()
        self.outcome("session.open", request, opened.principal, how)

    def tenant_of(self, kind: str, secret: str) -> UUID | None:
        """The tenant of a token or session that was let in before. It may have ended since: whoever asks grants nothing by it."""
        known = self._known.get((kind, digest(secret)))
        return None if known is None else known.principal.tenant_id

    async def admit(self, request: Request, need: Need, rule: Rule) -> Call:
        """The call that this request may make; a Problem when it may not. The one place where roles, scopes and definitions
        are looked at."""
        known, by_session = await self._authenticated(request)
        principal = known.principal
        try:
            call = await self._admitted(request, need, rule, known, by_session)
            if principal.keys is not None:
                await check_keys(request, call, principal)
            return call
        except (Forbidden, Problem) as error:
            if isinstance(error, Forbidden) or error.status_code == 403:
                self.outcome("access.refused", request, principal, f"{request.method} {request.url.path}: {error}")
            raise

    async def _admitted(self, request: Request, need: Need, rule: Rule, known: Known, by_session: bool) -> Call:
        principal = known.principal
        wait = self._rate.take(principal.id)
        if wait:
            raise Problem(
                429, "rate_limited", "Too many requests for this token.", headers={"retry-after": str(int(wait) + 1)}
            )
        await self._tenant_rate.check(principal.tenant_id)
        if not principal.may(need):
            raise Forbidden(f"The role {principal.role.value} may not do this.")
        check_scope(principal, rule)
        if by_session and request.method not in SAFE_METHODS:
            self._check_csrf(request, known)
        request.state.session = known.session
        if known.session is not None:
            await self._seen(request, known, known.session)
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
            address_of(request) or None,
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
            if name not in self._welcome:
                self.check_attempts(request)
            forgotten = self._forgotten
            if not is_well_formed(secret):
                known = None
            else:
                known = await self._looks.look(name, partial(self._look_up, kind, secret, address_of(request)))
            if known is None and kind == "token":
                known = await self._by_jwt(secret)
            if known is None:
                self._known.pop(name, None)
                self._welcome.pop(name, None)
                raise self.refuse(request, f"{kind}.refused")
            if forgotten == self._forgotten:  # else it may have been revoked since it was looked up
                self._known[name] = known
            self._welcome[name] = None
            for remembered in (self._known, self._welcome):
                if len(remembered) > MAX_REMEMBERED:
                    remembered.popitem(last=False)
        if not allows_address(known.principal.addresses, address_of(request)):
            self.outcome("access.refused", request, known.principal, "from another network")
            raise AddressRefused("This token may not be used from the address that the request came from.")
        return known

    def _expired(self, principal: Principal) -> bool:
        return principal.expires_at is not None and principal.expires_at <= self._now()

    def _look_up(self, kind: str, secret: str, address: str) -> Known | None:
        until = self.clock() + REMEMBER_SECONDS
        hashed = digest(secret)
        with self.penstock.db.read() as tx:
            if kind == "session":
                found = principals.valid_by_session(tx, hashed, self.settings.session_idle_seconds)
                return None if found is None else Known(found.principal, until, found.csrf_hash, found.session)
            by_token = principals.valid_by_hash(tx, hashed)
        if by_token is not None and hmac.compare_digest(by_token[1], hashed):
            self._touch(by_token[0], address)
            return Known(by_token[0], until)
        return None

    async def _by_jwt(self, secret: str) -> Known | None:
        jwt = await self.jwt(secret)
        return None if jwt is None else Known(jwt.principal, self.clock() + REMEMBER_SECONDS)

    async def jwt(self, secret: str) -> Jwt | None:
        """Read a JWT; None when it is none, or none that may be trusted."""
        return None if self._jwts is None or secret.count(".") != 2 else await self._jwts.read(secret)

    def _touch(self, principal: Principal, address: str) -> None:
        """Note when and from where a token is used, to the minute."""
        last = principal.last_used_at
        if last is None or (self._now() - last).total_seconds() >= principals.TOUCH_SECONDS:
            self._note(lambda tx: principals.touch(tx, principal.id, address))

    async def _seen(self, request: Request, known: Known, session: Session) -> None:
        """Note that a session is used, so that it does not end as idle; not with every request. Waiting on a stream is no
        use: a page that nobody looks at does not keep its session."""
        often = min(principals.TOUCH_SECONDS, self.settings.session_idle_seconds / 10)
        if (self._now() - session.last_seen_at).total_seconds() >= often and not request.url.path.endswith("/stream"):
            address = address_of(request)
            await run_in_threadpool(self._note, lambda tx: sessions.touch(tx, session.id, address))
            await run_in_threadpool(self._touch, known.principal, address)

    def _note(self, work: Callable[[Tx], None]) -> None:
        try:
            self.penstock.db.transact(work)
        except DatabaseError:
            pass  # a database that cannot be written can still be read

    def _now(self) -> datetime:
        return self.penstock.db.moment() or datetime.now(UTC)

    async def whoever(self, request: Request) -> tuple[Principal, bool, str]:
        """Who asks, whether by a session, and the tenant they act for."""
        known, by_session = await self._authenticated(request)
        tenant, _ = await self._tenant(request, known.principal)
        return known.principal, by_session, tenant

    def check_attempts(self, request: Request) -> None:
        """Refuse those who have guessed too often, before anything is looked up for them."""
        if self._refused.empty(_counted_as(request)):
            raise _guessing(10)

    def refuse(self, request: Request, kind: str, detail: str = "") -> Problem:
        """What somebody gets who came with a secret that is not valid: `token.refused` or `session.refused`."""
        self.outcome(kind, request, detail=detail)
        wait = self._refused.take(_counted_as(request))
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
        found = self.penstock.ground.known_tenant(slug)
        if found is None:
            try:
                found = await run_in_threadpool(self.penstock.ground.tenant_id, slug)
            except UnknownTenant:
                raise Problem(404, "unknown_tenant", "There is no tenant of the slug in X-Tenant.") from None
        return slug, found


def _guessing(wait: float) -> Problem:
    return Problem(429, "rate_limited", "Too many wrong tokens.", headers={"retry-after": str(int(wait) + 1)})


def address_of(request: Request) -> str:
    return request.client.host if request.client else ""


def _counted_as(request: Request) -> str:
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


def forget_cookie(request: Request, response: Response) -> None:
    """Tell the browser that its session is over."""
    name = cookie_name(request)
    response.delete_cookie(name, path="/", httponly=True, samesite="strict", secure=name == SECURE_COOKIE)


def csrf_of(request: Request) -> str | None:
    """The CSRF token of the session that the request carries."""
    cookie = request.cookies.get(cookie_name(request))
    return csrf_token(cookie) if cookie else None
