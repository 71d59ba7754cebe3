"""The one command: `python -m bench.run`, or `--quick`. Prints the table, and writes docs/benchmarks.md with its plot."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from bench.bench import FULL, QUICK, Bench
from bench.environment import ROOT, Databases, Missing, interpreter, version
from bench.report import report
from bench.workloads import WORKLOADS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less of everything: minutes instead of half an hour")
    parser.add_argument(
        "--only", nargs="+", choices=sorted(WORKLOADS), default=list(WORKLOADS), help="these workloads alone"
    )
    parser.add_argument("--peers", nargs="+", help="these systems alone, beside penstock")
    parser.add_argument(
        "--out", type=Path, help="where the report goes (docs/ for a full run; else it is only printed)"
    )
    given = parser.parse_args()
    databases = Databases()
    bench = Bench(QUICK if given.quick else FULL, databases)
    if given.peers is not None:
        bench.peers = tuple(peer for peer in bench.peers if peer.name in {"penstock", *given.peers})
    started = time.monotonic()
    try:
        versions = prepare(bench)
        for name in WORKLOADS:
            if name in given.only:
                print(f"{name} ({time.monotonic() - started:.0f} s)", file=sys.stderr, flush=True)
                WORKLOADS[name](bench)
    finally:
        databases.close()
    out = given.out or (
        ROOT / "docs" if not given.quick and given.only == list(WORKLOADS) and not given.peers else None
    )
    print(report(bench, versions, time.monotonic() - started, out))
    if out:
        raw = [
            {"workload": c.workload, "system": c.system, "unit": c.unit, "values": v} for c, v in bench.found.items()
        ]
        (out / "benchmarks.json").write_text(json.dumps(raw, indent=1) + "\n")


def prepare(bench: Bench) -> dict[str, str]:
    """Install every peer, and ask what it is. One that cannot be had is named as missing."""
    versions: dict[str, str] = {}
    for peer in bench.peers:
        try:
            interpreter(peer)
            if peer.database == "redis":
                bench.databases.redis.flush()
            versions[peer.label] = version(peer)
        except Missing as error:
            bench.missing[peer.label] = str(error)
            print(f"  {peer.label} is missing: {error}", file=sys.stderr, flush=True)
    return versions


if __name__ == "__main__":
    main()
