"""The audit: read it, seal its chains, keep their heads, verify them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from uuid import UUID

from penstock.core import check
from penstock.core.access import AuditEntry
from penstock.core.audit_chain import GENESIS, Head, Verified
from penstock.core.clock import require_aware
from penstock.core.errors import InvalidInput
from penstock.queue.ground import Ground
from penstock.store import audit, audit_chain
from penstock.store.audit import Filter
from penstock.store.database import Tx

MAX_PAGE = 1000
EMPTY = datetime(1970, 1, 1, tzinfo=UTC)
"""The time of the head of a chain without entries."""
TEXTS = ("actor", "action", "subject_type", "subject_id", "address", "request_id", "text")


def filter_of(since: datetime | None = None, until: datetime | None = None, **texts: str | None) -> Filter:
    """Return a checked filter."""
    unknown = set(texts) - set(TEXTS)
    if unknown:
        raise InvalidInput(f"The audit is not narrowed by {', '.join(sorted(unknown))}; expected {', '.join(TEXTS)}.")
    given = {name: check.text(name, value, 500) for name, value in texts.items() if value is not None}
    return Filter(
        since=None if since is None else require_aware("since", since),
        until=None if until is None else require_aware("until", until),
        **given,
    )


def listed(
    ground: Ground,
    tenant_id: UUID | None,
    where: Filter,
    limit: int = 50,
    before: UUID | None = None,
    *,
    operator: bool = False,
) -> list[AuditEntry]:
    check.integer("limit", limit, 1, MAX_PAGE)
    with ground.db.read() as tx:
        return audit.listed(tx, tenant_id, limit, before, where, operator=operator)


def exported(ground: Ground, tenant_id: UUID | None, where: Filter, *, operator: bool = False) -> Iterator[AuditEntry]:
    """Seal, then return every entry, oldest first, in bounded memory."""
    seal(ground)
    yield from audit.exported(ground.db, tenant_id, where, operator=operator)


def seal(ground: Ground) -> int:
    """Give the entries that were written since the last time their place in their chains. Return how many there were. Any process
    may do so at any time."""
    sealed = 0
    while True:
        with ground.db.read() as tx:
            waiting = audit_chain.waiting(tx)
        if not waiting:
            return sealed
        for tenant_id in sorted(waiting, key=str):
            sealed += ground.db.transact(partial(audit_chain.seal, tenant_id=tenant_id), retry_disconnects=True)


def heads(ground: Ground) -> list[Head]:
    """Return the head of every chain, sealed up to now."""
    seal(ground)
    with ground.db.read() as tx:
        return audit_chain.heads(tx)


def head(ground: Ground, tenant_id: UUID | None, slug: str | None) -> Head:
    """Return the head of a tenant's chain, or with None of the operator's. One without entries has a head of number 0."""
    seal(ground)
    with ground.db.read() as tx:
        return audit_chain.head(tx, tenant_id) or Head(tenant_id, slug, 0, GENESIS, EMPTY)


def verify(ground: Ground, kept: Sequence[Head] = (), only: Sequence[UUID | None] | None = None) -> Verified:
    """Look for entries that were edited, removed, inserted or moved, and compare the chains with heads that were kept elsewhere."""
    seal(ground)
    with ground.db.read(patient=True) as tx:
        return audit_chain.verify(tx, kept, only)


def prune(ground: Ground, before: datetime) -> int:
    """Delete the entries of every chain that are older than a time."""
    seal(ground)
    with ground.db.read() as tx:
        chains = audit_chain.every_chain(tx)

    def work(tx: Tx, tenant_id: UUID | None) -> int:
        return audit_chain.prune(tx, tenant_id, before)

    return sum(ground.db.transact(partial(work, tenant_id=chain), patient=True) for chain in sorted(chains, key=str))
