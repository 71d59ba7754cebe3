"""One's own sessions: see them, end one, sign out everywhere."""

from __future__ import annotations

from uuid import UUID

from fastapi import Request, Response

from penstock.core.access import Need
from penstock.core.errors import NotFound
from penstock.core.wire import access as wire
from penstock.server.auth import Gate, forget_cookie
from penstock.server.routing import Caller, Routes
from penstock.store import sessions

routes = Routes("access")


def _current(request: Request) -> UUID | None:
    found = getattr(request.state, "session", None)
    return None if found is None else found.id


@routes.get("/sessions", Need.SELF)
def list_sessions(call: Caller, request: Request) -> wire.OpenSessionList:
    """The caller's own sessions of the page, the one used last first."""
    with call.read() as tx:
        found = sessions.listed(tx, call.settings.session_idle_seconds, call.principal.id)
    current = _current(request)
    return wire.OpenSessionList(items=[wire.OpenSession.of(each, current) for each in found])


@routes.delete("/sessions/{session_id}", Need.SELF, status_code=204)
def end_session(call: Caller, request: Request, response: Response, session_id: UUID) -> None:
    """End one of the caller's own sessions."""
    if not call.ground.db.transact(lambda tx: sessions.close_by_id(tx, session_id, call.principal.id)):
        raise NotFound("session", session_id)
    if session_id == _current(request):
        forget_cookie(request, response)
    gate: Gate = request.app.state.gate
    gate.forget()
    gate.outcome("session.close", request, call.principal, f"session {session_id}")


@routes.delete("/sessions", Need.SELF)
def sign_out_everywhere(call: Caller, request: Request, response: Response) -> wire.EndedSessions:
    """End every session of the caller, this one too. The token that opened them stays valid."""
    ended = call.ground.db.transact(lambda tx: sessions.close_of(tx, [call.principal.id]))
    if call.by_session:
        forget_cookie(request, response)
    gate: Gate = request.app.state.gate
    gate.forget()
    gate.outcome("session.close", request, call.principal, f"everywhere: {ended} sessions")
    return wire.EndedSessions(ended=ended)
