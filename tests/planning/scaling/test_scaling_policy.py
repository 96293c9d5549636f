"""The policy in closed loop: few decisions that last, whatever the load does; and the reasons why it waits."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import groupby, pairwise

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from planning.scaling.demands import GROUPS, demand, roads
from planning.scaling.runs import COSTS, SimulatedRun

from tenax.model.elasticity import Elasticity
from tenax.planning.scaling import Direction, Keep, Rescale, Shape
from tenax.planning.scaling.policy import (
    MEMORY,
    PATIENCE,
    Decision,
    Observation,
    Scope,
    TooSmall,
    Waits,
    Watch,
    decide,
)

OUT, IN = Direction.OUT, Direction.IN
FOUND = (Phase.explicit, Phase.reuse, Phase.generate)  # a run takes too long to be shrunk
STEP_S = 200.0  # by then a run has settled to the rate before the step
SCOPE = Scope(Elasticity(True), GROUPS, 1.0)


def step(before: float, times: float = 3.0) -> Callable[[float], float]:
    return lambda at_s: before * (times if at_s > STEP_S else 1.0)


def day(noon: float, length_s: float) -> Callable[[float], float]:
    """Ten times as much at noon as at midnight, when it begins."""
    return lambda at_s: noon * (0.55 - 0.45 * math.cos(2 * math.pi * at_s / length_s))


def turns(directions: list[Direction]) -> int:
    """How often a run goes back on what it has decided."""
    return sum(before is not after for before, after in pairwise(directions))


@given(
    st.floats(300, 1900),
    st.sampled_from([1.0, 1.5]),
    st.sampled_from([1.0, 1.3]),
    st.booleans(),
    st.integers(0, 3),
)
@settings(max_examples=25, deadline=None, phases=FOUND)
def test_a_step_to_three_times_the_rate_takes_two_decisions_at_most(
    before: float, skew: float, slower: float, knows_arrival: bool, seed: int
) -> None:
    run = SimulatedRun(step(before), skew=skew, slower=slower, knows_arrival=knows_arrival, seed=seed)
    run.settings = replace(run.settings, elastic_nodes=(2, 16))
    settled = run.run(STEP_S).rescales
    run.run(600)
    assert len(run.rescales) - len(settled) <= 2
    assert run.waiting == 0
    last = run.decisions[-1][1]
    assert last.feasible if isinstance(last, Keep) else last.reason.startswith("what was decided for")


@given(st.floats(1000, 8000), st.sampled_from([600.0, 1200.0]), st.sampled_from([0.0, 0.05]), st.integers(0, 3))
@settings(max_examples=12, deadline=None, phases=FOUND)
def test_a_day_has_no_back_and_forth_and_no_long_backlog(noon: float, length_s: float, noise: float, seed: int) -> None:
    run = SimulatedRun(day(noon, length_s), noise=noise, seed=seed)
    run.settings = replace(run.settings, elastic_nodes=(2, 12))
    run.run(length_s)  # a first day, which begins with more tasks than it needs
    first = len(run.rescales)
    run.run(length_s)
    directions = run.directions[first:]
    assert turns(directions) <= 2  # in, for the rest of the night; out; and in again
    assert run.most_waiting <= 5
    nodes = [count for at_s, count in run.history if at_s > length_s]
    noon_at = nodes.index(max(nodes))
    assert nodes[:noon_at] == sorted(nodes[:noon_at])
    assert nodes[noon_at:] == sorted(nodes[noon_at:], reverse=True)


@given(st.floats(600, 5000), st.integers(0, 50), st.sampled_from([1.0, 2.0]), st.sampled_from([1.0, 1.2]))
@settings(max_examples=15, deadline=None, phases=FOUND)
def test_noise_around_the_bound_never_makes_it_go_back_and_forth(
    rate: float, seed: int, skew: float, slower: float
) -> None:
    run = SimulatedRun(lambda _: rate, noise=0.1, seed=seed, skew=skew, slower=slower).run(1500)
    shapes = [(2, (2, 2)), *((each.shape.nodes, tuple(each.shape.parallelism.values())) for each in run.rescales)]
    assert len(shapes) == len(set(shapes))  # none is gone back to
    nodes = [count for count, _ in groupby(count for count, _ in shapes)]
    went = [OUT if after > before else IN for before, after in pairwise(nodes)]
    assert turns(went) <= (1 if skew == 1 else 2)  # the first task stays the busiest, which no plan knows
    assert len(run.rescales) <= 5
    late = [at_s for at_s, each in run.decisions if isinstance(each, Rescale) and at_s > 1000]
    assert len(late) <= 1


def test_noise_of_the_rate_itself_makes_it_go_out_at_most_once_too_far() -> None:
    for seed in range(5):
        run = SimulatedRun(lambda _: 0.0, seed=seed)
        draw = run.draw
        run.rate = lambda _, draw=draw: 2300 * draw.uniform(0.9, 1.1)  # type: ignore[misc]
        run.run(1500)
        assert turns(run.directions) <= 1
        assert len(run.rescales) <= 2


@pytest.mark.parametrize("policy", ["rates", "threshold"])
def test_both_policies_go_out_for_more_and_in_for_less(policy: str) -> None:
    run = SimulatedRun(
        lambda at_s: 6000.0 if 300 < at_s <= 900 else 600.0,
        settings=Elasticity(True, policy, elastic_nodes=(2, 16)),
        costs=dict.fromkeys(COSTS, 5e-6) | {"speed": 600e-6},
        knows_arrival=True,
    ).run(1800)
    assert OUT in run.directions
    assert run.directions[-1] is IN
    assert run.nodes == 2
    assert max(count for _, count in run.history) > 4
    assert run.waiting == 0


def test_the_threshold_does_not_see_that_levels_add_up_and_says_so() -> None:
    run = SimulatedRun(lambda _: 6000.0, settings=Elasticity(True, "threshold"), knows_arrival=True).run(300)
    last = run.decisions[-1][1]
    assert isinstance(last, Keep)
    assert not last.feasible
    assert last.reason.endswith("another shape does not help: no task that may be split is above the threshold")


def test_a_run_that_has_the_most_nodes_stays_and_says_so() -> None:
    run = SimulatedRun(lambda _: 20_000.0, settings=Elasticity(True, elastic_nodes=(2, 4))).run(600)
    assert len(run.rescales) <= 2
    last = run.decisions[-1][1]
    assert isinstance(last, Keep)
    assert not last.feasible
    assert "the most nodes are reached (4)" in last.reason


# one period after the other ------------------------------------------------------------------------------------------


def seen(rate: float | None = 1000.0, at_s: float = 0.0, **words: object) -> Observation:
    """A period of a run of two tasks each on two nodes that takes 0.5 s for a batch of 1,000 rows."""
    made = demand(roads(), {"rows": 0.05, "parse": 0.15, "speed": 0.5, "jams": 0.3})
    usual = Observation(at_s, made.graph, 2, made.rows, made.busy_s, 1000.0, 1000.0, rate, moving_s=0.5)
    return replace(usual, **words)  # type: ignore[arg-type]


def decided(*periods: Observation, scope: Scope = SCOPE, watch: Watch | None = None) -> tuple[Watch, Decision]:
    """What the last of these periods decides."""
    watch = watch or Watch()
    decision: Decision = Waits("nothing yet")
    for each in periods:
        watch, decision = decide(watch, scope, each)
    return watch, decision


def test_a_load_that_fits_is_kept() -> None:
    _, decision = decided(seen(1000, 10), seen(1000, 20))
    assert isinstance(decision, Keep)
    assert decision.feasible


def test_two_periods_in_a_row_are_needed_and_the_higher_rate_is_planned_for() -> None:
    watch, first = decided(seen(2500, 10))
    assert isinstance(first, Waits)
    assert first.reason.startswith("1 of 2 periods ask for a scale-out: a pass takes 1.25 s at 2.5 × the measured rate")
    _, again = decided(seen(1000, 20), seen(2500, 30), watch=watch)
    assert isinstance(again, Waits)
    _, then = decided(seen(1800, 20), watch=watch)
    assert isinstance(then, Rescale)
    assert then.direction is OUT
    assert then.after.pass_s <= 0.63
    assert "2.5 ×" in then.reason


def test_a_scale_in_waits_for_its_cooldown_and_a_scale_out_does_not() -> None:
    calm, busy = Watch(changed_s=0.0), Watch(changed_s=0.0)
    _, held = decided(seen(200, 10), seen(200, 20), watch=calm)
    assert isinstance(held, Waits)
    assert held.reason.startswith("no scale-in within 60 s after a rescale: a pass takes 0.1 s")
    _, done = decided(seen(200, 60), seen(200, 70), watch=calm)
    assert isinstance(done, Rescale)
    assert done.direction is IN
    _, out = decided(seen(2500, 10), seen(2500, 20), watch=busy)
    assert isinstance(out, Rescale)


def test_nothing_is_merged_while_batches_wait() -> None:
    _, decision = decided(seen(200, 10, backlog=3.0), seen(200, 20, backlog=2.0))
    assert decision == Waits("no scale-in while 2 batches wait")


def test_a_run_that_catches_up_is_left_alone_and_one_that_does_not_gets_twice_what_it_takes() -> None:
    slow = [seen(None, 10.0 * number, backlog=4.0 + number, taken_per_s=1400.0) for number in (1, 2)]
    _, out = decided(*slow)
    assert isinstance(out, Rescale)
    assert "2.8 × the measured rate" in out.reason
    watch, waits = decided(slow[0], seen(None, 20, backlog=3.0))
    assert waits == Waits("the run catches up: 3 batches wait, and fewer than before")
    assert watch.asks == ()


def test_what_a_run_takes_is_what_comes_if_nothing_waits() -> None:
    _, decision = decided(seen(None, 10, taken_per_s=2500.0), seen(None, 20, taken_per_s=2500.0))
    assert isinstance(decision, Rescale)


@pytest.mark.parametrize(
    ("words", "reason"),
    [({"steady": False}, "tasks are missing or move"), ({"measured": False}, "the tasks are not measured yet")],
)
def test_nothing_is_decided_by_what_is_not_as_usual(words: dict[str, object], reason: str) -> None:
    watch, decision = decided(seen(2500, 10), seen(2500, 20, **words))
    assert decision == Waits(reason)
    assert watch.asks == ()


def test_without_an_interval_nothing_is_decided() -> None:
    _, decision = decided(seen(2500, 10), seen(2500, 20), scope=replace(SCOPE, interval_s=0.0))
    assert isinstance(decision, Waits)
    assert decision.reason.startswith("batches follow each other at once")


def test_a_rescale_under_way_is_waited_for_and_one_that_never_comes_is_decided_anew() -> None:
    watch, asked = decided(seen(2500, 10), seen(2500, 20))
    assert isinstance(asked, Rescale)
    assert decided(seen(2500, 30), watch=watch)[1] == Waits("a rescale is under way")
    late = 20 + PATIENCE * 10
    _, anew = decided(seen(2500, late), seen(2500, late + 10), watch=watch)
    assert isinstance(anew, Rescale)
    there = seen(1000, 30, graph=roads(*(asked.shape.parallelism[name] for name in ("speed", "jams"))))
    tasks = len(there.graph)
    there = replace(there, nodes=asked.shape.nodes, rows=(1.0,) * tasks, busy_s=(0.1,) * tasks, measured=False)
    watch, decision = decided(there, watch=watch)
    assert (watch.decided, watch.changed_s) == (None, 30)
    assert decision == Waits("the tasks are not measured yet")


def test_a_shape_that_was_too_small_is_not_gone_back_to_at_a_rate_like_that() -> None:
    small = Shape(2, {"rows": 2, "parse": 2, "speed": 1, "jams": 1, "top": 1})
    watch = Watch(too_small=(TooSmall(small, 300.0, 0.0),))
    _, held = decided(seen(250, 100), seen(250, 110), watch=watch)
    assert isinstance(held, Waits)
    assert held.reason.startswith("2 nodes were too small at 300 rows/s")
    assert isinstance(decided(seen(200, 100), seen(200, 110), watch=watch)[1], Rescale)
    much_later = MEMORY * 60.0
    assert isinstance(decided(seen(250, much_later), seen(250, much_later + 10), watch=watch)[1], Rescale)


def test_what_was_decided_for_a_rate_holds_until_fewer_rows_come() -> None:
    watch = Watch(changed_s=0.0, decided_for=200.0)
    _, held = decided(seen(195, 100), seen(195, 110), watch=watch)
    assert isinstance(held, Waits)
    assert held.reason.startswith("what was decided for 200 rows/s holds for as many: a pass takes 0.0975 s")
    assert isinstance(decided(seen(185, 100), seen(185, 110), watch=watch)[1], Rescale)
    much_later = MEMORY * 60.0
    assert isinstance(decided(seen(195, much_later), seen(195, much_later + 10), watch=watch)[1], Rescale)


def test_passes_that_take_longer_than_tasks_say_are_predicted_longer() -> None:
    _, usual = decided(seen(1300, 10), seen(1300, 20))
    assert isinstance(usual, Keep)
    _, slower = decided(seen(1300, 10, moving_s=0.75), seen(1300, 20, moving_s=0.75))
    assert isinstance(slower, Rescale)
    assert slower.now.pass_s == pytest.approx(1.3 * 0.75)
    made = demand(roads(), {})
    assert slower.now.shape == made.present
