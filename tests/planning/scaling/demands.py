"""Demands for tests of the scaling planners: small ones that people can follow, and random ones that shrink."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st
from strategies import topologies

from tenax.model.graph import TaskGraph
from tenax.model.topology import Input, Operator, Partitioning, Topology
from tenax.planning.scaling import Demand, Group

ONE_TO_ONE = Partitioning.ONE_TO_ONE


@cache
def roads(speed: int = 2, jams: int = 2) -> TaskGraph:
    """Two sources, a filter that is their partner, two operators by key, and one that collects.

    rows (2) ─one-to-one─▶ parse (2) ═══▶ speed ═══▶ jams ──▶ top (1)
    """
    return TaskGraph(
        Topology(
            "roads",
            (
                Operator("rows", 2, rate=1000.0),
                Operator("parse", 2, (Input("rows", ONE_TO_ONE),)),
                Operator("speed", speed, (Input("parse"),)),
                Operator("jams", jams, (Input("speed"),)),
                Operator("top", 1, (Input("jams", Partitioning.MERGE),)),
            ),
        )
    )


GROUPS = (Group(("speed",), 1, 16), Group(("jams",), 1, 16))


def demand(graph: TaskGraph, busy_s: dict[str, float | tuple[float, ...]], **others: Any) -> Demand:
    """A demand in which operators are busy that long in all, or each of their tasks; the interval is a second."""
    each: list[float] = []
    for operator in graph.operators:
        said = busy_s.get(operator.name, 0.0)
        each += said if isinstance(said, tuple) else [said / operator.parallelism] * operator.parallelism
    words: dict[str, Any] = {"interval_s": 1.0, "nodes": 2, "bounds": (2, 8), "groups": GROUPS}
    return Demand(graph, (100.0,) * len(graph), tuple(each), **(words | others))


@st.composite
def demands(draw: st.DrawFn, most_tasks: int = 4, most_nodes: int = 3) -> Demand:
    """Any demand on a small topology: skewed tasks, fixed operators, partners, seconds beside rows."""
    graph = TaskGraph(draw(topologies(max_operators=4, max_parallelism=3)))
    tenths = st.integers(0, 12).map(lambda number: number / 10)
    busy_s = tuple(draw(st.lists(tenths, min_size=len(graph), max_size=len(graph))))
    fewest = draw(st.integers(1, most_nodes))
    return Demand(
        graph,
        (10.0,) * len(graph),
        busy_s,
        interval_s=1.0,
        nodes=draw(st.integers(1, most_nodes)),
        bounds=(fewest, draw(st.integers(fewest, most_nodes))),
        groups=draw(groups_of(graph, most_tasks)),
        factor=draw(st.sampled_from([0.1, 0.5, 1.0, 1.7, 3.0])),
        target=draw(st.sampled_from([0.3, 0.7, 1.0])),
        fixed_s=draw(st.sampled_from([0.0, 0.05])),
        task_s=draw(st.sampled_from([0.0, 0.0, 0.1])),
        batches=draw(st.sampled_from([1, 1, 3])),
        correction=draw(st.sampled_from([1.0, 1.3])),
        headroom=draw(st.sampled_from([0.0, 0.1])),
    )


@st.composite
def groups_of(draw: st.DrawFn, graph: TaskGraph, most_tasks: int) -> tuple[Group, ...]:
    """Groups of operators that are no sources: alone, or with the producer that is their partner; some in none."""
    members: dict[str, list[str]] = {}
    home: dict[str, str] = {}
    for number, operator in enumerate(graph.operators):
        streams = graph.streams[number]
        if not streams or draw(st.integers(0, 4)) == 0:
            continue
        before = graph.operators[streams[0].producer].name
        if streams[0].partitioning is ONE_TO_ONE and before in home and draw(st.booleans()):
            home[operator.name] = home[before]
        else:
            home[operator.name] = operator.name
        members.setdefault(home[operator.name], []).append(operator.name)
    groups = []
    for names in members.values():
        fewest = draw(st.integers(1, 2))
        groups.append(Group(tuple(names), fewest, draw(st.integers(fewest, most_tasks))))
    return tuple(groups)
