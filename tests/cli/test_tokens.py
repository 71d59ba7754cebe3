"""`penstock tokens`, `penstock sessions` and `penstock sign-in`, as an operator would use them."""

from __future__ import annotations

from uuid import uuid4

import pytest

from penstock import Penstock
from penstock.queue.sign_in import Visit, sign_in
from tests.cli.conftest import Shell


def created(penstock: Shell, *more: str) -> dict[str, str]:
    found: dict[str, str] = penstock.well("tokens", "create", "--label", "ann", *more, "--json").json
    return found


def test_a_token_is_created_shown_rotated_and_revoked(penstock: Shell, app: Penstock) -> None:
    app.tenants.create("acme")
    root = created(
        penstock, "--role", "tenant_admin", "--tenant", "acme", "--scope", "tokens:write", "--scope", "jobs:read"
    )
    limits = ("--scope", "jobs:read", "--key", "report.*", "--address", "10.0.0.0/8", "--parent", root["id"])
    child = created(penstock, "--role", "viewer", "--tenant", "acme", *limits)
    assert (child["scopes"], child["keys"], child["addresses"], child["parent_id"]) == (
        ["jobs:read"], ["report.*"], ["10.0.0.0/8"], root["id"],
    )  # fmt: skip
    shown = penstock.well("tokens", "show", root["id"])
    assert "tokens from it\t1" in shown.out
    assert penstock.well("tokens", "show", root["id"], "--json").json["descendants"] == 1
    rotated = penstock.well("tokens", "rotate", root["id"], "--overlap", "1").out.strip()
    assert rotated.startswith("pst_")
    assert rotated != root["token"]
    visit = Visit(60)
    assert all(sign_in(app.ground, each, visit) is not None for each in (root["token"], rotated))
    asked = penstock("tokens", "revoke", root["id"])
    assert (asked.code, "end, too: 1. Give --yes" in asked.err) == (2, True), asked
    done = penstock.well("tokens", "revoke", root["id"], "--yes")
    assert "Tokens that ended: 2; sessions: 2." in done.out
    assert sign_in(app.ground, child["token"], visit) is None
    ends = [line.split("\t")[6] for line in penstock.well("tokens", "list", "--tenant", "acme").out.splitlines()]
    assert ends == ["revoked", "revoked"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["create", "--role", "viewer", "--label", "x", "--tenant", "default", "--scope", "jobs:eat"], 2, "known are jobs:read"),
        (["create", "--role", "viewer", "--label", "x", "--tenant", "default", "--parent", str(uuid4())], 1, "is to be the parent"),
        (["create", "--role", "viewer", "--label", "x"], 2, "belongs to a tenant"),
        (["show", str(uuid4())], 1, "There is no token"),
        (["rotate", str(uuid4())], 1, "There is no token"),
        (["revoke", str(uuid4())], 1, "There is no token"),
        (["restore", str(uuid4())], 1, "There is no person"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_told(
    penstock: Shell, app: Penstock, arguments: list[str], code: int, words: str
) -> None:
    answer = penstock("tokens", *arguments)
    assert (answer.code, words in answer.err) == (code, True), answer


def test_sessions_are_listed_and_ended(penstock: Shell, app: Penstock) -> None:
    token = created(penstock, "--role", "super_admin")
    opened = [sign_in(app.ground, token["token"], Visit(60, "10.0.0.1", f"Browser/{n}")) for n in range(3)]
    listed = penstock.well("sessions", "list").out.splitlines()
    assert len(listed) == 3
    assert all("ann" in line and "10.0.0.1" in line and "Browser/" in line for line in listed)
    assert opened[0] is not None
    assert opened[0].secret not in penstock.well("sessions", "list", "--json").out
    penstock.well("sessions", "end", str(opened[0].session.id))
    assert penstock("sessions", "end", str(opened[0].session.id)).code == 1
    assert penstock("sessions", "end").code == 2
    assert "Sessions that ended: 2." in penstock.well("sessions", "end", "--token", token["id"]).out
    assert penstock.well("sessions", "list").out == ""


def test_sign_in_prints_a_link_that_works_once(penstock: Shell, app: Penstock) -> None:
    link = penstock.well("sign-in", "--url", "https://jobs.example.com/").out.splitlines()[-1]
    assert link.startswith("https://jobs.example.com/sign-in#")
    code = link.partition("#")[2]
    first = sign_in(app.ground, code, Visit(60))
    assert first is not None
    assert first.principal.label == "console"
    assert sign_in(app.ground, code, Visit(60)) is None
    viewer = created(penstock, "--role", "viewer", "--tenant", "default")
    told = penstock.well("sign-in", "--as", viewer["id"], "--json").json
    second = sign_in(app.ground, told["url"].partition("#")[2], Visit(60))
    assert second is not None
    assert str(second.principal.id) == viewer["id"]
    penstock.well("tokens", "revoke", viewer["id"])
    assert penstock("sign-in", "--as", viewer["id"]).code == 2
