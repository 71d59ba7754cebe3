"""Webhooks and the story of their deliveries."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any
from uuid import UUID

from sqlalchemy import delete as sql_delete
from sqlalchemy import func, insert, select, update

from penstock.core.ids import new_id
from penstock.core.reach import Delivery, Webhook
from penstock.core.webhook import Endpoint
from penstock.store.database import Tx
from penstock.store.sealing import Codec, answer_of, secret_of
from penstock.store.tables import deliveries, webhooks

_FIELDS = tuple(Webhook.__dataclass_fields__)
_COLUMNS = [webhooks.c[name] for name in _FIELDS]
_DELIVERY_FIELDS = tuple(Delivery.__dataclass_fields__)
_ANSWERS = ("response_excerpt", "error")


def add(tx: Tx, tenant_id: UUID, values: Mapping[str, Any]) -> Webhook:
    webhook_id = new_id()
    secret = tx.codec.seal_text(values["secret"], secret_of(tenant_id, webhook_id))
    statement = insert(webhooks).values(
        id=webhook_id, tenant_id=tenant_id, created_at=tx.now, updated_at=tx.now, **{**values, "secret": secret}
    )
    return _webhook(tx.run(statement.returning(*_COLUMNS)).mappings().one())


def get(tx: Tx, tenant_id: UUID, webhook_id: UUID) -> Webhook | None:
    query = select(*_COLUMNS).where(webhooks.c.id == webhook_id, webhooks.c.tenant_id == tenant_id)
    row = tx.run(query).mappings().first()
    return _webhook(row) if row else None


def count(tx: Tx, tenant_id: UUID) -> int:
    return int(tx.scalar(select(func.count()).select_from(webhooks).where(webhooks.c.tenant_id == tenant_id)))


def listed(tx: Tx, tenant_id: UUID) -> list[Webhook]:
    query = select(*_COLUMNS).where(webhooks.c.tenant_id == tenant_id).order_by(webhooks.c.id)
    return [_webhook(row) for row in tx.run(query).mappings()]


def listening(tx: Tx, tenant_ids: Collection[UUID]) -> list[Webhook]:
    """The enabled subscriptions of these tenants."""
    query = select(*_COLUMNS).where(webhooks.c.tenant_id.in_(tenant_ids), webhooks.c.is_enabled).order_by(webhooks.c.id)
    return [_webhook(row) for row in tx.run(query).mappings()]


def change(tx: Tx, tenant_id: UUID, webhook_id: UUID, values: Mapping[str, Any]) -> Webhook | None:
    statement = update(webhooks).where(webhooks.c.id == webhook_id, webhooks.c.tenant_id == tenant_id)
    row = tx.run(statement.values(**values, updated_at=tx.now).returning(*_COLUMNS)).mappings().first()
    return _webhook(row) if row else None


def rotate(tx: Tx, tenant_id: UUID, webhook_id: UUID, secret: str, overlap_seconds: float) -> Webhook | None:
    """The new secret signs from now on; the old one with it, until the overlap is over."""
    values = {
        "secret": tx.codec.seal_text(secret, secret_of(tenant_id, webhook_id)),
        "previous_secret": webhooks.c.secret,
        "previous_secret_expires_at": tx.later(overlap_seconds),
    }
    return change(tx, tenant_id, webhook_id, values)


def delete(tx: Tx, tenant_id: UUID, webhook_id: UUID) -> bool:
    statement = sql_delete(webhooks).where(webhooks.c.id == webhook_id, webhooks.c.tenant_id == tenant_id)
    return tx.count(statement) == 1


def endpoint(tx: Tx, tenant_id: UUID, webhook_id: UUID) -> Endpoint | None:
    both_sign = webhooks.c.previous_secret_expires_at > tx.now
    columns = (webhooks.c.url, webhooks.c.secret, webhooks.c.previous_secret, webhooks.c.is_enabled, both_sign)
    row = tx.first(select(*columns).where(webhooks.c.id == webhook_id, webhooks.c.tenant_id == tenant_id))
    if row is None:
        return None
    place = partial(secret_of, tenant_id, webhook_id)
    url, is_enabled, both = row[0], row[3], row[4]
    secret = str(tx.codec.open_secret(row[1], place))
    previous = tx.codec.open_secret(row[2], place) if both else None
    return Endpoint(url, (secret, previous) if previous else (secret,), is_enabled)


def record(tx: Tx, tenant_id: UUID, values: Mapping[str, Any]) -> None:
    """Write one attempt. Told twice, it is written once; of a subscription that is gone, not at all."""
    if get(tx, tenant_id, values["webhook_id"]) is None:
        return
    row = {"id": new_id(), "tenant_id": tenant_id, "created_at": tx.now, **values}
    for name in _ANSWERS:
        row[name] = tx.codec.seal_text(row.get(name), answer_of(tenant_id, row["id"]))
    tx.run(tx.insert(deliveries).values(row).on_conflict_do_nothing())


def delivered(tx: Tx, tenant_id: UUID, webhook_id: UUID, limit: int, before: UUID | None = None) -> list[Delivery]:
    """Newest first."""
    query = select(*(deliveries.c[name] for name in _DELIVERY_FIELDS)).where(
        deliveries.c.tenant_id == tenant_id, deliveries.c.webhook_id == webhook_id
    )
    if before is not None:
        query = query.where(deliveries.c.id < before)
    found = tx.run(query.order_by(deliveries.c.id.desc()).limit(limit)).mappings()
    return [_delivery(row, tenant_id, tx.codec) for row in found]


def _delivery(row: Mapping[Any, Any], tenant_id: UUID, codec: Codec) -> Delivery:
    values = {name: row[name] for name in _DELIVERY_FIELDS}
    for name in _ANSWERS:
        values[name] = codec.open_text(values[name], partial(answer_of, tenant_id, row["id"]))
    return Delivery(**values)


def _webhook(row: Mapping[Any, Any]) -> Webhook:
    values = {name: row[name] for name in _FIELDS}
    values["event_types"] = tuple(values["event_types"])
    return Webhook(**values)
