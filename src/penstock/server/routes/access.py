"""Who comes in: signing in to the page, and out of it."""

from __future__ import annotations

from fastapi import Request, Response
from starlette.concurrency import run_in_threadpool

from penstock.core.access import Principal, digest
from penstock.core.wire import access as wire
from penstock.queue import sign_in as access
from penstock.server.auth import Gate, cookie_name, csrf_of, forget_cookie, same_origin
from penstock.server.problems import Problem
from penstock.server.routing import Routes
from penstock.server.settings import Settings
from penstock.store import principals, sessions, tenants
from penstock.store.database import Tx

routes = Routes("access")


@routes.post("/session", None, status_code=201)
async def sign_in(request: Request, body: wire.SignIn, response: Response) -> wire.Session:
    """Exchange a token, the code of a sign-in link or a JWT for a session cookie."""
    gate: Gate = request.app.state.gate
    if not same_origin(request):
        raise Problem(403, "csrf", "Sign in from the page itself.")
    gate.check_attempts(request)
    ground, visit = gate.penstock.ground, gate.visit(request)
    opened = await run_in_threadpool(access.sign_in, ground, body.token, visit)
    jwt = await gate.jwt(body.token) if opened is None and gate.settings.jwt_sessions == "on" else None
    if jwt is not None:
        until = jwt.principal.expires_at
        opened = await run_in_threadpool(
            access.sign_in_person, ground, jwt.person, visit, until=until, sid=jwt.sid, also=None
        )
    if opened is None:
        raise gate.refuse(request, "session.refused")
    gate.admit_session(request, response, opened, "by token" if jwt is None else f"by a JWT of {jwt.person.issuer}")
    slug = opened.principal.tenant_slug or "default"
    return await run_in_threadpool(_session, gate, opened.principal, slug, opened.csrf_token)


@routes.get("/session", None)
async def who_am_i(request: Request) -> wire.Session:
    """Who the token or session belongs to, and what they may do."""
    gate: Gate = request.app.state.gate
    principal, by_session, tenant = await gate.whoever(request)
    return await run_in_threadpool(_session, gate, principal, tenant, csrf_of(request) if by_session else None)


def _session(gate: Gate, principal: Principal, slug: str, csrf: str | None) -> wire.Session:
    with gate.penstock.db.read() as tx:
        tenant = tenants.by_slug(tx, slug)
    return wire.Session(
        principal_id=principal.id, role=principal.role.value, label=principal.label, tenant=slug,
        tenant_id=tenant.id if tenant else None, timezone=tenant.timezone if tenant else None,
        may=wire.rights(principal), csrf_token=csrf,
        scopes=wire.told(principal)["scopes"], keys=wire.told(principal)["keys"],
        idle_seconds=None if csrf is None else gate.settings.session_idle_seconds,
        sign_out_url=_sign_out_url(gate.settings, principal),
    )  # fmt: skip


@routes.delete("/session", None, status_code=204)
def sign_out(request: Request, response: Response) -> None:
    """Close the session of the cookie, if there is one."""
    gate: Gate = request.app.state.gate
    secret = request.cookies.get(cookie_name(request))
    if secret and same_origin(request):
        whose = gate.penstock.db.transact(lambda tx: _close(tx, digest(secret)))
        forget_cookie(request, response)
        gate.forget()
        if whose is not None:
            gate.outcome("session.close", request, whose)


def _sign_out_url(settings: Settings, principal: Principal) -> str | None:
    """Where the browser goes after signing out here, so that a person is signed out at their identity provider, too."""
    if settings.public_url is None or principal.issuer is None or principal.issuer != settings.oidc_issuer:
        return None
    return f"{settings.public_url.rstrip('/')}/api/v1/sign-in/oidc/sign-out"


def _close(tx: Tx, secret_hash: str) -> Principal | None:
    whose = sessions.close_session(tx, secret_hash)
    return None if whose is None else principals.by_id(tx, whose)
