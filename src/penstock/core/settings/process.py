"""Settings of processes that Penstock starts for itself: `penstock worker`, `up`, `api`, `scheduler` and their children.

Nothing here applies to a program of yours that imports Penstock, also not while it runs a worker.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.settings.base import SWITCH, Group, setting


@dataclass(frozen=True, kw_only=True)
class ProcessSettings(Group):
    """What Penstock changes in the interpreter and in the limits of its own processes."""

    worker_switch_interval: float = setting(0.001, at_least=0, at_most=1)
    """Seconds that one thread of `penstock worker` may keep the interpreter while another waits for it. Python's own 5 ms are what the
    thread that claims would wait after each answer of the database while short jobs compute. 0 leaves Python's."""
    api_switch_interval: float = setting(0.0005, at_least=0, at_most=1)
    """The same for `penstock api` and `penstock up`, where a request would wait for the computing of others. 0 leaves Python's."""
    gc_young_objects: int = setting(20_000, at_least=0)
    """New objects in `penstock worker` before Python looks through them for garbage. Its own 700 to 2,000 cost a drain of short jobs a
    tenth of its time. 0 leaves Python's."""
    gc_freeze: str = setting("on", one_of=SWITCH)
    """Whether `penstock worker` exempts what it loaded at its start from garbage collection."""
    raise_open_files: str = setting("on", one_of=SWITCH)
    """Whether `penstock api` and `penstock up` raise their limit of open files (`ulimit -n`) as far as `PENSTOCK_MAX_CONNECTIONS` needs
    and the hard limit allows."""
    hide_secrets: str = setting("on", one_of=SWITCH)
    """Whether the long-running commands hide their environment and arguments from other processes of the same user. This also stops
    debuggers and profilers such as `gdb` and `py-spy` from attaching, and core dumps; `off` allows them."""
    batch_scheduling: str = setting("on", one_of=SWITCH)
    """Whether processes that fill pipeline tables ask Linux for the scheduling class of batch work (`SCHED_BATCH`). Where more of them
    run than there are cores, each keeps its turn for longer and they make about a sixth more keys."""
    overflow: str = setting("on", one_of=SWITCH)
    """Whether `penstock api` and `penstock up` start a second process for tenants that keep the service computing, so that others do not
    wait for them. It takes about 80 MB while it is needed, and 30 MB before. It exists on Linux only."""
    overflow_nice: int = setting(5, at_least=0, at_most=19)
    """How much the overflow process gives way to other processes, as `nice` counts. With 5 it has a third of the processor beside
    another that always computes; with 19 it would hardly get any on a busy machine."""
    overflow_idle_seconds: float = setting(600.0, more_than=0)
    """Seconds that the overflow process stays without connections, and keeps its memory, before it ends. Starting it takes seconds."""
