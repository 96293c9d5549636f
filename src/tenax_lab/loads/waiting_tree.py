"""The tree of merges with tasks that wait for their rows: nodes can be lost on a machine with fewer cores than nodes.

sources (16) --> o1 (8) --> o2 (4) --> o3 (2) --> o4 (1) --> results (1)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from tenax.application.application import Application
from tenax.application.schemas import with_schemas
from tenax.connectors.generators import Pace
from tenax.connectors.parquet import parquet
from tenax.connectors.source import Limits, NothingNew, Planned, Source
from tenax.connectors.workloads import elements
from tenax.operators.computation import Computation
from tenax.operators.stateless import Stateless
from tenax.store.records import Json
from tenax_lab.loads.layered import KEYS, MICROSECONDS, Waiting
from tenax_lab.loads.tree import RESULTS, SOURCES, WIDTHS, tree_topology


@dataclass(frozen=True, slots=True)
class Waits:
    """The rows of a batch, and how long a merge waits for each: half of them go on, so that all merges wait as long."""

    batch_rows: int
    wait_us: int

    @property
    def step_s(self) -> float:
        """What a merge waits for a batch."""
        return self.batch_rows / WIDTHS[1] * self.wait_us / MICROSECONDS


class Keyed(Source):
    """So many batches of elements with a key."""

    def __init__(self, seed: int, batch_rows: int, batches: int) -> None:
        self._rows = elements(seed, batch_rows, pace=Pace(rows=batches * batch_rows))
        self.time, self.lateness_us, self.bounded = self._rows.time, self._rows.lateness_us, True

    def schema(self) -> pl.Schema | None:
        """That of its rows."""
        return self.read(0, [0, 0, 1]).schema

    def plan(self, position: Json, partitions: int, limits: Limits, now_us: int) -> Planned | NothingNew:
        """The next rows."""
        return self._rows.plan(position, partitions, limits, now_us)

    def read(self, partition: int, planned: Json) -> pl.DataFrame:
        """The rows of a range."""
        rows = self._rows.read(partition, planned)
        return rows.select(self.time, (pl.col("sequence") % KEYS).alias("key"))


def waiting_tree(seed: int, load: Waits, batches: int) -> Application:
    """Counts by key at every merge, of so many batches; the run says where results go."""
    merges: dict[str, Computation] = {
        f"o{height}": Waiting(load.wait_us) for height, _ in enumerate(WIDTHS[1:], start=1)
    }
    sources: dict[str, Source] = {SOURCES: Keyed(seed, load.batch_rows, batches)}
    computations = {**merges, RESULTS: Stateless(())}
    return with_schemas(Application(tree_topology(), sources, computations, {RESULTS: parquet(Path(RESULTS))}))
