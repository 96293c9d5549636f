"""Seeded generators: every row is a function of the seed and its number, so any range can be read alone."""

from __future__ import annotations

import functools
from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import polars as pl

from tenax.connectors.source import ONLY_PLANNED, Limits, NothingNew, Planned, Source
from tenax.errors import InvalidSource
from tenax.model.durations import Span, as_text, microseconds
from tenax.store.records import Json

Rows = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint64]

START_US = 1_704_067_200_000_000  # the event time of row 0: 2024-01-01
MAX_ROWS = 1 << 40
_WEIGHT = 1 << 32  # of the commonest item; whole weights give the same choices on every machine


@dataclass(frozen=True, slots=True)
class Pace:
    """How a generator's rows come: all at once or as the clock goes, and how many.

    - `rows` bounds the source; none means that it never ends.
    - `paced` rows become available as the clock passes, as if the first plan had been made at the time of row 0.
    - `disorder` puts event times back by up to that much, row by row; `lateness` is how late rows may be.
    - A partition of a paced source is idle when it had no rows for `idle_after`; None means never.
    """

    rows: int | None = None
    paced: bool = False
    disorder: Span = "0s"
    lateness: Span = "0s"
    idle_after: Span | None = "10s"

    @property
    def disorder_us(self) -> int:
        """By how much event times are put back at most."""
        return microseconds(self.disorder)

    @property
    def lateness_us(self) -> int:
        """How late rows may be."""
        return microseconds(self.lateness)

    @property
    def idle_after_us(self) -> int | None:
        """After how long without rows a partition is idle; None if never, as where all rows are there at once."""
        return None if self.idle_after is None or not self.paced else microseconds(self.idle_after)

    def __post_init__(self) -> None:
        for name in ("disorder", "lateness", "idle_after"):  # as text: a store compares parameters as they are written
            length: Span | None = getattr(self, name)
            object.__setattr__(self, name, None if length is None else as_text(length))
        if self.rows is not None and not isinstance(self.rows, int):
            raise InvalidSource(f"rows of a generator are a whole number, found {self.rows!r}: write rows=1000")
        for name, value in (("rows", self.rows or 0), ("disorder", self.disorder_us), ("lateness", self.lateness_us)):
            if not 0 <= value < MAX_ROWS:
                raise InvalidSource(f"{name} of a generator is 0 to {MAX_ROWS:,}, found {value}: correct it")


class Generator(Source):
    """A source whose rows are computed from the seed and their numbers.

    - Rows are dealt to the partitions in turn, so that the rows do not depend on how many there are.
    - A range is [first row, end, step], as Python's `range` takes it.
    - `times` rises with the row number; disorder is put on top of it.
    """

    time = "ts"
    row_bytes = 32  # a rough size of a row
    only_planned = ONLY_PLANNED | {"pace.rows", "pace.paced", "pace.idle_after"}

    def __init__(self, seed: int, pace: Pace) -> None:
        self.seed = seed
        self.pace = pace
        self.lateness_us = pace.lateness_us
        self.bounded = pace.rows is not None
        self.endless = not (self.bounded or pace.paced)
        self.idle_after_us = pace.idle_after_us

    def plan(self, position: Json, partitions: int, limits: Limits, now_us: int) -> Planned | NothingNew:
        """The next rows that are there, dealt to the partitions."""
        first, began_us = (0, now_us) if position is None else _position(position)
        total = MAX_ROWS if self.pace.rows is None else self.pace.rows
        there = min(total, self._available(now_us - began_us, total)) if self.pace.paced else total
        end = min(there, first + limits.rows, first + max(1, limits.bytes // self.row_bytes))
        if end <= first and position is not None:
            return NothingNew(ended=first >= total)
        ranges = tuple([first + (partition - first) % partitions, end, partitions] for partition in range(partitions))
        quiet = tuple(partition for partition, planned in enumerate(ranges) if not range(*planned))
        return Planned(ranges, [end, began_us], end - first, ended=end >= total, quiet=quiet, more=end < there)

    def schema(self) -> pl.Schema | None:
        """That of no rows, unless a generator has costly tables and says it itself."""
        return self.read(0, [0, 0, 1]).schema

    def read(self, partition: int, planned: Json) -> pl.DataFrame:  # noqa: ARG002
        """Compute the rows of a range."""
        match planned:
            case [int() as first, int() as end, int() as step]:
                rows = np.arange(first, max(first, end), step, dtype=np.int64)
            case _:
                raise InvalidSource(f"a generator's range is [first, end, step], found {planned!r}: another source's?")
        times = self.times(rows)
        if self.pace.disorder_us:
            times = times - below(bits(self.seed, "disorder", rows), self.pace.disorder_us + 1)
        stamps = pl.Series("ts", times + START_US).cast(pl.Datetime("us"))
        return pl.DataFrame([stamps, *self.columns(rows, times)])

    @abstractmethod
    def times(self, rows: Rows) -> Rows:
        """Event times in microseconds after row 0."""

    @abstractmethod
    def columns(self, rows: Rows, times: Rows) -> list[pl.Series]:
        """The other columns."""

    def _available(self, elapsed_us: int, total: int) -> int:
        """How many rows have event times up to now, by halving."""
        low, high = 0, total
        while low < high:  # at most 40 turns
            middle = (low + high) // 2
            if int(self.times(np.array([middle], dtype=np.int64))[0]) <= elapsed_us:
                low = middle + 1
            else:
                high = middle
        return low


class Rate:
    """Even event times at so many rows a second, exact for any fraction with a denominator up to 1,000."""

    def __init__(self, rows_per_s: float) -> None:
        rate = Fraction(rows_per_s).limit_denominator(1_000) if rows_per_s > 0 else Fraction(0)
        if not 0 < rate <= 1_000_000_000:
            raise InvalidSource(f"a rate is 0.001 to 1,000,000,000 rows/s, found {rows_per_s}: correct it")
        self._rows, self._period_us = rate.numerator, rate.denominator * 1_000_000

    def times(self, rows: Rows) -> Rows:
        """When each row comes, in microseconds after row 0."""
        # In two parts, for rows × period would pass 64 bits.
        return rows // self._rows * self._period_us + rows % self._rows * self._period_us // self._rows


class Zipf:
    """Items 0, 1, ... of which item r is chosen with a weight of (r + 1)^−exponent."""

    def __init__(self, items: int, exponent: float) -> None:
        if items < 1 or exponent < 0:
            raise InvalidSource(f"a Zipf law has items and an exponent of at least 0, found {items} and {exponent}")
        weights = np.maximum(1, np.rint(_WEIGHT * np.arange(1, items + 1, dtype=np.float64) ** -exponent))
        self._ends = np.cumsum(weights.astype(np.int64))

    def choose(self, random: Bits) -> Rows:
        """An item for each random number, by bisection: O(log items) each."""
        return np.searchsorted(self._ends, below(random, int(self._ends[-1])), side="right").astype(np.int64)


@functools.lru_cache(maxsize=64)
def zipf(items: int, exponent: float) -> Zipf:
    """A Zipf law; its table is built once per process."""
    return Zipf(items, exponent)


def bits(seed: int, purpose: str, rows: Rows) -> Bits:
    """64 random bits for each row, by SplitMix64 (Steele, Lea, Flood 2014) at the position of the row: O(rows).

    Independent for each seed and purpose: both are hashed into where the sequence starts.
    """
    start = seed & (2**64 - 1)
    for letter in purpose.encode():
        start = _mix_one(start ^ letter)
    state = (rows.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(start)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def below(random: Bits, bound: int) -> Rows:
    """Whole numbers from 0 to below the bound; the bias is below bound / 2^64."""
    return (random % np.uint64(bound)).astype(np.int64)


def fraction(random: Bits) -> npt.NDArray[np.float64]:
    """Numbers from 0 to below 1."""
    return (random >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix_one(state: int) -> int:
    state = (state + 0x9E3779B97F4A7C15) % 2**64
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB % 2**64
    return state ^ (state >> 31)


def _position(position: Json) -> tuple[int, int]:
    match position:
        case [int() as first, int() as began_us]:
            return first, began_us
    raise InvalidSource(f"a generator's position is [next row, start], found {position!r}: is it another source's?")
