"""How fast rows come, as an elastic run sees it at the end of a period."""

from __future__ import annotations

import pytest

from tenax.control.elastic import RISEN, _arriving
from tenax.control.load import Arrival, Load
from tenax.control.state import Period, RunState
from tenax.planning.scaling.policy import Watch

MEAN = 100.0


def state(rate: float | None = MEAN, since_s: float = 20.0, backlog_before: float = 0.0) -> RunState:
    """Rows came so fast in the mean, known at 20 s; the period began at 10 s."""
    period = Period(Watch(backlog=backlog_before), begun_s=10.0)
    return RunState(load=Load(arrival=Arrival(rate, since_s)), period=period)


@pytest.mark.parametrize("taken", [0.0, 50.0, MEAN, MEAN * RISEN])
def test_the_mean_is_what_comes_as_long_as_the_run_takes_about_as_much(taken: float) -> None:
    assert _arriving(state(), taken, backlog=1.0) == MEAN


def test_a_run_that_keeps_up_and_takes_much_more_knows_that_the_rate_has_gone_up() -> None:
    assert _arriving(state(), 250.0, backlog=1.0) == 250.0


def test_a_run_that_was_behind_takes_more_than_comes() -> None:
    assert _arriving(state(), 250.0, backlog=2.0) == MEAN
    assert _arriving(state(backlog_before=2.0), 250.0, backlog=1.0) == MEAN


def test_what_is_not_known_is_not_guessed() -> None:
    assert _arriving(state(rate=None), 250.0, backlog=0.0) is None
    assert _arriving(state(since_s=5.0), 250.0, backlog=0.0) is None
