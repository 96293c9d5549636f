"""Queries: an output task with everything it needs, which is all its ancestors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tenax.errors import TooLarge
from tenax.model.graph import Bools, Ints, TaskGraph
from tenax.model.tasks import Task

MAX_CELLS = 1_000_000_000  # a gigabyte of booleans


@dataclass(frozen=True, slots=True)
class Query:
    """One output task and its ancestors, itself included, in task order."""

    output: Task
    priority: float
    members: tuple[Task, ...]


def queries(graph: TaskGraph) -> tuple[Query, ...]:
    """All queries of a topology, in task order. O(output tasks × tasks): for topologies that people look at."""
    outputs = np.flatnonzero(graph.is_output)
    member = membership(graph, outputs)
    return tuple(
        Query(graph.task(int(output)), float(graph.priority[output]), graph.tasks(np.flatnonzero(row)))
        for output, row in zip(outputs, member, strict=True)
    )


def membership(graph: TaskGraph, outputs: Ints) -> Bools:
    """One row per given task: which tasks are itself or its ancestors. O(rows × tasks)."""
    if len(outputs) * len(graph) > MAX_CELLS:
        raise TooLarge(
            f"queries × tasks are at most {MAX_CELLS:,}, found {len(outputs):,} × {len(graph):,}: lower a parallelism"
        )
    member = np.zeros((len(outputs), len(graph)), dtype=np.bool_)
    member[np.arange(len(outputs)), outputs] = True
    for operator in reversed(range(len(graph.operators))):
        for stream in graph.streams[operator]:
            needed = stream.highest_back(member[:, graph.span(stream.consumer)])
            member[:, graph.span(stream.producer)] |= needed.astype(np.bool_)
    return member
