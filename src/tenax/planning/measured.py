"""A topology with what was measured while it ran, in place of what it declares: rates, costs and reprocess times."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tenax.model.graph import Bools, Floats, TaskGraph
from tenax.model.topology import Topology
from tenax.planning.rates import Rows, with_rates

PER_SECOND = 1000  # reprocess times are rounded up to milliseconds, so that tasks of equal work are alike
DECIMALS = 6


@dataclass(frozen=True, slots=True)
class Measures:
    """What a run has measured of its tasks, each in task order.

    - `rows` are taken in and given out in a second.
    - A task is `busy_s` in a batch, and steps through `batches` if it is lost just before its next checkpoint.
    - Its state has `state_bytes`; to read a byte from the store takes `restore_s`, 0 as long as none was read.
    - To step through that much takes so many `rounds`; each of the `levels` of one costs `level_s` beside steps.
    """

    rows: Rows
    busy_s: tuple[float, ...]
    batches: tuple[int, ...]
    state_bytes: tuple[float, ...]
    restore_s: float = 0.0
    rounds: int = 1
    levels: int = 1
    level_s: float = 0.0

    @property
    def scheduling_s(self) -> float:
        """What recovery takes beside steps, where all levels step."""
        return self.rounds * self.levels * self.level_s


def with_measures(topology: Topology, measures: Measures) -> Topology:
    """The same topology with measured rates; `cost` is in busy seconds of a batch, `reprocess` is T(v) as measured."""
    rated = with_rates(topology, measures.rows)
    graph = TaskGraph(rated)
    times = reprocess_times(graph, measures)
    spans = {operator.name: graph.span(number) for number, operator in enumerate(graph.operators)}
    operators = (
        replace(operator, cost=measures.busy_s[span], reprocess=tuple(times[span].tolist()))
        for operator in rated.operators
        for span in [spans[operator.name]]
    )
    return Topology(topology.name, tuple(operators))


def reprocess_times(graph: TaskGraph, measures: Measures) -> Floats:
    """T(v) of every task: to read its state, and to step it through what lies behind its last checkpoint.

    - Sources retain nothing but their log: to read it again is part of the work of the tasks that they feed.
    - A replay does not write again what is committed, so tasks that only write results take no time for it.
    """
    steps = np.asarray(measures.busy_s) * np.asarray(measures.batches)
    is_source, is_last = _sources(graph), graph.is_output & ~_feeding(graph)
    times = np.where(is_last, 0.0, steps) + measures.restore_s * np.asarray(measures.state_bytes)
    read = np.where(is_source, steps, 0.0)
    for number, streams in enumerate(graph.streams):
        for stream in streams:
            times[graph.span(number)] += stream.highest(read[graph.span(stream.producer)]).astype(np.float64)
    times[is_source] = 0.0
    milliseconds = np.round(times * PER_SECOND, DECIMALS)  # floats of sums may be a hair more than a whole one
    return np.asarray(np.ceil(milliseconds) / PER_SECOND)


def _sources(graph: TaskGraph) -> Bools:
    return np.array([not graph.streams[operator] for operator in graph.operator_of], dtype=np.bool_)


def _feeding(graph: TaskGraph) -> Bools:
    return np.array([bool(graph.consumers[operator]) for operator in graph.operator_of], dtype=np.bool_)
