"""The checks that hunt the deliberate bugs pass on the product itself, on both databases."""

from __future__ import annotations

import pytest

from penstock import ManualClock, Penstock
from tests.mutants.checks import CHECKS, Check


@pytest.mark.parametrize("check", CHECKS, ids=[check.__name__ for check in CHECKS])
def test_the_product_passes(url: str, clock: ManualClock, check: Check) -> None:
    with Penstock(url, clock=clock) as app:
        check(app, clock)
