"""The whole protection plan: its promises are what its parts and places imply."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import topologies

from tenax.errors import Infeasible
from tenax.model.cluster import Cluster, Node
from tenax.model.graph import TaskGraph
from tenax.model.tasks import Task
from tenax.model.topology import Input, Operator, Partitioning, Topology
from tenax.planning.backups import check_backups
from tenax.planning.fidelity import fidelity
from tenax.planning.placement import check_placement
from tenax.planning.protection import checkpoint_interval_s, plan_protection
from tenax.planning.replicas import check_replicas

CLUSTER = Cluster(
    (Node("n1", "r1"), Node("n2", "r1"), Node("n3", "r2"), Node("n4", "r2")),
    failures_per_day={"n1": 0.5, "r1": 0.5},
    checkpoint_s=2.0,
)


@given(topologies(max_operators=4, max_parallelism=3), st.integers(0, 6))
@settings(max_examples=40, deadline=None)
def test_every_part_of_a_protection_plan_is_valid_and_its_promises_follow(topology: Topology, budget: int) -> None:
    graph = TaskGraph(topology)
    latency_s = float(graph.reprocess.max()) * 1.5 + 0.5
    plan = plan_protection(graph, latency_s, budget, CLUSTER)
    check_backups(graph, plan.backups, latency_s)
    check_replicas(graph, plan.replicas, budget)
    assert plan.placement is not None
    check_placement(graph, CLUSTER, plan.placement, plan.replicas.replicas)
    assert all(latency <= latency_s + 1e-9 for latency in plan.recovery_latency_s.values())
    assert all(plan.recovery_latency_s[task] == 0 for task in plan.replicas.replicas)
    for promise in plan.domains:
        for task in promise.lost:
            assert plan.placement.primaries[task] in promise.domain.nodes
            assert plan.placement.replicas.get(task, promise.domain.nodes[0]) in promise.domain.nodes
        assert promise.fidelity == pytest.approx(float(fidelity(graph, graph.mask(promise.lost))))


def test_the_loss_of_a_domain_counts_backups_lost_with_it() -> None:
    # a(1) ──► b(1) ──► c(1), bound 2: one backup. On one node, the loss of all takes three steps.
    chain = Topology(
        "t",
        (
            Operator("a"),
            Operator("b", inputs=(Input("a", Partitioning.ONE_TO_ONE),)),
            Operator("c", inputs=(Input("b", Partitioning.ONE_TO_ONE),)),
        ),
    )
    together = Cluster((Node("n1"), Node("n2")), placement={Task(name, 0): "n1" for name in "abc"})
    plan = plan_protection(TaskGraph(chain), 2.0, 0, together)
    assert len(plan.backups.backups) == 1
    lost = {promise.domain.name: promise for promise in plan.domains}
    assert (lost["n1"].recovery_latency_s, lost["n1"].fidelity) == (3.0, 0.0)
    assert (lost["n2"].recovery_latency_s, lost["n2"].fidelity) == (0.0, 1.0)


def test_a_replica_elsewhere_saves_its_task() -> None:
    graph = TaskGraph(Topology("t", (Operator("a"),)))
    plan = plan_protection(graph, 1.0, 1, Cluster((Node("n1"), Node("n2"))))
    assert all(promise.lost == () and promise.fidelity == 1.0 for promise in plan.domains)


def test_the_checkpoint_interval_is_youngs() -> None:
    assert checkpoint_interval_s(CLUSTER) == pytest.approx(math.sqrt(2 * 2.0 * 86_400))
    assert checkpoint_interval_s(Cluster((Node("n1"),))) is None
    assert checkpoint_interval_s(Cluster((Node("n1"),), checkpoint_s=1.0)) is None


def test_an_impossible_bound_names_the_task() -> None:
    graph = TaskGraph(Topology("t", (Operator("a", 2, reprocess=(1.0, 4.0)),)))
    with pytest.raises(Infeasible, match=r"a\[1\]"):
        plan_protection(graph, 2.0, 0)
