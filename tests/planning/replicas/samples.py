"""Topologies of the paper that several tests plan."""

from __future__ import annotations

from tenax.model.graph import TaskGraph
from tenax.model.topology import Input, Operator, Partitioning, Topology

ONE, SPLIT, MERGE, FULL = (
    Partitioning.ONE_TO_ONE,
    Partitioning.SPLIT,
    Partitioning.MERGE,
    Partitioning.FULL,
)


def graph(*operators: Operator) -> TaskGraph:
    return TaskGraph(Topology("sample", operators))


def two_sources_meet(*, correlated: bool) -> TaskGraph:
    """o1(4) ──one-to-one──> o3(4) ──full──> o4(2);  o2(4) ──one-to-one──> o3."""
    return graph(
        Operator("o1", 4),
        Operator("o2", 4),
        Operator("o3", 4, (Input("o1", ONE), Input("o2", ONE)), correlated=correlated),
        Operator("o4", 2, (Input("o3", FULL),)),
    )


def merges(*, safe: bool = False) -> TaskGraph:
    """s(16) ──merge──> a(8) ──merge──> b(4) ──merge──> c(2) ──merge──> d(1)."""
    return graph(
        Operator("s", 16, safe=safe),
        *(
            Operator(name, size, (Input(before, MERGE),))
            for name, size, before in (("a", 8, "s"), ("b", 4, "a"), ("c", 2, "b"), ("d", 1, "c"))
        ),
    )


def top_pages(sources: int = 4, tasks: int = 12) -> TaskGraph:
    """log(sources, safe) ──full──> o1(tasks) ──merge──> o2(4) ──merge──> o3(1)."""
    return graph(
        Operator("log", sources, safe=True, rate=40_718.0),
        Operator("o1", tasks, (Input("log", FULL),), weights=tuple(1 / (index + 1) for index in range(tasks))),
        Operator("o2", 4, (Input("o1", MERGE),), selectivity=0.1),
        Operator("o3", 1, (Input("o2", MERGE),)),
    )


def incidents(*, full: bool = False) -> TaskGraph:
    """locations(2, safe) ──full──> speed(8) ──merge──> join(4) ──merge──> sum(1);  reports(2, safe) ──full──>
    incidents(4) ──one-to-one──> join; or with full streams into the join."""
    return graph(
        Operator("locations", 2, safe=True, rate=20_000.0),
        Operator("reports", 2, safe=True, rate=50.0),
        Operator("speed", 8, (Input("locations", FULL),), weights=tuple((index + 1) ** -0.5 for index in range(8))),
        Operator("incidents", 4, (Input("reports", FULL),), weights=tuple((index + 1) ** -0.5 for index in range(4))),
        Operator(
            "join",
            4,
            (Input("speed", FULL if full else MERGE), Input("incidents", FULL if full else ONE)),
            correlated=True,
        ),
        Operator("sum", 1, (Input("join", MERGE),)),
    )
