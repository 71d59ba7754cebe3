"""Pipelines beside datajoint 2.3.5, on one PostgreSQL, in one run.

    python bench/pipelines.py [--keys 2000] [--refresh-keys 100000] [--workers 1 2 4 8] [--repeats 3] [--url postgresql://…] [--json]

The same program runs on both sides: the same two tables, the same make(), the same calls. It is this very file, started
with the other package. Each cell has a schema of its own; sides take turns; workers connect before the clock starts. What
takes the other side seconds is over here before eight workers are under way, so ours make more keys, and twice as often.
datajoint comes into a virtual environment of its own, in the user's cache directory.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
import venv
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

PEER = "datajoint==2.3.5"
OUR_KEYS = 10
OUR_TURNS = 2
BARS = {"refresh": 50.0, "distributed 1": 3.0, "distributed 8": 10.0}


def tables(side: str, schema_name: str) -> Any:
    """The pipeline, on whichever side."""
    dj = importlib.import_module("penstock.pipeline" if side == "penstock" else "datajoint")
    schema = dj.Schema(schema_name)

    class Number(dj.Manual):
        definition = """
        n : int32
        """

    class Square(dj.Computed):
        definition = """
        -> Number
        ---
        square : int64
        """

        def make(self, key: dict[str, Any]) -> None:
            n = int((Number & key).fetch1("n"))
            self.insert1({**key, "square": n * n})

    return schema(Number), schema(Square, context={"Number": Number})


def inside(side: str, role: str, schema_name: str, number: int) -> None:
    """What a child process does: `setup`, `refresh`, `direct` or `distributed`."""
    Number, Square = tables(side, schema_name)
    if role == "setup":
        Number().insert([{"n": n} for n in range(number)])
        return
    if role == "queue":
        Square().jobs.refresh()
        return
    if role == "distributed":
        len(Square().jobs)
    len(Number())
    print("ready", flush=True)
    sys.stdin.readline()
    started = time.perf_counter()
    if role == "refresh":
        Square().jobs.refresh()
    elif role == "direct":
        Square().populate()
    else:
        Square().populate(reserve_jobs=True, refresh=False, suppress_errors=True)
    print(json.dumps({"seconds": time.perf_counter() - started, "rows": len(Square())}), flush=True)


class Side:
    """One of the two: its interpreter and how it is told where the database is."""

    def __init__(self, name: str, python: str, url: str) -> None:
        self.name, self.python = name, python
        where = urlsplit(url)
        self.environment = {
            **os.environ, "PENSTOCK_DATABASE_URL": url, "DJ_BACKEND": "postgresql", "DJ_HOST": where.hostname or "",
            "DJ_PORT": str(where.port or 5432), "DJ_USER": where.username or "postgres", "DJ_PASS": where.password or "-",
            "DJ_DATABASE_NAME": where.path.lstrip("/"), "PYTHONWARNINGS": "ignore",
        }  # fmt: skip

    def start(self, role: str, schema: str, number: int = 0) -> subprocess.Popen[str]:
        command = [self.python, __file__, "--inside", self.name, role, schema, str(number)]
        return subprocess.Popen(
            command,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, role: str, schema: str, number: int = 0) -> None:
        child = self.start(role, schema, number)
        _, err = child.communicate()
        if child.returncode:
            raise SystemExit(f"{self.name} {role} failed:\n{err}")

    def measure(self, role: str, schema: str, workers: int) -> tuple[float, int]:
        """Seconds from the starting shot to the last worker's end, and the rows there are then."""
        children = [self.start(role, schema) for _ in range(workers)]
        for child in children:
            while True:
                line = child.stdout.readline()  # type: ignore[union-attr]
                if line.strip() == "ready":
                    break
                if not line:
                    raise SystemExit(f"{self.name} {role} failed:\n{child.stderr.read()}")  # type: ignore[union-attr]
        started = time.perf_counter()
        for child in children:
            child.stdin.write("go\n")  # type: ignore[union-attr]
            child.stdin.flush()  # type: ignore[union-attr]
        # The work, not the end of the interpreter, is what is measured.
        answers = [next((line for line in child.stdout or () if line.startswith("{")), None) for child in children]
        elapsed = time.perf_counter() - started
        for child in children:
            _, err = child.communicate()
            if child.returncode:
                raise SystemExit(f"{self.name} {role} failed:\n{err}")
        return elapsed, max(json.loads(answer)["rows"] for answer in answers if answer)


def cell(side: Side, role: str, keys: int, workers: int, number: int) -> float:
    """Seconds for refresh, keys a second for the rest."""
    schema = f"bench_{side.name}_{number}"
    side.run("setup", schema, keys)
    if role == "distributed":
        side.run("queue", schema)
    elapsed, rows = side.measure(role, schema, workers)
    if role != "refresh" and rows != keys:
        raise SystemExit(f"{side.name} {role} with {workers} workers made {rows} rows of {keys}")
    return elapsed if role == "refresh" else keys / elapsed


def peer_python() -> str:
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "penstock-bench" / PEER.replace("==", "-")
    python = home / "bin" / "python"
    if not (home / ".ready").exists():
        venv.create(home, with_pip=True, clear=True)
        install = [str(python), "-m", "pip", "install", "-q", PEER, "psycopg2-binary"]
        subprocess.run(install, check=True, stderr=subprocess.DEVNULL)
        (home / ".ready").touch()
    return str(python)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=2000)
    parser.add_argument("--refresh-keys", type=int, default=100_000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--repeats", type=int, default=3, help="turns of every cell but refresh; the median counts")
    parser.add_argument("--url")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--inside", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        side, role, schema, number = options.inside
        inside(side, role, schema, int(number))
        return
    server = None
    if options.url is None:
        sys.path.insert(0, str(Path(__file__).parent.parent))
        from tests.support.postgres import Server

        server = Server(durable=True).start()
        options.url = server.url()
    try:
        report(options, measure(options))
    finally:
        if server is not None:
            server.remove()


def measure(options: argparse.Namespace) -> dict[str, dict[str, list[float]]]:
    sides = [Side("penstock", sys.executable, options.url), Side("datajoint", peer_python(), options.url)]
    cells = [("refresh", "refresh", options.refresh_keys, 1), ("direct 1", "direct", options.keys, 1)]
    cells += [(f"distributed {workers}", "distributed", options.keys, workers) for workers in options.workers]
    found: dict[str, dict[str, list[float]]] = {cell[0]: {side.name: [] for side in sides} for cell in cells}
    number = 0
    for turn in range(options.repeats):
        for name, role, keys, workers in cells:
            if role == "refresh" and turn:
                continue
            for side in sides if turn % 2 == 0 else reversed(sides):
                often = side.name == "penstock" and role != "refresh"
                for _ in range(OUR_TURNS if often and role == "distributed" else 1):
                    number += 1
                    rate = cell(side, role, keys * OUR_KEYS if often else keys, workers, number)
                    found[name][side.name].append(rate)
                    print(f"  {name:15} {side.name:10} {rate:10.2f}", file=sys.stderr, flush=True)
    return found


def report(options: argparse.Namespace, cells: dict[str, dict[str, list[float]]]) -> None:
    if options.json:
        print(json.dumps({"cells": cells, "keys": {"penstock": options.keys * OUR_KEYS, "datajoint": options.keys}}))
        return
    found = {name: {side: statistics.median(values) for side, values in sides.items()} for name, sides in cells.items()}
    print(
        f"| {options.refresh_keys:,} keys to refresh, {options.keys:,} to make ({OUR_KEYS} times as many by ours) | penstock | datajoint 2.3.5 | times | bar |"
    )
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, sides in found.items():
        ours, theirs = sides["penstock"], sides["datajoint"]
        ratio = theirs / ours if name == "refresh" else ours / theirs
        unit = "s" if name == "refresh" else "keys/s"
        bar = f"{BARS[name]:g}" if name in BARS else ""
        print(f"| {name} | {ours:,.2f} {unit} | {theirs:,.2f} {unit} | {ratio:.1f} | {bar} |")
    steps = [sides["penstock"] for name, sides in found.items() if name.startswith("distributed")]
    print(f"\nthroughput as workers are added: {' → '.join(f'{step:,.0f}' for step in steps)} keys/s")


if __name__ == "__main__":
    main()
