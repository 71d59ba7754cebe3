"""What one tenant's attack does to another tenant, on both databases.

    python -m bench.walls [--rounds 3] [--seconds 10] [--only payload flood …] [--database sqlite postgresql] [--json FILE]

The service is a real `penstock api` beside a real worker. Tenant beta sends 40 requests a second, each over a new connection, a summary and
an enqueue in turn, at times that are fixed beforehand: a slow response delays no later request. The attacker is a process of its own with
tokens of tenant alpha. Each round has three phases one after another:

- `attack`: the attacker attacks the service.
- `control`: the same program sends the same requests to a sink on this machine, which throws them away and responds as late and with as
  many bytes as the service just did. The attacker's program is not on the service's machine in reality; here it takes processor time from
  everybody, and that must not be counted as an effect of the attack.
- `quiet`: nobody attacks and no such program runs.

The figure that is judged is p95(attack) / p95(control) of each round, the median over the rounds. p95(attack) / p95(quiet) is given, too.

The attack on the queue's order is measured by how long beta's jobs wait from enqueue to start while alpha has a backlog at the most urgent
priority that it may have. Its control is the same backlog at the usual priority, where the queue serves both in turn.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from tests.support.ports import free_port
from tests.support.postgres import Server

from bench.attacks import ATTACKS, ask, request
from bench.walls_order import waits
from penstock import Penstock
from penstock.queue.access import create_token
from penstock.store.database import Database
from penstock.store.schema import upgrade

RATE = 40.0
"""Beta's requests a second."""
RAMP = 4.0
"""Seconds until an attack is there as a whole."""
TAGS = {"type": "object", "properties": {"tags": {"type": "array", "items": {"type": "string"}}}}
PHASES = ("attack", "control", "quiet")


@dataclass
class Row:
    """What was found about one attack: milliseconds by phase, one list for each round."""

    database: str
    name: str
    what: str
    finding: str
    bar: float
    rounds: list[dict[str, list[float]]] = field(default_factory=list)
    failed: int = 0
    attacker: dict[str, Any] = field(default_factory=dict)
    load: float = 0.0

    def p95(self, phase: str) -> float:
        return statistics.median(p95(each[phase]) for each in self.rounds)

    def ratios(self, beside: str) -> list[float]:
        return [p95(each["attack"]) / p95(each[beside]) for each in self.rounds if beside in each]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios("control"))

    @property
    def is_met(self) -> bool:
        return self.ratio <= self.bar and not self.failed

    def plain(self) -> dict[str, Any]:
        return {
            "database": self.database, "attack": self.name, "what": self.what, "finding": self.finding, "bar": self.bar,
            "p95_ms": {phase: round(self.p95(phase), 1) for phase in self.rounds[0]},
            "samples": {phase: sum(len(each[phase]) for each in self.rounds) for phase in self.rounds[0]},
            "ratio_to_control": [round(each, 2) for each in self.ratios("control")],
            "ratio_to_quiet": [round(each, 2) for each in self.ratios("quiet")],
            "failed": self.failed, "attacker": self.attacker, "load": round(self.load, 1), "met": self.is_met,
        }  # fmt: skip


def p95(values: list[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]


async def probe(port: int, token: str, seconds: float) -> tuple[list[float], int]:
    """Beta's latencies in milliseconds, each from the time at which the request was due, and how many requests failed."""
    found: list[float] = []
    failed = 0
    sent = [request("GET", "/jobs/summary", token), request("POST", "/jobs", token, {"definition_key": "echo"})]
    start = time.perf_counter() + 0.05

    async def one(number: int) -> None:
        nonlocal failed
        due = start + number / RATE
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        try:
            async with asyncio.timeout(30):
                status, _ = await ask(port, sent[number % 2], "127.0.0.1")
            failed += status not in (200, 201)
        except (OSError, TimeoutError):
            failed += 1
        found.append(1000 * (time.perf_counter() - due))

    await asyncio.gather(*(one(number) for number in range(round(RATE * seconds))))
    return found, failed


@contextmanager
def process(*args: str, url: str = "") -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, **({"PENSTOCK_DATABASE_URL": url} if url else {})}
    began = subprocess.Popen(
        [sys.executable, "-m", *args], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        start_new_session=True,  # as if each were a service of its own: Linux may share the processor by session
    )  # fmt: skip
    try:
        yield began
    finally:
        began.terminate()
        began.wait(60)


def prepare(url: str) -> dict[str, dict[str, str]]:
    db = Database(url)
    upgrade(db)
    db.close()
    with Penstock(url) as app:
        app.define("tags", runner="command", arg_schema=TAGS)
        app.define("echo", runner="command", queue="echo")
        app.queues.create("none")
        tokens: dict[str, dict[str, str]] = {}
        for tenant in ("alpha", "beta"):
            app.tenants.create(tenant, name=tenant)
            tokens[tenant] = {
                role: create_token(app.ground, role, role, tenant=tenant)[1]
                for role in ("operator", "viewer", "worker")
            }
            app.as_tenant(tenant).enqueue_many("echo", [{"n": n} for n in range(500)])
    return tokens


def measure(database: str, url: str, given: argparse.Namespace) -> Iterator[Row]:
    tokens = prepare(url)
    with ExitStack() as stack:
        port = free_port()
        stack.enter_context(process("penstock.cli", "api", "--port", str(port), url=url))
        stack.enter_context(process("penstock.cli", "worker", "--app", "bench.naps:app", "-c", "8", url=url))
        _until_ready(port)
        asyncio.run(probe(port, tokens["beta"]["operator"], 2))
        for name in [each for each in ATTACKS if each in given.only]:
            chosen = ATTACKS[name]
            row = Row(database, name, chosen.what, chosen.finding, chosen.bar)
            for _ in range(given.rounds):
                _round(row, port, tokens, given.seconds)
            row.load = os.getloadavg()[0]
            yield row
        if "priority" in given.only:
            row = Row(database, "priority", "a backlog before all others: how long jobs wait to start", "5", 1.5)
            for _ in range(given.rounds):
                row.rounds.append(
                    {
                        phase: waits(url, port, tokens, most_urgent=phase == "attack", seconds=given.seconds)
                        for phase in ("attack", "control")
                    }
                )
            row.load = os.getloadavg()[0]
            yield row


def _round(row: Row, port: int, tokens: dict[str, dict[str, str]], seconds: float) -> None:
    beta, found = tokens["beta"]["operator"], {}

    def attacker(to: int) -> tuple[str, ...]:
        return ("bench.attacks", "attack", row.name, "--port", str(to), "--tokens", json.dumps(tokens["alpha"]))

    with process(*attacker(port)) as attacking:
        time.sleep(RAMP)
        found["attack"], failed = asyncio.run(probe(port, beta, seconds))
        row.failed += failed + (not _is_ready(port))
    assert attacking.stdout is not None
    row.attacker = json.loads(attacking.stdout.read())
    _until_ready(port)
    time.sleep(1)
    drain = free_port()
    hold, size = row.attacker["hold"], row.attacker["size"]
    with process("bench.attacks", "sink", "--port", str(drain), "--hold", str(hold), "--size", str(size)) as sink:
        assert sink.stdout is not None
        sink.stdout.readline()
        with process(*attacker(drain)) as attacking:
            time.sleep(RAMP)
            found["control"], failed = asyncio.run(probe(port, beta, seconds))
            row.failed += failed
    assert attacking.stdout is not None
    row.attacker["to_sink_per_second"] = json.loads(attacking.stdout.read())["per_second"]
    found["quiet"], failed = asyncio.run(probe(port, beta, seconds))
    row.failed += failed
    row.rounds.append(found)


def _is_ready(port: int) -> bool:
    with suppress(httpx.HTTPError):
        return httpx.get(f"http://127.0.0.1:{port}/health/ready", timeout=10).status_code == 200
    return False


def _until_ready(port: int) -> None:
    until = time.monotonic() + 300
    while not _is_ready(port):
        if time.monotonic() > until:
            raise RuntimeError("the service did not become ready")
        time.sleep(0.2)


HEADER = """\
| database | attack (finding) | quiet, p95 | control, p95 | attack, p95 | attack / control | bar | | attack / quiet | load |
| --- | --- | ---: | ---: | ---: | ---: | ---: | --- | ---: | ---: |"""


def line(row: Row) -> str:
    """The row of the table. Ratios are the median of the rounds with the least and the most beside it."""

    def spread(values: list[float]) -> str:
        if not values:
            return ""
        return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"

    quiet = f"{row.p95('quiet'):.1f} ms" if "quiet" in row.rounds[0] else ""
    said = "met" if row.is_met else "**missed**"
    said += f", {row.failed} failed" if row.failed else ""
    cells = (
        row.database, f"{row.what} ({row.finding})", quiet, f"{row.p95('control'):.1f} ms", f"{row.p95('attack'):.1f} ms",
        spread(row.ratios("control")), f"{row.bar}", said, spread(row.ratios("quiet")), f"{row.load:.1f}",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10, help="of each phase; 40 requests a second are measured")
    parser.add_argument("--only", nargs="+", choices=[*ATTACKS, "priority"], default=[*ATTACKS, "priority"])
    parser.add_argument(
        "--database", nargs="+", choices=["sqlite", "postgresql"], default=["sqlite", "postgresql"],
        help="on new ones, which are removed in the end",
    )  # fmt: skip
    parser.add_argument("--json", type=Path, help="write everything that was found to this file")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended, too
    rows: list[Row] = []
    print(HEADER, flush=True)
    for database in given.database:
        with ExitStack() as stack:
            if database == "sqlite":
                folder = stack.enter_context(tempfile.TemporaryDirectory())
                url = f"sqlite:///{Path(folder) / 'walls.db'}"
            else:
                server = Server().start()
                stack.callback(server.remove)
                url = server.url()
            for row in measure(database, url, given):
                rows.append(row)
                print(line(row), flush=True)
                if given.json:
                    given.json.write_text(json.dumps([each.plain() for each in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
