"""A tenant with something in every table, and a look at every table for what is left of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import insert, select

from penstock import Failed, Penstock, Succeeded
from penstock.core.outcomes import Evidence
from penstock.queue.access import create_token
from penstock.queue.sign_in import Visit, sign_in
from penstock.store import audit, workers
from penstock.store.tables import deliveries, idempotency_keys, metadata, ticks
from penstock.store.tables import workers as worker_rows


def fill(app: Penstock, slug: str, folder: Path | None = None, running: int = 0) -> UUID:
    """Create a tenant with a row in every table that tenants have rows in. Returns its id."""
    tenant = app.tenants.create(slug, name=f"{slug} Inc")
    theirs = app.as_tenant(slug)
    theirs.define("private", arg_schema={"type": "object"})
    theirs.define("chained", retry_mode="chain", max_attempts=3)
    _, token = create_token(app.ground, "tenant_admin", f"{slug} admin", slug)
    assert sign_in(app.ground, token, Visit(3600)) is not None
    with theirs.reserve():
        pass
    theirs.enqueue("chained", {}, priority=1)
    for _ in range(3):
        theirs.enqueue("work", {"of": slug}, priority=1)
    for i, claim in enumerate(app.queue.claim("host:1", 4)):
        log = None
        if folder is not None and i == 1:
            path = folder / f"{claim.run_id}.log"
            path.write_text(f"log of {slug}")
            log = str(path)
        done = Failed("no") if claim.key == "chained" else Succeeded({"of": slug}, evidence=Evidence(log_path=log))
        app.queue.finish(claim, done)
    theirs.enqueue_many("work", [{"of": slug}] * 5, scheduled_for=None)
    theirs.enqueue("private", {"of": slug}, delay=3600, dedupe_key=f"{slug}-key", correlation_id=slug)
    theirs.groups.create([("work", {"of": slug}), ("work", {"of": slug})])
    nightly = theirs.triggers.schedule("nightly", "0 2 * * *", "private")
    theirs.triggers.on_event("seen", f"{slug}.seen", "private", dedupe_window_seconds=3600)
    theirs.emit(f"{slug}.seen", {"of": slug})
    hook = theirs.webhooks.create("https://example.com/hook", ["job.run.completed"])
    job = theirs.jobs.list(limit=1)[0]

    def work(tx: Any) -> None:
        audit.write(tx, tenant.id, f"{slug} admin", "job.create", "job", slug)
        tx.run(insert(idempotency_keys).values(tenant_id=tenant.id, key="k", request_hash="h", created_at=tx.now))
        default = app.tenants.get("default").id
        told = {"id": str(tenant.id), "slug": slug}
        tx.run(
            insert(idempotency_keys).values(
                tenant_id=default, key=slug, request_hash="h", response_body=told, created_at=tx.now
            )
        )
        tx.run(
            insert(ticks).values(
                trigger_id=nightly.id,
                tick_at=tx.now,
                tenant_id=tenant.id,
                outcome="skipped",
                reason="x",
                created_at=tx.now,
            )
        )
        tx.run(
            insert(deliveries).values(
                id=job.id, tenant_id=tenant.id, webhook_id=hook.webhook.id, message_id=job.id, event_type="job.run.completed",
                job_id=job.id, attempt=1, status="delivered", created_at=tx.now,
            )
        )  # fmt: skip
        row: dict[str, Any] = {
            "hostname": "h", "pid": 1, "version": "", "queues": [], "concurrency": 1, "metadata": {"tenant_id": str(tenant.id)},
        }  # fmt: skip
        if "tenant_id" in worker_rows.c:
            row["tenant_id"] = tenant.id
        workers.register(tx, f"{slug}:1", row)

    app.db.transact(work)
    for _ in range(running):
        theirs.enqueue("work", {"of": slug})
    app.audit.seal()
    return tenant.id


def counts(app: Penstock) -> dict[str, int]:
    with app.db.read() as tx:
        return {table.name: len(tx.rows(select(table))) for table in metadata.sorted_tables}


def rows(app: Penstock) -> dict[str, list[str]]:
    """Every row of every table, as text."""
    with app.db.read() as tx:
        return {
            table.name: sorted(repr(tuple(row)) for row in tx.rows(select(table))) for table in metadata.sorted_tables
        }


def ids_of(app: Penstock, tenant_id: UUID) -> set[str]:
    """Every id of a row of the tenant, and its own."""
    found = {str(tenant_id)}
    with app.db.read() as tx:
        for table in metadata.sorted_tables:
            if "tenant_id" in table.c and "id" in table.c:
                found |= {str(row.id) for row in tx.rows(select(table.c.id).where(table.c.tenant_id == tenant_id))}
    return found


def left_of(app: Penstock, words: set[str]) -> list[tuple[str, str]]:
    """The rows of any table that contain one of the words, but for the certificate."""
    found = []
    for table, texts in rows(app).items():
        for text in texts:
            if "'tenant.delete'" in text and table == "penstock_audit":
                continue
            if any(word in text for word in words):
                found.append((table, text[:300]))
    return found
