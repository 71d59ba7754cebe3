"""Sessions of the page, and the one-time codes that open one. Both by the hash of their secret."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, case, delete, func, insert, literal, select, update

from penstock.core.access import Session
from penstock.core.ids import new_id
from penstock.store.database import Tx
from penstock.store.tables import principals, sessions
from penstock.store.types import UtcTime

ONE_TIME = ""
"""The CSRF hash of a one-time code: no session has it, so a code cannot be used as one."""
MAX_AGENT = 300


@dataclass(frozen=True, slots=True)
class NewSession:
    """What is stored of a session when it is opened. `until` ends it earlier than `seconds` from now would."""

    secret_hash: str
    csrf_hash: str
    seconds: float
    until: datetime | None = None
    address: str | None = None
    user_agent: str | None = None
    issuer: str | None = None
    sid: str | None = None


def _last_seen() -> ColumnElement[datetime]:
    return func.coalesce(sessions.c.last_seen_at, sessions.c.created_at, type_=UtcTime())


def _noun(row: Mapping[Any, Any]) -> Session:
    return Session(**{name: row[name] for name in Session.__dataclass_fields__})


def _query(*, codes: bool = False) -> Select[Any]:
    columns = [sessions.c[name] for name in Session.__dataclass_fields__ if name != "last_seen_at"]
    query = select(*columns, _last_seen().label("last_seen_at"))
    return query if codes else query.where(sessions.c.csrf_hash != ONE_TIME)


def living(tx: Tx, idle_seconds: float | None) -> list[ColumnElement[bool]]:
    """The conditions of a session that may be used now; without `idle_seconds`, also of one that was not used for long."""
    found = [sessions.c.csrf_hash != ONE_TIME, sessions.c.expires_at > tx.now]
    return found if idle_seconds is None else [*found, _last_seen() > tx.later(-idle_seconds)]


def open_session(tx: Tx, principal_id: UUID, new: NewSession) -> Session:
    """Store a session, and clear away those of everyone that are over."""
    tx.run(delete(sessions).where(sessions.c.expires_at <= tx.now))
    end: ColumnElement[datetime] = tx.later(new.seconds)
    if new.until is not None:
        until = literal(new.until, UtcTime)
        end = case((until < end, until), else_=end)
    made = new_id()
    tx.run(
        insert(sessions).values(
            id=made, principal_id=principal_id, secret_hash=new.secret_hash, csrf_hash=new.csrf_hash, created_at=tx.now,
            expires_at=end, last_seen_at=tx.now, address=new.address,
            user_agent=None if new.user_agent is None else new.user_agent[:MAX_AGENT], issuer=new.issuer, sid=new.sid,
        )
    )  # fmt: skip
    found = by_id(tx, made, codes=True)
    assert found is not None
    return found


def by_id(tx: Tx, session_id: UUID, *, codes: bool = False) -> Session | None:
    query = _query(codes=codes).where(sessions.c.id == session_id)
    row = tx.run(query).mappings().first()
    return _noun(row) if row else None


def take_code(tx: Tx, secret_hash: str) -> UUID | None:
    """Use up a one-time code. Returns whose it was."""
    found: UUID | None = tx.scalar(
        delete(sessions)
        .where(sessions.c.secret_hash == secret_hash, sessions.c.csrf_hash == ONE_TIME, sessions.c.expires_at > tx.now)
        .returning(sessions.c.principal_id)
    )
    return found


def listed(tx: Tx, idle_seconds: float | None, principal_id: UUID | None = None, limit: int = 1000) -> list[Session]:
    """Return the sessions that may be used now, the one used last first: one principal's, or everyone's."""
    query = _query().where(*living(tx, idle_seconds)).order_by(_last_seen().desc(), sessions.c.id.desc()).limit(limit)
    if principal_id is not None:
        query = query.where(sessions.c.principal_id == principal_id)
    return [_noun(row) for row in tx.run(query).mappings()]


def touch(tx: Tx, session_id: UUID, address: str | None) -> None:
    """Note that it was used now, and from where."""
    tx.run(update(sessions).where(sessions.c.id == session_id).values(last_seen_at=tx.now, address=address))


def close_session(tx: Tx, secret_hash: str) -> UUID | None:
    """End the session of this secret. Returns whose it was."""
    found: UUID | None = tx.scalar(
        delete(sessions)
        .where(sessions.c.secret_hash == secret_hash, sessions.c.csrf_hash != ONE_TIME)
        .returning(sessions.c.principal_id)
    )
    return found


def close_by_id(tx: Tx, session_id: UUID, principal_id: UUID | None = None) -> bool:
    """End one session; only if it is this principal's, where one is given."""
    statement = delete(sessions).where(sessions.c.id == session_id, sessions.c.csrf_hash != ONE_TIME)
    if principal_id is not None:
        statement = statement.where(sessions.c.principal_id == principal_id)
    return bool(tx.count(statement))


def close_of(tx: Tx, principal_ids: Iterable[UUID]) -> int:
    """End every session of these principals, and void the one-time codes that would open another. Counts sessions."""
    wanted = list(principal_ids)
    tx.run(delete(sessions).where(sessions.c.principal_id.in_(wanted), sessions.c.csrf_hash == ONE_TIME))
    return tx.count(delete(sessions).where(sessions.c.principal_id.in_(wanted)))


def close_by_sid(tx: Tx, issuer: str, sid: str | None = None, subject: str | None = None) -> int:
    """End what an identity provider says is over: one of its sessions, or all of a person's."""
    statement = delete(sessions).where(sessions.c.issuer == issuer)
    if sid is not None:
        statement = statement.where(sessions.c.sid == sid)
    if subject is not None:
        theirs = select(principals.c.id).where(principals.c.issuer == issuer, principals.c.subject == subject)
        statement = statement.where(sessions.c.principal_id.in_(theirs))
    if sid is None and subject is None:
        raise ValueError("name a session or a subject")
    return tx.count(statement)
