"""Who may come in: sessions of the page, and tokens."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import Query, Request, Response
from starlette.concurrency import run_in_threadpool

from penstock.core.access import Need, Principal, Role, digest, new_token
from penstock.core.errors import InvalidInput, NotFound
from penstock.core.wire import access as wire
from penstock.queue import bounds
from penstock.queue import sign_in as access
from penstock.server.auth import SECURE_COOKIE, Gate, cookie_name, csrf_of, same_origin
from penstock.server.calls import Call, Unit
from penstock.server.problems import Problem
from penstock.server.queries import Paged
from penstock.server.routing import Caller, Routes
from penstock.server.settings import Settings
from penstock.store import principals, quotas, sessions, tenants, token_tree
from penstock.store.database import Tx
from penstock.store.principals import NewPrincipal

routes = Routes("access")
HIDDEN = frozenset({"token"})


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
        may=sorted(need.value for need in Need if principal.may(need)), csrf_token=csrf,
        sign_out_url=_sign_out_url(gate.settings, principal),
    )  # fmt: skip


@routes.delete("/session", None, status_code=204)
def sign_out(request: Request, response: Response) -> None:
    """Close the session of the cookie, if there is one."""
    gate: Gate = request.app.state.gate
    name = cookie_name(request)
    secret = request.cookies.get(name)
    if secret and same_origin(request):
        whose = gate.penstock.db.transact(lambda tx: _close(tx, digest(secret)))
        response.delete_cookie(name, path="/", httponly=True, samesite="strict", secure=name == SECURE_COOKIE)
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


def _create(call: Call, body: wire.NewToken, tenant_id: UUID | None) -> wire.CreatedToken:
    def work(unit: Unit) -> wire.CreatedToken:
        role = Role(body.role)
        token, prefix = new_token()
        new = NewPrincipal(
            role, body.label, prefix, digest(token), tenant_id=tenant_id, queues=body.queues,
            created_by=call.principal.actor, expires_at=body.expires_at,
        )  # fmt: skip
        if tenant_id is not None:
            bounds.require(unit.ground, unit.tx, tenant_id, "tokens", quotas.tokens)
        made = principals.add(unit.tx, new)
        unit.audit("token.create", "token", made.id, after=wire.Token.of(made), tenant_id=tenant_id)
        return wire.CreatedToken(**wire.told(made), token=token)

    return call.change(work, status=201, hide=HIDDEN)


def _revoke(call: Call, gate: Gate, token_id: UUID, tenant_id: UUID | None) -> wire.Token:
    def work(unit: Unit) -> wire.Token:
        found = principals.by_id(unit.tx, token_id)
        if found is None or (tenant_id is not None and found.tenant_id != tenant_id):
            raise NotFound("token", token_id)
        revoked = token_tree.revoke_tree(unit.tx, token_id)
        assert revoked is not None
        after = wire.Token.of(revoked.principal)
        unit.audit("token.revoke", "token", token_id, wire.Token.of(found), after, found.tenant_id)
        return after

    revoked = call.change(work)
    gate.forget()
    return revoked


@routes.post("/admin/tokens", Need.ADMIN, status_code=201)
def create_token(call: Caller, body: wire.NewToken) -> wire.CreatedToken:
    """A token of any tenant. The answer shows it this once."""
    if (body.role == "super_admin") == (body.tenant is not None) and body.role != "worker":
        said = (
            "belongs to no tenant; leave tenant out" if body.tenant else "belongs to a tenant; give its slug as tenant"
        )
        raise InvalidInput(f"A token of the role {body.role} {said}.")
    tenant_id = None if body.tenant is None else call.ground.tenant_id(body.tenant)
    _check_queues(body)
    return _create(call, body, tenant_id)


def _check_queues(body: wire.NewToken | wire.NewTenantToken) -> None:
    if body.queues is not None and body.role != "worker":
        raise InvalidInput("Only a worker's token is bound to queues.")


@routes.get("/admin/tokens", Need.ADMIN)
def list_all_tokens(call: Caller, query: Annotated[Paged, Query()]) -> wire.TokenList:
    """Every token of the installation, newest first; never the tokens themselves."""
    with call.read() as tx:
        found = principals.listed(tx, None, query.limit, query.offset)
    return wire.TokenList(items=[wire.Token.of(each) for each in found])


@routes.delete("/admin/tokens/{token_id}", Need.ADMIN)
def revoke_any_token(call: Caller, request: Request, token_id: UUID) -> wire.Token:
    """Revoke a token, and its sessions, at once."""
    return _revoke(call, request.app.state.gate, token_id, None)


@routes.post("/tokens", Need.MANAGE, status_code=201)
def create_tenant_token(call: Caller, body: wire.NewTenantToken) -> wire.CreatedToken:
    """A token of the caller's own tenant. The answer shows it this once."""
    _check_queues(body)
    return _create(call, wire.NewToken(**body.model_dump()), call.tenant_id)


@routes.get("/tokens", Need.MANAGE)
def list_tenant_tokens(call: Caller, query: Annotated[Paged, Query()]) -> wire.TokenList:
    """The tokens of the caller's own tenant, newest first."""
    with call.read() as tx:
        found = principals.listed(tx, call.tenant_id, query.limit, query.offset)
    return wire.TokenList(items=[wire.Token.of(each) for each in found])


@routes.delete("/tokens/{token_id}", Need.MANAGE)
def revoke_tenant_token(call: Caller, request: Request, token_id: UUID) -> wire.Token:
    """Revoke a token of the caller's own tenant, and its sessions, at once."""
    return _revoke(call, request.app.state.gate, token_id, call.tenant_id)
