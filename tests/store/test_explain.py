"""`penstock db explain`: each hot statement as it runs, with its plan, and nothing changes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import event, func, select, text

from penstock import Penstock, Succeeded
from penstock.core.errors import InvalidInput
from penstock.store.explain import explain
from penstock.store.postgresql import transaction
from penstock.store.tables import metadata

VERBS = ("enqueue", "enqueue-many", "claim", "heartbeat", "finish")
WRITES = {
    "enqueue": "INSERT INTO penstock_jobs", "enqueue-many": "INSERT INTO penstock_jobs", "claim": "DELETE FROM penstock_ready",
    "heartbeat": "UPDATE penstock_running", "finish": "INSERT INTO penstock_runs",
}  # fmt: skip


@pytest.fixture
def app(url: str) -> Iterator[Penstock]:
    made = Penstock(url)
    made.define("work")
    made.enqueue("work")
    yield made
    made.close()


def rows_of(app: Penstock) -> dict[str, int]:
    with app.db.read() as tx:
        return {t.name: tx.scalar(select(func.count()).select_from(t)) for t in metadata.sorted_tables}


def test_each_verb_is_shown_whole_with_its_plan(app: Penstock) -> None:
    before = rows_of(app)
    for verb in VERBS:
        found = explain(app.db, verb)
        assert any(WRITES[verb] in each.sql for each in found)
        for each in found:
            assert each.what and each.plan and "penstock_" in each.sql
            assert "Seq Scan on penstock_jobs" not in each.plan and "SCAN penstock_jobs" not in each.plan
    assert rows_of(app) == before
    if app.db.name == "postgresql":
        with app.db.read() as tx:  # its settings ended with its transaction
            assert tx.scalar(text("SHOW enable_seqscan")) == "on"
            assert tx.scalar(text("SELECT count(*) FROM pg_prepared_statements WHERE name = 'penstock_explain'")) == 0


def test_an_unknown_verb_is_refused_with_the_known_ones(app: Penstock) -> None:
    with pytest.raises(InvalidInput, match="no statement 'vacuum' to explain; known: enqueue, enqueue-many, claim"):
        explain(app.db, "vacuum")


def test_what_is_shown_is_what_runs(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = [_bare(each.sql.split("\n", 1)[1]) for verb in VERBS for each in explain(app.db, verb) if "\n" in each.sql]
    shown += [_bare(each.sql) for verb in VERBS for each in explain(app.db, verb)]
    heard: list[str] = []
    if app.db.name == "postgresql":
        real = transaction.ask

        def ask(conn: Any, statements: Any) -> Any:
            heard.extend(each.ready()[0].decode() for each in statements)
            return real(conn, statements)

        monkeypatch.setattr(transaction, "ask", ask)
    else:
        app.db.close()
        event.listen(app.db.engine, "connect", lambda dbapi, _record: dbapi.set_trace_callback(heard.append))
    app.enqueue("work")
    (claim, *_) = app.queue.claim(worker="w", limit=2)
    app.queue.heartbeat([claim])
    app.queue.finish(claim, Succeeded())
    hot = [_bare(each) for each in heard if "penstock_" in each and "set_config" not in each]
    assert any("INSERT INTO penstock_jobs" in each for each in hot)
    # SQLite tells a statement with its values, so as much of it is compared as comes before the first.
    for each in hot:
        if any(word in each for word in WRITES.values()):
            assert any(each.startswith(re.split(r"[:?$]", known)[0]) for known in shown if len(known) > 30), each


def _bare(sql: str) -> str:
    return " ".join(sql.split())
