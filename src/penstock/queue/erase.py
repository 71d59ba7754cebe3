"""Delete a tenant: close it at once, then erase everything of it, in batches. Any process may go on where another was killed."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

from penstock.core.errors import Busy, InvalidInput, NotFound
from penstock.core.ids import DEFAULT_TENANT_ID
from penstock.core.tenancy import Certificate, Deletion
from penstock.queue import audit
from penstock.queue.ground import Ground
from penstock.store import audit as entries
from penstock.store import erase, tenants
from penstock.store.database import Tx

POLL_SECONDS = 0.2
Progress = Callable[[Deletion], None]


def silent(_deletion: Deletion) -> None:
    """Tell nobody how far it is."""


def close(ground: Ground, slug: str, requested_by: str, request_id: str | None = None) -> UUID:
    """Close a tenant for good. Return its id. A tenant that is closed already stays as it is."""

    def work(tx: Tx) -> UUID:
        return close_in(tx, slug, requested_by, request_id)

    tenant_id = ground.db.transact(work, retry_disconnects=True)
    ground.forget_tenant(slug)
    return tenant_id


def close_in(tx: Tx, slug: str, requested_by: str, request_id: str | None = None) -> UUID:
    found = tenants.by_slug(tx, slug)
    if found is None:
        raise NotFound("tenant", slug)
    if found.id == DEFAULT_TENANT_ID:
        raise InvalidInput("The tenant default cannot be deleted: embedded programs use it.")
    if erase.close(tx, found.id, requested_by, request_id):
        entries.write(tx, found.id, requested_by, "tenant.close", "tenant", str(found.id), request_id=request_id)
    return found.id


def delete(
    ground: Ground, slug: str, requested_by: str, timeout: float | None = None, progress: Progress = silent
) -> Certificate:
    """Close a tenant, erase everything of it, and return the certificate. Raises Busy if that takes longer than `timeout` seconds;
    then the workers and the service go on."""
    tenant_id = close(ground, slug, requested_by)
    until = None if timeout is None else time.monotonic() + timeout
    while True:
        found = step(ground, tenant_id, progress)
        if isinstance(found, Certificate):
            audit.seal(ground)
            return found
        if until is not None and time.monotonic() >= until:
            raise Busy(
                f"The tenant {slug!r} is closed, but something of it is still under way. Workers and the service go on erasing it; "
                "ask again with the same call."
            )
        time.sleep(POLL_SECONDS)


def resume(ground: Ground, seconds: float = 2.0) -> int:
    """Go on with every deletion that is under way, for about so long. Return how many were finished. Harmless when many do."""
    with ground.db.read() as tx:
        found = erase.under_way(tx)
    until = time.monotonic() + seconds
    finished = 0
    for tenant_id in found:
        finished += isinstance(step(ground, tenant_id, until=until), Certificate)
    return finished


def step(
    ground: Ground, tenant_id: UUID, progress: Progress = silent, until: float | None = None
) -> Certificate | Deletion | None:
    """One pass: erase what can be erased now, then finish if nothing is left and nobody can add anything any more."""
    _jobs(ground, tenant_id, progress, until)
    with ground.db.read() as tx:
        under_way = erase.running(tx, tenant_id)
    if not under_way and (until is None or time.monotonic() < until):
        audit.seal(ground)
        for table in erase.tables():
            _table(ground, table, tenant_id, progress, until)
        certificate = ground.db.transact(partial(_finish, tenant_id=tenant_id))
        if certificate is not None:
            ground.forget_tenant(certificate.slug)
            return certificate
    with ground.db.read() as tx:
        now = erase.deletion(tx, tenant_id)
        done = erase.certificates(tx, tenant_id) if now is None else []
    return done[0] if done else now


def _finish(tx: Tx, tenant_id: UUID) -> Certificate | None:
    return erase.finish(tx, tenant_id) if erase.others_are_done(tx, tenant_id) else None


def _jobs(ground: Ground, tenant_id: UUID, progress: Progress, until: float | None) -> None:
    ground.db.transact(partial(erase.stop, tenant_id=tenant_id))
    after: UUID | None = None
    while until is None or time.monotonic() < until:
        with ground.db.read() as tx:
            also_running = not erase.running(tx, tenant_id)
            ids = erase.job_page(tx, tenant_id, after)
        if not ids:
            return
        ground.db.transact(partial(erase.erase_jobs, tenant_id=tenant_id, ids=ids, also_running=also_running))
        after = ids[-1]
        _tell(ground, tenant_id, progress)


def _table(ground: Ground, table: Any, tenant_id: UUID, progress: Progress, until: float | None) -> None:
    after = None
    while until is None or time.monotonic() < until:
        with ground.db.read(patient=True) as tx:
            keys = erase.page(tx, table, tenant_id, after)
        if not keys:
            return
        ground.db.transact(partial(erase.erase_page, table=table, tenant_id=tenant_id, keys=keys))
        after = keys[-1]
        _tell(ground, tenant_id, progress)


def _tell(ground: Ground, tenant_id: UUID, progress: Progress) -> None:
    if progress is silent:
        return
    with ground.db.read() as tx:
        now = erase.deletion(tx, tenant_id)
    if now is not None:
        progress(now)


def status(ground: Ground, tenant_id: UUID) -> Deletion | Certificate:
    """How far a deletion is, or its certificate."""
    with ground.db.read() as tx:
        under_way = erase.deletion(tx, tenant_id)
        done = erase.certificates(tx, tenant_id) if under_way is None else []
    if under_way is None and not done:
        raise NotFound("deletion", tenant_id)
    return under_way or done[0]
