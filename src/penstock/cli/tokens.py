"""`penstock tokens …`: who may use the API."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Annotated
from uuid import UUID

import typer

from penstock.cli._common import AsJson, DatabaseUrl, open_app, out
from penstock.cli._show import print_facts, print_json, print_table, span
from penstock.core import check
from penstock.core.access import Principal
from penstock.core.errors import InvalidInput
from penstock.core.wire.access import told
from penstock.queue import access
from penstock.queue import revoke as revocation

app = typer.Typer(help="Who may use the API.", no_args_is_help=True)
TokenId = Annotated[str, typer.Argument(help="The token's id.")]


def _id(text: str) -> UUID:
    return check.identifier("id", text)


def _show_token(principal: Principal, token: str, as_json: bool) -> None:
    if as_json:
        print_json({**told(principal), "token": token})
    else:
        out().print(token, markup=False)


@app.command()
def create(
    role: Annotated[str, typer.Option(help="super_admin, tenant_admin, operator, viewer or worker.")],
    label: Annotated[str, typer.Option(help="Whose token it is.")],
    tenant: Annotated[str | None, typer.Option(help="The tenant; none for a super admin.")] = None,
    days: Annotated[float | None, typer.Option(min=0, help="Days until it ends; without it, never.")] = None,
    queue: Annotated[list[str] | None, typer.Option("--queue", "-q", help="A worker's queues.")] = None,
    scope: Annotated[
        list[str] | None, typer.Option(help="Limit it to this scope, such as jobs:read; may be repeated.")
    ] = None,
    key: Annotated[
        list[str] | None, typer.Option(help="Limit it to this definition, or a beginning such as report.*")
    ] = None,
    address: Annotated[
        list[str] | None, typer.Option(help="Limit it to this network, such as 10.0.0.0/8; may be repeated.")
    ] = None,
    parent: Annotated[
        str | None, typer.Option(help="The id of a token that it ends with, and than which it may no more.")
    ] = None,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Create a token. It is shown this once."""
    expires_at = None if days is None else datetime.now(UTC) + timedelta(days=days)
    with open_app(database_url) as made:
        principal, token = access.create_token(
            made.ground, role, label, tenant, expires_at, queue or None, "command line", scopes=scope or None,
            keys=key or None, addresses=address or None, parent=None if parent is None else _id(parent),
        )  # fmt: skip
    _show_token(principal, token, as_json)


@app.command("list")
def list_(
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's.")] = None,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """List the tokens there are, never the tokens themselves."""
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
def show(id: TokenId, as_json: AsJson = False, database_url: DatabaseUrl = None) -> None:
    """Show a token: its limits, its parent, how many tokens came from it, and when and from where it was used last."""
    with open_app(database_url) as made:
        found, descendants = access.get_token(made.ground, _id(id))
    if as_json:
        print_json({**told(found), "descendants": descendants})
        return
    print_facts([
        ("id", found.id), ("label", found.label), ("role", found.role.value), ("tenant", found.tenant_slug),
        ("prefix", found.token_prefix), ("scopes", found.scopes), ("definitions", found.keys),
        ("networks", found.addresses), ("queues", found.queues), ("created", found.created_at),
        ("created by", found.created_by), ("parent", found.parent_id), ("tokens from it", descendants),
        ("ends", _end(found)), ("rotated", found.rotated_at), ("old secret until", found.previous_expires_at),
        ("last used", found.last_used_at), ("last used from", found.last_used_address),
    ])  # fmt: skip


@app.command()
def rotate(
    id: TokenId,
    overlap: Annotated[
        float,
        typer.Option(min=0, help="Hours that the old secret is still accepted; 0 ends it at once, with the sessions."),
    ] = 24.0,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Give a token a new secret, which is shown this once. The tokens that came from it stay."""
    with open_app(database_url) as made:
        principal, token = access.rotate_token(made.ground, _id(id), overlap * 3600)
    _show_token(principal, token, as_json)


@app.command()
def revoke(
    id: TokenId,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask when other tokens end with it.")] = False,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """End a token, every token that came from it, and the sessions opened with them."""
    with open_app(database_url) as made:
        _, descendants = access.get_token(made.ground, _id(id))
        if descendants and not yes:
            _confirm(f"Tokens that came from it and end, too: {descendants}.")
        gone = access.revoke_token(made.ground, _id(id))
    if as_json:
        print_json({**told(gone.principal), "revoked_tokens": gone.tokens, "ended_sessions": gone.sessions})
        return
    who = gone.principal
    out().print(
        f"{who.label} ({who.id}) is revoked. Tokens that ended: {gone.tokens}; sessions: {gone.sessions}.", markup=False
    )


def _confirm(warning: str) -> None:
    """Ask a person; tell a script how to say yes."""
    if not sys.stdin.isatty():
        raise InvalidInput(f"{warning} Give --yes to revoke them all.")
    if not typer.confirm(f"{warning} Go on?"):
        raise typer.Exit(1)


@app.command()
def restore(id: Annotated[str, typer.Argument(help="The person's id.")], database_url: DatabaseUrl = None) -> None:
    """Let a person sign in again whose access was revoked. It is for people, not for tokens."""
    with open_app(database_url) as made:
        found = access.restore_person(made.ground, _id(id))
    out().print(f"{found.label} ({found.id}) may sign in again.", markup=False)


def sign_in(
    url: Annotated[
        str, typer.Option(envvar="PENSTOCK_URL", help="The address of the service, as the browser reaches it.")
    ] = "http://127.0.0.1:8080",
    token: Annotated[
        str | None, typer.Option("--as", help="The id of the token to sign in as; without it, the operator's own.")
    ] = None,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Print a link that signs one person in to the page, once, within ten minutes."""
    with open_app(database_url) as made:
        chosen = access.console(made.ground) if token is None else access.get_token(made.ground, _id(token))[0]
        if chosen.revoked_at is not None:
            raise InvalidInput(f"The token {chosen.label!r} was revoked; nobody can sign in with it.")
        code = access.sign_in_code(made.ground, chosen.id)
    link = f"{url.rstrip('/')}/sign-in#{code}"
    if as_json:
        print_json({"url": link, "label": chosen.label, "valid_seconds": access.LINK_SECONDS})
    else:
        out().print(f"Sign in as {chosen.label}, once, within {span(access.LINK_SECONDS)}:\n{link}", markup=False)


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
