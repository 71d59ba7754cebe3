"""`penstock audit …`"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from penstock import Penstock
from penstock.store import audit
from tests.cli.conftest import Shell


@pytest.fixture
def entries(app: Penstock) -> Penstock:
    acme = app.tenants.create("acme")

    def work(tx: Any) -> None:
        audit.write(tx, None, "ann\x1b[2J", "tenant.create", "tenant", "acme")
        audit.write(tx, acme.id, "=bob", "token.create", "token", "t1", after={"label": "x"})

    app.db.transact(work)
    return app


def test_list_and_export(penstock: Shell, entries: Penstock) -> None:
    shown = penstock.well("audit", "list").out
    assert "token.create" in shown and "\x1b" not in shown
    assert [entry["action"] for entry in penstock.well("audit", "list", "--json", "--tenant", "acme").json] == [
        "token.create"
    ]
    assert penstock.well("audit", "list", "--json", "--action", "token.*", "--since", "2999-01-01").json == []
    lines = [json.loads(line) for line in penstock.well("audit", "export").out.splitlines()]
    assert [line["seq"] for line in lines] == [1, 1]
    table = penstock.well("audit", "export", "--csv").out
    assert "'=bob" in table and "\x1b" not in table
    assert penstock("audit", "list", "--since", "soon").code == 2


def test_head_and_verify(penstock: Shell, entries: Penstock, tmp_path: Path) -> None:
    heads = penstock.well("audit", "head").out
    assert len(heads.splitlines()) == 2
    kept = tmp_path / "heads.jsonl"
    kept.write_text(heads)
    assert "2 chains with 2 entries are whole" in penstock.well("audit", "verify", "--head", str(kept)).out
    with entries.db.write() as tx:
        tx.run(text("DELETE FROM penstock_audit WHERE action = 'token.create'"))
        tx.run(text("DELETE FROM penstock_audit_heads WHERE chain <> '00000000-0000-0000-0000-000000000000'"))
    assert penstock("audit", "verify").code == 0
    found = penstock("audit", "verify", "--head", str(kept))
    assert found.code == 4 and "removed" in found.out
    kept.write_text("{}\n")
    assert penstock("audit", "verify", "--head", str(kept)).code == 2


def test_delete_a_tenant(penstock: Shell, app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    app.tenants.create("acme")
    app.enqueue("resize", tenant="acme")
    monkeypatch.setattr("sys.stdin", io.StringIO("acm\n"))
    assert penstock("tenants", "delete", "acme").code == 1
    assert [tenant.slug for tenant in app.tenants.list()] == ["acme", "default"]
    told = penstock.well("tenants", "delete", "acme", "--yes", "--json").json
    assert told["slug"] == "acme" and told["erased"]["jobs"] == 1
    assert penstock("tenants", "delete", "acme", "--yes").code == 1
    app.tenants.create("bolt")
    monkeypatch.setattr("sys.stdin", io.StringIO("bolt\n"))
    assert "bolt" in penstock.well("tenants", "delete", "bolt").out
    assert [tenant.slug for tenant in app.tenants.list()] == ["default"]
    assert len(penstock.well("audit", "list", "--operator", "--action", "tenant.delete", "--json").json) == 2
