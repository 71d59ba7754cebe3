"""The audit is a hash chain for each tenant: whatever is done to its rows behind our back is found."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from penstock import ManualClock, Penstock
from penstock.core.audit_chain import Head
from penstock.store import audit, audit_chain


def write(app: Penstock, n: int, tenant_id: UUID | None = None, actor: str = "ann") -> None:
    def work(tx: Any) -> None:
        for i in range(n):
            audit.write(
                tx, tenant_id, actor, "job.create", "job", str(i), after={"i": i, "f": 0.5, "big": 1e23, "ü": "é"}
            )

    app.db.transact(work)


def tamper(app: Penstock, *statements: str) -> None:
    with app.db.write() as tx:
        for statement in statements:
            tx.run(text(statement))


def kinds(app: Penstock, heads: list[Head] | None = None) -> list[tuple[str, int | None]]:
    return [(finding.kind, finding.seq) for finding in app.audit.verify(heads or []).findings]


def insert(seq: int | str, prev: str = "'x'", hashed: str = "'y'", at: str = "at") -> str:
    return (
        "INSERT INTO penstock_audit (id, tenant_id, actor, action, subject_type, at, seq, prev_hash, hash)"
        f" SELECT '0190aaaa-0000-7000-8000-000000000001', tenant_id, 'eve', 'job.create', 'job', {at}, {seq}, {prev}, {hashed}"
        " FROM penstock_audit WHERE seq = 5"
    )


@pytest.fixture
def chained(app: Penstock) -> Penstock:
    write(app, 10)
    app.audit.seal()
    return app


@pytest.fixture
def undone(chained: Penstock) -> Any:
    """Remove what a test did to the chain, so that doctor is clean again."""
    yield chained
    tamper(chained, "DELETE FROM penstock_audit", "DELETE FROM penstock_audit_heads")


def test_entries_are_numbered_and_linked(chained: Penstock) -> None:
    entries = chained.audit.list()
    assert [entry.seq for entry in entries] == list(range(10, 0, -1))
    assert [entry.prev_hash for entry in entries[:-1]] == [entry.hash for entry in entries[1:]]
    head = chained.audit.head()
    assert (head.seq, head.hash, head.tenant_id) == (10, entries[0].hash, None)
    assert chained.audit.verify([head]).clean


@pytest.mark.parametrize(
    ("statements", "found"),
    [
        (["UPDATE penstock_audit SET actor = 'eve' WHERE seq = 3"], [("edited", 3)]),
        (["UPDATE penstock_audit SET after = NULL WHERE seq = 3"], [("edited", 3)]),
        (["DELETE FROM penstock_audit WHERE seq IN (4, 5, 6)"], [("removed", 4)]),
        (["DELETE FROM penstock_audit WHERE seq = 1"], [("removed", 1)]),
        (["DELETE FROM penstock_audit WHERE seq > 8"], [("removed", 9)]),
        (["UPDATE penstock_audit SET seq = NULL, prev_hash = NULL, hash = NULL WHERE seq = 10"], [("removed", 10)]),
        (
            [
                "UPDATE penstock_audit SET seq = 100 WHERE seq = 3",
                "UPDATE penstock_audit SET seq = 3 WHERE seq = 4",
                "UPDATE penstock_audit SET seq = 4 WHERE seq = 100",
            ],
            [("edited", 3), ("edited", 4), ("moved", 5)],
        ),
        ([insert(11)], [("edited", 11), ("inserted", 11)]),
        ([insert(0)], [("inserted", 0)]),
        (["UPDATE penstock_audit_heads SET hash = 'x'"], [("head", 10)]),
        (["DELETE FROM penstock_audit_heads"], [("head", None)]),
        (
            [
                "DELETE FROM penstock_audit WHERE seq <= 4",
                "UPDATE penstock_audit_heads SET anchor_seq = 4, anchor_hash = (SELECT prev_hash FROM penstock_audit WHERE seq = 5)",
            ],
            [("removed", None)],
        ),
    ],
)  # fmt: skip
def test_whatever_is_done_to_the_rows_is_found(
    undone: Penstock, statements: list[str], found: list[tuple[str, int | None]]
) -> None:
    tamper(undone, *statements)
    with undone.db.read() as tx:
        seen = [(finding.kind, finding.seq) for finding in audit_chain.verify(tx).findings]
    assert seen == found
    health = undone.doctor()
    assert [violation.promise for violation in health.violations] == ["audit"]


def test_a_cut_end_is_found_by_a_head_that_was_kept(undone: Penstock) -> None:
    kept = undone.audit.head()
    tamper(
        undone,
        "DELETE FROM penstock_audit WHERE seq > 7",
        "UPDATE penstock_audit_heads SET seq = 7, hash = (SELECT hash FROM penstock_audit WHERE seq = 7)",
    )
    assert kinds(undone) == []
    assert kinds(undone, [kept]) == [("cut", 10)]
    write(undone, 5)
    assert kinds(undone, [kept]) == [("rewritten", 10)]


def test_a_chain_that_was_rewritten_or_removed_as_a_whole_is_found_by_a_kept_head(undone: Penstock) -> None:
    kept = undone.audit.head()
    tamper(undone, "DELETE FROM penstock_audit", "DELETE FROM penstock_audit_heads")
    assert kinds(undone, [kept]) == [("cut", 10)]
    write(undone, 12, actor="eve")
    assert kinds(undone) == []
    assert kinds(undone, [kept]) == [("rewritten", 10)]


def test_a_backdated_entry_is_pointed_at(undone: Penstock, clock: ManualClock) -> None:
    clock.advance(7200)
    write(undone, 1)
    undone.audit.seal()
    tamper(undone, insert("NULL", "NULL", "NULL"))
    verified = undone.audit.verify()
    assert verified.clean
    assert [(note.kind, note.seq) for note in verified.notes] == [("backdated", 12)]
    assert any(warning.check == "audit entry to look at" for warning in undone.doctor().warnings)


def test_each_tenant_has_its_own_chain(app: Penstock) -> None:
    acme = app.tenants.create("acme")
    write(app, 3, acme.id)
    write(app, 2)
    heads = app.audit.heads()
    assert [(head.tenant, head.seq) for head in heads] == [(None, 2), ("acme", 3)]
    assert app.as_tenant("acme").audit.head() == heads[1]
    assert {entry.tenant_id for entry in app.as_tenant("acme").audit.list()} == {acme.id}
    assert app.audit.verify(list(heads)).chains == 2


def test_pruning_keeps_the_chain_verifiable(app: Penstock, clock: ManualClock) -> None:
    write(app, 20)
    first = app.audit.head()
    clock.advance(86400 * 10)
    write(app, 5)
    second = app.audit.head()
    assert app.prune(timedelta(days=5))["audit"] == 20
    verified = app.audit.verify([first, second])
    assert verified.clean and verified.entries == 6
    assert app.audit.list()[0].action == "audit.prune"
    clock.advance(86400 * 10)
    assert app.prune(timedelta(days=5))["audit"] == 6
    assert app.prune(timedelta(days=5))["audit"] == 0
    clock.advance(86400 * 10)
    assert app.prune(timedelta(days=5))["audit"] == 0, "a chain of nothing but its own pruning is left alone"
    verified = app.audit.verify([second])
    assert verified.clean
    assert [note.kind for note in verified.notes] == ["pruned"]


def test_entries_of_before_the_chain_are_sealed_by_whoever_looks_after_the_database(app: Penstock) -> None:
    write(app, 1200)
    assert {entry.seq for entry in app.audit.list()} == {None}
    app.recover()
    assert app.audit.list(1)[0].seq == 1200
    assert app.doctor().clean


@pytest.mark.parametrize(
    ("narrowed", "number"),
    [
        ({"actor": "BOB"}, 1), ({"action": "token.*"}, 2), ({"action": "token.create"}, 1), ({"subject_id": "t1"}, 1),
        ({"subject_type": "token"}, 2), ({"address": "192.0.2.1"}, 1), ({"text": "100%"}, 1), ({"text": "größe"}, 1),
        ({"text": "_"}, 0), ({"text": "bob"}, 1), ({"request_id": "r1"}, 1), ({"action": "token.creat_"}, 0),
    ],
)  # fmt: skip
def test_filters(app: Penstock, narrowed: dict[str, str], number: int) -> None:
    def work(tx: Any) -> None:
        audit.write(tx, None, "ann", "token.create", "token", "t1", address="192.0.2.1", request_id="r1")
        audit.write(tx, None, "ann", "token.revoke", "token", "t2", after={"label": "100%"})
        audit.write(tx, None, "Bob", "job.cancel", "job", "j1", before={"label": "größe"})

    app.db.transact(work)
    assert len(app.audit.list(**narrowed)) == number  # type: ignore[arg-type]


def test_a_time_range_and_an_export_in_pages(
    app: Penstock, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "PAGE", 3)
    write(app, 4)
    clock.advance(60)
    write(app, 4, actor="bob")
    assert [entry.actor for entry in app.audit.list(since=clock.now())] == ["bob"] * 4
    assert len(app.audit.list(until=clock.now())) == 4
    exported = list(app.audit.export())
    assert [entry.seq for entry in exported] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert len(list(app.audit.export(actor="bob"))) == 4
