"""Random outages: every algorithm against the definition of the problem, written anew here."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import topologies

from tenax.model.graph import Bools, TaskGraph
from tenax.model.plans import RecoveryPlan
from tenax.model.topology import Operator, Topology
from tenax.planning.recovery import ALGORITHMS, check_recovery, check_schedule, plan_recovery, schedule_recovery

MAX_FAILED = 9
FRACTIONAL = st.sampled_from([0.0, 0.1, 0.3, 0.7, 1.0, 2.5, 1 / 3])


@dataclass(frozen=True)
class Case:
    """A small outage."""

    graph: TaskGraph
    failed: Bools
    capacity: float


@st.composite
def cases(draw: st.DrawFn) -> Case:
    graph = TaskGraph(draw(topologies(max_operators=5, max_parallelism=3)))
    numbers = draw(st.lists(st.integers(0, len(graph) - 1), unique=True, max_size=MAX_FAILED))
    failed = np.zeros(len(graph), dtype=np.bool_)
    failed[numbers] = True
    failed &= ~graph.safe
    capacity = draw(st.one_of(FRACTIONAL, st.integers(0, 12).map(float), st.sampled_from([0.4, 1.2, 3.3, 4.8, 100.0])))
    return Case(graph, failed, capacity)


def decimal(number: float) -> Fraction:
    return Fraction(str(float(number)))


def needs(graph: TaskGraph, failed: Bools) -> dict[int, frozenset[int]]:
    """Per cut-off query its failed members, by following the substreams backwards."""
    producers: dict[int, set[int]] = {number: set() for number in range(len(graph))}
    for producer, consumer in zip(*(side.tolist() for side in graph.edges), strict=True):
        producers[consumer].add(producer)
    members = {}
    for output in np.flatnonzero(graph.is_output).tolist():
        seen, last = {output}, {output}
        for _ in range(len(graph)):
            last = set().union(*(producers[task] for task in last)) - seen
            seen |= last
        lost = frozenset(task for task in seen if failed[task])
        if lost:
            members[output] = lost
    return members


def best_priority(case: Case) -> Fraction:
    """All sets of failed tasks, one after the other."""
    wanted = needs(case.graph, case.failed)
    lost = np.flatnonzero(case.failed).tolist()
    best = Fraction(0)
    for size in range(len(lost) + 1):
        for chosen in itertools.combinations(lost, size):
            if sum((decimal(case.graph.cost[task]) for task in chosen), Fraction(0)) <= decimal(case.capacity):
                have = set(chosen)
                worth = sum(
                    (decimal(case.graph.priority[q]) for q, need in wanted.items() if need <= have), Fraction(0)
                )
                best = max(best, worth)
    return best


def plan(case: Case, algorithm: str | None = None) -> RecoveryPlan:
    planned = plan_recovery(case.graph, case.failed, case.capacity, algorithm)
    check_recovery(case.graph, case.failed, planned, case.capacity)
    return planned


@settings(deadline=None, max_examples=150)
@given(cases())
def test_exact_and_dp_find_the_best_plan_there_is(case: Case) -> None:
    best = float(best_priority(case))
    for algorithm in (None, "exact", "dp"):
        planned = plan(case, algorithm)
        assert math.isclose(planned.priority, best), algorithm
        assert planned.optimal


@settings(deadline=None, max_examples=150)
@given(cases())
def test_best_density_keeps_its_guarantee(case: Case) -> None:
    wanted = needs(case.graph, case.failed)
    sharing = max((sum(task in need for need in wanted.values()) for task in np.flatnonzero(case.failed)), default=1)
    planned = plan(case, "best-density")
    best = float(best_priority(case))
    assert planned.priority >= (1 - math.exp(-1 / max(1, sharing))) * best - 1e-12
    assert planned.bound >= best - 1e-12


@settings(deadline=None, max_examples=150)
@given(cases())
def test_operator_centric_goes_by_operator_then_cost_and_stops_at_the_first_misfit(case: Case) -> None:
    graph, room, expected = case.graph, decimal(case.capacity), []
    lost = np.flatnonzero(case.failed).tolist()
    for task in sorted(lost, key=lambda task: (graph.operator_of[task], graph.cost[task], task)):
        room -= decimal(graph.cost[task])
        if room < 0:
            break
        expected.append(task)
    planned = plan(case, "operator-centric")
    assert planned.recover == graph.tasks(expected)
    assert planned.bound >= float(best_priority(case)) - 1e-12


@settings(deadline=None, max_examples=100)
@given(cases(), st.sampled_from(ALGORITHMS[:3]))
def test_no_failed_task_that_would_still_fit_is_left_out(case: Case, algorithm: str) -> None:
    planned = plan(case, algorithm)
    room = decimal(case.capacity) - sum((decimal(case.graph.cost[case.graph.number(t)]) for t in planned.recover), 0)
    left = np.flatnonzero(case.failed & ~case.graph.mask(planned.recover))
    # Costs of more than nine decimals count as a tick more, so up to a tick per task may stay unused.
    assert all(decimal(case.graph.cost[task]) > room - Fraction(MAX_FAILED, 10**9) for task in left)


@settings(deadline=None, max_examples=60)
@given(cases(), FRACTIONAL)
def test_more_capacity_never_brings_back_less(case: Case, more: float) -> None:
    larger = Case(case.graph, case.failed, case.capacity + more)
    assert plan(larger, "exact").priority >= plan(case, "exact").priority


@settings(deadline=None, max_examples=60)
@given(cases())
def test_declaring_operators_in_another_order_under_other_names_changes_no_value(case: Case) -> None:
    operators = list(case.graph.topology.operators)
    named = {operator.name: f"renamed-{operator.name}" for operator in operators}
    outputs = case.graph.topology.outputs
    renamed = [
        Operator(
            named[operator.name],
            operator.parallelism,
            tuple(type(stream)(named[stream.operator], stream.partitioning) for stream in operator.inputs),
            output=outputs.get(operator.name),
            cost=operator.cost,
        )
        for operator in reversed(operators)
    ]
    graph = TaskGraph(Topology("other", tuple(renamed)))
    lost = case.graph.tasks(np.flatnonzero(case.failed))
    failed = graph.mask(type(task)(named[task.operator], task.index) for task in lost)
    other = plan(Case(graph, failed, case.capacity), "exact")
    assert other.priority == plan(case, "exact").priority


@settings(deadline=None, max_examples=40)
@given(cases(), st.sampled_from([None, *ALGORITHMS]))
def test_the_same_request_gives_the_same_plan(case: Case, algorithm: str | None) -> None:
    assert plan(case, algorithm) == plan(case, algorithm)


@settings(deadline=None, max_examples=100)
@given(
    cases(),
    st.lists(st.sampled_from([0.0, 0.3, 0.7, 1.0, 2.5, 3.0, 10.0]), max_size=6),
    st.sampled_from([0.1, 0.7, 0.8, 1.0]),
    st.sampled_from([None, *ALGORITHMS]),
)
def test_a_schedule_keeps_limits_starts_nothing_twice_and_leaves_no_gap(
    case: Case, capacities: list[float], limit: float, algorithm: str | None
) -> None:
    nodes = [(f"n{number}", capacity) for number, capacity in enumerate(capacities)]
    schedule = schedule_recovery(case.graph, case.failed, nodes, limit, algorithm)
    check_schedule(case.graph, case.failed, schedule, nodes, limit)
    assert schedule == schedule_recovery(case.graph, case.failed, nodes, limit, algorithm)
    if algorithm == "operator-centric":
        return  # it stops where its order does not fit
    room = {name: decimal(limit) * decimal(capacity) for name, capacity in nodes}
    for arrival in schedule.arrivals:
        for task, node in arrival.placed.items():
            room[node] -= decimal(case.graph.cost[case.graph.number(task)])
    for task in schedule.waiting:
        cost = decimal(case.graph.cost[case.graph.number(task)])
        assert all(cost > left - Fraction(MAX_FAILED, 10**9) for left in room.values()), task


@settings(deadline=None, max_examples=50)
@given(cases(), st.sampled_from([None, *ALGORITHMS]))
def test_a_node_for_everything_brings_everything_back_at_once(case: Case, algorithm: str | None) -> None:
    assume(case.failed.any())
    nodes = [("large", 1000.0), ("late", 1.0)]
    schedule = schedule_recovery(case.graph, case.failed, nodes, 1.0, algorithm)
    check_schedule(case.graph, case.failed, schedule, nodes, 1.0)
    assert [arrival.node for arrival in schedule.arrivals] == ["large"]
    assert schedule.waiting == ()
