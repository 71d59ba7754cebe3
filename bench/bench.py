"""One run of the bench: how much is measured, what was found, who was missing."""

from __future__ import annotations

import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from bench.environment import Databases, Missing
from bench.peers import PEERS, Peer


@dataclass(frozen=True, slots=True)
class Scale:
    """How much. Rates are compared, so less work means more noise, not other results."""

    repeats: int
    drained: int
    enqueued: int
    probes: int
    finished: int
    waiting: int
    commands: int
    schedules: int
    keys: int
    refresh_keys: int
    seconds: float
    everyone_twice: bool
    """Whether peers too are measured with two worker processes."""


FULL = Scale(2, 50_000, 1_000, 100, 1_000_000, 1_000_000, 2_000, 10_000, 2_000, 100_000, 3.0, True)
QUICK = Scale(1, 3_000, 200, 30, 25_000, 25_000, 200, 1_000, 100, 4_000, 1.0, False)
TINY = Scale(1, 60, 5, 3, 200, 200, 3, 20, 4, 20, 0.2, False)
"""For the tests of the bench itself."""


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """What was measured: `drain, 1 process` of `pgqueuer` in `jobs/s`."""

    workload: str
    system: str
    unit: str


@dataclass(slots=True)
class Bench:
    scale: Scale
    databases: Databases
    peers: tuple[Peer, ...] = PEERS
    found: dict[Cell, list[float]] = field(default_factory=lambda: defaultdict(list))
    sizes: dict[Cell, int] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def note(self, workload: str, system: str, value: float, unit: str, size: int | None = None) -> None:
        cell = Cell(workload, system, unit)
        self.found[cell].append(value)
        if size is not None:
            self.sizes[cell] = size
        print(f"  {workload:34} {system:24} {value:12,.2f} {unit}", file=sys.stderr, flush=True)

    def each(
        self, workload: str, measure: Callable[[Peer], None], ours: bool = False, times: int | None = None
    ) -> None:
        """Measure the systems in turn, as often as is asked for. One that fails is named, and left out from then on."""
        for _ in range(self.scale.repeats if times is None else times):
            for peer in self.present():
                if ours and peer.name != "penstock":
                    continue
                self.attempt(peer.label, workload, lambda peer=peer: measure(peer))  # type: ignore[misc]

    def attempt(self, system: str, workload: str, measure: Callable[[], None]) -> None:
        if f"{system}: {workload}" in self.missing:
            return
        try:
            measure()
        except Missing as error:
            self.missing[f"{system}: {workload}"] = str(error)
            print(f"  {workload:34} {system:24} missing: {error}", file=sys.stderr, flush=True)

    def present(self) -> Iterator[Peer]:
        return (peer for peer in self.peers if peer.label not in self.missing)

    def median(self, workload: str, system: str) -> float | None:
        values = [
            v for cell, found in self.found.items() if (cell.workload, cell.system) == (workload, system) for v in found
        ]
        return statistics.median(values) if values else None
