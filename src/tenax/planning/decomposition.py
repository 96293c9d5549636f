"""The shape of a topology and its parts for replica plans: sub-topologies, units, segments (Su, Zhou 2016, IV-C)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tenax.model.graph import Stream, TaskGraph
from tenax.model.topology import Partitioning
from tenax.planning.trees import TaskSet, count_part_trees, part_trees

MAX_SEGMENTS = 2_000  # per unit; a unit with more is cut into its operators


class Shape(StrEnum):
    """What planners can rely on, the most special first."""

    LINE = "line"
    TREE = "tree"
    STRUCTURED = "structured"
    FULL = "full"
    GENERAL = "general"


@dataclass(frozen=True, slots=True)
class SubTopology:
    """Operators that are planned together, by number, in task order."""

    full: bool
    operators: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Unit:
    """Operators of a structured sub-topology without a cut between them, and the MC-trees of this part."""

    operators: tuple[int, ...]
    segments: tuple[TaskSet, ...]


def classify(graph: TaskGraph) -> Shape:
    """The first shape that fits. O(tasks).

    - line: every task has at most one consumer, and only tasks without consumers have several producers.
    - tree: every task has at most one consumer.
    - structured: no stream is full, but for those that leave output operators. (The paper says that only "the
      operators that produce outputs" can have a full partitioning function, and an operator's is that of its output.)
    - full: every stream is full, or to or from a single task.
    """
    producers, consumers = graph.neighbour_counts()
    if (consumers <= 1).all():
        return Shape.LINE if (producers[consumers > 0] <= 1).all() else Shape.TREE
    outputs = {number for number in range(len(graph.operators)) if graph.is_output[graph.first[number]]}
    if all(stream.partitioning is not Partitioning.FULL or stream.producer in outputs for stream in _streams(graph)):
        return Shape.STRUCTURED
    return Shape.FULL if _all_full(graph) else Shape.GENERAL


def sub_topologies(graph: TaskGraph) -> tuple[SubTopology, ...]:
    """The topology cut at full streams: structured parts of several operators, and full parts of the single ones.

    Operators joined by streams that are not full make a structured sub-topology; the remaining operators, where
    neighbours, make full ones. A topology with full streams only, or streams to or from a single task, is one.
    """
    everything = range(len(graph.operators))
    if _all_full(graph):
        return tuple(SubTopology(True, part) for part in _components(everything, _streams(graph), lambda _: True))
    parts = _components(everything, _streams(graph), lambda stream: stream.partitioning is not Partitioning.FULL)
    single = {part[0] for part in parts if len(part) == 1}
    full = _components(
        sorted(single), _streams(graph), lambda stream: stream.producer in single and stream.consumer in single
    )
    separate = [SubTopology(False, part) for part in parts if len(part) > 1]
    separate += [SubTopology(True, part) for part in full]
    return tuple(sorted(separate, key=lambda part: part.operators))


def units(graph: TaskGraph, part: SubTopology) -> tuple[Unit, ...]:
    """The units of a structured sub-topology, each with its segments.

    A stream is cut if it is a merge into an operator that splits its output, or joins it with others; full streams
    inside are cut too (ours). A unit of more than MAX_SEGMENTS segments falls apart into its operators (ours).
    """
    inside = [stream for stream in _streams(graph) if {stream.producer, stream.consumer} <= set(part.operators)]
    parts: list[Unit] = []
    for operators in _components(part.operators, inside, lambda stream: not _is_cut(graph, stream)):
        unit = _unit(graph, operators, [stream for stream in inside if not _is_cut(graph, stream)])
        parts += [unit] if unit is not None else [_single(graph, operator) for operator in operators]
    return tuple(sorted(parts, key=lambda unit: unit.operators))


def _is_cut(graph: TaskGraph, stream: Stream) -> bool:
    if stream.partitioning is not Partitioning.MERGE:
        return stream.partitioning is Partitioning.FULL
    splits = any(output.partitioning is Partitioning.SPLIT for output in graph.consumers[stream.consumer])
    joins = graph.operators[stream.consumer].correlated and len(graph.streams[stream.consumer]) > 1
    return splits or joins


def _unit(graph: TaskGraph, operators: Sequence[int], kept: Sequence[Stream]) -> Unit | None:
    members = set(operators)
    inputs = {number: [stream for stream in kept if stream.consumer == number] for number in operators}
    for number in operators:
        inputs[number] = [stream for stream in inputs[number] if stream.producer in members]
    ends = [number for number in operators if _leaves(graph, number, members, kept)]
    if count_part_trees(graph, inputs, ends) > MAX_SEGMENTS:
        return None
    return Unit(tuple(operators), part_trees(graph, inputs, ends, MAX_SEGMENTS))


def _leaves(graph: TaskGraph, number: int, members: set[int], kept: Sequence[Stream]) -> bool:
    """Whether an operator has a way out of its unit."""
    inside = {id(stream) for stream in kept if stream.consumer in members}
    streams = graph.consumers[number]
    return (
        not streams or bool(graph.is_output[graph.first[number]]) or any(id(stream) not in inside for stream in streams)
    )


def _single(graph: TaskGraph, operator: int) -> Unit:
    span = graph.span(operator)
    return Unit((operator,), tuple(frozenset({task}) for task in range(span.start, span.stop)))


def _streams(graph: TaskGraph) -> list[Stream]:
    return [stream for streams in graph.streams for stream in streams]


def _all_full(graph: TaskGraph) -> bool:
    return all(
        stream.partitioning is Partitioning.FULL or 1 in (stream.producers, stream.consumers)
        for stream in _streams(graph)
    )


def _components(
    operators: Iterable[int], streams: Sequence[Stream], connects: Callable[[Stream], bool]
) -> list[tuple[int, ...]]:
    """Operators joined by streams of some kind, each group in task order. O(operators × streams)."""
    group = {operator: operator for operator in operators}
    for stream in streams:
        if connects(stream) and stream.producer in group and stream.consumer in group:
            low, high = sorted((group[stream.producer], group[stream.consumer]))
            group = {operator: low if label == high else label for operator, label in group.items()}
    return [tuple(operator for operator in group if group[operator] == low) for low in sorted(set(group.values()))]
