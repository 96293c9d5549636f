"""The queries of the comparison under failures: their input files, and what plain Polars makes of all of it."""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from tenax_lab.sides.inputs import BATCH_US, KINDS, START_US, Shape, file_name, write_inputs
from tenax_lab.sides.plain_polars import windowed

MEANS, MATCHES = "means", "matches"
EVENTS = "events"
ASKED = 50  # one row in so many is a click
OLDEST = 1.1  # clicks are for advertisements up to so many windows old: a few find theirs gone
TIMES = pl.Datetime("us")
SCHEMAS: dict[str, dict[str, pl.DataType]] = {
    "locations": {"ts": TIMES, "segment": pl.Int64(), "speed": pl.Float64()},
    EVENTS: {"ts": TIMES, "ad": pl.String(), "click": pl.Boolean(), "text": pl.String()},
}


@dataclass(frozen=True, slots=True)
class Query:
    """What all sides compute, over a window of so many seconds.

    - `means`: the mean of each key over the last seconds, one every second. Its state is small.
    - `matches`: every click with the advertisement that was shown for it within the window. Its state is all
      advertisements of the window, each of `row_bytes`, and every second a few are asked for.
    """

    name: str
    window_s: int
    row_bytes: int = 0

    @property
    def kinds(self) -> tuple[str, ...]:
        """The folders of input files."""
        return KINDS if self.name == MEANS else (EVENTS,)

    @property
    def time(self) -> str:
        """The column of results that tells how far they are."""
        return "window_end" if self.name == MEANS else "clicked"

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns of results that tell rows apart, in the order in which they are sorted."""
        return (self.time, "segment") if self.name == MEANS else (self.time, "ad")

    @property
    def sentence(self) -> str:
        """For those who read the figure."""
        if self.name == MEANS:
            return f"mean per key over windows of {self.window_s} s, one every 1 s"
        return (
            f"clicks, each joined with the advertisement of {self.row_bytes:,} bytes that was shown for it in the "
            f"{self.window_s} s before"
        )

    def write(self, folder: Path, seed: int, shape: Shape) -> None:
        """Write the input of all seconds."""
        if self.name == MEANS:
            write_inputs(folder, seed, shape)
        else:
            _write_matches(folder, seed, shape, self)

    def expected(self, folder: Path) -> pl.DataFrame:
        """The results of all input."""
        if self.name == MEANS:
            return windowed(MEANS, folder).collect()
        events = pl.scan_parquet(folder / EVENTS / "*.parquet")
        clicks = events.filter("click").select("ad", clicked="ts")
        age = pl.col("clicked") - pl.col("ts")
        pairs = clicks.join(events.filter(~pl.col("click")), on="ad")
        in_time = pairs.filter(age.is_between(timedelta(0), timedelta(seconds=self.window_s)))
        return in_time.select("ad", "clicked", "ts", "text").collect(engine="streaming")


def _write_matches(folder: Path, seed: int, shape: Shape, query: Query) -> None:
    """Files of advertisements and clicks, in the order of event times, names and modification times alike."""
    (folder / EVENTS).mkdir(parents=True)
    rows = shape.file_rows
    clicks = max(1, rows // ASKED)
    for number in range(shape.batches * shape.partitions):
        second = number // shape.partitions
        random = np.random.default_rng((seed, number))
        ages = random.uniform(2.0, OLDEST * query.window_s, clicks)
        asked_for = ((second - ages) * shape.batch_rows).astype(np.int64) + random.integers(0, shape.batch_rows, clicks)
        numbers = np.arange(rows) + number * rows
        click = np.zeros(rows, dtype=np.bool_)
        click[random.choice(rows, clicks, replace=False)] = True
        numbers[click] = asked_for
        columns = {
            "ts": pl.Series(np.sort(random.integers(0, BATCH_US, rows)) + START_US + second * BATCH_US).cast(TIMES),
            "ad": _names(numbers),
            "click": pl.Series(click),
            "text": _texts(random, query, rows),
        }
        path = folder / EVENTS / file_name(number)
        table = pl.DataFrame(columns).with_columns(pl.when(~pl.col("click")).then("text").alias("text"))
        table.write_parquet(path, compression="uncompressed")
        os.utime(path, (number, START_US // BATCH_US + number))  # Spark takes files in this order


def _names(numbers: npt.NDArray[np.int64]) -> pl.Series:
    """Names of advertisements; those from before the first have names, too, and were never shown."""
    return pl.Series(numbers).cast(pl.String).str.zfill(12)


def _texts(random: np.random.Generator, query: Query, count: int) -> pl.Series:
    """Texts that hardly shrink when they are compressed."""
    letters = base64.b64encode(random.bytes(count * query.row_bytes)).decode()
    return pl.Series([letters[place * query.row_bytes : (place + 1) * query.row_bytes] for place in range(count)])
