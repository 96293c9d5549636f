"""The tree of merges that Su, Zhou 2016 fail and measure (their Figure 6), of windows over windows.

sources (16) --> o1 (8) --> o2 (4) --> o3 (2) --> o4 (1) --> results (1)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from tenax.application.application import Application
from tenax.application.schemas import with_schemas
from tenax.connectors.parquet import parquet
from tenax.connectors.source import Limits, NothingNew, Planned, Source
from tenax.connectors.workloads import elements
from tenax.errors import InvalidSource
from tenax.model.topology import Input, Operator, Output, Partitioning, Topology
from tenax.operators.computation import Computation
from tenax.operators.event_time import WINDOW_END
from tenax.operators.stateless import Stateless
from tenax.operators.windows import windows
from tenax.store.records import Json

SOURCES, RESULTS = "sources", "results"
WIDTHS = (16, 8, 4, 2, 1)  # of the sources and of the merges above them
SLIDE = "1s"
SELECTIVITY = 0.5
MAX_ROWS = 1 << 30  # a batch is a span of time, however many rows it has
SHAPE = f"{' > '.join(map(str, WIDTHS))} merges"


def tree_topology(rate: int | None = None) -> Topology:
    """The tree: merges all of them, one task each above two.

    With a `rate` of each source, rates are known and half as many rows leave a task as enter it.
    """
    sources = Operator(SOURCES, WIDTHS[0])
    operators = [sources if rate is None else replace(sources, rate=float(WIDTHS[0] * rate))]
    for height, width in enumerate(WIDTHS[1:], start=1):
        below = (Input(operators[-1].name, Partitioning.MERGE),)
        merge = Operator(f"o{height}", width, below)
        operators.append(merge if rate is None else replace(merge, selectivity=SELECTIVITY))
    last = Input(operators[-1].name, Partitioning.ONE_TO_ONE)
    return Topology("merge-tree", (*operators, Operator(RESULTS, WIDTHS[-1], (last,), output=Output())))


def _application(topology: Topology, source: Source, merges: Sequence[Computation]) -> Application:
    """The tree with what each of its merges computes; the run says where results go."""
    names = [operator.name for operator in topology.operators if not operator.is_source and operator.name != RESULTS]
    computations = dict(zip(names, merges, strict=True))
    sinks = {RESULTS: parquet(Path(RESULTS))}
    return with_schemas(Application(topology, {SOURCES: source}, {**computations, RESULTS: Stateless(())}, sinks))


@dataclass(frozen=True, slots=True)
class Load:
    """Tuples per second of each source, the length of all windows, and the event time that a batch holds."""

    rate: int
    window_s: int
    batch_s: int

    @property
    def batch_rows(self) -> int:
        """The rows of a batch, all sources together."""
        return WIDTHS[0] * self.rate * self.batch_s

    def batches(self, seconds: int) -> int:
        """How many batches hold so much event time."""
        return -(-seconds // self.batch_s)


@dataclass(frozen=True, slots=True)
class Arrival:
    """How batches come: `batches` in all, the first `at_once` of them at once, later ones every `interval_s`."""

    batches: int
    at_once: int
    interval_s: float = 0.0


class Readings(Source):
    """Readings of as many sensors as a source has tuples a second, in batches of equal event time.

    - Every source reads every sensor once a second. So two sources send a task two rows where it makes one of them, and
      so do two tasks of each merge to the next: half as many rows leave a task as enter it, as in the paper.
    - The clock decides when a batch comes, never what it holds; one that comes late does not delay the next.
    - After the last batch nothing comes, but it does not end: an end would close all windows at once, a hundred times
      the rows of a batch. A run is asked to end.
    """

    def __init__(self, seed: int, load: Load, arrival: Arrival) -> None:
        self._rows = elements(seed, load.rate * WIDTHS[0])
        self._load = load
        self._arrival = arrival
        self.time = self._rows.time
        self.lateness_us = self._rows.lateness_us
        self.bounded = False

    def schema(self) -> pl.Schema | None:
        """That of no rows."""
        return self.read(0, [0, 0, 1]).schema

    def plan(self, position: Json, partitions: int, limits: Limits, now_us: int) -> Planned | NothingNew:  # noqa: ARG002
        """The rows of the next span of event time, when it is due."""
        batch, due_us = (0, 0) if position is None else two_numbers(position)
        if batch >= self._arrival.batches or now_us < due_us:
            return NothingNew()
        rows = self._load.batch_rows
        first, end = batch * rows, (batch + 1) * rows
        ranges = tuple([first + (part - first) % partitions, end, partitions] for part in range(partitions))
        batch += 1
        if batch >= self._arrival.at_once:
            due_us = (due_us or now_us) + round(self._arrival.interval_s * 1_000_000)
        return Planned(ranges, [batch, due_us], rows)

    def read(self, partition: int, planned: Json) -> pl.DataFrame:
        """The rows of a range."""
        rows = self._rows.read(partition, planned)
        sensor = pl.col("sequence") // WIDTHS[0] % self._load.rate
        return rows.select(self.time, sensor.alias("sensor"), "value")


def two_numbers(position: Json) -> tuple[int, int]:
    """A position of a source that consists of two whole numbers."""
    match position:
        case [int() as first, int() as second]:
            return first, second
    raise InvalidSource(f"a position is two whole numbers, found {position!r}: is it another source's?")


def window_tree(seed: int, load: Load, arrival: Arrival) -> Application:
    """How many readings each window has of a sensor, and the highest, at every height of the tree."""
    length, highest = f"{load.window_s}s", pl.col("value").max()
    first = windows("ts", ("sensor",), length, SLIDE, (pl.len().alias("readings"), highest))
    above = windows(WINDOW_END, ("sensor",), length, SLIDE, (pl.col("readings").sum(), highest))
    merges = [first, *[above] * (len(WIDTHS) - 2)]
    return _application(tree_topology(load.rate), Readings(seed, load, arrival), merges)
