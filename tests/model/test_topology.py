"""Topologies are checked when they are built, and say precisely what is wrong."""

from __future__ import annotations

import math

import pytest

from tenax.errors import InvalidTopology
from tenax.model.topology import MAX_TASKS, Input, Operator, Output, Partitioning, Topology

SOURCE = Operator("a", 4)


def built(*operators: Operator) -> Topology:
    return Topology("t", operators)


@pytest.mark.parametrize(
    ("operator", "words"),
    [
        (lambda: Operator("A"), "found 'A'"),
        (lambda: Operator("a b"), "found 'a b'"),
        (lambda: Operator("a", 0), "parallelism is at least 1, found 0"),
        (lambda: Operator("a", 2, weights=(1.0,)), "weights needs one number per task (2), found 1"),
        (lambda: Operator("a", 2, weights=()), "weights needs one number per task (2), found 0"),
        (lambda: Operator("a", 2, weights=(0.0, 0.0)), "found only zeros"),
        (lambda: Operator("a", rate=-1.0), "rate is a finite number of at least 0, found -1.0"),
        (lambda: Operator("a", rate=math.nan), "found nan"),
        (lambda: Operator("a", cost=math.inf), "cost is a finite number of at least 0, found inf"),
        (lambda: Operator("a", 3, reprocess=(1.0, 2.0)), "reprocess needs one number per task (3), found 2"),
        (lambda: Operator("a", output=Output(-2.0)), "priority is a finite number of at least 0, found -2.0"),
        (lambda: Operator("a", selectivity=2.0), "a source has no selectivity"),
        (lambda: Operator("b", inputs=(Input("a"),), rate=5.0), "only sources have a rate"),
        (lambda: Operator("b", inputs=(Input("a"), Input("a"))), "each input is named once, found 'a' twice"),
    ],
)
def test_an_operator_says_what_is_wrong_with_it(operator: object, words: str) -> None:
    assert callable(operator)
    with pytest.raises(InvalidTopology) as caught:
        operator()
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("operators", "words"),
    [
        ((), "at least one operator"),
        ((SOURCE, SOURCE), "names are unique, found 'a' twice"),
        ((SOURCE, Operator("b", inputs=(Input("aa"),))), "unknown input 'aa': did you mean 'a'?"),
        ((SOURCE, Operator("b", inputs=(Input("b"),))), "no cycles, found b -> b"),
        ((Operator("c", inputs=(Input("d"),)), Operator("d", inputs=(Input("c"),))), "no cycles, found c -> d -> c"),
        ((SOURCE, Operator("b", 3, (Input("a", Partitioning.ONE_TO_ONE),))), "as many producers as consumers"),
        ((SOURCE, Operator("b", 4, (Input("a", Partitioning.MERGE),))), "more producers than consumers"),
        ((SOURCE, Operator("b", 4, (Input("a", Partitioning.SPLIT),))), "fewer producers than consumers"),
        ((SOURCE, Operator("b", 3, (Input("a", Partitioning.SPLIT),))), "found 4 tasks of 'a' for 3"),
        ((Operator("a", MAX_TASKS), Operator("b", 1)), "at most 10,000,000 tasks"),
    ],
)
def test_a_topology_says_what_is_wrong_with_it(operators: tuple[Operator, ...], words: str) -> None:
    with pytest.raises(InvalidTopology) as caught:
        built(*operators)
    assert words in str(caught.value)


@pytest.mark.parametrize("kind", [Partitioning.FULL, Partitioning.MERGE, Partitioning.SPLIT])
@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (1, 1)])
def test_an_edge_of_a_single_task_may_have_any_name(kind: Partitioning, before: int, after: int) -> None:
    built(Operator("a", before), Operator("b", after, (Input("a", kind),)))


def test_operators_keep_their_order_and_know_the_topological_one() -> None:
    # a ─┬─► b ──► d
    #    └─► c ──┘
    topology = built(
        Operator("d", inputs=(Input("b"), Input("c"))),
        Operator("c", inputs=(Input("a"),)),
        Operator("b", inputs=(Input("a"),)),
        Operator("a"),
    )
    assert [operator.name for operator in topology.operators] == ["d", "c", "b", "a"]
    assert topology.in_order == ("a", "c", "b", "d")


def test_without_stated_outputs_the_unconsumed_operators_are_outputs() -> None:
    topology = built(Operator("a"), Operator("b", inputs=(Input("a"),)), Operator("c", inputs=(Input("a"),)))
    assert dict(topology.outputs) == {"b": Output(1.0), "c": Output(1.0)}


def test_a_stated_output_is_the_only_one() -> None:
    topology = built(Operator("a", output=Output(3.0)), Operator("b", inputs=(Input("a"),)))
    assert dict(topology.outputs) == {"a": Output(3.0)}
