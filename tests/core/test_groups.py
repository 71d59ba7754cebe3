from __future__ import annotations

import itertools

import pytest

from penstock.core.groups import ON_FAILURE, derive
from penstock.core.status import TERMINAL, GroupStatus, JobStatus

DEAD = {JobStatus.FAILED, JobStatus.DEAD_LETTER}


@pytest.mark.parametrize("on_failure", ON_FAILURE)
def test_every_group_of_up_to_three(on_failure: str) -> None:
    for size in (1, 2, 3):
        for members in itertools.product(JobStatus, repeat=size):
            status = derive(members, on_failure)
            ended = all(member in TERMINAL for member in members)
            assert ended == (status not in (GroupStatus.QUEUED, GroupStatus.RUNNING))
            assert (status is GroupStatus.QUEUED) == (set(members) == {JobStatus.QUEUED})
            assert (status is GroupStatus.CANCELED) == (set(members) == {JobStatus.CANCELED})
            if ended and set(members) == {JobStatus.SUCCEEDED}:
                assert status is GroupStatus.COMPLETED
            if ended and DEAD & set(members) and on_failure != "skip":
                assert status is GroupStatus.PARTIAL


def test_skip_leaves_the_dead_out_of_the_account() -> None:
    assert derive([JobStatus.SUCCEEDED, JobStatus.DEAD_LETTER], "skip") is GroupStatus.COMPLETED
    assert derive([JobStatus.DEAD_LETTER], "skip") is GroupStatus.PARTIAL
    assert derive([JobStatus.SUCCEEDED, JobStatus.DEAD_LETTER, JobStatus.CANCELED], "skip") is GroupStatus.PARTIAL
