"""Principals: who holds a token, and people. Only the hash of a token is kept; the token was shown once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Select, and_, insert, or_, select, update

from penstock.core.access import PERSON_PREFIX, Person, Principal, Role, Session
from penstock.core.ids import new_id
from penstock.store import sessions as opened
from penstock.store.database import Tx
from penstock.store.tables import principals, sessions, tenants

TOUCH_SECONDS = 60
_TUPLES = ("queues", "scopes", "keys", "addresses")


@dataclass(frozen=True, slots=True)
class NewPrincipal:
    """What is stored of a token when it is created."""

    role: Role
    label: str
    prefix: str
    token_hash: str
    tenant_id: UUID | None = None
    queues: Sequence[str] | None = None
    created_by: str | None = None
    expires_at: datetime | None = None
    parent_id: UUID | None = None
    scopes: Sequence[str] | None = None
    keys: Sequence[str] | None = None
    addresses: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """Whom a session belongs to, and how a change by it is known to be wanted."""

    principal: Principal
    csrf_hash: str
    session: Session


def _query() -> Select[Any]:
    joined = principals.outerjoin(tenants, tenants.c.id == principals.c.tenant_id)
    return select(principals, tenants.c.slug.label("tenant_slug")).select_from(joined)


def _noun(row: Mapping[Any, Any]) -> Principal:
    values = {name: row[name] for name in Principal.__dataclass_fields__}
    values["role"] = Role(values["role"])
    for name in _TUPLES:
        values[name] = None if values[name] is None else tuple(values[name])
    return Principal(**values)


def add(tx: Tx, new: NewPrincipal) -> Principal:
    made = new_id()
    lists = {name: None if (given := getattr(new, name)) is None else list(given) for name in _TUPLES}
    tx.run(
        insert(principals).values(
            id=made, tenant_id=new.tenant_id, role=new.role, label=new.label, token_prefix=new.prefix,
            token_hash=new.token_hash, created_by=new.created_by, created_at=tx.now, expires_at=new.expires_at,
            parent_id=new.parent_id, **lists,
        )
    )  # fmt: skip
    found = by_id(tx, made)
    assert found is not None
    return found


def by_id(tx: Tx, principal_id: UUID, *, lock: bool = False) -> Principal | None:
    query = _query().where(principals.c.id == principal_id)
    row = tx.run(query.with_for_update(of=principals) if lock else query).mappings().first()
    return _noun(row) if row else None


def by_hash(tx: Tx, token_hash: str) -> Principal | None:
    """Whoever holds the token of this hash, whatever became of it."""
    row = tx.run(_query().where(principals.c.token_hash == token_hash)).mappings().first()
    return _noun(row) if row else None


def valid_by_hash(tx: Tx, token_hash: str) -> tuple[Principal, str] | None:
    """Whoever may use the token of this hash now, and the hash as stored. After a rotation the secret before it is accepted,
    too, until its time is over."""
    before = and_(principals.c.previous_hash == token_hash, principals.c.previous_expires_at > tx.now)
    query = _query().where(or_(principals.c.token_hash == token_hash, before), *_valid(tx))
    row = tx.run(query).mappings().first()
    if row is None:
        return None
    return _noun(row), row["token_hash"] if row["token_hash"] == token_hash else row["previous_hash"]


def valid_by_id(tx: Tx, principal_id: UUID, *, lock: bool = False) -> Principal | None:
    """With `lock`, nobody revokes it before this transaction ends."""
    query = _query().where(principals.c.id == principal_id, *_valid(tx))
    row = tx.run(query.with_for_update(read=True, of=principals) if lock else query).mappings().first()
    return _noun(row) if row else None


def valid_by_session(tx: Tx, secret_hash: str, idle_seconds: float) -> Found | None:
    """Whose session this is; only while session, principal and tenant are good."""
    query = (
        _query().add_columns(sessions.c.id.label("session_id"), sessions.c.csrf_hash)
        .join(sessions, sessions.c.principal_id == principals.c.id)
        .where(sessions.c.secret_hash == secret_hash, *opened.living(tx, idle_seconds), *_valid(tx))
    )  # fmt: skip
    row = tx.run(query).mappings().first()
    if row is None:
        return None
    session = opened.by_id(tx, row["session_id"])
    return None if session is None else Found(_noun(row), row["csrf_hash"], session)


def _valid(tx: Tx) -> list[Any]:
    return [
        principals.c.revoked_at.is_(None),
        or_(principals.c.expires_at.is_(None), principals.c.expires_at > tx.now),
        or_(principals.c.tenant_id.is_(None), tenants.c.is_active),
    ]


def listed(tx: Tx, tenant_id: UUID | None, limit: int, offset: int = 0) -> list[Principal]:
    """Newest first: one tenant's, or everyone's."""
    query = _query().order_by(principals.c.created_at.desc(), principals.c.id.desc()).limit(limit).offset(offset)
    if tenant_id is not None:
        query = query.where(principals.c.tenant_id == tenant_id)
    return [_noun(row) for row in tx.run(query).mappings()]


def named(tx: Tx, label: str, role: Role) -> list[Principal]:
    """Those of this label and role whose tokens were not revoked."""
    query = _query().where(principals.c.label == label, principals.c.role == role, principals.c.revoked_at.is_(None))
    return [_noun(row) for row in tx.run(query).mappings()]


def touch(tx: Tx, principal_id: UUID, address: str | None = None) -> None:
    """Note that it was used, to the minute, and from where."""
    tx.run(
        update(principals)
        .where(
            principals.c.id == principal_id,
            or_(principals.c.last_used_at.is_(None), principals.c.last_used_at < tx.later(-TOUCH_SECONDS)),
        )
        .values(last_used_at=tx.now, last_used_address=address)
    )


def rotate(tx: Tx, principal_id: UUID, prefix: str, token_hash: str, overlap_seconds: float) -> Principal | None:
    """Put another secret in place of the one it has, which is accepted for `overlap_seconds` more."""
    keeps = overlap_seconds > 0
    tx.run(
        update(principals)
        .where(principals.c.id == principal_id)
        .values(
            previous_hash=principals.c.token_hash if keeps else None,
            previous_expires_at=tx.later(overlap_seconds) if keeps else None,
            token_hash=token_hash, token_prefix=prefix, rotated_at=tx.now,
        )
    )  # fmt: skip
    return by_id(tx, principal_id)


def take_secret(tx: Tx, principal_id: UUID, prefix: str, token_hash: str) -> str:
    """Put another secret in place of the one it has. Returns the hash of the one it had, which is free from now on."""
    before: str = tx.scalar(select(principals.c.token_hash).where(principals.c.id == principal_id).with_for_update())
    values = {"token_hash": token_hash, "token_prefix": prefix, "rotated_at": tx.now}
    tx.run(update(principals).where(principals.c.id == principal_id).values(values))
    return before


def restore_person(tx: Tx, principal_id: UUID) -> Principal | None:
    """Let a person in again whose access was revoked; what they had created stays revoked."""
    person = and_(principals.c.id == principal_id, principals.c.issuer.is_not(None))
    tx.run(update(principals).where(person).values(revoked_at=None))
    found = by_id(tx, principal_id)
    return found if found is not None and found.is_person else None


def remember_person(tx: Tx, person: Person) -> Principal:
    """Store a person, or what is new about one. There is no token: no hash of a secret looks like their `token_hash`."""
    fresh: dict[str, Any] = {"role": person.role, "label": person.label}
    tx.run(
        tx.insert(principals)
        .values(
            id=person.id, tenant_id=person.tenant_id, token_prefix=PERSON_PREFIX, created_at=tx.now,
            token_hash=f"{PERSON_PREFIX}:{person.id}", issuer=person.issuer, subject=person.subject,
            created_by=person.issuer, **fresh,
        )
        .on_conflict_do_update(index_elements=["id"], set_=fresh)
    )  # fmt: skip
    found = by_id(tx, person.id)
    assert found is not None
    return found


def of_subject(tx: Tx, issuer: str, subject: str) -> list[Principal]:
    """Every principal of one person: one for each tenant they came for."""
    query = _query().where(principals.c.issuer == issuer, principals.c.subject == subject)
    return [_noun(row) for row in tx.run(query).mappings()]
