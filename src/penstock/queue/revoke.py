"""Revoking JSON Web Tokens that an identity provider issued: one of them, or all that somebody has."""

from __future__ import annotations

from penstock.core import check
from penstock.core.errors import InvalidInput
from penstock.core.revocations import Revocation
from penstock.queue.ground import Ground
from penstock.store import revocations, sessions
from penstock.store.database import Tx

DEFAULT_SECONDS = 24 * 3600.0
SPARE_SECONDS = 300.0
"""How much longer than the longest lifetime of a JWT a revocation is kept: clocks differ."""


def revoke_jwt_in(
    tx: Tx, issuer: str, jti: str | None, subject: str | None, seconds: float, created_by: str | None
) -> Revocation:
    """Revoke a JWT by its `jti`, or everything that `subject` was issued until now, and end the sessions it opened.

    `seconds` is the longest lifetime of a JWT that is accepted; after it there is nothing left to revoke.
    """
    if (jti is None) == (subject is None):
        raise InvalidInput("Name either the jti of one JWT or the subject whose JWTs are to end.")
    kind, value = ("jti", jti) if jti is not None else ("subject", subject)
    check.text("issuer", issuer, 500)
    named = check.text(kind, value, 500)
    sessions.close_by_sid(tx, issuer, None if jti is None else sid_of(jti), subject)
    return revocations.add(tx, issuer, kind, named, seconds + SPARE_SECONDS, created_by)


def sid_of(jti: str) -> str:
    """Return what marks the sessions that one JWT opened."""
    return f"jti:{jti}"


def revoke_jwt(
    ground: Ground,
    issuer: str,
    *,
    jti: str | None = None,
    subject: str | None = None,
    seconds: float = DEFAULT_SECONDS,
    created_by: str | None = None,
) -> Revocation:
    """Revoke a JWT by its `jti`, or everything that `subject` was issued until now, and end the sessions it opened."""
    return ground.db.transact(lambda tx: revoke_jwt_in(tx, issuer, jti, subject, seconds, created_by))


def list_revoked(ground: Ground) -> list[Revocation]:
    """Return the revocations that still hold for something, newest first."""
    with ground.db.read() as tx:
        return revocations.listed(tx)
