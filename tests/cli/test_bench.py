"""`penstock bench` measures in a place of its own."""

from __future__ import annotations

import json
import subprocess
import sys

from penstock import Penstock
from penstock.store.scratch import scratch


def test_bench_measures_and_leaves_nothing_behind(url: str) -> None:
    with Penstock(url) as app:
        app.define("mine")
        app.enqueue("mine")
        command = [sys.executable, "-m", "penstock.cli", "bench", "--jobs", "60", "--probes", "5", "--json"]
        done = subprocess.run([*command, "--database-url", url], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert found["promises_kept"] is True
        assert found["database"] == app.db.name
        assert all(found[f"latency_{part}_ms"] > 0 for part in ("p50", "p95", "p99"))
        assert min(found[name] for name in found if name.endswith("per_second")) > 0
        assert [job.definition_key for job in app.jobs.list(limit=10)] == ["mine"]
        assert app.doctor().clean


def test_a_scratch_place_is_empty_and_goes_away(url: str) -> None:
    with Penstock(url) as app:
        app.define("mine")
    with scratch(url) as place:
        with Penstock(place) as inside:
            assert inside.definitions.list() == []
        again = place
    assert again != url
    with Penstock(url) as app:
        assert [definition.key for definition in app.definitions.list()] == ["mine"]
