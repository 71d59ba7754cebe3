"""Principals: who holds a token. Only the hash is kept; the token was shown once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Select, insert, or_, select, update

from penstock.core.access import Principal, Role
from penstock.core.ids import new_id
from penstock.store.database import Tx
from penstock.store.tables import principals, sessions, tenants

TOUCH_SECONDS = 60


def _query() -> Select[Any]:
    joined = principals.outerjoin(tenants, tenants.c.id == principals.c.tenant_id)
    return select(principals, tenants.c.slug.label("tenant_slug")).select_from(joined)


def _noun(row: Mapping[Any, Any]) -> Principal:
    values = {name: row[name] for name in Principal.__dataclass_fields__}
    values["role"] = Role(values["role"])
    values["queues"] = None if values["queues"] is None else tuple(values["queues"])
    return Principal(**values)


def add(
    tx: Tx,
    role: Role,
    label: str,
    prefix: str,
    token_hash: str,
    *,
    tenant_id: UUID | None = None,
    queues: Sequence[str] | None = None,
    created_by: str | None = None,
    expires_at: datetime | None = None,
) -> Principal:
    made = new_id()
    tx.run(
        insert(principals).values(
            id=made, tenant_id=tenant_id, role=role, label=label, token_prefix=prefix, token_hash=token_hash,
            queues=None if queues is None else list(queues), created_by=created_by, created_at=tx.now, expires_at=expires_at,
        )
    )  # fmt: skip
    found = by_id(tx, made)
    assert found is not None
    return found


def by_id(tx: Tx, principal_id: UUID) -> Principal | None:
    row = tx.run(_query().where(principals.c.id == principal_id)).mappings().first()
    return _noun(row) if row else None


def by_hash(tx: Tx, token_hash: str) -> Principal | None:
    """Whoever holds the token of this hash, whatever became of it."""
    row = tx.run(_query().where(principals.c.token_hash == token_hash)).mappings().first()
    return _noun(row) if row else None


def valid_by_hash(tx: Tx, token_hash: str) -> tuple[Principal, str] | None:
    """Whoever may use the token of this hash now, and the hash as stored."""
    row = tx.run(_query().where(principals.c.token_hash == token_hash, *_valid(tx))).mappings().first()
    return (_noun(row), row["token_hash"]) if row else None


def valid_by_id(tx: Tx, principal_id: UUID) -> Principal | None:
    row = tx.run(_query().where(principals.c.id == principal_id, *_valid(tx))).mappings().first()
    return _noun(row) if row else None


def valid_by_session(tx: Tx, secret_hash: str) -> tuple[Principal, str] | None:
    """Whose session this is, and the hash of its CSRF token; only while session, principal and tenant are good."""
    query = _query().add_columns(sessions.c.csrf_hash).join(sessions, sessions.c.principal_id == principals.c.id)
    row = (
        tx.run(
            query.where(
                sessions.c.secret_hash == secret_hash,
                sessions.c.csrf_hash != "",
                sessions.c.expires_at > tx.now,
                *_valid(tx),
            )
        )
        .mappings()
        .first()
    )
    return (_noun(row), row["csrf_hash"]) if row else None


def _valid(tx: Tx) -> list[Any]:
    return [
        principals.c.revoked_at.is_(None),
        or_(principals.c.expires_at.is_(None), principals.c.expires_at > tx.now),
        or_(principals.c.tenant_id.is_(None), tenants.c.is_active),
    ]


def listed(tx: Tx, tenant_id: UUID | None, limit: int, offset: int = 0) -> list[Principal]:
    """Newest first: one tenant's, or everyone's."""
    query = _query().order_by(principals.c.id.desc()).limit(limit).offset(offset)
    if tenant_id is not None:
        query = query.where(principals.c.tenant_id == tenant_id)
    return [_noun(row) for row in tx.run(query).mappings()]


def named(tx: Tx, label: str, role: Role) -> list[Principal]:
    """Those of this label and role whose tokens were not revoked."""
    query = _query().where(principals.c.label == label, principals.c.role == role, principals.c.revoked_at.is_(None))
    return [_noun(row) for row in tx.run(query).mappings()]


def revoke(tx: Tx, principal_id: UUID) -> Principal | None:
    """Its token and its sessions are worth nothing from now on."""
    tx.run(
        update(principals)
        .where(principals.c.id == principal_id, principals.c.revoked_at.is_(None))
        .values(revoked_at=tx.now)
    )
    return by_id(tx, principal_id)


def touch(tx: Tx, principal_id: UUID) -> None:
    """Note that it was used, to the minute."""
    tx.run(
        update(principals)
        .where(
            principals.c.id == principal_id,
            or_(principals.c.last_used_at.is_(None), principals.c.last_used_at < tx.later(-TOUCH_SECONDS)),
        )
        .values(last_used_at=tx.now)
    )
