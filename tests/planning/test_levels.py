"""Levels of a pass: operators wait for those that feed them in it, and for no others."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import topologies

from tenax.model.graph import TaskGraph
from tenax.model.topology import Input, Operator, Output, Partitioning, Topology
from tenax.planning.levels import layout

MERGE = Partitioning.MERGE

# a (4) ──▶ b (4) ══▶ c (2) ══▶ d (1)        tasks: a 0 to 3, b 4 to 7, c 8 and 9, d 10
GRAPH = TaskGraph(
    Topology(
        "merges",
        (
            Operator("a", 4),
            Operator("b", 4, (Input("a", Partitioning.ONE_TO_ONE),)),
            Operator("c", 2, (Input("b", MERGE),)),
            Operator("d", 1, (Input("c", MERGE),), output=Output()),
        ),
    )
)
A, B, C, D = range(4)


def levels(*tasks: int, read: tuple[int, ...] = (), nodes: int = 2) -> tuple[tuple[int, ...], ...]:
    """The levels in which these tasks step, dealt out to nodes."""
    homes = {task: (place % nodes,) for place, task in enumerate(tasks)}
    return layout(GRAPH, [f"n{number}" for number in range(nodes)], homes, frozenset(read)).levels


def test_a_pass_of_all_tasks_has_a_level_for_every_shuffle() -> None:
    assert levels(*range(11), nodes=4) == ((A, B), (C,), (D,))  # a and b go on task by task
    assert levels(*range(11), nodes=3) == ((A,), (B,), (C,), (D,))


def test_tasks_that_read_what_was_retained_do_not_wait_for_each_other() -> None:
    # c[1] is fed by what b[2] and b[3] retained, b[0] and b[1] by the log
    assert levels(0, 4, 9, read=(B,), nodes=1) == ((A, B), (C,))
    assert levels(4, 9, read=(B,)) == ((B,), (C,))
    assert levels(1, 5, 9, 10, read=(B, C), nodes=4) == ((A,), (B, C), (D,))


def test_a_task_waits_for_one_that_feeds_it_also_where_others_of_its_operator_do_not() -> None:
    # b[0] feeds c[0]; c[1] reads what b[2] and b[3] retained
    assert levels(4, 8, 9, read=(B,)) == ((B,), (C,))
    assert levels(8, 10, read=(B, C)) == ((), (C,), (D,))


@settings(deadline=None, max_examples=60)
@given(topologies(), st.randoms(use_true_random=False))
def test_a_task_is_never_before_one_that_feeds_it(topology: Topology, random: object) -> None:
    graph = TaskGraph(topology)
    stepping = [task for task in range(len(graph)) if random.random() < 0.6] or [0]  # type: ignore[attr-defined]
    homes = {task: (random.randrange(3),) for task in stepping}  # type: ignore[attr-defined]
    placed = layout(graph, ["n0", "n1", "n2"], homes)
    level_of = {operator: number for number, level in enumerate(placed.levels) for operator in level}
    assert sorted(level_of) == sorted({int(graph.operator_of[task]) for task in stepping})
    for task in stepping:
        for producer in set(graph.producers_of(task)) & set(stepping):
            above, own = (level_of[int(graph.operator_of[each])] for each in (producer, task))
            assert above < own or (above == own and homes[producer] == homes[task])
