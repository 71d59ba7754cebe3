"""Sessions of the page, and the one-time codes that open one. Both by the hash of their secret."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import delete, insert

from penstock.core.ids import new_id
from penstock.store.database import Tx
from penstock.store.tables import sessions

ONE_TIME = ""
"""The CSRF hash of a one-time code: no session has it, so a code cannot be used as one."""


def open_session(tx: Tx, principal_id: UUID, secret_hash: str, csrf_hash: str, seconds: float) -> None:
    tx.run(delete(sessions).where(sessions.c.expires_at <= tx.now))
    tx.run(
        insert(sessions).values(
            id=new_id(), principal_id=principal_id, secret_hash=secret_hash, csrf_hash=csrf_hash, created_at=tx.now,
            expires_at=tx.later(seconds),
        )
    )  # fmt: skip


def take_code(tx: Tx, secret_hash: str) -> UUID | None:
    """Use up a one-time code; answers whose it was."""
    found: UUID | None = tx.scalar(
        delete(sessions)
        .where(sessions.c.secret_hash == secret_hash, sessions.c.csrf_hash == ONE_TIME, sessions.c.expires_at > tx.now)
        .returning(sessions.c.principal_id)
    )
    return found


def close_session(tx: Tx, secret_hash: str) -> bool:
    return bool(tx.count(delete(sessions).where(sessions.c.secret_hash == secret_hash)))
