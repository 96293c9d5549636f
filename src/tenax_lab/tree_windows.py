"""Windows over windows in a tree of merges, as paper 1 fails and measures it: what its experiments run.

sources (16) --> o1 (8) --> o2 (4) --> o3 (2) --> o4 (1) --> results (1)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from tenax.application.application import Application
from tenax.application.schemas import with_schemas
from tenax.connectors.parquet import parquet
from tenax.connectors.source import Limits, NothingNew, Planned, Source
from tenax.connectors.workloads import elements
from tenax.engine.driver import Driver
from tenax.engine.observer import Observer
from tenax.errors import InvalidSource
from tenax.model.topology import Input, Operator, Output, Partitioning, Topology
from tenax.operators.computation import Computation
from tenax.operators.event_time import WINDOW_END
from tenax.operators.stateless import Stateless
from tenax.operators.windows import windows
from tenax.store.records import Json

SOURCES, RESULTS = "sources", "results"
WIDTHS = (16, 8, 4, 2, 1)  # of the sources and of the windows above them
SLIDE = "1s"
SELECTIVITY = 0.5
MICROSECONDS = 1_000_000


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
      so do two tasks of each level to the next: half as many rows leave a task as enter it, as in the paper.
    - The clock decides when a batch comes, never what it holds; one that comes late does not delay the next.
    - After the last batch nothing comes, but it does not end: an end would close all windows at once, a hundred times
      the rows of a batch. `Ending` ends the run.
    """

    def __init__(self, seed: int, load: Load, arrival: Arrival) -> None:
        self._rows = elements(seed, load.rate * WIDTHS[0])
        self._load = load
        self._arrival = arrival
        self.time = self._rows.time
        self.lateness_us = self._rows.lateness_us
        self.bounded = False

    def plan(self, position: Json, partitions: int, limits: Limits, now_us: int) -> Planned | NothingNew:  # noqa: ARG002
        """The rows of the next span of event time, when it is due."""
        batch, due_us = (0, 0) if position is None else _position(position)
        if batch >= self._arrival.batches or now_us < due_us:
            return NothingNew()
        rows = self._load.batch_rows
        first, end = batch * rows, (batch + 1) * rows
        ranges = tuple([first + (one - first) % partitions, end, partitions] for one in range(partitions))
        batch += 1
        if batch >= self._arrival.at_once:
            due_us = (due_us or now_us) + round(self._arrival.interval_s * MICROSECONDS)
        return Planned(ranges, [batch, due_us], rows)

    def schema(self) -> pl.Schema | None:
        """That of no rows."""
        return self.read(0, [0, 0, 1]).schema

    def read(self, partition: int, planned: Json) -> pl.DataFrame:
        """The rows of a range."""
        rows = self._rows.read(partition, planned)
        sensor = pl.col("sequence") // WIDTHS[0] % self._load.rate
        return rows.select(self.time, sensor.alias("sensor"), "value")


class Ending(Observer):
    """Asks a driver to stop when all batches are final, as an observer of its run."""

    def __init__(self, arrival: Arrival) -> None:
        self._batches = arrival.batches
        self.driver: Driver | None = None

    def published(self, last: int, latencies_s: list[float]) -> None:  # noqa: ARG002
        """All results up to a batch are final."""
        if last >= self._batches and self.driver is not None:
            self.driver.request_stop()


def _position(position: Json) -> tuple[int, int]:
    match position:
        case [int() as batch, int() as due_us]:
            return batch, due_us
    raise InvalidSource(f"a position is a batch and a time, found {position!r}: is it another source's?")


def window_tree(seed: int, load: Load, arrival: Arrival) -> Application:
    """The tree as an application: how many readings each window has of a sensor, and the highest."""
    topology = tree_topology(load)
    length = f"{load.window_s}s"
    highest = pl.col("value").max()
    levels = [operator.name for operator in topology.operators if not operator.is_source and operator.name != RESULTS]
    first = windows("ts", ("sensor",), length, SLIDE, (pl.len().alias("readings"), highest))
    above = windows(WINDOW_END, ("sensor",), length, SLIDE, (pl.col("readings").sum(), highest))
    computations: dict[str, Computation] = dict.fromkeys(levels, above)
    application = Application(
        topology,
        {SOURCES: Readings(seed, load, arrival)},
        {**computations, levels[0]: first, RESULTS: Stateless(())},
        {RESULTS: parquet(Path(RESULTS))},  # whoever runs it puts a folder of its own in place of it
    )
    return with_schemas(application)


def tree_topology(load: Load) -> Topology:
    """The tree with its rates: merges all of them, one task each above two."""
    operators = [Operator(SOURCES, WIDTHS[0], rate=float(WIDTHS[0] * load.rate))]
    for level, width in enumerate(WIDTHS[1:], start=1):
        below = Input(operators[-1].name, Partitioning.MERGE)
        operators.append(Operator(f"o{level}", width, (below,), selectivity=SELECTIVITY))
    last = Input(operators[-1].name, Partitioning.ONE_TO_ONE)
    return Topology("window-tree", (*operators, Operator(RESULTS, WIDTHS[-1], (last,), output=Output())))
