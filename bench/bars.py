"""The bars: ratios within one run that Penstock means to reach. One that is missed is written down as missed."""

from __future__ import annotations

from dataclasses import dataclass

from bench.bench import Bench
from bench.workloads import drain, enqueue, history, latency, memory
from bench.workloads.commands import BARE as BARE_COMMANDS
from bench.workloads.commands import WORKLOAD as COMMANDS

PG, LITE = "penstock on PostgreSQL", "penstock on SQLite"


@dataclass(frozen=True, slots=True)
class Bar:
    """Ours over theirs is to be at least (or, where less is better, at most) so much."""

    ours: tuple[str, str]
    theirs: tuple[str, str] | None
    least: float | None = None
    most: float | None = None

    def line(self, bench: Bench) -> str | None:
        ours = bench.median(*self.ours)
        theirs = bench.median(*self.theirs) if self.theirs else 1.0
        if ours is None or theirs is None or theirs == 0:
            return None
        ratio = ours / theirs
        met = ratio >= self.least if self.least is not None else ratio <= (self.most or 0.0)
        beside = f"{self.theirs[1]}, {self.theirs[0]}" if self.theirs else "an absolute bar"
        goal = f"≥ {self.least:g}" if self.least is not None else f"≤ {self.most:g}"
        return (
            f"| {self.ours[1]}: {self.ours[0]} | {beside} | {ratio:.2f} | {goal} | {'met' if met else '**missed**'} |"
        )


def _drains(ours: str, bars: dict[str, float]) -> list[Bar]:
    return [Bar((drain.ONE, ours), (drain.ONE, name), least=least) for name, least in bars.items()]


BARS: list[Bar] = [
    *_drains(PG, {"pgqueuer": 1.5, "chancy": 6, "procrastinate": 30, "oban": 3, "dbos": 3, "celery": 5, "dramatiq": 5}),
    *_drains(LITE, {"huey": 5, "apscheduler": 10}),
    *(Bar((drain.ONE, ours), (drain.LIMIT, ours), least=0.5) for ours in (PG, LITE)),
    *(Bar((drain.TWO, ours), (drain.ONE, ours), least=1) for ours in (PG, LITE)),
    Bar((drain.BULK, PG), (drain.BULK, "pgqueuer"), least=1),
    *(Bar((drain.BULK, o), (drain.BULK, f"{enqueue.BARE_BULK} ({d})"), least=0.5) for o, d in ((PG, "postgresql"), (LITE, "sqlite"))),
    *(Bar((enqueue.ONE, o), (enqueue.ONE, f"{enqueue.BARE_ONE} ({d})"), least=0.7) for o, d in ((PG, "postgresql"), (LITE, "sqlite"))),
    *(
        Bar((f"{latency.WORKLOAD}, {part}", PG), (f"{latency.WORKLOAD}, {part}", name), most=1)
        for name in ("pgqueuer", "procrastinate", "chancy", "oban", "dbos")
        for part in ("p50", "p95")
    ),
    Bar((f"{latency.WORKLOAD}, p95", LITE), None, most=20),
    *(Bar((history.DRAIN, ours), (drain.ONE, ours), least=1 / 1.5) for ours in (PG, LITE)),
    *(Bar((f"{history.LATENCY}, p50", o), (f"{latency.WORKLOAD}, p50", o), most=1.5) for o in (PG, LITE)),
    *(Bar((COMMANDS, ours), (COMMANDS, BARE_COMMANDS), least=0.7) for ours in (PG, LITE)),
    *(
        Bar((f"HTTP {verb}", o), (f"HTTP {verb}", f"bare FastAPI ({d})"), least=0.5)
        for o, d in ((PG, "postgresql"), (LITE, "sqlite"))
        for verb in ("enqueue", "list 50")
    ),
    *(Bar((memory.IDLE, ours), None, most=80) for ours in (PG, LITE)),
    Bar(("pipelines, refresh", "penstock"), ("pipelines, refresh", "datajoint"), least=50),
    Bar(("pipelines, distributed 1", "penstock"), ("pipelines, distributed 1", "datajoint"), least=3),
    Bar(("pipelines, distributed 8", "penstock"), ("pipelines, distributed 8", "datajoint"), least=10),
    # Never less for more workers; two measurements of the same differ by a few percent either way.
    *(
        Bar((f"pipelines, distributed {more}", "penstock"), (f"pipelines, distributed {fewer}", "penstock"), least=0.95)
        for fewer, more in ((1, 2), (2, 4), (4, 8))
    ),
]  # fmt: skip


def judged(bench: Bench) -> str:
    lines = [line for bar in BARS if (line := bar.line(bench)) is not None]
    return "\n".join(["| ours | beside | ratio | bar | |", "| --- | --- | ---: | ---: | --- |", *lines])
