"""Shapes of topologies, and the parts that replicas are planned by."""

from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given, settings
from planning.replicas.samples import FULL, MERGE, ONE, SPLIT, graph, incidents, merges, two_sources_meet
from strategies import topologies

from tenax.model.graph import TaskGraph
from tenax.model.topology import Input, Operator, Output, Partitioning, Topology
from tenax.planning import decomposition
from tenax.planning.decomposition import Shape, SubTopology, classify, sub_topologies, units


def chained(*steps: tuple[int, Partitioning]) -> TaskGraph:
    """o0 ──> o1 ──> ...: each step has a size and the stream that leads into it."""
    operators = [Operator("o0", steps[0][0])]
    for number, (size, kind) in enumerate(steps[1:], start=1):
        operators.append(Operator(f"o{number}", size, (Input(f"o{number - 1}", kind),)))
    return graph(*operators)


@pytest.mark.parametrize(
    ("task_graph", "shape"),
    [
        (chained((3, FULL), (3, ONE), (3, ONE)), Shape.LINE),
        (chained((3, FULL), (3, ONE), (1, MERGE)), Shape.LINE),  # only the sink has several producers
        (chained((1, FULL), (1, FULL)), Shape.LINE),
        (merges(), Shape.TREE),
        (chained((4, FULL), (2, MERGE), (4, SPLIT)), Shape.STRUCTURED),
        (chained((1, FULL), (3, SPLIT)), Shape.STRUCTURED),
        (chained((3, FULL), (3, FULL)), Shape.FULL),
        (chained((3, FULL), (3, FULL), (1, MERGE), (3, SPLIT)), Shape.FULL),
        (chained((3, FULL), (3, FULL), (3, ONE)), Shape.GENERAL),
        (two_sources_meet(correlated=True), Shape.GENERAL),
    ],
)
def test_a_topology_has_the_first_shape_that_fits(task_graph: TaskGraph, shape: Shape) -> None:
    assert classify(task_graph) is shape


def test_full_streams_may_leave_the_output_operators_of_a_structured_topology() -> None:
    # a(2) ──one-to-one──> b(2, output) ──full──> c(2, output)
    task_graph = graph(
        Operator("a", 2),
        Operator("b", 2, (Input("a", ONE),), output=Output()),
        Operator("c", 2, (Input("b", FULL),), output=Output()),
    )
    assert classify(task_graph) is Shape.STRUCTURED


def test_sub_topologies_are_cut_at_full_streams() -> None:
    # o0(4) ──merge──> o1(2) ──full──> o2(3) ──full──> o3(3) ──full──> o4(2) ──one-to-one──> o5(2)
    task_graph = chained((4, FULL), (2, MERGE), (3, FULL), (3, FULL), (2, FULL), (2, ONE))
    assert sub_topologies(task_graph) == (
        SubTopology(full=False, operators=(0, 1)),
        SubTopology(full=True, operators=(2, 3)),
        SubTopology(full=False, operators=(4, 5)),
    )


def test_streams_to_and_from_a_single_task_do_not_divide_a_full_topology() -> None:
    # o0(3) ──full──> o1(3) ──> o2(1) ──> o3(3)
    task_graph = chained((3, FULL), (3, FULL), (1, MERGE), (3, SPLIT))
    assert sub_topologies(task_graph) == (SubTopology(full=True, operators=(0, 1, 2, 3)),)


def test_a_merge_before_a_split_is_a_border_between_units() -> None:
    # o0(4) ──merge──> o1(2) ──split──> o2(4)
    task_graph = chained((4, FULL), (2, MERGE), (4, SPLIT))
    (part,) = sub_topologies(task_graph)
    first, second = units(task_graph, part)
    assert (first.operators, second.operators) == ((0,), (1, 2))
    assert first.segments == tuple(frozenset({task}) for task in range(4))
    assert second.segments == tuple(frozenset({task, end}) for task, end in ((4, 6), (4, 7), (5, 8), (5, 9)))


def test_a_merge_into_a_join_is_a_border_between_units() -> None:
    # speed(8) ──merge──> join(4) ──merge──> sum(1);  incidents(4) ──one-to-one──> join; the sources are full
    task_graph = incidents()
    structured = next(part for part in sub_topologies(task_graph) if not part.full)
    actual = [
        [task_graph.operators[number].name for number in unit.operators] for unit in units(task_graph, structured)
    ]
    assert actual == [["speed"], ["incidents", "join", "sum"]]


def test_a_tree_is_one_unit_with_a_segment_for_every_source_task() -> None:
    task_graph = merges()
    (part,) = sub_topologies(task_graph)
    (unit,) = units(task_graph, part)
    assert len(unit.segments) == 16
    assert all(len(segment) == 5 for segment in unit.segments)


def test_a_unit_of_too_many_segments_falls_apart_into_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decomposition, "MAX_SEGMENTS", 15)
    task_graph = merges()
    (part,) = sub_topologies(task_graph)
    parts = units(task_graph, part)
    assert [unit.operators for unit in parts] == [(0,), (1,), (2,), (3,), (4,)]
    assert [len(unit.segments) for unit in parts] == [16, 8, 4, 2, 1]


@given(topologies(max_operators=6))
@settings(deadline=None, max_examples=100)
def test_every_operator_is_in_one_sub_topology_and_one_unit(topology: Topology) -> None:
    task_graph = TaskGraph(topology)
    parts = sub_topologies(task_graph)
    everything = sorted(chain.from_iterable(part.operators for part in parts))
    assert everything == list(range(len(task_graph.operators)))
    for part in parts:
        assert list(part.operators) == sorted(part.operators)
        if not part.full:
            actual = units(task_graph, part)
            assert sorted(chain.from_iterable(unit.operators for unit in actual)) == list(part.operators)
            for unit in actual:
                for segment in unit.segments:
                    assert {int(task_graph.operator_of[task]) for task in segment} <= set(unit.operators)


@given(topologies(max_operators=6))
@settings(deadline=None, max_examples=50)
def test_neighbouring_sub_topologies_meet_at_full_streams_only(topology: Topology) -> None:
    task_graph = TaskGraph(topology)
    part_of = {operator: part for part in sub_topologies(task_graph) for operator in part.operators}
    for streams in task_graph.streams:
        for stream in streams:
            if part_of[stream.producer] != part_of[stream.consumer]:
                assert stream.partitioning is FULL


def test_shapes_are_ordered_from_special_to_general() -> None:
    assert [shape.value for shape in Shape] == ["line", "tree", "structured", "full", "general"]
