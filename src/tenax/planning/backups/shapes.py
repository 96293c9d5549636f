"""Which task graphs are lines or trees, and the first task that keeps a graph from being one."""

from __future__ import annotations

import numpy as np

from tenax.errors import InvalidRequest
from tenax.model.graph import TaskGraph
from tenax.model.topology import Partitioning


def is_tree(graph: TaskGraph) -> bool:
    """Whether every task has at most one consumer; forests are trees here. O(operators)."""
    return all(
        not streams or (len(streams) == 1 and (streams[0].partitioning in _SINGLE_CONSUMER))
        for streams in graph.consumers
    )


def require_tree(graph: TaskGraph) -> None:
    """Raise unless every task has at most one consumer."""
    _, consumers = graph.neighbour_counts()
    wrong = np.flatnonzero(consumers > 1)
    if wrong.size:
        task = int(wrong[0])
        raise InvalidRequest(
            f"algorithm 'tree' needs at most one consumer per task, found {graph.task(task)} with {consumers[task]}: "
            "use 'exact' or 'dag'"
        )


def require_lines(graph: TaskGraph) -> None:
    """Raise unless the graph is made of parallel lines, which may join in sinks."""
    producers, consumers = graph.neighbour_counts()
    wrong = np.flatnonzero((consumers > 1) | ((consumers > 0) & (producers > 1)))
    if not wrong.size:
        return
    task = int(wrong[0])
    if consumers[task] > 1:
        raise InvalidRequest(
            f"algorithm 'line' needs at most one consumer per task, found {graph.task(task)} with {consumers[task]}: "
            "use 'exact' or 'dag'"
        )
    raise InvalidRequest(
        f"algorithm 'line' needs lines that join in a sink only, found {graph.task(task)} with {producers[task]} "
        f"producers and a consumer: use {'tree' if is_tree(graph) else 'exact'!r}"
    )


_SINGLE_CONSUMER = (Partitioning.ONE_TO_ONE, Partitioning.MERGE)
"""Streams to or from a single task are normalised, so a full or split stream always gives some producer several."""
