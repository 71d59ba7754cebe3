"""The audit over HTTP: filters, pages, export, heads; and the walls around them."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from sqlalchemy import text

from tests.server.support import World

API = "/api/v1"


@pytest.fixture
def busy(world: World) -> World:
    """A tenant with a few entries in its audit, one of them hostile."""
    admin = world.client("tenant_admin")
    for label in ("=HYPERLINK(0)", "plain"):
        body = {"role": "viewer", "label": label}
        assert admin.post(f"{API}/tokens", json=body).status_code == 201
    assert admin.post(f"{API}/jobs", json={"definition_key": "echo", "payload": {}}).status_code == 201
    return world


def test_filters_by_actor_action_time_and_text(busy: World) -> None:
    admin = busy.client("tenant_admin")

    def found(**query: Any) -> list[str]:
        answer = admin.get(f"{API}/audit", params=query)
        assert answer.status_code == 200, answer.text
        return [entry["action"] for entry in answer.json()["items"]]

    everything = found()
    assert everything[:3] == ["job.create", "token.create", "token.create"]
    assert found(action="token.*") == ["token.create", "token.create"]
    assert found(text="HYPERLINK") == ["token.create"]
    assert found(actor="nobody") == []
    assert found(since="2999-01-01T00:00:00Z") == []
    assert found(until="2999-01-01T00:00:00Z") == everything
    assert admin.get(f"{API}/audit", params={"since": "yesterday"}).status_code == 422
    assert admin.get(f"{API}/audit", params={"nothing": "1"}).status_code == 422


def test_pages_by_key(busy: World) -> None:
    admin = busy.client("tenant_admin")
    seen, cursor = [], None
    while True:
        answer = admin.get(f"{API}/audit", params={"limit": 1, **({"cursor": cursor} if cursor else {})}).json()
        seen += [entry["id"] for entry in answer["items"]]
        cursor = answer["next_cursor"]
        if cursor is None:
            break
    assert seen == [entry["id"] for entry in admin.get(f"{API}/audit").json()["items"]]


def test_export_as_json_lines_and_csv(busy: World) -> None:
    admin = busy.client("tenant_admin")
    answer = admin.get(f"{API}/audit/export")
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert answer.headers["content-disposition"] == 'attachment; filename="audit.jsonl"'
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert lines[-1]["hash"] == admin.get(f"{API}/audit/head").json()["hash"]
    table = list(csv.DictReader(io.StringIO(admin.get(f"{API}/audit/export", params={"format": "csv"}).text)))
    assert [row["action"] for row in table] == [line["action"] for line in lines]
    assert [row["hash"] for row in table] == [line["hash"] for line in lines]
    assert "bolt" not in answer.text
    assert world_is_silent(busy)


def world_is_silent(world: World) -> bool:
    return world.client("tenant_admin", "bolt").get(f"{API}/audit/export").text.count("HYPERLINK") == 0


def test_no_cell_of_the_csv_is_a_formula(world: World) -> None:
    admin = world.client("tenant_admin")
    for start in "=+-@":
        body = {"label": f"{start}cmd", "trigger_type": "schedule", "cron_expr": "0 0 1 1 *", "definition_key": "echo"}
        assert admin.post(f"{API}/jobs/triggers", json=body).status_code == 201
    with world.penstock.db.write() as tx:
        tx.run(text("UPDATE penstock_audit SET subject_id = '=1+1', actor = '@x', request_id = '-1'"))
    rows = list(csv.reader(io.StringIO(admin.get(f"{API}/audit/export", params={"format": "csv"}).text)))
    assert len(rows) > 4
    assert not [cell for row in rows for cell in row if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]


def test_an_export_never_holds_more_than_a_page(busy: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.store import audit

    monkeypatch.setattr(audit, "PAGE", 2)
    admin = busy.client("tenant_admin")
    assert len(admin.get(f"{API}/audit/export").text.splitlines()) == len(admin.get(f"{API}/audit").json()["items"])


def test_heads_of_a_tenant_and_of_all(busy: World) -> None:
    head = busy.client("tenant_admin").get(f"{API}/audit/head").json()
    assert head["tenant"] == "acme" and head["seq"] >= 3 and len(head["hash"]) == 64
    heads = busy.client().get(f"{API}/admin/audit/head").json()["items"]
    assert head in heads
    empty = busy.client("tenant_admin", "bolt").get(f"{API}/audit/head").json()
    assert empty["tenant"] == "bolt"
    assert busy.client("operator").get(f"{API}/audit/head").status_code == 403
    assert busy.client("tenant_admin").get(f"{API}/admin/audit/head").status_code == 403


def test_the_whole_installation_by_tenant_or_by_operator(busy: World) -> None:
    admin = busy.client()
    assert admin.post(f"{API}/admin/tokens", json={"role": "super_admin", "label": "second"}).status_code == 201
    acme = {entry["tenant_id"] for entry in admin.get(f"{API}/admin/audit", params={"tenant": "acme"}).json()["items"]}
    own = {entry["tenant_id"] for entry in admin.get(f"{API}/admin/audit", params={"operator": True}).json()["items"]}
    assert len(acme) == 1 and None not in acme
    assert own == {None}
    assert admin.get(f"{API}/admin/audit", params={"tenant": "nobody"}).status_code == 404
