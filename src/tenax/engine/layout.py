"""How tasks lie on nodes and levels, so that a pass is a short chain of stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tenax.model.graph import Stream, TaskGraph
from tenax.model.topology import Partitioning


@dataclass(frozen=True, slots=True)
class Layout:
    """Where every task runs, and in which stage of a pass.

    - `homes` is the number of the node of each task, by task number.
    - `levels` are operator numbers; a level holds operators whose inputs come from earlier levels, or task by task from
      the same level on the same node, in topological order.
    """

    nodes: tuple[str, ...]
    homes: tuple[int, ...]
    levels: tuple[tuple[int, ...], ...]


def layout(graph: TaskGraph, nodes: Sequence[str], homes: Sequence[int]) -> Layout:
    """The levels that a placement allows: as few as possible, because each costs a shuffle."""
    level_of: list[int] = []
    for streams in graph.streams:
        level_of.append(
            max(
                (level_of[one.producer] + (0 if stays(graph, one, homes) else 1) for one in streams),
                default=0,
            )
        )
    levels = [tuple(o for o, level in enumerate(level_of) if level == number) for number in range(max(level_of) + 1)]
    return Layout(tuple(nodes), tuple(homes), tuple(levels))


def stays(graph: TaskGraph, stream: Stream, homes: Sequence[int]) -> bool:
    """Whether a stream goes from each task to its own partner on the same node."""
    if stream.partitioning is not Partitioning.ONE_TO_ONE:
        return False
    producers, consumers = graph.span(stream.producer), graph.span(stream.consumer)
    return list(homes[producers]) == list(homes[consumers])
