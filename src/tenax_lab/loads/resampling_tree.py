"""A tree of merging tasks that compute more than they send: what is lost and replayed to measure recovery."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from tenax.application.application import Application
from tenax.application.schemas import with_schemas
from tenax.connectors.generators import Pace
from tenax.connectors.parquet import parquet
from tenax.connectors.workloads import elements
from tenax.model.graph import Floats, TaskGraph
from tenax.model.topology import Input, Operator, Output, Partitioning, PerTask, Topology
from tenax.operators.computation import Computation, State, StepInput, StepOutput
from tenax.operators.stateless import Stateless

SOURCES = "sources"
RESULTS = "results"
WIDTHS = (16, 8, 4, 2, 1)  # of the sources and of the merges above them, as in Su, Zhou 2016, Figure 6
KEPT = 0.8  # of a level, from batch to batch
BLOCK = 250  # resamples that are drawn together, so that they fit into a processor's cache


@dataclass(frozen=True, slots=True)
class Load:
    """What a batch holds and costs: one row per sensor and source, and the resamples that a task draws from it.

    The number of sensors is odd, so that rows that are dealt to the sources in turn give every source all sensors.
    """

    sensors: int
    resamples: int

    @property
    def batch_rows(self) -> int:
        """The rows of a batch, all sources together."""
        return self.sensors * WIDTHS[0]


class Smoothing(Computation):
    """The level of every sensor, smoothed over the batches, and its error over all sensors by resampling.

    - Two producers send a row per sensor each, one row goes on: half as many, at every depth of the tree.
    - The level depends on all batches before, and goes on upwards: a wrong state anywhere changes the results.
    - Cost: sensors × resamples, whatever was sent; the draws depend on the batch alone.
    """

    def __init__(self, load: Load) -> None:
        self.load = load

    def schema(self, inputs: Sequence[pl.Schema]) -> pl.Schema:  # noqa: ARG002
        """Declared: a step costs the same without rows."""
        return pl.Schema({"sensor": pl.Int64(), "value": pl.Float64(), "error": pl.Float64()})

    def step(self, state: State, given: StepInput) -> StepOutput:
        """Add up what the producers sent, smooth it, estimate the error."""
        rows, sensors = given.frames[0], self.load.sensors
        sensor = rows["sequence"] % sensors if "sequence" in rows.columns else rows["sensor"]
        sums = np.bincount(sensor.to_numpy(), weights=rows["value"].to_numpy(), minlength=sensors)
        before = next((kept["level"].to_numpy() for kept in state.values()), np.zeros(sensors))
        level = KEPT * before + (1.0 - KEPT) * sums
        error = resampled_error(level, self.load.resamples, given.batch)
        emitted = pl.DataFrame({"sensor": np.arange(sensors), "value": level, "error": np.full(sensors, error)})
        return StepOutput({f"levels/{given.batch}": pl.DataFrame({"level": level})}, emitted)


def resampled_error(values: Floats, resamples: int, seed: int) -> float:
    """The standard error of a mean: how far means of samples drawn from the values scatter. O(values × resamples)."""
    dice = np.random.default_rng(seed)
    means = [
        values[dice.integers(0, len(values), size=(min(BLOCK, resamples - first), len(values)))].mean(axis=1)
        for first in range(0, resamples, BLOCK)
    ]
    return float(np.concatenate(means).std())


def merge_tree(seed: int, load: Load, batches: int, times_s: Sequence[float] = ()) -> Application:
    """The tree as an application of so many batches; `times_s` is what reprocessing each task takes, in task order."""
    rows = elements(seed, load.batch_rows, pace=Pace(rows=batches * load.batch_rows))
    topology = tree_topology()
    if times_s:
        topology = with_times(topology, times_s)
    merges = [operator.name for operator in topology.operators if not operator.is_source and operator.name != RESULTS]
    application = Application(
        topology,
        {SOURCES: rows},
        {**dict.fromkeys(merges, Smoothing(load)), RESULTS: Stateless(())},
        {RESULTS: parquet(Path(RESULTS))},  # a chaos run puts its own folder in place of it
    )
    return with_schemas(application)


def tree_topology() -> Topology:
    """Sources (16) --> o1 (8) --> o2 (4) --> o3 (2) --> o4 (1) --> results, merges all of them."""
    operators = [Operator(SOURCES, WIDTHS[0])]
    for depth, width in enumerate(WIDTHS[1:], start=1):
        operators.append(Operator(f"o{depth}", width, (Input(operators[-1].name, Partitioning.MERGE),)))
    last = Input(operators[-1].name, Partitioning.ONE_TO_ONE)
    return Topology("merge-tree", (*operators, Operator(RESULTS, WIDTHS[-1], (last,), output=Output())))


def with_times(topology: Topology, times_s: Sequence[float]) -> Topology:
    """The same with the time that reprocessing each task takes, in task order."""
    graph = TaskGraph(topology)
    known: dict[str, PerTask] = {
        operator.name: tuple(times_s[graph.span(number)]) for number, operator in enumerate(graph.operators)
    }
    return Topology(topology.name, tuple(replace(each, reprocess=known[each.name]) for each in topology.operators))
