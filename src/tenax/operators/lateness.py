"""Which rows of a source partition come too late, decided once, row by row, from the data alone, and how late."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from tenax.operators.computation import NO_WATERMARK_US
from tenax.operators.event_time import check_time

PER_DOUBLING = 4  # buckets: a lateness that is advised is at most a fifth more than what was needed
KEPT_SHARE = 0.999  # of all rows, by the lateness that is advised


@dataclass(frozen=True, slots=True)
class Overdue:
    """How late late rows were: what lateness each would have needed.

    Bucket b counts the rows that needed up to 2^(b/4) µs, and more than the bucket before it has. `most_us` is what the
    latest of them needed.
    """

    buckets: Mapping[int, int] = field(default_factory=dict)
    most_us: int = 0

    @classmethod
    def of(cls, needed_us: npt.NDArray[np.int64]) -> Overdue:
        """Count; cost: proportional to the rows."""
        if not needed_us.size:
            return cls()
        needed = np.maximum(needed_us, 1).astype(np.float64)
        numbers = np.ceil(PER_DOUBLING * np.log2(needed)).astype(np.int64)
        numbers += 2.0 ** (numbers / PER_DOUBLING) < needed  # where the logarithm was rounded down
        buckets, counts = np.unique(numbers, return_counts=True)
        return cls(dict(zip(buckets.tolist(), counts.tolist(), strict=True)), int(needed_us.max()))

    def and_also(self, other: Overdue) -> Overdue:
        """Both together."""
        together = Counter(dict(self.buckets))
        together.update(dict(other.buckets))
        return Overdue(dict(sorted(together.items())), max(self.most_us, other.most_us))

    def would_keep(self, rows: int) -> tuple[int, float]:
        """A lateness, and at least which share of so many rows it would have kept: 99.9 %, or all if most were kept.

        The end of a bucket is taken, so that what is said is true of every row in it.
        """
        over, spare = 0, math.floor(rows * (1.0 - KEPT_SHARE))
        if sum(self.buckets.values()) <= spare:
            return self.most_us, 1.0
        for number in sorted(self.buckets, reverse=True):
            if over + self.buckets[number] > spare:
                return min(self.most_us, math.ceil(2.0 ** (number / PER_DOUBLING))), 1.0 if not over else KEPT_SHARE
            over += self.buckets[number]
        return self.most_us, 1.0


@dataclass(frozen=True, slots=True)
class Admission:
    """The rows of a partition's batch, told apart, and what the partition knows of time after it.

    `maximum_us` is the latest event time read so far; the watermark lies the allowed lateness before it.
    """

    on_time: pl.DataFrame
    late: pl.DataFrame
    maximum_us: int
    watermark_us: int
    overdue: Overdue = field(default_factory=Overdue)


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
    overdue = Overdue.of((latest[:-1] - times)[late & ~missing])
    return Admission(rows.filter(~late), rows.filter(late), int(latest[-1]), int(bounds[-1]), overdue)


_UNITS = (("ms", 1_000), ("s", 1_000_000), ("m", 60_000_000), ("h", 3_600_000_000), ("d", 86_400_000_000))
_STEPS: Mapping[str, Iterable[int]] = {
    "ms": (1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 300, 500),
    "s": (1, 2, 3, 5, 10, 15, 20, 30, 45),
    "m": (1, 2, 3, 5, 10, 15, 20, 30, 45),
    "h": (1, 2, 3, 6, 12),
}


def readable(span_us: int) -> str:
    """The next span that people would write, as long or longer: "2s" for 1.7 s."""
    for unit, size in _UNITS[:-1]:
        for step in _STEPS[unit]:
            if step * size >= span_us:
                return f"{step}{unit}"
    unit, size = _UNITS[-1]
    return f"{-(-span_us // size)}{unit}"
