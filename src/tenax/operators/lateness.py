"""Which rows of a source partition come too late, decided once, row by row, from the data alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from tenax.operators.computation import NO_WATERMARK_US
from tenax.operators.event_time import check_time


@dataclass(frozen=True, slots=True)
class Admission:
    """The rows of a partition's batch, told apart, and what the partition knows of time after it.

    `maximum_us` is the latest event time read so far; the watermark lies the allowed lateness before it.
    """

    on_time: pl.DataFrame
    late: pl.DataFrame
    maximum_us: int
    watermark_us: int


def admit(rows: pl.DataFrame, time: str, maximum_us: int, allowed_us: int) -> Admission:
    """Tell the late rows of a batch from the others.

    A row is late if its time is before the latest time of all earlier rows of the partition, those of this batch too,
    less the allowed lateness; and if it has no time at all. `maximum_us` is NO_WATERMARK_US before the first row.
    So the split does not depend on where batches are cut. Cost: proportional to the rows.
    """
    check_time(rows, time)
    column = rows[time]
    missing = column.is_null().to_numpy() if column.null_count() else np.zeros(len(column), np.bool_)
    filled = column.to_physical().fill_null(NO_WATERMARK_US) if missing.any() else column
    times = filled.to_numpy().view(np.int64)
    latest = np.maximum.accumulate(np.concatenate([np.array([maximum_us], np.int64), times]))
    # the bound stays where it is when subtracting would pass the smallest number there is
    bounds = np.where(latest >= NO_WATERMARK_US + allowed_us, latest - allowed_us, NO_WATERMARK_US)
    late = (times < bounds[:-1]) | missing
    if not late.any():
        return Admission(rows, rows.clear(), int(latest[-1]), int(bounds[-1]))
    return Admission(rows.filter(~late), rows.filter(late), int(latest[-1]), int(bounds[-1]))
