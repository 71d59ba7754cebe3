"""The control of an attack holds its requests as long as the service did."""

from __future__ import annotations

from bench.attacks import Tally


def test_a_request_without_a_response_counts_with_the_time_it_asked_to_wait() -> None:
    assert Tally(responses=4, seconds=2.0, unanswered=3).hold(0) == 0.5
    assert Tally(unanswered=300).hold(20) == 20
    assert Tally(responses=1, seconds=0.0, unanswered=3).hold(20) == 15
    assert Tally().hold(20) == 0
