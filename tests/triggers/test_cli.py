"""The verbs of `penstock triggers`, `events` and `webhooks`, on each database."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer import Typer
from typer.testing import CliRunner

from penstock import Penstock
from penstock.cli import events, triggers, webhooks
from penstock.core.errors import InvalidInput, NotFound


class Cli:
    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(self, app: Typer, *args: str) -> str:
        result = CliRunner().invoke(app, [*args, "--database-url", self.url])
        if result.exception is not None:
            raise result.exception
        return result.stdout.strip()

    def json(self, app: Typer, *args: str) -> Any:
        return json.loads(self(app, *args, "--json"))


@pytest.fixture
def cli(url: str) -> Cli:
    app = Penstock(url)
    app.define("work")
    app.close()
    return Cli(url)


def test_a_schedules_life(cli: Cli) -> None:
    id = cli(
        triggers.app, "add", "nightly", "work", "--cron", "0 2 * * *", "--timezone", "Europe/London", "-p", '{"n": 1}'
    )
    assert id in cli(triggers.app, "list")
    cli(triggers.app, "edit", "nightly", "--cron", "@hourly", "--overlap", "skip", "--label", "hourly")
    (found,) = cli.json(triggers.app, "list")
    assert (found["label"], found["cron_expr"], found["overlap"], found["timezone"]) == (
        "hourly",
        "0 * * * *",
        "skip",
        "Europe/London",
    )
    cli(triggers.app, "disable", "hourly", "--reason", "holiday")
    assert "disabled: holiday" in cli(triggers.app, "list")
    assert cli.json(triggers.app, "enable", id)["is_enabled"]
    assert len(cli.json(triggers.app, "preview", "hourly", "-n", "3")) == 3
    job = cli.json(triggers.app, "fire", "hourly", "-p", '{"m": 2}')
    assert job["params"] == {"n": 1, "m": 2}
    assert cli.json(triggers.app, "ticks", "hourly") == []
    cli(triggers.app, "delete", "hourly")
    with pytest.raises(NotFound):
        cli(triggers.app, "ticks", "hourly")


def test_previewing_an_expression(cli: Cli) -> None:
    moments = cli.json(
        triggers.app,
        "preview",
        "--cron",
        "30 2 * * *",
        "--timezone",
        "America/New_York",
        "-n",
        "2",
        "--after",
        "2026-03-07T12:00:00Z",
    )
    assert moments == ["2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"]


def test_events_and_their_triggers(cli: Cli) -> None:
    cli(
        triggers.app,
        "add",
        "resync",
        "work",
        "--event",
        "folder.*",
        "-p",
        '{"id": "{{event.id}}"}',
        "--dedupe-window",
        "60",
    )
    event = cli.json(events.app, "emit", "folder.updated", '{"id": 7}')
    assert event["outcomes"][0]["outcome"] == "fired"
    assert "deduped" in cli(events.app, "emit", "folder.updated", '{"id": 7}')
    assert "no trigger answers" in cli(events.app, "emit", "other")
    assert len(cli.json(events.app, "list", "--name", "folder.updated")) == 2


def test_webhooks(cli: Cli) -> None:
    id, secret = cli(webhooks.app, "add", "https://example.com/hook", "-e", "job.run.failed").split()
    assert secret.startswith("whsec_")
    assert secret not in cli(webhooks.app, "list")
    (found,) = cli.json(webhooks.app, "list")
    assert found["event_types"] == ["job.run.failed"]
    assert cli.json(webhooks.app, "rotate", id)["secret"] != secret
    assert cli.json(webhooks.app, "edit", id, "--disable")["is_enabled"] is False
    assert cli(webhooks.app, "test", id)
    assert cli.json(webhooks.app, "deliveries", id) == []
    cli(webhooks.app, "delete", id)
    assert cli.json(webhooks.app, "list") == []


def test_bad_usage_is_told_and_nothing_is_written(cli: Cli) -> None:
    for args in (
        ("add", "x", "work"),
        ("add", "x", "work", "--cron", "61 * * * *"),
        ("add", "x", "work", "--cron", "@daily", "--event", "e"),
        ("add", "x", "work", "--event", "e", "--overlap", "skip"),
        ("add", "x", "nothing", "--cron", "@daily"),
        ("add", "x", "work", "--cron", "@daily", "-p", "[1]"),
        ("preview",),
    ):
        with pytest.raises(InvalidInput):
            cli(triggers.app, *args)
    with pytest.raises(InvalidInput):
        cli(webhooks.app, "add", "http://127.0.0.1/")
    assert cli.json(triggers.app, "list") == []
