"""All replica planners: valid plans, honest claims, the same answer twice."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planning.replicas.definition import Definition
from planning.replicas.samples import FULL, MERGE, ONE, SPLIT, graph, incidents, merges, two_sources_meet
from strategies import topologies

from tenax.errors import InvalidRequest, TooLarge
from tenax.model.graph import TaskGraph
from tenax.model.plans import Metric
from tenax.model.tasks import Task
from tenax.model.topology import Input, Operator, Topology
from tenax.planning.replicas import ALGORITHMS, check_replicas, plan_replicas, tree_unions

SMALL = topologies(max_operators=5, max_parallelism=3).filter(lambda item: item.task_count <= 8)


@given(SMALL, st.integers(0, 9), st.sampled_from(Metric))
@settings(deadline=None, max_examples=60)
def test_every_algorithm_gives_a_valid_plan_and_claims_no_more_than_is_true(
    topology: Topology, budget: int, metric: Metric
) -> None:
    task_graph = TaskGraph(topology)
    best, _ = Definition(topology).best(metric, budget)
    for algorithm in (None, *ALGORITHMS):
        plan = plan_replicas(task_graph, budget, algorithm, metric)
        check_replicas(task_graph, plan, budget)
        assert plan.algorithm == (algorithm or "exact")
        assert plan.value <= best + 1e-9 <= plan.bound + 2e-9
        assert not plan.optimal or plan.value == pytest.approx(best, abs=1e-9)
        assert plan == plan_replicas(TaskGraph(topology), budget, algorithm, metric)


@given(SMALL, st.integers(0, 9))
@settings(deadline=None, max_examples=60)
def test_unions_of_trees_contain_the_best_plan_for_fidelity(topology: Topology, budget: int) -> None:
    plan = plan_replicas(TaskGraph(topology), budget, "dp")
    value, count = Definition(topology).best(Metric.FIDELITY, budget)
    assert plan.optimal
    assert plan.fidelity == pytest.approx(value, abs=1e-9)
    assert len(plan.replicas) == count


def test_unions_of_trees_need_not_contain_the_best_plan_for_completeness() -> None:
    # a(2) ──merge──> b(1): two sources process more than a source and its consumer at unequal rates
    task_graph = graph(Operator("a", 2, rate=(1.0, 1.0)), Operator("b", 1, (Input("a", MERGE),), selectivity=0.1))
    plan = plan_replicas(task_graph, 1, "dp", Metric.COMPLETENESS)
    assert not plan.optimal
    assert plan_replicas(task_graph, 1, "exact", Metric.COMPLETENESS).completeness > plan.completeness


@given(SMALL, st.integers(0, 9), st.sampled_from(Metric))
@settings(deadline=None, max_examples=40)
def test_a_search_that_runs_out_of_time_still_tells_a_true_bound(
    topology: Topology, budget: int, metric: Metric
) -> None:
    task_graph = TaskGraph(topology)
    best, _ = Definition(topology).best(metric, budget)
    for time_limit_s in (1e-9, 1e-4, 1e-3):
        plan = plan_replicas(task_graph, budget, metric=metric, time_limit_s=time_limit_s)
        check_replicas(task_graph, plan, budget)
        assert plan.bound >= best - 1e-9


def test_without_time_the_best_heuristic_is_named() -> None:
    task_graph = merges()
    plan = plan_replicas(task_graph, 12, time_limit_s=1e-9)
    assert plan.algorithm == "structure-aware"
    assert not plan.optimal
    assert plan.value == plan_replicas(task_graph, 12, "structure-aware").value
    assert plan.bound == 1.0


@pytest.mark.parametrize("algorithm", ["exact", "structure-aware", "dp"])
def test_a_tree_that_fits_is_taken_though_there_are_more_operators(algorithm: str) -> None:
    # o1(4) ──one-to-one──> o3(4) ──full──> o4(2);  o2(4) ──one-to-one──> o3
    plan = plan_replicas(two_sources_meet(correlated=False), 3, algorithm)
    assert plan.fidelity == pytest.approx(0.0625)
    assert len(plan.replicas) == 3


def test_greedy_takes_the_tasks_whose_failure_hurts_most() -> None:
    # a(3: rates 1, 5, 3) ──merge──> b(1): b loses all, then a[1], a[2]
    task_graph = graph(Operator("a", 3, rate=(1.0, 5.0, 3.0)), Operator("b", 1, (Input("a", MERGE),)))
    assert plan_replicas(task_graph, 2, "greedy").replicas == (Task("a", 1), Task("b", 0))
    assert plan_replicas(task_graph, 3, "greedy").replicas == (Task("a", 1), Task("a", 2), Task("b", 0))


def test_greedy_breaks_ties_by_task_order_and_may_keep_nothing() -> None:
    # s(16) ──merge──> a(8) ──merge──> b(4) ──merge──> c(2) ──merge──> d(1)
    plan = plan_replicas(merges(), 7, "greedy")
    assert plan.replicas == (*(Task("b", index) for index in range(4)), Task("c", 0), Task("c", 1), Task("d", 0))
    assert plan.fidelity == 0.0
    assert plan_replicas(merges(), 7, "structure-aware").fidelity > 0


def test_budget_that_cannot_be_used_well_is_left() -> None:
    # a(2) ──one-to-one──> b(2): a third replica would complete nothing
    task_graph = graph(Operator("a", 2), Operator("b", 2, (Input("a", ONE),)))
    for algorithm in ("exact", "structure-aware", "dp"):
        assert len(plan_replicas(task_graph, 3, algorithm).replicas) == 2


def test_structure_aware_comes_close_to_the_best_plan() -> None:
    # o0(6) ──> o1 ──> o2 ──> o3, streams of every kind, the keys of o1 to o3 unevenly spread
    ratios = []
    for middle in (FULL, ONE, MERGE, SPLIT):
        for last in (FULL, MERGE):
            size = {FULL: 5, ONE: 6, MERGE: 3, SPLIT: 12}[middle]
            task_graph = graph(
                Operator("o0", 6, rate=(1.0, 2.0, 3.0, 1.0, 1.0, 4.0)),
                Operator("o1", size, (Input("o0", middle),), weights=tuple(1.0 + index for index in range(size))),
                Operator("o2", 2, (Input("o1", last),), weights=(2.0, 1.0)),
                Operator("o3", 4, (Input("o2", SPLIT),)),
            )
            best = plan_replicas(task_graph, len(task_graph) // 2, "exact")
            assert best.optimal
            ratios.append(plan_replicas(task_graph, len(task_graph) // 2, "structure-aware").value / best.value)
    assert min(ratios) > 0.7
    assert statistics.mean(ratios) > 0.9


def test_a_thousand_tasks_are_planned_by_their_structure() -> None:
    # o0(100) ──one-to-one──> o1(100) ──full──> o2(100) ──merge──> o3(50) ──full──> o4(100) ──full──> ... o9(100)
    kinds = [ONE, FULL, MERGE, FULL, FULL, FULL, FULL, FULL, ONE]
    sizes = [100, 100, 50, 100, 100, 100, 100, 100, 100]
    operators = [Operator("o0", 100)]
    for number, (kind, size) in enumerate(zip(kinds, sizes, strict=True), start=1):
        operators.append(Operator(f"o{number}", size, (Input(f"o{number - 1}", kind),)))
    task_graph = graph(*operators)
    plan = plan_replicas(task_graph, 500, "structure-aware")
    check_replicas(task_graph, plan, 500)
    assert plan.value > 0.8 * plan_replicas(task_graph, 500, "exact").value


@pytest.mark.parametrize("budget", [-1, 1.5, True, "3"])
def test_a_budget_is_a_whole_number_of_at_least_zero(budget: object) -> None:
    with pytest.raises(InvalidRequest, match="whole number of at least 0, found") as error:
        plan_replicas(merges(), budget)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("time_limit_s", [0.0, -1.0, float("nan"), float("inf")])
def test_a_time_limit_is_a_number_above_zero(time_limit_s: float) -> None:
    with pytest.raises(InvalidRequest, match="seconds above 0, found"):
        plan_replicas(merges(), 1, time_limit_s=time_limit_s)


def test_an_unknown_algorithm_is_told_the_nearest_one() -> None:
    with pytest.raises(InvalidRequest, match="unknown algorithm 'gredy': did you mean 'greedy'"):
        plan_replicas(merges(), 1, "gredy")


def test_dp_says_what_to_use_instead_when_there_are_too_many_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_unions, "MAX_PLANS", 100)
    with pytest.raises(TooLarge, match=r"at most 100 plans.*use the algorithm exact") as error:
        plan_replicas(merges(), 31, "dp")
    assert "\n" not in str(error.value)
    monkeypatch.setattr(tree_unions, "MAX_TREES", 10)
    with pytest.raises(TooLarge, match="at most 10 MC-trees"):
        plan_replicas(merges(), 31, "dp")


def test_too_many_tasks_for_a_proof_get_the_best_heuristic_plan() -> None:
    task_graph = graph(Operator("a", 10_001))
    plan = plan_replicas(task_graph, 1, "exact")
    check_replicas(task_graph, plan, 1)
    assert (plan.algorithm, len(plan.replicas), plan.optimal) == ("exact", 1, False)


def test_too_many_tasks_for_any_plan_are_refused() -> None:
    with pytest.raises(TooLarge, match=r"at most 30,000 tasks, found 30,001"):
        plan_replicas(graph(Operator("a", 30_001)), 1)


def test_a_budget_above_the_number_of_tasks_keeps_everything() -> None:
    for algorithm in ALGORITHMS[:3]:
        plan = plan_replicas(incidents(), 1_000, algorithm)
        assert plan.fidelity == pytest.approx(1.0)
        assert plan.optimal
