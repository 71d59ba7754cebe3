"""The limit runs the worker's own statements: it must follow when they change."""

from __future__ import annotations

from bench import limit
from penstock import Penstock


def test_the_database_alone_works_off_what_waits(url: str) -> None:
    with Penstock(url) as app:
        app.define("noop", runner="command")
        app.enqueue_many("noop", [{}] * 50)
        assert limit.drain(url, batch=20) > 0
        assert app.jobs.summary().counts["succeeded"] == 50
