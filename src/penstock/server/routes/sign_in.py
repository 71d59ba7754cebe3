"""Signing in elsewhere: how it begins, how it ends, and how the provider ends it."""

from __future__ import annotations

from html import escape
from typing import Annotated, Any
from urllib.parse import parse_qs

from fastapi import Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import BaseModel

from penstock.core.wire import sign_in as wire
from penstock.core.wire.base import Slug
from penstock.server.auth import Gate
from penstock.server.problems import Problem
from penstock.server.routing import Routes

routes = Routes("access")
COOKIE = "penstock_sign_in"
SECURE_COOKIE = "__Host-penstock_sign_in"
MAX_LOGOUT = 32 * 1024
REPLY = ("state", "code", "iss", "error", "error_description")
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Sign-in - Penstock</title><main><h1>You are not signed in</h1><p>{detail}</p>
<p><a href="{home}/sign-in">Back to the sign-in page</a></p></main></html>
"""


class Begin(BaseModel):
    """Where to go back to, and for which tenant, when somebody has several."""

    return_to: str | None = None
    tenant: Slug | None = None


def _sign_ins(request: Request) -> Any:
    found = request.app.state.sign_ins
    if found is None:
        raise Problem(404, "sign_in_not_configured", "Sign-in with OpenID Connect is not set up here. Use a token.")
    return found


def _cookie(home: str) -> tuple[str, bool]:
    secure = home.startswith("https://")
    return (SECURE_COOKIE if secure else COOKIE), secure


@routes.get("/sign-in", None)
async def sign_in_ways(request: Request) -> wire.SignInWays:
    """How somebody may sign in to the page, beside a token and a sign-in link, which always work."""
    found = request.app.state.sign_ins
    if found is None:
        return wire.SignInWays(openid=None)
    url = f"{found.provider.home}/api/v1/sign-in/oidc"
    return wire.SignInWays(openid=wire.OpenIdProvider(name=found.provider.name, url=url))


@routes.get("/sign-in/oidc", None, status_code=303, response_class=RedirectResponse, response_model=None)
async def begin_sign_in(request: Request, query: Annotated[Begin, Query()]) -> Response:
    """Send the browser to the identity provider to sign in there. It comes back to `return_to`, a path of the page."""
    from penstock.server.oidc import Attempt
    from penstock.server.signing_in import ATTEMPT_SECONDS

    found = _sign_ins(request)
    attempt = Attempt.begin(query.return_to, query.tenant)
    try:
        response = RedirectResponse(await found.begin(attempt), 303)
    except Problem as problem:
        return _told(request, problem, found.provider.home)
    name, secure = _cookie(found.provider.home)
    response.set_cookie(
        name, attempt.to_cookie(), max_age=ATTEMPT_SECONDS, path="/", httponly=True, samesite="lax", secure=secure
    )
    return response


@routes.get(
    "/sign-in/oidc/callback", None, status_code=303, response_class=RedirectResponse, response_model=None,
    open_query=True,
)  # fmt: skip
async def finish_sign_in(request: Request) -> Response:
    """Where the identity provider sends the browser back to. What it adds to the address beside its reply is passed over."""
    from penstock.server.oidc import Attempt
    from penstock.server.signing_in import Reply

    found = _sign_ins(request)
    gate: Gate = request.app.state.gate
    gate.check_attempts(request)
    name, secure = _cookie(found.provider.home)
    attempt = Attempt.from_cookie(request.cookies.get(name))
    given = {each: request.query_params.getlist(each) for each in REPLY}
    once = {each: values[0] if len(values) == 1 else None for each, values in given.items()}
    visit = gate.visit(request, gate.settings.oidc_session_seconds)
    try:
        if any(len(values) > 1 for values in given.values()):
            attempt = None
        reply = Reply(once["state"], once["code"], once["iss"], once["error"], once["error_description"])
        opened = await found.finish(attempt, reply, visit)
        assert attempt is not None
        response: Response = RedirectResponse(found.provider.home + attempt.return_to, 303)
        gate.admit_session(request, response, opened, f"by {found.provider.issuer}")
    except Problem as problem:
        if problem.status_code < 500:
            gate.refuse(request, "session.refused", f"{problem.code}: {problem.detail}")
        response = _told(request, problem, found.provider.home)
    response.delete_cookie(name, path="/", httponly=True, samesite="lax", secure=secure)
    return response


@routes.get("/sign-in/oidc/sign-out", None, status_code=303, response_class=RedirectResponse, response_model=None)
async def sign_out_elsewhere(request: Request) -> Response:
    """Send the browser to the identity provider to end its session there. Ours is ended by `DELETE /session`."""
    return RedirectResponse(await _sign_ins(request).provider.sign_out_url(), 303)


@routes.post("/sign-in/oidc/back-channel-logout", None, status_code=200, response_model=None)
async def back_channel_logout(request: Request) -> Response:
    """End the sessions that the identity provider says are over. It posts a form with a signed `logout_token`."""
    found = _sign_ins(request)
    gate: Gate = request.app.state.gate
    gate.check_attempts(request)
    body = await request.body()
    given = parse_qs(body.decode("utf-8", "replace")).get("logout_token", []) if len(body) <= MAX_LOGOUT else []
    try:
        if len(given) != 1:
            raise Problem(400, "sign_in_untrusted", "Send one logout_token, as a form.")
        await found.end_sessions(given[0])
    except Problem as problem:
        if problem.status_code < 500:
            gate.refuse(request, "session.refused", f"{problem.code}: {problem.detail}")
        raise
    gate.forget()
    return Response(status_code=200)


def _told(request: Request, problem: Problem, home: str) -> Response:
    """Show a browser the problem as a page; anybody else gets it as a problem document."""
    if "text/html" not in request.headers.get("accept", ""):
        raise problem
    page = PAGE.format(detail=escape(problem.detail), home=escape(home))
    return HTMLResponse(page, problem.status_code, dict(problem.headers or {}))
