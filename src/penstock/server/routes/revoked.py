"""JSON Web Tokens that are revoked here before they expire by themselves."""

from __future__ import annotations

from fastapi import Request

from penstock.core.access import Need
from penstock.core.errors import InvalidInput
from penstock.core.wire import sign_in as wire
from penstock.queue.revoke import revoke_jwt_in
from penstock.server.calls import Unit
from penstock.server.routing import Caller, Routes
from penstock.store import revocations

routes = Routes("access")


@routes.post("/admin/revoked-jwts", Need.ADMIN, status_code=201)
def revoke_jwt(call: Caller, request: Request, body: wire.RevokeJwt) -> wire.RevokedJwt:
    """Revoke a JWT by its `jti`, or all that a `subject` was issued until now. Sessions that they opened end, too."""
    issuer = body.issuer or call.settings.jwt_issuer or call.settings.oidc_issuer
    if issuer is None:
        raise InvalidInput("Name the issuer: neither jwt_issuer nor oidc_issuer is set.")

    def work(unit: Unit) -> wire.RevokedJwt:
        found = revoke_jwt_in(
            unit.tx, issuer, body.jti, body.subject, call.settings.jwt_max_seconds, call.principal.actor
        )
        revoked = wire.RevokedJwt.of(found)
        unit.audit("jwt.revoke", "jwt", found.value, after=revoked, tenant_id=None)
        return revoked

    made = call.change(work, status=201)
    request.app.state.gate.forget()
    return made


@routes.get("/admin/revoked-jwts", Need.ADMIN)
def list_revoked_jwts(call: Caller) -> wire.RevokedJwtList:
    """The revocations that still hold for something, newest first."""
    with call.read() as tx:
        found = revocations.listed(tx)
    return wire.RevokedJwtList(items=[wire.RevokedJwt.of(each) for each in found])
