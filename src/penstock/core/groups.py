"""A group's status is derived from its members; a retry chain counts as one member, by its last job."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.core.status import TERMINAL, GroupStatus, JobStatus

MODES = ("sequential", "parallel")
ON_FAILURE = ("stop", "continue", "skip")
"""What a dead member of a sequential group means for the rest: cancel it, run it (the group ends partial),
or run it and leave the dead member out of the account (the group can still end completed)."""


def derive(members: Iterable[JobStatus], on_failure: str = "stop") -> GroupStatus:
    """Seed 003's table. `members` are the statuses of each chain's last job.

    >>> derive([JobStatus.SUCCEEDED, JobStatus.DEAD_LETTER])
    <GroupStatus.PARTIAL: 'partial'>
    """
    statuses = list(members)
    if all(status is JobStatus.QUEUED for status in statuses):
        return GroupStatus.QUEUED
    if any(status not in TERMINAL for status in statuses):
        return GroupStatus.RUNNING
    if all(status is JobStatus.CANCELED for status in statuses):
        return GroupStatus.CANCELED
    dead = {JobStatus.FAILED, JobStatus.DEAD_LETTER}
    if on_failure == "skip" and any(status is JobStatus.SUCCEEDED for status in statuses):
        statuses = [status for status in statuses if status not in dead]
    if all(status is JobStatus.SUCCEEDED for status in statuses):
        return GroupStatus.COMPLETED
    return GroupStatus.PARTIAL
