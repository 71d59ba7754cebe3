"""Many processes write the audit and seal it at once: one chain, without gaps, and nobody waits for a transaction that stays open."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import func, select, text

from penstock import Penstock
from penstock.store import audit
from penstock.store.database import Database
from penstock.store.tables import audit as table
from tests.support.children import together

WRITERS, EACH = 4, 40


def write_and_seal(url: str, tenant_id: UUID, n: int) -> None:
    with Penstock(url) as app:

        def work(tx: Any) -> None:
            audit.write(tx, tenant_id, f"writer {n}", "job.create", "job", str(n))
            audit.write(tx, None, f"writer {n}", "tenant.change", "tenant", str(n))

        for i in range(EACH):
            app.db.transact(work)
            if i % 3 == n % 3:
                app.audit.seal()
        app.audit.seal()


def test_many_writers_and_sealers_make_one_chain(url: str) -> None:
    with Penstock(url) as app:
        acme = app.tenants.create("acme")
        together(WRITERS, write_and_seal, url, acme.id)
        heads = app.audit.heads()
        assert [head.seq for head in heads] == [WRITERS * EACH, WRITERS * EACH]
        verified = app.audit.verify(list(heads))
        assert verified.clean and not verified.unsealed, verified
        assert verified.entries == 2 * WRITERS * EACH
        with app.db.read() as tx:
            assert tx.scalar(select(func.count(func.distinct(table.c.id)))) == 2 * WRITERS * EACH


def test_an_open_transaction_with_an_entry_keeps_nobody_from_sealing(url: str) -> None:
    """On PostgreSQL a caller may keep a transaction open for long. On SQLite there is one writer at a time anyway."""
    if not url.startswith("postgresql"):
        return
    with Penstock(url) as app:
        late = Database(url)
        with late.write() as open_tx:
            audit.write(open_tx, None, "late", "job.create", "job", "1")
            with app.db.write() as tx:
                tx.run(text("SET LOCAL lock_timeout = '5s'"))
                audit.write(tx, None, "early", "job.create", "job", "2")
            assert app.audit.head().seq == 1
        late.close()
        assert [entry.actor for entry in sorted(app.audit.export(), key=lambda entry: entry.seq or 0)] == [
            "early",
            "late",
        ]
        app.audit.seal()
        assert app.audit.verify().clean
