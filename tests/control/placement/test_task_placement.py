from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import topologies

from tenax.control.placement.spreading import chains, place_tasks
from tenax.errors import Infeasible
from tenax.model.cluster import Node
from tenax.model.graph import TaskGraph
from tenax.model.tasks import Task
from tenax.model.topology import Input, Operator, Partitioning, Topology

ONE = Partitioning.ONE_TO_ONE


def nodes(count: int) -> tuple[Node, ...]:
    return tuple(Node(f"n{number}") for number in range(count))


def limits(count: int, limit: float) -> dict[str, float]:
    return {node.name: limit for node in nodes(count)}


def test_chains_stay_together_and_are_spread() -> None:
    # a[0] ── b[0] ──╲
    # a[1] ── b[1] ──── c[0], c[1] (full)
    topology = Topology(
        "chains", (Operator("a", 2), Operator("b", 2, (Input("a", ONE),)), Operator("c", 2, (Input("b"),)))
    )
    placed = place_tasks(TaskGraph(topology), nodes(2), {}).primaries
    assert placed == {
        Task("a", 0): "n0",
        Task("a", 1): "n1",
        Task("b", 0): "n0",
        Task("b", 1): "n1",
        Task("c", 0): "n0",
        Task("c", 1): "n1",
    }


def test_branches_that_can_run_side_by_side_are_no_chain() -> None:
    #        ╱── b[0] ──╲
    # a[0] ──            d[0] ── e[0]
    #        ╲── c[0] ──╱
    topology = Topology(
        "diamond",
        (
            Operator("a"),
            Operator("b", inputs=(Input("a", ONE),)),
            Operator("c", inputs=(Input("a", ONE),)),
            Operator("d", inputs=(Input("b", ONE), Input("c", ONE))),
            Operator("e", inputs=(Input("d", ONE),)),
        ),
    )
    assert chains(TaskGraph(topology)) == [[0], [1], [2], [3, 4]]


def test_a_chain_that_no_node_can_hold_is_placed_task_by_task() -> None:
    # a[0] ── b[0] ── c[0]
    topology = Topology(
        "line", (Operator("a"), Operator("b", inputs=(Input("a", ONE),)), Operator("c", inputs=(Input("b", ONE),)))
    )
    placed = place_tasks(TaskGraph(topology), nodes(2), limits(2, 2.0)).primaries
    assert Counter(placed.values()) == {"n0": 2, "n1": 1}
    with pytest.raises(Infeasible, match="3 tasks need room for costs of 3"):
        place_tasks(TaskGraph(topology), nodes(2), limits(2, 1.0))


def test_consumers_run_apart_from_tasks_that_retain_outputs_for_them() -> None:
    # a[0] ── b[0] ── c[0] ── d[0]
    chain = Topology(
        "line",
        (
            Operator("a"),
            Operator("b", inputs=(Input("a", ONE),)),
            Operator("c", inputs=(Input("b", ONE),)),
            Operator("d", inputs=(Input("c", ONE),)),
        ),
    )
    graph = TaskGraph(chain)
    assert len(set(place_tasks(graph, nodes(3), {}).primaries.values())) == 1
    apart = place_tasks(graph, nodes(3), {}, retain=[Task("b", 0)]).primaries
    assert apart[Task("a", 0)] == apart[Task("b", 0)] != apart[Task("c", 0)] == apart[Task("d", 0)]
    alone = place_tasks(graph, nodes(1), {}, retain=[Task("b", 0)]).primaries
    assert set(alone.values()) == {"n0"}  # there is nowhere else


@settings(deadline=None, max_examples=60)
@given(topologies(), st.integers(1, 6))
def test_every_task_has_a_node_and_no_node_could_give_a_chain_to_balance(topology: Topology, count: int) -> None:
    graph = TaskGraph(topology)
    placed = place_tasks(graph, nodes(count), {}).primaries
    assert list(placed) == list(graph.tasks(range(len(graph))))
    assert placed == place_tasks(graph, nodes(count), {}).primaries
    all_chains = chains(graph)
    assert sorted(number for chain in all_chains for number in chain) == list(range(len(graph)))
    assert all(len({placed[graph.task(number)] for number in chain}) == 1 for chain in all_chains)
    load = dict.fromkeys((node.name for node in nodes(count)), 0.0)
    for task, node in placed.items():
        load[node] += float(graph.cost[graph.number(task)])
    costliest = max(float(graph.cost[chain].sum()) for chain in all_chains)
    assert max(load.values()) - min(load.values()) <= costliest + 1e-9
