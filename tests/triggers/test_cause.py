"""A job that emits the event that asks for it again is told for what it is: a loop, that ends."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from penstock import Penstock
from penstock.core.clock import ManualClock


def test_a_loop_of_jobs_and_events_ends_by_itself(tmp_path: Path) -> None:
    app = Penstock(f"sqlite:///{tmp_path / 'loop.db'}")

    @app.job(key="echo")
    def echo(n: int) -> None:
        app.emit("said", {"n": n + 1})

    app.triggers.on_event("again", "said", "echo", params={"n": "{{event.n}}"}, dedupe_window_seconds=0)
    app.emit("said", {"n": 0})
    app.worker(concurrency=1).run(until_idle=True)
    outcomes = [outcome["outcome"] for event in app.events.list(limit=100) for outcome in event.outcomes]
    assert 2 <= len(outcomes) <= 20
    assert "fired" in outcomes and any(outcome != "fired" for outcome in outcomes)
    app.close()


def test_prune_keeps_what_a_window_still_needs(tmp_path: Path) -> None:
    clock = ManualClock()
    app = Penstock(f"sqlite:///{tmp_path / 'fires.db'}", clock=clock)
    app.define("echo")
    app.triggers.on_event("short", "a", "echo", dedupe_window_seconds=60)
    app.triggers.on_event("long", "b", "echo", dedupe_window_seconds=10 * 86400)
    app.emit("a")
    app.emit("b")
    clock.advance(days=2)
    assert app.prune(older_than=timedelta(days=1))["trigger_fires"] == 1
    assert app.emit("b").outcomes[0]["outcome"] != "fired"
    app.close()
