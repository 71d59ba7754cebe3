"""The audit: who did what. An entry is written in the transaction of the change it tells of, and never changed.

Its place in the hash chain follows a moment later (`store.audit_chain`), so that nobody who writes an entry waits for another.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Select, Text, cast, insert, or_, select
from sqlalchemy.sql import ColumnElement

from penstock.core.access import AuditEntry
from penstock.core.ids import new_id
from penstock.store.database import Database, Tx
from penstock.store.tables import audit

PAGE = 500
"""Entries that an export reads at a time."""


@dataclass(frozen=True, slots=True)
class Filter:
    """What a list or an export is narrowed by. `action` may end with `*`; `text` is looked for everywhere."""

    actor: str | None = None
    action: str | None = None
    subject_type: str | None = None
    subject_id: str | None = None
    address: str | None = None
    request_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    text: str | None = None


def write(
    tx: Tx,
    tenant_id: UUID | None,
    actor: str,
    action: str,
    subject_type: str,
    subject_id: str | None,
    before: Any = None,
    after: Any = None,
    request_id: str | None = None,
    address: str | None = None,
) -> UUID:
    """Write an entry of a tenant's audit, or with None of the operator's."""
    made = new_id()
    tx.run(
        insert(audit).values(
            id=made, tenant_id=tenant_id, actor=actor, action=action, subject_type=subject_type,
            subject_id=subject_id, before=tx.codec.for_audit(before), after=tx.codec.for_audit(after),
            request_id=request_id, address=address, at=tx.now,
        )
    )  # fmt: skip
    return made


def listed(
    tx: Tx,
    whose: UUID | None,
    limit: int,
    before: UUID | None = None,
    where: Filter | None = None,
    *,
    operator: bool = False,
) -> list[AuditEntry]:
    """Return entries, newest first: one tenant's, with `operator` the operator's own, else everybody's."""
    query = select(audit).order_by(audit.c.id.desc()).limit(limit)
    if before is not None:
        query = query.where(audit.c.id < before)
    return entries(tx, _narrowed(_of(query, whose, operator), where or Filter()))


def exported(
    db: Database, whose: UUID | None, where: Filter | None = None, *, operator: bool = False
) -> Iterator[AuditEntry]:
    """Return the entries that there are now, oldest first, one after another: however many there are, only a page of them is in
    memory, and no transaction stays open between two pages."""
    after: UUID | None = None
    last = new_id()
    while True:
        query = select(audit).order_by(audit.c.id).limit(PAGE).where(audit.c.id < last)
        if after is not None:
            query = query.where(audit.c.id > after)
        with db.read() as tx:
            found = entries(tx, _narrowed(_of(query, whose, operator), where or Filter()))
        yield from found
        if len(found) < PAGE:
            return
        after = found[-1].id


def entries(tx: Tx, query: Select[Any]) -> list[AuditEntry]:
    return [AuditEntry(**row) for row in tx.run(query).mappings()]


def _of(query: Select[Any], whose: UUID | None, operator: bool) -> Select[Any]:
    if whose is not None:
        return query.where(audit.c.tenant_id == whose)
    return query.where(audit.c.tenant_id.is_(None)) if operator else query


def _narrowed(query: Select[Any], by: Filter) -> Select[Any]:
    exact: Sequence[tuple[ColumnElement[str], str | None]] = (
        (audit.c.subject_type, by.subject_type), (audit.c.subject_id, by.subject_id), (audit.c.address, by.address),
        (audit.c.request_id, by.request_id),
    )  # fmt: skip
    for column, value in exact:
        if value is not None:
            query = query.where(column == value)
    if by.actor is not None:
        query = query.where(audit.c.actor.icontains(by.actor, autoescape=True))
    if by.action is not None:
        family = by.action.endswith("*")
        query = query.where(
            audit.c.action.startswith(by.action[:-1], autoescape=True) if family else audit.c.action == by.action
        )
    if by.since is not None:
        query = query.where(audit.c.at >= by.since)
    if by.until is not None:
        query = query.where(audit.c.at < by.until)
    return query if by.text is None else query.where(_mentions(by.text))


def _mentions(text: str) -> ColumnElement[bool]:
    plain = (
        audit.c.actor,
        audit.c.action,
        audit.c.subject_type,
        audit.c.subject_id,
        audit.c.request_id,
        audit.c.address,
    )
    found = [column.icontains(text, autoescape=True) for column in plain]
    for column in (audit.c.before, audit.c.after):
        for written in {json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}:
            found.append(cast(column, Text).icontains(written, autoescape=True))
    return or_(*found)
