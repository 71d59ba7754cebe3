"""A word with the operating system's scheduler."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.core.own_process import is_ours
from penstock.core.settings.process import ProcessSettings


@contextmanager
def unhurried() -> Iterator[None]:
    """Work in this thread, and in what it starts, is batch work: nobody waits for its next millisecond. Where more workers
    share a machine than it has cores, the kernel then lets each keep its turn, instead of handing it to whoever was woken
    last; four or eight workers on two cores made a sixth more keys. Linux only, only if nobody has chosen otherwise, and only in
    a process that Penstock started for itself: a thread of the user's program keeps the class that the program gave it."""
    if not _may_choose() or os.sched_getscheduler(0) != os.SCHED_OTHER:
        yield
        return
    try:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    except OSError:  # a sandbox that forbids it
        yield
        return
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def _may_choose() -> bool:
    if not is_ours() or not hasattr(os, "SCHED_BATCH"):
        return False
    return ProcessSettings.from_environment().batch_scheduling == "on"
