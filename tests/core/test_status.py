from __future__ import annotations

import pytest

from penstock.core import status
from penstock.core.errors import IllegalTransition, InvalidInput
from penstock.core.status import ACTIVE, TERMINAL, JobStatus, Transition, one_of

NAMED = [value for value in vars(status).values() if isinstance(value, Transition)]


def test_active_and_terminal_are_everything() -> None:
    assert set(JobStatus) == ACTIVE | TERMINAL
    assert not ACTIVE & TERMINAL


@pytest.mark.parametrize("transition", NAMED, ids=lambda transition: transition.name)
def test_a_transition_is_legal_only_from_its_sources(transition: Transition) -> None:
    for state in JobStatus:
        if state in transition.sources:
            transition.check(state)
            continue
        with pytest.raises(IllegalTransition) as refused:
            transition.check(state)
        told = str(refused.value)
        assert told.startswith(f"The job cannot be {transition.done} because it is {state}. Only a job that is ")
        assert told.endswith(f" can be {transition.done}.")
        assert all(source in told for source in transition.sources)


def test_the_sentences_are_english() -> None:
    def told(transition: Transition, state: JobStatus, because: str = "") -> str:
        return str(transition.refused(state, because))

    assert told(status.RETRY, JobStatus.QUEUED) == (
        "The job cannot be retried because it is queued. Only a job that is failed, dead_letter or canceled can be retried."
    )
    assert told(status.CANCEL, JobStatus.SUCCEEDED) == (
        "The job cannot be canceled because it is succeeded. Only a job that is queued or running can be canceled."
    )
    assert told(status.UPDATE, JobStatus.RUNNING) == (
        "The job cannot be updated because it is running. Only a job that is queued can be updated."
    )
    assert told(status.RETRY, JobStatus.FAILED, "job 7 already retries it") == (
        "The job cannot be retried because job 7 already retries it."
    )


def test_success_is_for_good() -> None:
    assert all(JobStatus.SUCCEEDED not in transition.sources for transition in NAMED)


def test_one_of() -> None:
    assert one_of("mode", "a", ["b", "a"]) == "a"
    with pytest.raises(InvalidInput, match="mode is 'c'; expected one of a, b"):
        one_of("mode", "c", ["b", "a"])
