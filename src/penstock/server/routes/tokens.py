"""Tokens: created, shown, rotated and revoked, by a tenant's administrator or the operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

from fastapi import Query, Request

from penstock.core.access import Need, Principal, Role
from penstock.core.errors import NotFound
from penstock.core.limits import Limits
from penstock.core.wire import access as wire
from penstock.queue import access
from penstock.server.auth import Gate
from penstock.server.calls import Call, Unit
from penstock.server.queries import Paged
from penstock.server.routing import Caller, Routes
from penstock.store import principals, sessions, token_tree
from penstock.store.database import Tx

routes = Routes("access")
HIDDEN = frozenset({"token"})
"""What an answer that is sent again does not show again."""


def _found(tx: Tx, token_id: UUID, tenant_id: UUID | None) -> Principal:
    """The token, if it is of this tenant; of any, if none is given."""
    found = principals.by_id(tx, token_id)
    if found is None or (tenant_id is not None and found.tenant_id != tenant_id):
        raise NotFound("token", token_id)
    return found


def _tuple(given: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if given is None else tuple(map(str, given))


def _create(call: Call, body: wire.NewToken | wire.NewTenantToken, tenant_id: UUID | None) -> wire.CreatedToken:
    asked = Limits(
        Role(body.role), tenant_id, scopes=_tuple(body.scopes), keys=_tuple(body.keys), addresses=_tuple(body.addresses),
        queues=_tuple(body.queues), expires_at=body.expires_at,
    ).checked()  # fmt: skip

    def work(unit: Unit) -> wire.CreatedToken:
        parent = access.creator_of(unit.tx, call.principal)
        made, token = access.create_in(unit.ground, unit.tx, body.label, asked, parent, call.principal.actor)
        unit.audit("token.create", "token", made.id, after=wire.Token.of(made), tenant_id=tenant_id)
        return wire.CreatedToken(**wire.told(made), token=token)

    return call.change(work, status=201, hide=HIDDEN)


def _list(call: Call, query: Paged, tenant_id: UUID | None) -> wire.TokenList:
    with call.read() as tx:
        found = principals.listed(tx, tenant_id, query.limit, query.offset)
    return wire.TokenList(items=[wire.Token.of(each) for each in found])


def _show(call: Call, token_id: UUID, tenant_id: UUID | None) -> wire.TokenDetail:
    with call.read() as tx:
        found = _found(tx, token_id, tenant_id)
        return wire.TokenDetail(**wire.told(found), descendants=token_tree.descendants(tx, token_id))


def _rotate(
    call: Call, gate: Gate, token_id: UUID, body: wire.RotateToken, tenant_id: UUID | None
) -> wire.CreatedToken:
    def work(unit: Unit) -> wire.CreatedToken:
        before = _found(unit.tx, token_id, tenant_id)
        after, token = access.rotate_in(unit.tx, token_id, body.overlap_seconds, call.principal)
        unit.audit("token.rotate", "token", token_id, wire.Token.of(before), wire.Token.of(after), before.tenant_id)
        return wire.CreatedToken(**wire.told(after), token=token)

    rotated = call.change(work, hide=HIDDEN)
    gate.forget()
    return rotated


def _revoke(call: Call, gate: Gate, token_id: UUID, tenant_id: UUID | None) -> wire.RevokedToken:
    def work(unit: Unit) -> wire.RevokedToken:
        before = _found(unit.tx, token_id, tenant_id)
        done = token_tree.revoke_tree(unit.tx, token_id)
        assert done is not None
        after = wire.RevokedToken(**wire.told(done.principal), revoked_tokens=done.tokens, ended_sessions=done.sessions)
        unit.audit("token.revoke", "token", token_id, wire.Token.of(before), after, before.tenant_id)
        return after

    revoked = call.change(work)
    gate.forget()
    return revoked


def _end_sessions(call: Call, gate: Gate, token_id: UUID, tenant_id: UUID | None) -> wire.EndedSessions:
    def work(unit: Unit) -> wire.EndedSessions:
        found = _found(unit.tx, token_id, tenant_id)
        ended = wire.EndedSessions(ended=sessions.close_of(unit.tx, [token_id]))
        unit.audit("token.sign_out", "token", token_id, after=ended, tenant_id=found.tenant_id)
        return ended

    done = call.change(work)
    gate.forget()
    return done


@routes.post("/admin/tokens", Need.ADMIN, status_code=201)
def create_token(call: Caller, body: wire.NewToken) -> wire.CreatedToken:
    """Create a token of any tenant. The answer shows it this once.

    It ends with the token that creates it and may no more than that one; what is left open is taken from there."""
    return _create(call, body, None if body.tenant is None else call.ground.tenant_id(body.tenant))


@routes.get("/admin/tokens", Need.ADMIN)
def list_all_tokens(call: Caller, query: Annotated[Paged, Query()]) -> wire.TokenList:
    """Every token of the installation, newest first; never the tokens themselves."""
    return _list(call, query, None)


@routes.get("/admin/tokens/{token_id}", Need.ADMIN)
def get_any_token(call: Caller, token_id: UUID) -> wire.TokenDetail:
    """One token, with the number of those that came from it."""
    return _show(call, token_id, None)


@routes.post("/admin/tokens/{token_id}/rotate", Need.ADMIN)
def rotate_any_token(call: Caller, request: Request, token_id: UUID, body: wire.RotateToken) -> wire.CreatedToken:
    """Give a token a new secret, shown this once. The old one is accepted for a day, or as long as the body says."""
    return _rotate(call, request.app.state.gate, token_id, body, None)


@routes.delete("/admin/tokens/{token_id}", Need.ADMIN)
def revoke_any_token(call: Caller, request: Request, token_id: UUID) -> wire.RevokedToken:
    """Revoke a token, every token that came from it, and their sessions, at once."""
    return _revoke(call, request.app.state.gate, token_id, None)


@routes.delete("/admin/tokens/{token_id}/sessions", Need.ADMIN)
def sign_out_any_token(call: Caller, request: Request, token_id: UUID) -> wire.EndedSessions:
    """End every session that was opened with a token, or by a person. The token itself stays valid."""
    return _end_sessions(call, request.app.state.gate, token_id, None)


@routes.post("/tokens", Need.MANAGE, status_code=201)
def create_tenant_token(call: Caller, body: wire.NewTenantToken) -> wire.CreatedToken:
    """Create a token of the caller's own tenant. The answer shows it this once.

    It ends with the token that creates it and may no more than that one; what is left open is taken from there."""
    return _create(call, body, call.tenant_id)


@routes.get("/tokens", Need.MANAGE)
def list_tenant_tokens(call: Caller, query: Annotated[Paged, Query()]) -> wire.TokenList:
    """The tokens of the caller's own tenant, newest first."""
    return _list(call, query, call.tenant_id)


@routes.get("/tokens/{token_id}", Need.MANAGE)
def get_tenant_token(call: Caller, token_id: UUID) -> wire.TokenDetail:
    """One token of the caller's own tenant, with the number of those that came from it."""
    return _show(call, token_id, call.tenant_id)


@routes.post("/tokens/{token_id}/rotate", Need.MANAGE)
def rotate_tenant_token(call: Caller, request: Request, token_id: UUID, body: wire.RotateToken) -> wire.CreatedToken:
    """Give a token of the caller's own tenant a new secret, shown this once."""
    return _rotate(call, request.app.state.gate, token_id, body, call.tenant_id)


@routes.delete("/tokens/{token_id}", Need.MANAGE)
def revoke_tenant_token(call: Caller, request: Request, token_id: UUID) -> wire.RevokedToken:
    """Revoke a token of the caller's own tenant, every token that came from it, and their sessions, at once."""
    return _revoke(call, request.app.state.gate, token_id, call.tenant_id)


@routes.delete("/tokens/{token_id}/sessions", Need.MANAGE)
def sign_out_tenant_token(call: Caller, request: Request, token_id: UUID) -> wire.EndedSessions:
    """End every session that was opened with a token of the caller's own tenant. The token itself stays valid."""
    return _end_sessions(call, request.app.state.gate, token_id, call.tenant_id)
