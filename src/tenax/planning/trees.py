"""MC-trees: the smallest sets of tasks that together still give some output (Su, Zhou 2016, definition 1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate

import numpy as np

from tenax.errors import TooLarge
from tenax.model.graph import Bools, Stream, TaskGraph
from tenax.model.topology import Partitioning

UNIONS_PER_TREE = 16  # unions tried for each tree that the limit allows: in diamonds many of them are the same set

TaskSet = frozenset[int]


def count_trees(graph: TaskGraph) -> int:
    """The number of MC-trees, unfolded: a task that is reached twice counts twice. O(tasks).

    An independent task needs one producer of one of its streams, a correlated one a producer of each.
    """
    counts: list[list[int]] = []
    for operator, streams in zip(graph.operators, graph.streams, strict=True):
        own = [1] * operator.parallelism
        if streams:
            inputs = [_sums(stream, counts[stream.producer]) for stream in streams]
            joined = operator.correlated
            own = [_multiplied(ways) if joined else sum(ways) for ways in zip(*inputs, strict=True)]
        counts.append(own)
    return sum(sum(own) for number, own in enumerate(counts) if graph.is_output[graph.first[number]])


def enumerate_trees(graph: TaskGraph, limit: int) -> tuple[TaskSet, ...]:
    """The distinct task sets of all MC-trees, in the order of their sorted task numbers.

    Raises TooLarge as soon as more than `limit` sets are needed at any task. O(limit × tasks) at worst.
    """
    inputs = dict(enumerate(graph.streams))
    ends = [operator for operator in range(len(graph.operators)) if graph.is_output[graph.first[operator]]]
    return part_trees(graph, inputs, ends, limit)


def part_trees(
    graph: TaskGraph, inputs: Mapping[int, Sequence[Stream]], ends: Sequence[int], limit: int
) -> tuple[TaskSet, ...]:
    """The trees of a part: its operators in task order with their streams inside it, and where its trees end."""
    needed = _needed(graph, inputs, ends)
    sets: dict[int, list[TaskSet]] = {}
    trees: dict[TaskSet, None] = {}
    last = set(ends)
    for operator, streams in inputs.items():
        first = int(graph.first[operator])
        shared = {
            id(stream): _union_of(sets, graph, stream, range(stream.producers), limit)
            for stream in streams
            if stream.partitioning is Partitioning.FULL and needed[graph.span(operator)].any()
        }
        for index in range(graph.operators[operator].parallelism):
            if not needed[first + index]:
                continue
            below = [
                shared.get(id(stream)) or _union_of(sets, graph, stream, stream.producers_of(index), limit)
                for stream in streams
            ]
            joined = graph.operators[operator].correlated
            task = frozenset({first + index})
            sets[first + index] = [task | way for way in _ways(below, joined, limit)]
            if operator in last:
                trees.update(dict.fromkeys(sets[first + index]))
                _check(len(trees), limit)
    return tuple(sorted(trees, key=sorted))


def count_part_trees(graph: TaskGraph, inputs: Mapping[int, Sequence[Stream]], ends: Sequence[int]) -> int:
    """At least as many as the trees of a part of the topology, without listing them. O(tasks of the part)."""
    counts: dict[int, list[int]] = {}
    for operator, streams in inputs.items():
        ways = [_sums(stream, counts[stream.producer]) for stream in streams]
        combine: Callable[[Iterable[int]], int] = _multiplied if graph.operators[operator].correlated else sum
        own = (
            [combine(counted) for counted in zip(*ways, strict=True)]
            if ways
            else [1] * graph.operators[operator].parallelism
        )
        counts[operator] = own
    return sum(sum(counts[operator]) for operator in ends)


def _needed(graph: TaskGraph, inputs: Mapping[int, Sequence[Stream]], ends: Sequence[int]) -> Bools:
    """The tasks from which an end can be reached: trees hold no others."""
    needed = np.zeros(len(graph), dtype=np.bool_)
    for operator in ends:
        needed[graph.span(operator)] = True
    for operator in reversed(list(inputs)):
        for stream in inputs[operator]:
            reached = stream.highest_back(needed[graph.span(operator)])
            needed[graph.span(stream.producer)] |= reached.astype(np.bool_)
    return needed


def _union_of(
    sets: Mapping[int, list[TaskSet]], graph: TaskGraph, stream: Stream, producers: range, limit: int
) -> list[TaskSet]:
    first = int(graph.first[stream.producer])
    union = dict.fromkeys(tree for producer in producers for tree in sets[first + producer])
    _check(len(union), limit)
    return list(union)


def _ways(inputs: Sequence[Sequence[TaskSet]], joined: bool, limit: int) -> list[TaskSet]:
    """The sets that feed a task: one of any stream, or one of each joined together."""
    if not inputs:
        return [frozenset()]
    if not joined:
        union = dict.fromkeys(tree for sets in inputs for tree in sets)
        _check(len(union), limit)
        return list(union)
    ways = list(inputs[0])
    for sets in inputs[1:]:
        if len(ways) * len(sets) > UNIONS_PER_TREE * limit:
            _check(limit + 1, limit)
        ways = list(dict.fromkeys(way | other for way in ways for other in sets))
        _check(len(ways), limit)
    return ways


def _check(count: int, limit: int) -> None:
    if count > limit:
        raise TooLarge(f"at most {limit:,} MC-trees are listed, found more: use the algorithm exact or structure-aware")


def _sums(stream: Stream, values: Sequence[int]) -> list[int]:
    """Per consumer: the sum over its producers."""
    if stream.partitioning is Partitioning.FULL:
        return [sum(values)] * stream.consumers
    before = [0, *accumulate(values)]
    ranges = (stream.producers_of(consumer) for consumer in range(stream.consumers))
    return [before[producers.stop] - before[producers.start] for producers in ranges]


def _multiplied(numbers: Iterable[int]) -> int:
    result = 1
    for number in numbers:
        result *= number
    return result
