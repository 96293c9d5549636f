"""Windows over windows in a tree: every level is half as wide, looks back twice as far and has half as many rows.

    sources (16) --> o1 (8) --> o2 (4) --> o3 (2) --> o4 (1) --> tree (output)

Run it with `tenax run examples/apps/window_tree.py`. The command executes this file and calls `build` with the
arguments that follow the file (`rows=50000`); a file without `build` has a topology called `topology` instead.
The results are a folder of Parquet files.
"""

from pathlib import Path

import polars as pl

import tenax as tx

LENGTHS = ("1s", "2s", "4s", "8s")


def build(
    rows: int = 960_000,
    rate: float = 16_000,
    sources: int = 16,
    sensors: int = 64,
    folder: str = "out/window-tree",
    paced: bool = False,
) -> tx.Topology:
    """A minute of readings: their sum and the highest for each sensor, in windows of 1, 2, 4 and 8 s."""
    topology = tx.Topology("window-tree")
    pace = tx.Pace(rows=rows, paced=paced)
    readings = topology.source("sources", tx.elements(rate=rate, pace=pace), partitions=sources)
    stream = readings.select(
        "ts",
        (pl.col("sequence") % sensors).alias("sensor"),
        pl.col("value").alias("sum"),
        pl.col("value").alias("highest"),
    )
    for level, length in enumerate(LENGTHS, start=1):
        stream = (
            stream.key_by("sensor")
            .window(length)
            .aggregate(
                pl.col("sum").sum(),
                pl.col("highest").max(),
                parallelism=max(1, sources >> level),
                name=f"o{level}",
            )
        )
    stream.output("tree", tx.parquet(Path(folder, "tree")))
    return topology
