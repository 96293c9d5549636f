"""Compiled topologies: who feeds whom, and at which rate, against the words of the file format."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from strategies import topologies

from tenax.errors import InvalidRequest, InvalidTopology, TooLarge, UnknownTask
from tenax.model.graph import TaskGraph
from tenax.model.queries import queries
from tenax.model.tasks import Task
from tenax.model.topology import Input, Operator, Partitioning, Topology

Edge = tuple[Task, Task]


def expected_edges(topology: Topology) -> dict[Edge, float]:
    """Every substream with its share of the producer's output, straight from the format's description."""
    edges: dict[Edge, float] = {}
    for consumer in topology.operators:
        weights = consumer.weights or (1.0,) * consumer.parallelism
        for stream in consumer.inputs:
            before, after = topology.operator(stream.operator).parallelism, consumer.parallelism
            kind = stream.partitioning
            if 1 in (before, after):
                kind = Partitioning.FULL  # alike, whatever its name
            for u in range(before):
                reached = {
                    Partitioning.FULL: list(range(after)),
                    Partitioning.ONE_TO_ONE: [u],
                    Partitioning.MERGE: [u * after // before],
                    Partitioning.SPLIT: [d for d in range(after) if d * before // after == u],
                }[kind]
                total = sum(weights[d] for d in reached)
                for d in reached:
                    share = weights[d] / total if total else 1 / len(reached)
                    edges[Task(stream.operator, u), Task(consumer.name, d)] = share
    return edges


@given(topologies())
@settings(max_examples=150, deadline=None)
def test_streams_are_those_of_the_format(topology: Topology) -> None:
    graph = TaskGraph(topology)
    edges_seen: dict[Edge, float] = {}
    for inputs in graph.streams:
        for stream in inputs:
            for producer, consumer, share in zip(*stream.substreams(), strict=True):
                ends = (
                    graph.task(int(graph.first[stream.producer] + producer)),
                    graph.task(int(graph.first[stream.consumer] + consumer)),
                )
                edges_seen[ends] = float(share)
                assert consumer in stream.consumers_of(int(producer))
                assert producer in stream.producers_of(int(consumer))
    assert edges_seen == pytest.approx(expected_edges(topology))
    assert graph.edge_count == len(edges_seen) == len(graph.edges[0])


@given(topologies())
@settings(max_examples=150, deadline=None)
def test_rates_follow_shares_and_selectivities(topology: Topology) -> None:
    graph = TaskGraph(topology)
    edges = expected_edges(topology)
    output: dict[Task, float] = {}
    for name in topology.in_order:
        operator = topology.operator(name)
        weights = operator.weights or (1.0,) * operator.parallelism
        for index in range(operator.parallelism):
            task = Task(name, index)
            if operator.is_source:
                stated = operator.rate
                output[task] = stated[index] if isinstance(stated, tuple) else stated * weights[index] / sum(weights)
            else:
                received = sum(output[u] * share for (u, d), share in edges.items() if d == task)
                output[task] = operator.selectivity * received
    assert graph.output_rate == pytest.approx([output[task] for task in graph.tasks(range(len(graph)))])


@given(topologies())
@settings(max_examples=100, deadline=None)
def test_neighbours_agree_with_the_edges(topology: Topology) -> None:
    graph = TaskGraph(topology)
    edges = set(zip(*(side.tolist() for side in graph.edges), strict=True))
    assert {(u, v) for v in range(len(graph)) for u in graph.producers_of(v)} == edges
    assert {(u, v) for u in range(len(graph)) for v in graph.consumers_of(u)} == edges
    assert all(u < v for u, v in edges)
    producers, consumers = graph.neighbour_counts()
    assert producers.tolist() == [len(graph.producers_of(task)) for task in range(len(graph))]
    assert consumers.tolist() == [len(graph.consumers_of(task)) for task in range(len(graph))]


@given(topologies())
@settings(max_examples=100, deadline=None)
def test_a_query_is_an_output_task_with_all_its_ancestors(topology: Topology) -> None:
    graph = TaskGraph(topology)
    before: dict[Task, set[Task]] = {}
    for u, v in expected_edges(topology):
        before.setdefault(v, set()).add(u)

    def ancestors(task: Task) -> set[Task]:
        return {task}.union(*(ancestors(producer) for producer in before.get(task, set())))

    wanted = queries(graph)
    assert {query.output.operator for query in wanted} == set(topology.outputs)
    for query in wanted:
        assert set(query.members) == ancestors(query.output)


def test_tasks_are_named_numbered_and_parsed() -> None:
    graph = TaskGraph(Topology("t", (Operator("b", 2, (Input("a"),)), Operator("a", 3))))
    assert [str(task) for task in graph.tasks(range(5))] == ["a[0]", "a[1]", "a[2]", "b[0]", "b[1]"]
    assert graph.parse(" b[1], a[*] ") == (Task("b", 1), Task("a", 0), Task("a", 1), Task("a", 2))
    assert graph.parse("") == ()
    assert graph.mask(graph.parse("a[2],b[0]")).tolist() == [False, False, True, True, False]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("b[2]", "b has 2 tasks, use b[0] to b[1]"),
        ("bb[0]", "did you mean 'b'?"),
        ("bb[*]", "did you mean 'b'?"),
        ("b", "written operator[index], found 'b'"),
        ("b[-1]", "found 'b[-1]'"),
        ("b[0];a[0]", "found 'b[0];a[0]'"),
    ],
)
def test_a_wrong_task_is_named_with_a_remedy(text: str, words: str) -> None:
    graph = TaskGraph(Topology("t", (Operator("a", 3), Operator("b", 2, (Input("a"),)))))
    with pytest.raises(InvalidRequest) as caught:
        graph.parse(text)
    assert words in str(caught.value)


def test_an_unknown_task_and_a_safe_one_cannot_fail() -> None:
    graph = TaskGraph(Topology("t", (Operator("a", safe=True), Operator("b", inputs=(Input("a"),)))))
    with pytest.raises(UnknownTask):
        graph.failed([Task("c", 0)])
    with pytest.raises(InvalidRequest, match="safe tasks never fail"):
        graph.failed([Task("a", 0)])


def test_rates_beyond_all_numbers_are_refused() -> None:
    with pytest.raises(InvalidTopology, match="beyond all numbers"):
        TaskGraph(Topology("t", (Operator("a", rate=1e308), Operator("b", inputs=(Input("a"),), selectivity=1e308))))


def test_more_queries_than_memory_holds_are_refused() -> None:
    graph = TaskGraph(Topology("t", (Operator("a", 50_000),)))
    with pytest.raises(TooLarge, match="found 50,000 × 50,000"):
        queries(graph)


def test_full_streams_of_a_large_topology_are_never_listed() -> None:
    graph = TaskGraph(Topology("t", (Operator("a", 50_000), Operator("b", 50_000, (Input("a"),)))))
    assert graph.edge_count == 2_500_000_000
    assert np.isclose(graph.output_rate.sum(), 2.0)
