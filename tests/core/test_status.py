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
            transition.check(state, "So it is.")
        told = str(refused.value)
        assert state in told and transition.target in told and "So it is." in told
        assert all(source in told for source in transition.sources)


def test_success_is_for_good() -> None:
    assert all(JobStatus.SUCCEEDED not in transition.sources for transition in NAMED)


def test_one_of() -> None:
    assert one_of("mode", "a", ["b", "a"]) == "a"
    with pytest.raises(InvalidInput, match="mode is 'c'; expected one of a, b"):
        one_of("mode", "c", ["b", "a"])
