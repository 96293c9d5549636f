"""Places: even, replicas apart from primaries, backups apart from what they feed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import topologies

from tenax.errors import Infeasible, InvalidCluster, InvalidPlan
from tenax.model.cluster import Cluster, DomainKind, Node
from tenax.model.graph import TaskGraph
from tenax.model.plans import Placement
from tenax.model.tasks import Task
from tenax.model.topology import Input, Operator, Partitioning, Topology
from tenax.planning.placement import check_placement, place, separation

FOUR = Cluster((Node("n1", "r1"), Node("n2", "r1"), Node("n3", "r2"), Node("n4", "r2")))


@given(topologies(), st.integers(2, 6), st.integers(1, 3))
@settings(max_examples=100, deadline=None)
def test_primaries_are_spread_and_replicas_are_apart(topology: Topology, nodes: int, racks: int) -> None:
    graph = TaskGraph(topology)
    cluster = Cluster(tuple(Node(f"n{number}", f"r{number % racks}") for number in range(nodes)))
    tasks = graph.tasks(range(len(graph)))
    placement = place(graph, cluster, np.arange(len(graph)) % 2 == 0, tasks)
    check_placement(graph, cluster, placement, tasks)
    counts = Counter(placement.primaries.values())
    assert max(counts.values()) <= -(-len(graph) // nodes) + 1
    if racks > 1:
        for task in tasks:
            homes = [cluster.node(where[task]).rack for where in (placement.primaries, placement.replicas)]
            assert homes[0] != homes[1]


def test_a_task_is_placed_apart_from_the_backup_that_feeds_it() -> None:
    # a(4) ──one-to-one──► b(4), a retains
    chain = Topology("t", (Operator("a", 4), Operator("b", 4, (Input("a", Partitioning.ONE_TO_ONE),))))
    graph = TaskGraph(chain)
    placement = place(graph, FOUR, graph.mask(graph.parse("a[*]")), ())
    for index in range(4):
        homes = {FOUR.node(placement.primaries[Task(name, index)]).rack for name in "ab"}
        assert len(homes) == 2
    assert set(Counter(placement.primaries.values()).values()) == {2}


def test_the_widest_level_with_several_domains_separates() -> None:
    assert separation(Cluster((Node("a", "r", "y"), Node("b", "s", "z")))) is DomainKind.ZONE
    assert separation(Cluster((Node("a", "r", "z"), Node("b", "s", "z")))) is DomainKind.RACK
    assert separation(Cluster((Node("a", "r", "z"), Node("b", "r", "z")))) is DomainKind.NODE


def test_a_replica_takes_another_node_when_no_other_rack_has_room() -> None:
    graph = TaskGraph(Topology("t", (Operator("a", 2),)))
    cluster = Cluster((Node("n1", "r1"), Node("n2", "r1"), Node("n3", "r2", slots=1)))
    placement = place(graph, cluster, np.zeros(2, dtype=bool), graph.parse("a[*]"))
    check_placement(graph, cluster, placement, graph.parse("a[*]"))


def test_a_given_placement_is_kept_and_must_be_complete() -> None:
    graph = TaskGraph(Topology("t", (Operator("a", 2),)))
    given_places = {Task("a", 0): "n1", Task("a", 1): "n1"}
    none = np.zeros(2, dtype=bool)
    assert place(graph, replace(FOUR, placement=given_places), none, ()).primaries == given_places
    with pytest.raises(InvalidCluster, match=r"a\[1\] is missing"):
        place(graph, replace(FOUR, placement={Task("a", 0): "n1"}), none, ())


def test_too_few_slots_are_named_with_a_remedy() -> None:
    graph = TaskGraph(Topology("t", (Operator("a", 3),)))
    tight = Cluster((Node("n1", slots=2), Node("n2", slots=1)))
    none = np.zeros(3, dtype=bool)
    with pytest.raises(Infeasible, match="add nodes or slots"):
        place(graph, Cluster((Node("n1", slots=2),)), none, ())
    with pytest.raises(Infeasible, match=r"none for a\[0\].*lower the budget"):
        place(graph, tight, none, graph.parse("a[0]"))
    with pytest.raises(Infeasible, match="another node than its primary"):
        place(graph, Cluster((Node("n1"),)), none, graph.parse("a[0]"))


@pytest.mark.parametrize(
    ("primaries", "replicas"),
    [
        ({"a[0]": "n1"}, {"a[0]": "n2"}),
        ({"a[0]": "n1", "a[1]": "n9"}, {"a[0]": "n2"}),
        ({"a[0]": "n1", "a[1]": "n1"}, {"a[0]": "n1"}),
        ({"a[0]": "n1", "a[1]": "n1"}, {}),
        ({"a[0]": "n3", "a[1]": "n3"}, {"a[0]": "n1"}),
    ],
)
def test_the_validator_rejects_every_corrupted_placement(primaries: dict[str, str], replicas: dict[str, str]) -> None:
    graph = TaskGraph(Topology("t", (Operator("a", 2),)))
    cluster = Cluster((Node("n1"), Node("n2"), Node("n3", slots=1)))
    broken = Placement(
        {Task.parse(task): node for task, node in primaries.items()},
        {Task.parse(task): node for task, node in replicas.items()},
    )
    with pytest.raises(InvalidPlan):
        check_placement(graph, cluster, broken, graph.parse("a[0]"))
