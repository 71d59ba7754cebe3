"""Revoked JWTs, and what may be used only once. Rows live as long as what they are about could be accepted."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import and_, delete, or_, select

from penstock.core.revocations import Revocation
from penstock.store.database import Tx
from penstock.store.tables import revocations

USED = "used"


def add(tx: Tx, issuer: str, kind: str, value: str, seconds: float, created_by: str | None = None) -> Revocation:
    """Revoke one `jti`, or what was issued to a `subject` until now. Revoked again, the later time counts."""
    forget(tx)
    values = {"revoked_at": tx.now, "expires_at": tx.later(seconds), "created_by": created_by}
    key = {"issuer": issuer, "kind": kind, "value": value}
    tx.run(
        tx.insert(revocations)
        .values(**key, **values)
        .on_conflict_do_update(index_elements=["issuer", "kind", "value"], set_=values)
    )
    where = [revocations.c[name] == each for name, each in key.items()]
    return Revocation(**tx.run(select(revocations).where(*where)).mappings().one())


def use_once(tx: Tx, issuer: str, value: str, seconds: float) -> bool:
    """Use something up. Returns whether this is the first time."""
    forget(tx)
    statement = tx.insert(revocations).values(
        issuer=issuer, kind=USED, value=value, revoked_at=tx.now, expires_at=tx.later(seconds)
    )
    return tx.first(statement.on_conflict_do_nothing().returning(revocations.c.value)) is not None


def holds(tx: Tx, issuer: str, subject: str, jti: Any, issued_at: datetime, leeway: float) -> bool:
    """Whether a JWT is revoked: itself, or whatever its subject was issued before a time, by an issuer whose clock may be
    ahead of ours by `leeway` seconds."""
    of_subject = and_(
        revocations.c.kind == "subject",
        revocations.c.value == subject,
        revocations.c.revoked_at >= issued_at - timedelta(seconds=leeway),
    )
    itself = and_(revocations.c.kind == "jti", revocations.c.value == str(jti))
    wanted = of_subject if jti is None else or_(of_subject, itself)
    return tx.first(select(revocations.c.kind).where(revocations.c.issuer == issuer, wanted).limit(1)) is not None


def listed(tx: Tx, limit: int = 1000) -> list[Revocation]:
    """Return the revocations that still hold for something, newest first."""
    query = (
        select(revocations)
        .where(revocations.c.kind != USED, revocations.c.expires_at > tx.now)
        .order_by(revocations.c.revoked_at.desc(), revocations.c.value)
        .limit(limit)
    )
    return [Revocation(**row) for row in tx.run(query).mappings()]


def forget(tx: Tx) -> int:
    """Delete what has lost its object."""
    return tx.count(delete(revocations).where(revocations.c.expires_at <= tx.now))
