"""The side of plain Polars: each query as one lazy computation over all files, in one process, without streaming."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from tenax.store.records import JsonObject, integer, items, text
from tenax_lab.lab import Row
from tenax_lab.sides.sides import Step, serve

SLIDE_US = 1_000_000
PANES = 10


def measure(arguments: JsonObject, step: Step) -> Iterator[Row]:
    """The seconds that each query takes, files to file."""
    work, inputs = Path(text(arguments, "work")), Path(text(arguments, "inputs"))
    work.mkdir(parents=True, exist_ok=True)
    for query in items(arguments["queries"]):
        name = str(query)
        for _ in range(integer(arguments, "repeats")):
            started = time.perf_counter()
            windowed(name, inputs).collect(engine="streaming").write_parquet(work / f"{name}.parquet")
            yield {"query": name, "seconds": time.perf_counter() - started}
        step(f"plain Polars, {name}")


def windowed(query: str, inputs: Path) -> pl.LazyFrame:
    """Means per segment and window, or those joined with the number of reports of the same segment and window."""
    speed = pl.col("speed")
    means = _per_window(inputs / "locations", [speed.sum(), speed.count().alias("count")]).select(
        "segment", (speed / pl.col("count")).alias("speed"), "window_end"
    )
    if query == "means":
        return means
    counts = _per_window(inputs / "reports", [pl.len().cast(pl.Int64).alias("reports")])
    return means.join(counts, on=["segment", "window_end"])


def _per_window(folder: Path, aggregates: list[pl.Expr]) -> pl.LazyFrame:
    """Aggregates per pane, then added up for every window that a pane is part of."""
    pane = (pl.col("ts").dt.epoch("us") // SLIDE_US).alias("pane")
    panes = pl.scan_parquet(folder / "*.parquet").group_by("segment", pane).agg(aggregates)
    ends = panes.with_columns(pl.int_ranges(pl.col("pane") + 1, pl.col("pane") + 1 + PANES).alias("end"))
    names = [aggregate.meta.output_name() for aggregate in aggregates]
    summed = ends.explode("end").group_by("segment", "end").agg(pl.col(names).sum())
    return summed.with_columns((pl.col("end") * SLIDE_US).cast(pl.Datetime("us")).alias("window_end")).drop("end")


if __name__ == "__main__":
    serve(measure)
