from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.position import GAP, place, step

places = st.integers(1, 10**12)


def test_with_one_tenant_it_is_seed_004s_rule() -> None:
    assert (place(None, None), place(100, 100), place(900, 300)) == (100, 200, 1000)


@given(places, places)
def test_behind_ones_own_and_never_before_the_clock(largest: int, smallest: int) -> None:
    found = place(largest, smallest)
    assert found > largest
    assert found >= smallest


@given(places)
def test_a_newcomer_starts_at_the_clock(smallest: int) -> None:
    assert place(None, smallest) == max(smallest, GAP)


def test_weight_divides_the_step() -> None:
    assert [step(weight) for weight in (1, 2, 4, 100, 1000)] == [100, 50, 25, 1, 1]
