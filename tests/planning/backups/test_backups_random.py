"""Backup plans of random graphs against a brute force that knows nothing of the planners."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenax.model.graph import TaskGraph
from tenax.model.topology import Input, Operator, Partitioning, Topology
from tenax.planning.backups import ALGORITHMS, check_backups, plan_backups, recovery_latencies

MAX_TASKS = 10


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """Two to six operators of one to three tasks, joined at random, at most MAX_TASKS tasks."""
    times = st.sampled_from(draw(st.sampled_from([(1.0,), (1.0, 2.0, 3.0), (0.1, 0.2, 0.3, 0.7), (0.0, 1.0, 2.5)])))
    operators: list[Operator] = []
    left = MAX_TASKS
    for number in range(draw(st.integers(2, 6))):
        if left == 0:
            break
        tasks = draw(st.integers(1, min(3, left)))
        left -= tasks
        before = (
            draw(st.lists(st.sampled_from(operators), unique_by=lambda operator: operator.name, max_size=2))
            if number
            else []
        )
        inputs = tuple(
            Input(operator.name, draw(st.sampled_from(_partitionings(operator.parallelism, tasks))))
            for operator in before
        )
        reprocess = tuple(draw(times) for _ in range(tasks))
        operators.append(Operator(f"o{number}", tasks, inputs, reprocess=reprocess))
    return Topology("random", tuple(operators))


def _partitionings(before: int, after: int) -> list[Partitioning]:
    fitting = [Partitioning.FULL]
    if before == after:
        fitting.append(Partitioning.ONE_TO_ONE)
    if before > after:
        fitting.append(Partitioning.MERGE)
    if before < after:
        fitting.append(Partitioning.SPLIT)
    return fitting


bounds = st.sampled_from([0.1, 0.3, 0.4, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0, 5.5, 7.0])


def edges_of(topology: Topology) -> tuple[list[Fraction], list[list[int]]]:
    """Times and producers of every task, by the rules of the file format alone; tasks in topological order."""
    start: dict[str, int] = {}
    times: list[Fraction] = []
    producers: list[list[int]] = []
    for name in topology.in_order:
        operator = topology.operator(name)
        start[name] = len(times)
        assert isinstance(operator.reprocess, tuple)
        for index, time in enumerate(operator.reprocess):
            times.append(Fraction(str(time)))
            feeding: list[int] = []
            for stream in operator.inputs:
                before, after = topology.operator(stream.operator).parallelism, operator.parallelism
                for producer in range(before):
                    match stream.partitioning:
                        case Partitioning.FULL:
                            feeds = True
                        case Partitioning.ONE_TO_ONE:
                            feeds = producer == index
                        case Partitioning.MERGE:
                            feeds = producer * after // before == index
                        case Partitioning.SPLIT:
                            feeds = index * before // after == producer
                    if feeds:
                        feeding.append(start[stream.operator] + producer)
            producers.append(feeding)
    return times, producers


def latency_of(
    task: int, times: list[Fraction], producers: list[list[int]], backups: set[int], lost: set[int]
) -> Fraction:
    waits = [
        latency_of(producer, times, producers, backups, lost)
        for producer in producers[task]
        if producer not in backups or producer in lost
    ]
    return times[task] + max(waits, default=Fraction(0))


def overall(times: list[Fraction], producers: list[list[int]], backups: set[int]) -> Fraction:
    return max(latency_of(task, times, producers, backups, set()) for task in range(len(times)))


def brute_force(topology: Topology, bound: Fraction) -> tuple[int, Fraction]:
    """The fewest backups, then the smallest overall latency, over all sets of tasks, sinks included."""
    times, producers = edges_of(topology)
    for count in range(len(times) + 1):
        actual = [overall(times, producers, set(chosen)) for chosen in combinations(range(len(times)), count)]
        if min(actual) <= bound:
            return count, min(actual)
    raise AssertionError("all tasks as backups keep any bound that their own times keep")


def feasible(topology: Topology, bound: float) -> float:
    """The bound, or the longest time of a single task if that is more."""
    return max(
        bound,
        *(max(times) for times in (operator.reprocess for operator in topology.operators) if isinstance(times, tuple)),
    )


@settings(deadline=None, max_examples=80)
@given(topologies(), bounds)
def test_exact_and_exhaustive_are_what_brute_force_finds(topology: Topology, bound: float) -> None:
    graph, latency_s = TaskGraph(topology), feasible(topology, bound)
    count, latency = brute_force(topology, Fraction(str(latency_s)))
    for algorithm in (None, "exact", "exhaustive"):
        plan = plan_backups(graph, latency_s, algorithm)
        check_backups(graph, plan, latency_s)
        assert (len(plan.backups), plan.recovery_latency_s) == (count, float(latency)), algorithm
        assert plan.optimal


@settings(deadline=None, max_examples=120)
@given(topologies(), bounds)
def test_every_algorithm_that_takes_the_graph_keeps_the_bound(topology: Topology, bound: float) -> None:
    graph, latency_s = TaskGraph(topology), feasible(topology, bound)
    _, producers = edges_of(topology)
    fan_out = np.bincount([task for some in producers for task in some], minlength=len(producers))
    is_tree = bool((fan_out <= 1).all())
    is_line = is_tree and all(len(some) <= 1 or fan_out[task] == 0 for task, some in enumerate(producers))
    least = len(plan_backups(graph, latency_s).backups)
    for algorithm in ALGORITHMS:
        if (algorithm == "tree" and not is_tree) or (algorithm == "line" and not is_line):
            continue
        plan = plan_backups(graph, latency_s, algorithm)
        check_backups(graph, plan, latency_s)
        assert plan.algorithm == algorithm
        assert plan.bound <= least <= len(plan.backups)
        if algorithm in ("tree", "line"):
            assert len(plan.backups) == least


@settings(deadline=None, max_examples=60)
@given(topologies(), bounds, st.floats(1.0, 3.0))
def test_a_larger_bound_never_needs_more_backups(topology: Topology, bound: float, factor: float) -> None:
    graph, latency_s = TaskGraph(topology), feasible(topology, bound)
    assert len(plan_backups(graph, latency_s * factor).backups) <= len(plan_backups(graph, latency_s).backups)


@settings(deadline=None, max_examples=60)
@given(topologies(), bounds, st.randoms(use_true_random=False))
def test_names_and_order_of_operators_change_no_value(topology: Topology, bound: float, shuffle: random.Random) -> None:
    names = [f"p{number}" for number in range(len(topology.operators))]
    shuffle.shuffle(names)
    renamed = dict(zip((operator.name for operator in topology.operators), names, strict=True))
    operators = [
        Operator(
            renamed[operator.name],
            operator.parallelism,
            tuple(Input(renamed[stream.operator], stream.partitioning) for stream in operator.inputs),
            reprocess=operator.reprocess,
        )
        for operator in topology.operators
    ]
    shuffle.shuffle(operators)
    latency_s = feasible(topology, bound)
    plan = plan_backups(TaskGraph(topology), latency_s)
    other = plan_backups(TaskGraph(Topology("renamed", tuple(operators))), latency_s)
    assert (len(plan.backups), plan.recovery_latency_s) == (len(other.backups), other.recovery_latency_s)


@settings(deadline=None, max_examples=100)
@given(topologies(), st.sets(st.integers(0, MAX_TASKS - 1)), st.sets(st.integers(0, MAX_TASKS - 1)))
def test_latencies_follow_their_definition(topology: Topology, backups: set[int], lost: set[int]) -> None:
    graph = TaskGraph(topology)
    times, producers = edges_of(topology)
    tasks = range(len(times))
    kept = np.array([task in backups for task in tasks])
    gone = np.array([task in lost for task in tasks])
    alone = [float(latency_of(task, times, producers, backups, set())) for task in tasks]
    together = [float(latency_of(task, times, producers, backups, lost)) for task in tasks]
    assert recovery_latencies(graph, kept).tolist() == alone
    assert recovery_latencies(graph, kept, gone).tolist() == together


def layered(layers: int, width: int, fan_in: int, seed: int) -> TaskGraph:
    """Single-task operators in layers, each fed by `fan_in` of the layer before."""
    draw = random.Random(seed)
    operators = [
        Operator(
            f"o{layer}-{place}",
            1,
            tuple(Input(f"o{layer - 1}-{number}") for number in sorted(draw.sample(range(width), fan_in)))
            if layer
            else (),
            reprocess=float(draw.randint(1, 10)),
        )
        for layer in range(layers)
        for place in range(width)
    ]
    return TaskGraph(Topology("layered", tuple(operators)))


def test_when_the_time_is_over_the_best_plan_known_is_returned() -> None:
    graph = layered(10, 30, 3, seed=7)
    for limit in (1e-6, 0.05):
        for algorithm in (None, "exact"):
            plan = plan_backups(graph, 20, algorithm, time_limit_s=limit)
            check_backups(graph, plan, 20)
            assert plan.optimal == (plan.bound == len(plan.backups))
            assert 1 <= plan.bound <= len(plan.backups)
            assert plan.algorithm in (("exact", "dag", "share") if algorithm is None else ("exact",))
    assert len(plan.backups) <= len(plan_backups(graph, 20, "dag").backups)


def test_the_heuristic_stays_near_the_optimum_on_layered_graphs() -> None:
    actual = best = 0
    for seed in range(12):
        graph = layered(5, 5, 2, seed)
        actual += len(plan_backups(graph, 18, "dag").backups)
        best += len(plan_backups(graph, 18).backups)
    assert best <= actual <= 1.15 * best


def test_short_visits_keep_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenax.planning.backups.dag.WIDE_VISITS", 0)
    monkeypatch.setattr("tenax.planning.backups.dag.SHORT_VISIT", 1)
    for seed in range(10):
        graph = layered(6, 8, 3, seed)
        check_backups(graph, plan_backups(graph, 15, "dag"), 15)


@pytest.mark.parametrize("most", [0, 3])
def test_exact_needs_no_complete_list_of_paths(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    graphs = [layered(5, 5, 2, seed) for seed in range(5)]
    expected = [plan_backups(graph, 18) for graph in graphs]
    monkeypatch.setattr("tenax.planning.backups.paths.MAX_PATHS", most)
    for graph, other in zip(graphs, expected, strict=True):
        plan = plan_backups(graph, 18)
        check_backups(graph, plan, 18)
        assert plan.optimal
        assert (len(plan.backups), plan.recovery_latency_s) == (len(other.backups), other.recovery_latency_s)


def test_a_graph_too_large_for_the_solver_gets_a_heuristic_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenax.planning.backups.exact.MAX_MODEL_EDGES", 0)
    graph = layered(5, 5, 2, seed=1)
    plan = plan_backups(graph, 18)
    check_backups(graph, plan, 18)
    assert (plan.algorithm, plan.optimal, plan.bound) == ("dag", False, 1)
    assert plan_backups(graph, 18, "exact").algorithm == "exact"
