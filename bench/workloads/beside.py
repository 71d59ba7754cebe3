"""What has a bench of its own beside this one: schedules, pipelines, HTTP. Each is run as the command that it is."""

from __future__ import annotations

import json
import re
import subprocess
import sys

from bench.bench import Bench
from bench.environment import ROOT, Missing, peer_environment


def run(*arguments: str, timeout: float = 600) -> str:
    command = [sys.executable, "-m", *arguments]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=peer_environment(), capture_output=True, text=True, timeout=timeout
        )
    except subprocess.TimeoutExpired as error:
        raise Missing(f"was not done after {timeout:g} s") from error
    if done.returncode:
        raise Missing((done.stderr.strip().splitlines() or ["it failed without a word"])[-1][:300])
    return done.stdout


def schedules(bench: Bench) -> None:
    count = bench.scale.schedules

    def measure() -> None:
        answer = run("bench.triggers", "--schedules", str(count))
        for database, rate in re.findall(r"^(\w+) .*?([\d.]+) jobs/s", answer, re.M):
            bench.note("schedules due at once", f"penstock on {_proper(database)}", float(rate), "jobs/s", count)

    for _ in range(bench.scale.repeats):
        bench.attempt("penstock", "schedules due at once", measure)


def pipelines(bench: Bench) -> None:
    scale = bench.scale

    def measure() -> None:
        with bench.databases.fresh("postgresql") as url:
            sizes = (
                "--keys",
                str(scale.keys),
                "--refresh-keys",
                str(scale.refresh_keys),
                "--repeats",
                str(scale.repeats),
            )
            workers = ("1", "2", "4", "8") if scale.everyone_twice else ("1", "8")
            answer = run("bench.pipelines", "--json", "--url", url, *sizes, "--workers", *workers)
        found = json.loads(answer.strip().splitlines()[-1])
        for name, sides in found["cells"].items():
            refresh = name == "refresh"
            for system, values in sides.items():
                size = scale.refresh_keys if refresh else found["keys"][system]
                for value in values:
                    bench.note(f"pipelines, {name}", system, size / value if refresh else value, "keys/s", size)

    bench.attempt("datajoint and penstock", "pipelines", measure)


def http(bench: Bench) -> None:
    def measure() -> None:
        for database in ("sqlite", "postgresql"):
            with bench.databases.fresh(database) as url:
                answer = run("bench.service", "--url", url, "--seconds", str(bench.scale.seconds))
            found = json.loads(answer.splitlines()[-1])
            for side, system in (("ours", f"penstock on {_proper(database)}"), ("bare", f"bare FastAPI ({database})")):
                for verb, rate in found[side].items():
                    bench.note(f"HTTP {verb}", system, rate, "requests/s")

    bench.attempt("penstock", "http", measure)


def _proper(database: str) -> str:
    return {"postgresql": "PostgreSQL", "sqlite": "SQLite"}.get(database, database)
