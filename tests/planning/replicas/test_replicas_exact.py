"""The exact replica planner against all plans there are, and on the paper's topologies."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planning.replicas.definition import Definition, names, plans
from planning.replicas.samples import FULL, MERGE, ONE, graph, incidents, merges, top_pages, two_sources_meet
from strategies import topologies

from tenax.model.graph import TaskGraph
from tenax.model.plans import Metric
from tenax.model.topology import Input, Operator, Output, Topology
from tenax.planning.replicas import check_replicas, plan_replicas
from tenax.planning.replicas.exhaustive import best_of_all

SMALL = topologies(max_operators=5, max_parallelism=3).filter(lambda item: item.task_count <= 8)


@given(SMALL, st.integers(0, 9), st.sampled_from(Metric))
@settings(deadline=None, max_examples=150)
def test_no_plan_is_better_and_none_as_good_is_smaller(topology: Topology, budget: int, metric: Metric) -> None:
    task_graph = TaskGraph(topology)
    plan = plan_replicas(task_graph, budget, "exact", metric)
    value, count = Definition(topology).best(metric, budget)
    assert plan.optimal
    assert plan.value == pytest.approx(value, abs=1e-9)
    assert len(plan.replicas) == count
    check_replicas(task_graph, plan, budget)


@given(SMALL, st.integers(0, 9), st.sampled_from(Metric))
@settings(deadline=None, max_examples=40)
def test_scoring_every_plan_finds_the_same(topology: Topology, budget: int, metric: Metric) -> None:
    task_graph = TaskGraph(topology)
    free = [task for task in range(len(task_graph)) if not task_graph.safe[task]]
    definition = Definition(topology)
    plan = best_of_all(task_graph, budget, metric, free)
    value, count = definition.best(metric, budget)
    assert definition.value(metric, definition.safe | names(task_graph, plan)) == pytest.approx(value, abs=1e-9)
    assert len(plan) == count


def test_a_tangle_of_twenty_tasks_is_proven() -> None:
    # o0(6) ──> o1(1) ──> o2(6, joins o1 and all of o0) ──> o3(1, joins o2, o1, o0);  o4(6) <── o2, o1, o0
    task_graph = graph(
        Operator("o0", 6, rate=(1.0, 2.0, 3.0, 4.0, 5.0, 6.0)),
        Operator("o1", 1, (Input("o0", FULL),)),
        Operator("o2", 6, (Input("o1", FULL), Input("o0", FULL)), correlated=True, selectivity=0.5),
        Operator("o3", 1, (Input("o2", MERGE), Input("o1", ONE), Input("o0", MERGE)), correlated=True),
        Operator("o4", 6, (Input("o2", ONE), Input("o1", FULL), Input("o0", ONE))),
    )
    plan = plan_replicas(task_graph, 10)
    check_replicas(task_graph, plan, 10)
    assert plan.optimal


@given(SMALL, st.sampled_from(Metric))
@settings(deadline=None, max_examples=30)
def test_more_budget_never_lowers_the_value(topology: Topology, metric: Metric) -> None:
    task_graph = TaskGraph(topology)
    values = [plan_replicas(task_graph, budget, "exact", metric).value for budget in range(len(task_graph) + 2)]
    assert all(more >= less - 1e-9 for less, more in pairwise(values))
    assert values[-1] == pytest.approx(1.0)


@given(SMALL, st.integers(0, 9), st.sampled_from(Metric), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=40)
def test_other_names_and_another_order_change_no_value(
    topology: Topology, budget: int, metric: Metric, shuffler: random.Random
) -> None:
    renamed = [relabelled(operator) for operator in topology.operators]
    shuffler.shuffle(renamed)
    other = TaskGraph(Topology("other", tuple(renamed)))
    before = plan_replicas(TaskGraph(topology), budget, "exact", metric)
    after = plan_replicas(other, budget, "exact", metric)
    assert after.value == pytest.approx(before.value, abs=1e-9)
    assert len(after.replicas) == len(before.replicas)


@given(SMALL, st.data())
@settings(deadline=None, max_examples=60)
def test_a_plan_is_worth_what_its_complete_trees_are_worth(topology: Topology, data: st.DataObject) -> None:
    definition = Definition(topology)
    plan = data.draw(st.sampled_from(list(plans(definition, 4))))
    alive = definition.safe | plan
    complete = frozenset[tuple[str, int]]().union(*(tree for tree in set(definition.trees()) if tree <= alive))
    assert definition.value(Metric.FIDELITY, complete) == pytest.approx(definition.value(Metric.FIDELITY, alive))


@pytest.mark.parametrize("metric", Metric)
@pytest.mark.parametrize(
    "task_graph",
    [merges(), merges(safe=True), top_pages(), top_pages(1, 24), incidents(), incidents(full=True)],
    ids=["merges", "merges-safe", "top-pages", "top-pages-24", "incidents", "incidents-full"],
)
def test_the_topologies_of_the_paper_are_proven_at_every_third_budget(task_graph: TaskGraph, metric: Metric) -> None:
    values = []
    for budget in range(0, len(task_graph) + 1, 3):
        plan = plan_replicas(task_graph, budget, "exact", metric)
        check_replicas(task_graph, plan, budget)
        assert plan.optimal
        values.append(plan.value)
    assert values == sorted(values)


def test_one_tree_is_found_where_the_budget_is_below_the_number_of_operators() -> None:
    # o1(4) ──one-to-one──> o3(4) ──full──> o4(2);  o2(4) ──one-to-one──> o3
    plan = plan_replicas(two_sources_meet(correlated=False), 3, "exact")
    assert plan.fidelity == pytest.approx(0.0625)
    assert plan_replicas(two_sources_meet(correlated=True), 3, "exact").replicas == ()


def test_ten_operators_of_a_hundred_tasks_are_proven() -> None:
    # o0(100) ──full──> o1(100) ──one-to-one──> o2(100) ──full──> ... ──one-to-one──> o9(100)
    kinds = [FULL, ONE, FULL, MERGE, FULL, FULL, ONE, FULL, ONE]
    sizes = [100, 100, 100, 100, 50, 100, 100, 100, 100, 100]
    operators = [Operator("o0", 100)]
    for number, (kind, size) in enumerate(zip(kinds, sizes[1:], strict=True), start=1):
        operators.append(Operator(f"o{number}", size, (Input(f"o{number - 1}", kind),)))
    task_graph = graph(*operators)
    plan = plan_replicas(task_graph, 500, "exact")
    check_replicas(task_graph, plan, 500)
    assert plan.optimal


def test_what_next_to_nothing_is_kept_by_is_still_the_best() -> None:
    # o0(100) ──full──> ... ──full──> o9(100): ten replicas keep 10^-20
    task_graph = graph(
        Operator("o0", 100), *(Operator(f"o{number}", 100, (Input(f"o{number - 1}", FULL),)) for number in range(1, 10))
    )
    plan = plan_replicas(task_graph, 10, "exact")
    assert len(plan.replicas) == len({task.operator for task in plan.replicas}) == 10
    assert plan_replicas(task_graph, 9, "exact").replicas == ()


def test_safe_tasks_and_tasks_without_an_output_get_no_replica() -> None:
    # a(2, safe) ──one-to-one──> b(2, output);  a ──full──> c(3)
    task_graph = graph(
        Operator("a", 2, safe=True),
        Operator("b", 2, (Input("a", ONE),), output=Output()),
        Operator("c", 3, (Input("a", FULL),)),
    )
    plan = plan_replicas(task_graph, 7, "exact")
    assert names(task_graph, tuple(int(task) for task in task_graph.numbers(plan.replicas))) == {("b", 0), ("b", 1)}
    assert plan.fidelity == 1.0


def relabelled(operator: Operator) -> Operator:
    inputs = tuple(Input(f"z{9 - int(stream.operator[1:])}", stream.partitioning) for stream in operator.inputs)
    return replace(operator, name=f"z{9 - int(operator.name[1:])}", inputs=inputs)
