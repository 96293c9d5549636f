"""MC-trees: counted without listing, listed without repeating."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from planning.replicas.definition import Definition, names
from planning.replicas.samples import FULL, ONE, graph, merges, two_sources_meet
from strategies import topologies

from tenax.errors import TooLarge
from tenax.model.graph import TaskGraph
from tenax.model.topology import Input, Operator, Output, Topology
from tenax.planning.trees import count_trees, enumerate_trees

ENOUGH = 3_000


@pytest.mark.parametrize(("correlated", "count"), [(False, 16), (True, 8)])
def test_a_join_has_fewer_and_larger_trees(correlated: bool, count: int) -> None:
    task_graph = two_sources_meet(correlated=correlated)
    trees = enumerate_trees(task_graph, ENOUGH)
    assert count_trees(task_graph) == len(trees) == count
    assert {len(tree) for tree in trees} == {4 if correlated else 3}


def test_merges_have_a_tree_for_every_source_task() -> None:
    assert count_trees(merges()) == 16


@given(topologies(max_operators=4, max_parallelism=3))
@settings(deadline=None, max_examples=100)
def test_trees_are_counted_as_unfoldings_and_listed_as_sets(topology: Topology) -> None:
    task_graph = TaskGraph(topology)
    count = count_trees(task_graph)
    if count > ENOUGH:
        return
    unfolded = Definition(topology).trees()
    listed = enumerate_trees(task_graph, ENOUGH)
    assert count == len(unfolded)
    assert {names(task_graph, tree) for tree in listed} == set(unfolded)
    assert len(set(listed)) == len(listed)
    assert list(listed) == sorted(listed, key=sorted)


def test_more_trees_than_anyone_can_list_are_counted() -> None:
    # o0(100) ──full──> o1(100) ──full──> ... ──full──> o29(100)
    task_graph = graph(
        Operator("o0", 100), *(Operator(f"o{number}", 100, (Input(f"o{number - 1}", FULL),)) for number in range(1, 30))
    )
    assert count_trees(task_graph) == 100**30
    with pytest.raises(TooLarge, match=r"at most 50 MC-trees.*found more: use") as error:
        enumerate_trees(task_graph, 50)
    assert "\n" not in str(error.value)


def test_the_limit_is_the_last_number_allowed() -> None:
    task_graph = two_sources_meet(correlated=False)
    assert len(enumerate_trees(task_graph, 16)) == 16
    with pytest.raises(TooLarge):
        enumerate_trees(task_graph, 15)


def test_tasks_that_reach_no_output_do_not_count() -> None:
    # a(3) ──one-to-one──> b(3, output);  a ──full──> c(3): its 9 ways lead nowhere
    task_graph = graph(
        Operator("a", 3),
        Operator("b", 3, (Input("a", ONE),), output=Output()),
        Operator("c", 3, (Input("a", FULL),)),
    )
    assert count_trees(task_graph) == 3
    assert len(enumerate_trees(task_graph, 3)) == 3
