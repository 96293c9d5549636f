"""The chain of eight elements on four nodes, as Gu et al. 2009 protect and fail it.

node 1        node 2        node 3        node 4
pe1 ─▶ pe2 ─▶ pe3 ─▶ pe4 ─▶ pe5 ─▶ pe6 ─▶ pe7 ─▶ pe8
source        means of the values of each group, one row out for one row in           output
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from tenax.api.streams import Topology
from tenax.application.application import Application
from tenax.connectors.generators import Pace
from tenax.connectors.parquet import parquet
from tenax.connectors.workloads import elements
from tenax.engine.protection import Protected, planned
from tenax.examples.apps.elements import RunningMean
from tenax.model.protection import Protection
from tenax.model.settings import Settings
from tenax.model.tasks import Task

NODES = 4
OUTPUT = "pe8"
STATEFUL = range(3, 8)  # pe3 to pe7
PROTECTED = tuple(f"pe{number}" for number in range(2, 9))
# Tasks that retain end a chain, and their consumers go to another node: so there are two elements on each node.
CUTS = tuple(Task(name, 0) for name in ("pe2", "pe4", "pe6"))
BATCHES_PER_S = 6  # of event time: at the paper's 3,000 elements/s a batch has 500
CLUSTER = f"local-cluster[{NODES},2,1024], 8 tasks, 2 on each node"


@dataclass(frozen=True, slots=True)
class Load:
    """So many rows in each batch; an element with a state keeps one row for each of the groups."""

    batches: int
    batch_rows: int
    groups: int = 20

    @property
    def rows(self) -> int:
        """All of them."""
        return self.batches * self.batch_rows


def chain(seed: int, load: Load, *, rate: float = 3_000, paced: bool = False, parallelism: int = 1) -> Application:
    """The chain as a user writes it; the run says where results go."""
    topology = Topology("elements")
    pace = Pace(rows=load.rows, paced=paced)
    stream = topology.source("pe1", elements(seed, rate, pace=pace), partitions=parallelism)
    stream = stream.with_columns((pl.col("sequence") % load.groups).alias("group"), name="pe2")
    for number in STATEFUL:
        stream = stream.key_by("group").apply(RunningMean(), name=f"pe{number}")
    stream.output(OUTPUT, parquet(Path(OUTPUT)))
    return topology.build()


def chain_settings(protection: Protection, load: Load) -> Settings:
    """One batch in each pass, as fast as passes go."""
    return Settings(protection=protection).but(
        nodes=NODES,
        batch="0s",
        max_rows=load.batch_rows,
        max_batches_per_pass=1,
        max_batches_per_round=1,
        max_batches_ahead=17,
        max_unpublished=17,
    )


def chain_plan(application: Application, protection: Protection, *, cut: bool = True) -> Protected:
    """What is planned for the chain, which is cut into four parts or left as it is placed."""
    plan = planned(application.topology, protection)
    return replace(plan, retain=CUTS) if cut else plan
