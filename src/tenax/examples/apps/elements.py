"""A chain of eight tasks that pass on every element, most of them with a small state by key.

    pe1 (source) --> pe2 --> pe3 --> pe4 --> pe5 --> pe6 --> pe7 --> pe8 (output)

Run it with `tenax run examples/apps/elements.py`. The command executes this file and calls `build` with the
arguments that follow the file (`rows=50000`); a file without `build` has a topology called `topology` instead.
The results are a folder of Parquet files.

It also shows an operator of one's own: subclass `tx.KeyedComputation`, say what the state of a key looks like, and
write one pure function from rows and state to rows and changes.
"""

from pathlib import Path

import polars as pl

import tenax as tx

GROUPS = 16


class RunningMean(tx.KeyedComputation):
    """Puts the mean of all values that its group has had so far in place of each value."""

    keys = ("group",)
    state_schema = pl.Schema({"group": pl.Int64, "seen": pl.Int64, "total": pl.Float64})
    any_batches = True  # it goes by the order of elements, not by where batches are cut

    def step_keys(
        self,
        rows: pl.DataFrame,
        state: pl.DataFrame,
        watermark_us: int,  # noqa: ARG002
    ) -> tuple[pl.DataFrame, tx.Changes]:
        """One batch: `state` has a row for each group of the batch that was seen before."""
        known = rows.join(state, on="group", how="left", maintain_order="left").with_columns(
            seen=pl.col("seen").fill_null(0) + pl.col("group").cum_count().over("group"),
            total=pl.col("total").fill_null(0.0) + pl.col("value").cum_sum().over("group"),
        )
        changed = known.group_by("group", maintain_order=True).agg(pl.col("seen", "total").last())
        means = known.with_columns(value=pl.col("total") / pl.col("seen")).select(rows.columns)
        return means, tx.Changes(upserts=changed)


def build(
    rows: int = 180_000,
    rate: float = 3_000,
    parallelism: int = 1,
    folder: str = "out/elements",
    paced: bool = False,
) -> tx.Topology:
    """A minute of elements; a parallelism that divides 16 keeps each group's elements in order."""
    topology = tx.Topology("elements")
    pace = tx.Pace(rows=rows, paced=paced)
    stream = topology.source("pe1", tx.elements(rate=rate, pace=pace), partitions=parallelism)
    stream = stream.with_columns((pl.col("sequence") % GROUPS).alias("group"), name="pe2")
    for number in range(3, 8):
        stream = stream.key_by("group").apply(RunningMean(), name=f"pe{number}")
    stream.output("pe8", tx.parquet(Path(folder, "elements")))
    return topology
