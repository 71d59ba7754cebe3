"""Seal the audit into its hash chains, verify them, and prune them.

Entries are written without a place in the chain. Whoever looks after the database seals them a moment later, in the order of their
ids, under the lock of the chain's head. A writer therefore never waits for another writer, and a caller's transaction that stays
open keeps nobody from sealing what others wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import bindparam, delete, func, literal, select, update
from sqlalchemy.sql import ColumnElement

from penstock.core.audit_chain import (
    DELETED,
    GENESIS,
    OPERATOR,
    PRUNED,
    ChainCheck,
    Finding,
    Head,
    Verified,
    entry_hash,
)
from penstock.store.audit import entries, write
from penstock.store.database import Tx
from penstock.store.tables import audit, audit_heads, erasures, tenants

BATCH = 500
PAGE = 1000
ACTOR = "penstock prune"


def waiting(tx: Tx) -> list[UUID | None]:
    """Return the tenants, or None for the operator, that have entries to seal. Most often there are none."""
    first = select(audit.c.tenant_id).where(audit.c.seq.is_(None)).limit(BATCH).subquery()
    return [row.tenant_id for row in tx.rows(select(first.c.tenant_id).distinct())]


def unsealed(tx: Tx, before: datetime | None = None) -> int:
    query = select(func.count()).select_from(audit).where(audit.c.seq.is_(None))
    return int(tx.scalar(query if before is None else query.where(audit.c.at < before)))


def seal(tx: Tx, tenant_id: UUID | None) -> int:
    """Give the next entries of a chain their numbers and hashes; return how many. Zero when there is nothing to seal."""
    head = _locked(tx, tenant_id)
    query = select(audit).where(_in_chain(tenant_id), audit.c.seq.is_(None)).order_by(audit.c.id).limit(BATCH)
    found = entries(tx, query)
    if not found:
        return 0
    seq, last = head.seq, head.hash
    sealed = []
    for entry in found:
        seq, prev = seq + 1, last
        last = entry_hash(entry, seq, prev)
        sealed.append({"the_id": entry.id, "seq": seq, "prev_hash": prev, "hash": last})
    changed = update(audit).where(audit.c.id == bindparam("the_id"))
    tx.run(changed.values({name: bindparam(name) for name in ("seq", "prev_hash", "hash")}), sealed)
    tx.run(
        update(audit_heads).where(audit_heads.c.chain == _chain(tenant_id)).values(seq=seq, hash=last, at=found[-1].at)
    )
    return len(found)


def heads(tx: Tx, tenant_id: UUID | None = None) -> list[Head]:
    """Return the head of one chain, or of every chain."""
    query = (
        select(audit_heads, tenants.c.slug)
        .outerjoin(tenants, tenants.c.id == audit_heads.c.chain)
        .order_by(audit_heads.c.chain)
    )
    if tenant_id is not None:
        query = query.where(audit_heads.c.chain == tenant_id)
    return [_head(row) for row in tx.run(query).mappings()]


def head(tx: Tx, tenant_id: UUID | None) -> Head | None:
    """Return the head of a tenant's chain, or with None of the operator's."""
    return next(iter(heads(tx, _chain(tenant_id))), None)


def verify(tx: Tx, kept: Sequence[Head] = (), only: Iterable[UUID | None] | None = None) -> Verified:
    """Read every chain, or only those given, and compare it with its head and with the heads that were kept elsewhere."""
    pending = unsealed(tx)
    chains = set(only) if only is not None else every_chain(tx) | {each.tenant_id for each in kept}
    chains -= {row.tenant_id for row in tx.rows(select(erasures.c.tenant_id))}  # they go with their tenant
    checks = [_verified(tx, chain, kept) for chain in sorted(chains, key=_chain)]
    return Verified(
        tuple(finding for check in checks for finding in check.findings),
        tuple(note for check in checks for note in check.notes),
        len(checks),
        sum(check.entries for check in checks),
        pending,
    )


def _verified(tx: Tx, tenant_id: UUID | None, kept: Sequence[Head]) -> ChainCheck:
    ours = [each for each in kept if each.tenant_id == tenant_id]
    while True:
        # The last number before the head: whoever seals between the two looks moves both.
        last = tx.scalar(select(func.max(audit.c.seq)).where(_in_chain(tenant_id)))
        found = head(tx, tenant_id)
        if found is None:
            return _without_head(tx, tenant_id, ours, last)
        check = ChainCheck(found, ours)
        low, taken = -1, True
        while taken:
            query = select(audit).where(
                _in_chain(tenant_id), audit.c.seq > low, audit.c.seq <= max(found.seq, last or 0)
            )
            page = entries(tx, query.order_by(audit.c.seq, audit.c.id).limit(PAGE))
            for entry in page:
                check.add(entry)
            taken = len(page) == PAGE
            low = page[-1].seq or 0 if page else low
        again = head(tx, tenant_id)
        if again is not None and again.anchor_seq == found.anchor_seq:
            check.finish()
            return check
        # It was pruned, or its tenant deleted, while we read it.


def _without_head(tx: Tx, tenant_id: UUID | None, kept: Sequence[Head], last: int | None) -> ChainCheck:
    slug = kept[0].tenant if kept else None
    check = ChainCheck(Head(tenant_id, slug, 0, GENESIS, tx.time()))
    if last:
        check.findings.append(Finding(tenant_id, slug, None, "head", "the head of this chain was removed."))
    for each in kept:
        gone = _certificate(tx, each) if tenant_id is not None else None
        if gone is None:
            message = f"the chain was removed: its last known entry was {each.seq}."
            check.findings.append(Finding(tenant_id, slug, each.seq, "cut", message))
        else:
            check.notes.append(Finding(tenant_id, slug, each.seq, "deleted", gone))
    return check


def _certificate(tx: Tx, kept: Head) -> str | None:
    """What the operator's audit says of a tenant that was deleted, if it says so."""
    query = select(audit).where(audit.c.tenant_id.is_(None), audit.c.action == DELETED)
    for entry in entries(tx, query.where(audit.c.subject_id == str(kept.tenant_id))):
        last = entry.after.get("audit_head") if isinstance(entry.after, Mapping) else None
        if isinstance(last, Mapping) and last.get("seq", 0) >= kept.seq:
            return f"the tenant was deleted at {entry.at:%Y-%m-%d %H:%M} UTC by {entry.actor}, as the operator's audit certifies."
    return None


def prune(tx: Tx, tenant_id: UUID | None, before: datetime) -> int:
    """Delete the first entries of a chain, those from before a time. Return how many.

    An entry of the chain says where it begins now, so that it can still be verified from there on."""
    while seal(tx, tenant_id):
        pass
    found = _locked(tx, tenant_id)
    sealed = (_in_chain(tenant_id), audit.c.seq > found.anchor_seq)
    kept = tx.scalar(select(func.min(audit.c.seq)).where(*sealed, audit.c.at >= before))
    through = found.seq if kept is None else kept - 1
    last = tx.first(select(audit.c.hash, audit.c.action).where(_in_chain(tenant_id), audit.c.seq == through))
    if last is None or (through == found.anchor_seq + 1 and last.action == PRUNED):
        return 0
    gone = tx.count(delete(audit).where(*sealed, audit.c.seq <= through))
    tx.run(
        update(audit_heads)
        .where(audit_heads.c.chain == _chain(tenant_id))
        .values(anchor_seq=through, anchor_hash=last.hash)
    )
    write(tx, tenant_id, ACTOR, PRUNED, "audit", None, after={"through": through, "hash": last.hash, "removed": gone})
    while seal(tx, tenant_id):
        pass
    return gone


def every_chain(tx: Tx) -> set[UUID | None]:
    """Return whose chains there are, also such whose head is missing."""
    found = {None if chain == OPERATOR else chain for (chain,) in tx.rows(select(audit_heads.c.chain))}
    return found | {row.tenant_id for row in tx.rows(select(audit.c.tenant_id).distinct())}


def _locked(tx: Tx, tenant_id: UUID | None) -> Head:
    """The head of a chain, locked until this transaction ends. Taken last, and by those who seal only."""
    tx.run(
        tx.insert(audit_heads)
        .values(chain=_chain(tenant_id), seq=0, hash=GENESIS, at=tx.now, anchor_seq=0, anchor_hash=GENESIS)
        .on_conflict_do_nothing()
    )
    query = select(audit_heads, literal(None).label("slug")).where(audit_heads.c.chain == _chain(tenant_id))
    return _head(tx.run(query.with_for_update()).mappings().one())


def _head(row: Any) -> Head:
    owner = None if row["chain"] == OPERATOR else row["chain"]
    return Head(owner, row["slug"], row["seq"], row["hash"], row["at"], row["anchor_seq"], row["anchor_hash"])


def _chain(tenant_id: UUID | None) -> UUID:
    return tenant_id or OPERATOR


def _in_chain(tenant_id: UUID | None) -> ColumnElement[bool]:
    return audit.c.tenant_id.is_(None) if tenant_id is None else audit.c.tenant_id == tenant_id
