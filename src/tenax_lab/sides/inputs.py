"""Input files that all sides read: locations and reports of cars on road segments, seeded."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

import numpy as np
import polars as pl

START_US = 1_704_067_200_000_000  # 2024-01-01
BATCH_US = 1_000_000  # the event time that a batch covers: one slide of the windows
KINDS = ("locations", "reports")
COLUMNS: Mapping[str, Mapping[str, pl.DataType]] = {
    "locations": {"ts": pl.Datetime("us"), "segment": pl.Int64(), "speed": pl.Float64()},
    "reports": {"ts": pl.Datetime("us"), "segment": pl.Int64()},
}
"""The columns of each kind, where segments are numbers."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How much input there is: so many batches, each with one file of equal size for each partition.

    Segments are numbers, or `named` by texts.
    """

    batches: int
    batch_rows: int
    segments: int
    partitions: int = 2
    _: KW_ONLY
    named: bool = False

    @property
    def file_rows(self) -> int:
        """The rows of one file."""
        return self.batch_rows // self.partitions


def write_inputs(folder: Path, seed: int, shape: Shape, kinds: Sequence[str] = KINDS) -> None:
    """Write the files of these kinds, in the order of event times, names and modification times alike."""
    for kind in kinds:
        place = KINDS.index(kind)
        (folder / kind).mkdir(parents=True)
        for number in range(shape.batches * shape.partitions):
            random = np.random.default_rng((seed, place, number))
            begin = START_US + number // shape.partitions * BATCH_US
            times = np.sort(random.integers(0, BATCH_US, shape.file_rows)) + begin
            segments = pl.Series(random.integers(0, shape.segments, shape.file_rows))
            columns = {
                "ts": pl.Series(times).cast(pl.Datetime("us")),
                "segment": "segment " + segments.cast(pl.String).str.zfill(8) if shape.named else segments,
            }
            if kind == "locations":
                # eighths add up without rounding, so that every order of adding gives the same mean
                columns["speed"] = pl.Series(random.integers(80, 960, shape.file_rows) / 8)
            path = folder / kind / file_name(number)
            pl.DataFrame(columns).write_parquet(path)
            os.utime(path, (number, START_US // 1_000_000 + number))  # Spark takes files in this order


def file_name(number: int) -> str:
    """The name of a file: sorted names are in the order of numbers."""
    return f"part-{number:06d}.parquet"


class Schedule(threading.Thread):
    """Lets the files of one batch after the other appear in another folder, at even intervals.

    `appeared_s` has, on the clock of `time.time`, when each batch was complete.
    """

    def __init__(
        self, inputs: Path, folder: Path, shape: Shape, interval_s: float, kinds: tuple[str, ...] = KINDS
    ) -> None:
        super().__init__(daemon=True)
        self.inputs, self.folder, self.shape, self.interval_s, self.kinds = inputs, folder, shape, interval_s, kinds
        self.appeared_s: list[float] = []
        for kind in kinds:
            (folder / kind).mkdir(parents=True)

    def run(self) -> None:
        """Link the files, batch by batch."""
        start = time.monotonic()
        for batch in range(self.shape.batches):
            time.sleep(max(0.0, start + batch * self.interval_s - time.monotonic()))
            for number in range(batch * self.shape.partitions, (batch + 1) * self.shape.partitions):
                for kind in self.kinds:
                    os.link(self.inputs / kind / file_name(number), self.folder / kind / file_name(number))
            self.appeared_s.append(time.time())
