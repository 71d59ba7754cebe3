"""What was found, as a table, the bars, and a plot."""

from __future__ import annotations

import os
import platform
import sqlite3
import statistics
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from bench.bars import judged
from bench.bench import Bench, Cell
from bench.plot import plot
from bench.workloads.drain import ONE


def report(bench: Bench, versions: dict[str, str], seconds: float, out: Path | None) -> str:
    """The report as Markdown; with `out`, also written there with the plot."""
    parts = [
        "# Benchmarks",
        "Penstock beside the systems that people would choose instead: the same no-op jobs, one machine, one run, systems in "
        "turn, medians of the repeats with the least and the most beside them. Only ratios carry over to another machine. "
        "`make bench` makes this page. What one tenant's attack costs another is [measured elsewhere](benchmarks-walls.md).",
        machine(seconds),
        "![Jobs drained a second by one worker process](benchmarks.svg)" if out else "",
        "## The bars", judged(bench),
        (Path(__file__).parent / "missed.md").read_text().strip(),
        "## Everything measured", *tables(bench),
        "## Who took part", settings(bench, versions),
    ]  # fmt: skip
    text = "\n\n".join(part for part in parts if part) + "\n"
    if out is not None:
        (out / "benchmarks.md").write_text(text)
        rates = {cell.system: statistics.median(v) for cell, v in bench.found.items() if cell.workload == ONE}
        (out / "benchmarks.svg").write_text(plot("Jobs drained a second by one worker process", rates))
    return text


def machine(seconds: float) -> str:
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        "",
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"Machine: {os.cpu_count()} cores ({cpu or platform.machine()}), {memory:.0f} GiB, {platform.system()} "
        f"{platform.release()}, Python {platform.python_version()}, PostgreSQL {postgres_version()} (fsync, synchronous_commit and "
        f"full_page_writes on), SQLite {sqlite3.sqlite_version} (WAL, synchronous=FULL), Redis with appendfsync=everysec (its peers may lose a second of acknowledged jobs). "
        f"Load when it ended: {os.getloadavg()[0]:.1f}. {datetime.now(UTC):%Y-%m-%d}, {seconds / 60:.0f} minutes. {_stolen()}"
    )


def _ticks() -> tuple[int, int]:
    """CPU time since the machine started that others on the same hardware took, and that ran here."""
    try:
        fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    except OSError:
        return 0, 0
    return fields[7], sum(fields[:3])


_AT_START = _ticks()


def _stolen() -> str:
    """How much of the CPU that the run wanted went to other guests of the same hardware."""
    stolen, ran = (now - then for now, then in zip(_ticks(), _AT_START, strict=True))
    return f"Of the processor time asked for, {100 * stolen / max(1, stolen + ran):.0f} % went to other guests of the hardware."


def postgres_version() -> str:
    from tests.support.postgres import bundled_binaries

    done = subprocess.run([bundled_binaries() / "bin" / "postgres", "--version"], capture_output=True, text=True)
    return done.stdout.split()[-1] if done.stdout else "unknown"


def tables(bench: Bench) -> list[str]:
    """One table per workload, the best first."""
    workloads = list(dict.fromkeys(cell.workload for cell in bench.found))
    return [table(bench, workload) for workload in workloads]


def table(bench: Bench, workload: str) -> str:
    cells = [cell for cell in bench.found if cell.workload == workload]
    unit = cells[0].unit
    cells.sort(key=lambda cell: statistics.median(bench.found[cell]), reverse=unit not in ("ms", "MiB"))
    lines = [
        f"### {workload[0].upper()}{workload[1:]}",
        "",
        f"| system | {unit} | least to most | measured on |",
        "| --- | ---: | ---: | ---: |",
    ]
    lines += [line(bench, cell) for cell in cells]
    return "\n".join(lines)


def line(bench: Bench, cell: Cell) -> str:
    values = bench.found[cell]
    size = f"{bench.sizes[cell]:,}" if cell in bench.sizes else ""
    spread = f"{number(min(values))} to {number(max(values))}" if len(values) > 1 else ""
    return f"| {cell.system} | {number(statistics.median(values))} | {spread} | {size} |"


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"


def settings(bench: Bench, versions: dict[str, str]) -> str:
    lines = ["| system | version | settings |", "| --- | --- | --- |"]
    lines += [f"| {p.label} | {versions[p.label]} | {p.settings} |" for p in bench.peers if p.label in versions]
    if bench.missing:
        lines += ["", "Missing from this run, and why:", ""]
        lines += [f"- {name}: {why}" for name, why in bench.missing.items()]
    return "\n".join(lines)
