"""Decimal numbers as whole ticks: sums that people expect, bounds that hold."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tenax.planning.ticks import Ticks

DECIMALS = st.decimals(min_value=0, max_value=1000, places=3).map(float)
FLOATS = st.floats(0, 1e6, allow_nan=False)


def test_three_times_a_tenth_is_three_tenths() -> None:
    ticks = Ticks.of(np.array([0.1]), 0.3)
    assert 3 * ticks.up(0.1) == ticks.down(0.3)
    assert ticks.number(3) == 0.3


@given(st.lists(DECIMALS, min_size=1, max_size=20))
@settings(deadline=None)
def test_decimals_are_counted_exactly(values: list[float]) -> None:
    ticks = Ticks.of(np.array(values))
    exact = sum(Fraction(repr(value)) for value in values)
    assert Fraction(int(ticks.up(np.array(values)).sum()), 10**ticks.decimals) == exact
    assert np.array_equal(ticks.up(np.array(values)), ticks.down(np.array(values)))


@given(st.lists(FLOATS, min_size=1, max_size=20))
@settings(deadline=None)
def test_what_is_not_exact_is_rounded_to_the_safe_side(values: list[float]) -> None:
    ticks = Ticks.of(np.array(values))
    scale = Fraction(10) ** ticks.decimals
    for value in values:
        written = Fraction(repr(value)) * scale
        slack = written / 2**52  # a float stands for all numbers nearer to it than to the next one
        assert int(ticks.down(value)) - slack <= written <= int(ticks.up(value)) + slack
        assert int(ticks.up(value)) - int(ticks.down(value)) <= 1


@settings(deadline=None)
@given(st.floats(1e12, 1e300))
def test_huge_numbers_get_coarser_ticks_that_fit(value: float) -> None:
    ticks = Ticks.of(value, value, value)
    assert 0 < 3 * int(ticks.up(value)) < 2**62


def test_a_number_of_many_digits_is_not_rounded_below_itself() -> None:
    assert int(Ticks(8).up(50016725.135963954)) == 5001672513596396
    assert int(Ticks(8).down(50016725.135963954)) == 5001672513596395
