"""What is run to see what the engine costs: how much of it, and the applications."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from tenax.api.streams import Topology
from tenax.application.application import Application
from tenax.connectors.generators import Pace
from tenax.connectors.parquet import parquet
from tenax.connectors.workloads import elements, page_views
from tenax.engine.settings import MAX_ROWS

NODES = 2
TREE_WIDTHS = (8, 4, 2, 1)  # of windows over windows above 16 sources, as in the example window-tree: 31 tasks
TREE_SOURCES = 16
TREE_KEYS = 64
SIZES = ("full", "small")


@dataclass(frozen=True, slots=True)
class Load:
    """Windowed means of so many rows a batch, each batch 1 s of event time; `together` rows in a row share a key."""

    batches: int
    batch_rows: int
    keys: int
    length: str = "10s"
    every: str = "1s"
    together: int = 1
    warmup: int = 12
    """Batches before the state is as large as it will be."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured; growth is by name, the plain load and the larger one.

    Checkpoints are stored every 10 batches of the size that a run takes when there is enough to do; and of small ones.
    """

    passes: int
    rounds: int
    growth: Mapping[str, tuple[Load, Load]]
    checkpoints: tuple[Load, Load]
    soak_s: int


# Windows that stay open keep all keys; a batch touches 1,000 of them, whatever their number.
FULL = Plan(
    60,
    3,
    {
        "keys": (
            Load(80, 10_000, 4_000, "10h", "10h", 10, 40),
            Load(80, 10_000, 40_000, "10h", "10h", 10, 40),
        ),
        "window": (Load(160, 10_000, 100, "10s", warmup=104), Load(160, 10_000, 100, "100s", warmup=104)),
        "rows": (Load(60, 1_000, 100), Load(60, 100_000, 100)),
    },
    (Load(100, MAX_ROWS, 1_000, warmup=20), Load(200, 20_000, 1_000, warmup=20)),
    240,
)
QUICK = Plan(
    3,
    1,
    {
        "keys": (Load(16, 1_000, 200, "10h", "10h", 10, 8), Load(16, 1_000, 2_000, "10h", "10h", 10, 8)),
        "window": (Load(16, 500, 20, "1s", warmup=8), Load(16, 500, 20, "10s", warmup=8)),
        "rows": (Load(16, 100, 20, "2s", warmup=8), Load(16, 10_000, 20, "2s", warmup=8)),
    },
    (Load(24, 1_000, 100, "2s", warmup=4), Load(24, 500, 100, "2s", warmup=4)),
    4,
)
PLANS = {"full": FULL, "quick": QUICK}


def means(seed: int, load: Load, results: Path) -> Application:
    """The windowed mean per key of generated elements."""
    topology = Topology("means")
    pace = Pace(rows=load.batches * load.batch_rows)
    rows = topology.source("elements", elements(seed, load.batch_rows, pace=pace), partitions=NODES)
    keyed = rows.with_columns((pl.col("sequence") // load.together % load.keys).alias("key"))
    windowed = keyed.key_by("key").window(load.length, every=load.every)
    windowed.aggregate(pl.col("value").mean()).output("results", parquet(results))
    return topology.build()


def window_tree(seed: int, rows: int, results: Path) -> Application:
    """Windows over windows, each level half as wide and looking back twice as far."""
    topology = Topology("window-tree")
    views = page_views(seed, 1_000.0, servers=TREE_KEYS, pages=1_000, pace=Pace(rows=rows))
    stream = topology.source("sources", views, partitions=TREE_SOURCES)
    for level, width in enumerate(TREE_WIDTHS):
        windowed = stream.key_by("server").window(f"{2**level}s")
        stream = windowed.aggregate(pl.col("page").sum(), parallelism=width, name=f"o{level + 1}")
    stream.output("results", parquet(results))
    return topology.build()
