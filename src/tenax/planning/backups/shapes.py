"""Which task graphs are lines or trees, and the first task that keeps a graph from being one."""

from __future__ import annotations

import numpy as np

from tenax.errors import InvalidRequest
from tenax.model.graph import Ints, TaskGraph
from tenax.model.topology import Partitioning


def is_tree(graph: TaskGraph) -> bool:
    """Whether every task has at most one consumer; forests are trees here. O(operators)."""
    return all(
        not streams or (len(streams) == 1 and (streams[0].partitioning in _SINGLE_CONSUMER))
        for streams in graph.consumers
    )


def require_tree(graph: TaskGraph) -> None:
    """Raise unless every task has at most one consumer."""
    for operator in range(len(graph.operators)):
        consumers = _consumer_counts(graph, operator)
        if consumers.max() > 1:
            index = int(np.argmax(consumers > 1))
            task = graph.task(int(graph.first[operator]) + index)
            raise InvalidRequest(
                f"algorithm 'tree' needs at most one consumer per task, found {task} with {consumers[index]}: "
                "use 'exact' or 'dag'"
            )


def require_lines(graph: TaskGraph) -> None:
    """Raise unless the graph is made of parallel lines, which may join in sinks."""
    for operator in range(len(graph.operators)):
        consumers = _consumer_counts(graph, operator)
        producers = _producer_counts(graph, operator)
        wrong = (consumers > 1) | ((consumers > 0) & (producers > 1))
        if wrong.any():
            index = int(np.argmax(wrong))
            task = graph.task(int(graph.first[operator]) + index)
            if consumers[index] > 1:
                raise InvalidRequest(
                    f"algorithm 'line' needs at most one consumer per task, found {task} with {consumers[index]}: "
                    "use 'exact' or 'dag'"
                )
            raise InvalidRequest(
                f"algorithm 'line' needs lines that join in a sink only, found {task} with {producers[index]} "
                f"producers and a consumer: use {'tree' if is_tree(graph) else 'exact'!r}"
            )


_SINGLE_CONSUMER = (Partitioning.ONE_TO_ONE, Partitioning.MERGE)
"""Streams to or from a single task are normalised, so a full or split stream always gives some producer several."""


def _consumer_counts(graph: TaskGraph, operator: int) -> Ints:
    counts = np.zeros(graph.operators[operator].parallelism, dtype=np.int64)
    for stream in graph.consumers[operator]:
        match stream.partitioning:
            case Partitioning.FULL:
                counts += stream.consumers
            case Partitioning.SPLIT:
                counts += np.bincount(stream.parents, minlength=stream.producers)
            case _:
                counts += 1
    return counts


def _producer_counts(graph: TaskGraph, operator: int) -> Ints:
    counts = np.zeros(graph.operators[operator].parallelism, dtype=np.int64)
    for stream in graph.streams[operator]:
        match stream.partitioning:
            case Partitioning.FULL:
                counts += stream.producers
            case Partitioning.MERGE:
                counts += np.bincount(stream.parents, minlength=stream.consumers)
            case _:
                counts += 1
    return counts
