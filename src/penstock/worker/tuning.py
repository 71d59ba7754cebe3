"""What Penstock changes in the interpreter of its own processes. `docs/explanation/tuning.md` has the measured reasons."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.core.own_process import claim_process
from penstock.core.settings.process import ProcessSettings


@contextmanager
def tuned_for_work(settings: ProcessSettings | None = None) -> Iterator[None]:
    """Tune a process that does nothing but run a worker, for as long as it does: `penstock worker` and its children.

    What the process loaded at its start is not looked through for garbage again and again, the rest is more rarely, and threads
    take shorter turns.
    """
    chosen = settings or ProcessSettings.from_environment()
    claim_process()
    thresholds = gc.get_threshold()
    if chosen.gc_freeze == "on":
        gc.collect()
        gc.freeze()
    if chosen.gc_young_objects:
        gc.set_threshold(chosen.gc_young_objects, *thresholds[1:])
    try:
        with turns_of(chosen.worker_switch_interval):
            yield
    finally:
        gc.set_threshold(*thresholds)
        if chosen.gc_freeze == "on":
            gc.unfreeze()


@contextmanager
def turns_of(seconds: float) -> Iterator[None]:
    """Let a thread keep the interpreter for this long at most while others wait for it; 0 changes nothing."""
    before = sys.getswitchinterval()
    if seconds:
        sys.setswitchinterval(min(before, seconds))
    try:
        yield
    finally:
        sys.setswitchinterval(before)
