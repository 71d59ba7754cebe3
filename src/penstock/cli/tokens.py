"""`penstock tokens …`: who may use the API."""

from __future__ import annotations

import os
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Annotated
from uuid import UUID

import typer

from penstock.cli._common import AsJson, DatabaseUrl, open_app, out
from penstock.cli._show import print_json, print_table
from penstock.core import check
from penstock.core.access import Principal
from penstock.core.errors import InvalidInput
from penstock.core.wire.access import told
from penstock.queue import access
from penstock.queue import revoke as revocation

app = typer.Typer(help="Who may use the API.", no_args_is_help=True)


@app.command()
def create(
    role: Annotated[str, typer.Option(help="super_admin, tenant_admin, operator, viewer or worker.")],
    label: Annotated[str, typer.Option(help="Whose token it is.")],
    tenant: Annotated[str | None, typer.Option(help="The tenant; none for a super admin.")] = None,
    days: Annotated[float | None, typer.Option(min=0, help="Days until it ends; without it, never.")] = None,
    queue: Annotated[list[str] | None, typer.Option("--queue", "-q", help="A worker's queues.")] = None,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Make a token. It is shown this once."""
    expires_at = None if days is None else datetime.now(UTC) + timedelta(days=days)
    with open_app(database_url) as made:
        principal, token = access.create_token(
            made.ground, role, label, tenant, expires_at, queue or None, "command line"
        )
    if as_json:
        print_json({**told(principal), "token": token})
    else:
        out().print(token, markup=False)


@app.command("list")
def list_(
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's.")] = None,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """The tokens there are, never the tokens themselves."""
    with open_app(database_url) as made:
        found = access.list_tokens(made.ground, tenant)
    if as_json:
        print_json([told(each) for each in found])
        return
    columns = ("id", "tenant", "role", "label", "prefix", "created", "ends", "last used")
    rows = [
        (p.id, p.tenant_slug or "", p.role.value, p.label, p.token_prefix, p.created_at, _end(p), p.last_used_at or "")
        for p in found
    ]
    print_table(columns, rows, "No tokens.")


def _end(principal: Principal) -> str:
    if principal.revoked_at is not None:
        return "revoked"
    return "" if principal.expires_at is None else str(principal.expires_at)


@app.command()
def revoke(id: Annotated[str, typer.Argument(help="The token's id.")], database_url: DatabaseUrl = None) -> None:
    """End a token, every token that came from it, and the sessions opened with them."""
    with open_app(database_url) as made:
        principal_id: UUID = check.identifier("id", id)
        gone = access.revoke_token(made.ground, principal_id)
    who = gone.principal
    out().print(f"{who.label} ({who.id}) is revoked. Tokens: {gone.tokens}, sessions: {gone.sessions}.", markup=False)


@app.command("revoke-jwt")
def revoke_jwt(
    jti: Annotated[str | None, typer.Option(help="The jti of one JWT.")] = None,
    subject: Annotated[str | None, typer.Option(help="The sub whose JWTs are to end, all that exist now.")] = None,
    issuer: Annotated[str | None, typer.Option(help="Who issued them; else PENSTOCK_JWT_ISSUER.")] = None,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """End a JWT of the identity provider before it expires, or all that somebody has, with the sessions they opened."""
    found = issuer or os.environ.get("PENSTOCK_JWT_ISSUER") or os.environ.get("PENSTOCK_OIDC_ISSUER")
    if not found:
        raise InvalidInput("Name the issuer with --issuer, or set PENSTOCK_JWT_ISSUER.")
    with open_app(database_url) as made:
        revoked = revocation.revoke_jwt(
            made.ground, found, jti=jti, subject=subject, seconds=_longest_jwt(), created_by="command line"
        )
    if as_json:
        print_json(asdict(revoked))
    else:
        out().print(f"The {revoked.kind} {revoked.value} of {revoked.issuer} is revoked.", markup=False)


def _longest_jwt() -> float:
    """How long a JWT may live, as the service is told; a longer time than the service's does no harm."""
    given = os.environ.get("PENSTOCK_JWT_MAX_SECONDS")
    try:
        return max(revocation.DEFAULT_SECONDS, float(given)) if given else revocation.DEFAULT_SECONDS
    except ValueError as error:
        raise InvalidInput(f"PENSTOCK_JWT_MAX_SECONDS is {given!r}; expected a number.") from error
