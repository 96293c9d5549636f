"""Levels of a pass: how its steps lie on nodes and in how few Spark stages, each of which costs a shuffle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tenax.model.graph import Stream, TaskGraph
from tenax.model.topology import Partitioning

Homes = Mapping[int, tuple[int, ...]]
"""The numbers of the nodes on which each task steps in a pass; a task that does not is not in it."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the tasks of a pass step, and in which stage.

    - `levels` are operator numbers; a level holds operators whose inputs come from earlier levels, or task by task from
      the same level on the same node, in topological order. Who feeds whom is that of the tasks that step: an operator
      all of whose inputs were retained waits for none, so that tasks that were lost together step together.
    - Retained outputs are sent in the first level, so whoever reads them is in a later one.
    """

    nodes: tuple[str, ...]
    homes: Homes
    levels: tuple[tuple[int, ...], ...]


def layout(graph: TaskGraph, nodes: Sequence[str], homes: Homes, read: frozenset[int] = frozenset()) -> Layout:
    """The levels that a placement allows: as few as possible, because each costs a shuffle; `read` are operators."""
    level_of: dict[int, int] = {}
    stepping = {int(graph.operator_of[task]) for task in homes}
    for operator in sorted(stepping):
        own = 0
        for stream in graph.streams[operator]:
            if stream.producer in read:
                own = max(own, 1)
            if stream.producer in level_of and _feeds(graph, stream, homes):
                own = max(own, level_of[stream.producer] + (0 if stays(graph, stream, homes) else 1))
        level_of[operator] = own
    top = max(level_of.values())
    levels = [tuple(o for o in sorted(stepping) if level_of[o] == number) for number in range(top + 1)]
    return Layout(tuple(nodes), dict(homes), tuple(levels))


def stays(graph: TaskGraph, stream: Stream, homes: Homes) -> bool:
    """Whether a stream goes from each task to its own partner, with a copy of the producer wherever one of it steps."""
    if stream.partitioning is not Partitioning.ONE_TO_ONE:
        return False
    producers, consumers = int(graph.first[stream.producer]), int(graph.first[stream.consumer])
    return all(
        set(homes.get(consumers + index, ())) <= set(homes.get(producers + index, ()))
        for index in range(stream.consumers)
    )


def _feeds(graph: TaskGraph, stream: Stream, homes: Homes) -> bool:
    """Whether any task that steps is fed by one that does, by this stream."""
    producers, consumers = int(graph.first[stream.producer]), int(graph.first[stream.consumer])
    stepping = (index for index in range(stream.consumers) if consumers + index in homes)
    return any(producers + producer in homes for index in stepping for producer in stream.producers_of(index))
