"""Rows that are filtered and then joined with each other within a window, as Chang, Li, Xu scale and fail them.

tuples (1) --> filter (1) --> join (2) --> pairs (2), the output
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import polars as pl

from tenax.api.streams import Topology
from tenax.application.application import Application
from tenax.connectors.generators import Pace
from tenax.connectors.parquet import parquet
from tenax.connectors.workloads import elements
from tenax.model.cluster import Node
from tenax.model.graph import TaskGraph
from tenax.model.plans import Placement
from tenax.operators.computation import NO_WATERMARK_US, Computation, Splits, State, StepInput, StepOutput
from tenax.operators.event_time import event_times
from tenax_lab.loads.layered import MICROSECONDS, Tap

TUPLES, FILTER, JOIN, PAIRS = "tuples", "filter", "join", "pairs"
KEYS = 20_000
LEFT_OUT = 5  # one pair of rows in so many does not pass the filter
FIRST = "first"  # how the names of segments begin, with the batch behind


@dataclass(frozen=True, slots=True)
class Load:
    """Rows a second for so many seconds, all there from the start; a task of the join waits for each of its rows."""

    rate: int
    seconds: int
    window_s: int
    wait_us: int

    @property
    def rows(self) -> int:
        """All of them."""
        return self.rate * self.seconds


class Joined(Computation):
    """Every second row of a key with the first ones of the window before it.

    - Its state is the first rows of the window: stepped through the batches of that, it is the same again.
    - It waits for every row until its tap is closed, as if it had more to do; a replay afterwards does not.
    """

    bounded = True
    splits = Splits.BY_KEY

    def __init__(self, load: Load, tap: Tap) -> None:
        self._load, self._tap = load, tap

    def schema(self, inputs: Sequence[pl.Schema]) -> pl.Schema:  # noqa: ARG002
        """Declared: one that follows from a step would wait."""
        return pl.Schema({"ts": pl.Datetime("us"), "key": pl.Int64(), "age": pl.Duration("us"), "value": pl.Float64()})

    def oldest(self, state: State, batch: int) -> int:
        """That of the oldest segment."""
        return min((int(name.rpartition("/")[2]) for name in state), default=batch + 1)

    def step(self, state: State, given: StepInput) -> StepOutput:
        """Join what is new with what is there, and let go of what is too old."""
        (rows,) = given.frames
        if not self._tap.is_closed:
            time.sleep(rows.height * self._load.wait_us / MICROSECONDS)
        first = rows.filter(pl.col("is_first")).select("ts", "key", "value")
        second = rows.filter(~pl.col("is_first")).select("key", "value", joined="ts")
        known = pl.concat([*state.values(), first])
        age = pl.col("joined") - pl.col("ts")
        pairs = second.join(known, on="key", maintain_order="left_right", suffix="_first").filter(
            age.is_between(timedelta(0), timedelta(seconds=self._load.window_s))
        )
        total = pl.col("value") + pl.col("value_first")
        made = pairs.select(pl.col("joined").alias("ts"), "key", age=age, value=total).sort("ts", "key", "age")
        segments = {**state, f"{FIRST}/{given.batch}": first}
        kept = {name: frame for name, frame in segments.items() if self._needed(frame, given.watermark_us)}
        return StepOutput(kept, made)

    def _needed(self, rows: pl.DataFrame, watermark_us: int) -> bool:
        """Whether rows to come may be joined with some of a segment."""
        if not rows.height or watermark_us == NO_WATERMARK_US:
            return bool(rows.height)
        return int(event_times(rows, "ts").max()) + self._load.window_s * MICROSECONDS >= watermark_us


def joined(seed: int, load: Load, tap: Tap) -> Application:
    """The application; the run says where results go."""
    topology = Topology("joined")
    rows = topology.source(TUPLES, elements(seed, load.rate, pace=Pace(rows=load.rows)))
    pair = pl.col("sequence") // 2
    tagged = rows.filter(pair % LEFT_OUT != 0, name=FILTER).with_columns(
        key=pair % KEYS, is_first=pl.col("sequence") % 2 == 0
    )
    together = tagged.key_by("key").apply(Joined(load, tap), parallelism=2, name=JOIN)
    together.output(PAIRS, parquet(Path(PAIRS)))
    return topology.build()


def places(graph: TaskGraph, nodes: Sequence[Node], _limits: Mapping[str, float]) -> Placement:
    """What filters on the first node, of the join a task on each of the others."""
    others = nodes[1:] or nodes
    homes = {
        task: others[task.index % len(others)].name if task.operator in (JOIN, PAIRS) else nodes[0].name
        for task in graph.tasks(range(len(graph)))
    }
    return Placement(homes, {})
