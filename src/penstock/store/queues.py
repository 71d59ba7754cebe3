"""Queues: names that workers choose by, and that can be paused."""

from __future__ import annotations

from sqlalchemy import select, update

from penstock.store.database import Tx
from penstock.store.tables import queues


def ensure(tx: Tx, *names: str) -> None:
    for name in names:
        tx.run(tx.insert(queues).values(name=name, paused=False, created_at=tx.now).on_conflict_do_nothing())


def names(tx: Tx) -> dict[str, bool]:
    """Every queue, and whether it is paused."""
    return {row.name: row.paused for row in tx.rows(select(queues.c.name, queues.c.paused).order_by(queues.c.name))}


def set_paused(tx: Tx, name: str, paused: bool) -> None:
    tx.run(update(queues).where(queues.c.name == name).values(paused=paused))
