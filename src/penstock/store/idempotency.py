"""Idempotency keys: a create that is sent again answers what it answered.

The key is written in the transaction that does the work, so a key without its answer is never seen: a second request
waits for the first to commit, and reads its answer, or for it to fail, and does the work itself.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import select, update

from penstock.core.cipher import readable
from penstock.store.database import Tx
from penstock.store.sealing import response_of
from penstock.store.tables import idempotency_keys as keys


class Remembered(NamedTuple):
    request_hash: str
    status: int | None
    body: Any


def take(tx: Tx, tenant_id: UUID, key: str, request_hash: str) -> Remembered | None:
    """Make the key ours and answer None, or answer what was remembered under it."""
    values = {"tenant_id": tenant_id, "key": key, "request_hash": request_hash, "created_at": tx.now}
    if tx.first(tx.insert(keys).values(**values).on_conflict_do_nothing().returning(keys.c.key)) is not None:
        return None
    row = tx.first(
        select(keys.c.request_hash, keys.c.response_status, keys.c.response_body).where(
            keys.c.tenant_id == tenant_id, keys.c.key == key
        )
    )
    if row is None:
        return None
    request_hash, status, body = row
    return Remembered(request_hash, status, readable(tx.codec.open(body, partial(response_of, tenant_id, key))))


def remember(tx: Tx, tenant_id: UUID, key: str, status: int, body: Any) -> None:
    kept = tx.codec.seal(body, response_of(tenant_id, key))
    tx.run(
        update(keys)
        .where(keys.c.tenant_id == tenant_id, keys.c.key == key)
        .values(response_status=status, response_body=kept)
    )
