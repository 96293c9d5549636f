"""Rows that come faster and slower as the clock goes; tasks wait for each of them and keep a text for every key.

rows (2) --> lookups (n) --> found (n), the output
"""

from __future__ import annotations

import base64
import functools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from tenax.api.streams import Topology
from tenax.application.application import Application
from tenax.connectors.generators import Pace
from tenax.connectors.parquet import parquet
from tenax.connectors.source import Limits, NothingNew, Planned, Source
from tenax.connectors.workloads import elements
from tenax.operators.computation import Computation, Splits, State, StepInput, StepOutput
from tenax.store.records import Json
from tenax_lab.loads.layered import MICROSECONDS, NOT_YET, Tap
from tenax_lab.loads.tree import two_numbers

ROWS, LOOKUPS, FOUND = "rows", "lookups", "found"
PARTITIONS = 2
TICK_S = 0.05  # how finely a rhythm is counted
SLACK = 1e-6  # of a row, for sums of floats
SHOWN = 8  # letters of a text in each result
TEXTS, COUNTS = "texts", "counts"
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Rhythm:
    """How fast rows come: (second, rows a second) in order; between two of them the rate changes evenly."""

    points: tuple[tuple[float, float], ...]

    @classmethod
    def even(cls, rate: float, lasts_s: float) -> Rhythm:
        """Always alike."""
        return cls(((0.0, rate), (lasts_s, rate)))

    @classmethod
    def step(cls, rate: float, times: float, at_s: float, lasts_s: float) -> Rhythm:
        """So many times as fast from a moment on."""
        return cls(((0.0, rate), (at_s, rate), (at_s, times * rate), (lasts_s, times * rate)))

    @classmethod
    def day(cls, noon: float, times: float, lasts_s: float, points: int = 96) -> Rhythm:
        """From night to noon and back, as a cosine goes: at noon so many times as fast as at night."""
        low = noon / times
        turns = [place / points for place in range(points + 1)]
        rates = [low + (noon - low) * (1 - math.cos(2 * math.pi * turn)) / 2 for turn in turns]
        return cls(tuple((turn * lasts_s, rate) for turn, rate in zip(turns, rates, strict=True)))

    def until(self, at_s: float) -> Rhythm:
        """The beginning of it."""
        return Rhythm((*(point for point in self.points if point[0] < at_s), (at_s, self.rate(at_s))))

    @property
    def lasts_s(self) -> float:
        """How long rows come."""
        return self.points[-1][0]

    @property
    def total(self) -> int:
        """All rows."""
        return self.whole(self.lasts_s)

    def rate(self, at_s: float) -> float:
        """Rows a second at a moment."""
        seconds, rates = zip(*self.points, strict=True)
        return float(np.interp(at_s, seconds, rates))

    def rows(self, at_s: float) -> float:
        """How many have come by a moment."""
        ticks, counts = _counted(self.points)
        return float(np.interp(at_s, ticks, counts))

    def whole(self, at_s: float) -> int:
        """How many whole rows have come by a moment."""
        return int(self.rows(at_s) + SLACK)

    def after_s(self, rows: float) -> float:
        """When so many have come."""
        ticks, counts = _counted(self.points)
        return float(np.interp(rows, counts, ticks))


@functools.lru_cache(maxsize=8)
def _counted(points: tuple[tuple[float, float], ...]) -> tuple[Floats, Floats]:
    """Moments of a rhythm, and how many rows have come by each."""
    seconds, rates = (np.array(column) for column in zip(*points, strict=True))
    ticks = np.unique(np.concatenate([np.arange(0.0, seconds[-1], TICK_S), seconds]))
    middles = np.interp((ticks[1:] + ticks[:-1]) / 2, seconds, rates)
    return ticks, np.concatenate([[0.0], np.cumsum(middles * np.diff(ticks))])


@dataclass(frozen=True, slots=True)
class Load:
    """What comes, and what a task has to do for it: it waits `wait_us` for a row, and keeps a text for every key.

    One row of each key is there before any come by the clock, so that the state is whole by then.
    """

    rhythm: Rhythm
    wait_us: int
    keys: int = 2_000
    text_bytes: int = SHOWN

    @property
    def rows(self) -> int:
        """All rows."""
        return self.keys + self.rhythm.total


class VaryingRows(Source):
    """Rows with keys in turn: first one of each key, then those of a rhythm while a tap is open; then it ends."""

    def __init__(self, seed: int, load: Load, tap: Tap) -> None:
        self._load, self._tap = load, tap
        self._rows = elements(seed, 1_000, pace=Pace())
        self.time, self.lateness_us, self.bounded = self._rows.time, self._rows.lateness_us, True

    def schema(self) -> pl.Schema | None:
        """That of its rows."""
        return self.read(0, [0, 0, 1]).schema

    def plan(self, position: Json, partitions: int, limits: Limits, now_us: int) -> Planned | NothingNew:
        """The rows that have come since."""
        first, began_us = (0, NOT_YET) if position is None else two_numbers(position)
        there = before = self._load.keys
        if first >= before:
            if not self._tap.is_open:
                return NothingNew()
            began_us = now_us if began_us == NOT_YET else began_us
            there = before + self._load.rhythm.whole((now_us - began_us) / MICROSECONDS)
        end = min(there, first + limits.rows)
        if end <= first and began_us != now_us:
            return NothingNew(ended=first >= self._load.rows)
        ranges = tuple([first + (place - first) % partitions, end, partitions] for place in range(partitions))
        return Planned(ranges, [end, began_us], end - first, ended=end >= self._load.rows, more=end < there)

    def read(self, partition: int, planned: Json) -> pl.DataFrame:
        """The rows of a range."""
        rows = self._rows.read(partition, planned)
        return rows.select(self.time, (pl.col("sequence") % self._load.keys).alias("key"))


class Lookups(Computation):
    """Counts rows by key and gives each the beginning of the text of its key, which it has kept since the first one.

    While its tap is open it waits for every row, as a call to a service does: then it needs no processor, and more
    nodes do more on a machine with few cores. A replay afterwards does not wait.
    """

    splits = Splits.BY_KEY

    def __init__(self, load: Load, tap: Tap) -> None:
        self._load, self._tap = load, tap

    def schema(self, inputs: Sequence[pl.Schema]) -> pl.Schema:  # noqa: ARG002
        """Declared: one that follows from a step would wait."""
        return pl.Schema({"ts": pl.Datetime("us"), "key": pl.Int64(), "count": pl.Int64(), "text": pl.String()})

    def step(self, state: State, given: StepInput) -> StepOutput:
        """Wait for the rows of a batch, count them, look their texts up; make texts for keys that are new."""
        keys = given.frames[0].select("ts", "key")
        if self._tap.is_open and not self._tap.is_closed:
            time.sleep(keys.height * self._load.wait_us / MICROSECONDS)
        if not keys.height:
            return StepOutput(state, pl.DataFrame(schema=self.schema(())))
        more = pl.len().cast(pl.Int64).alias("more")
        counted = keys.group_by("key", maintain_order=True).agg(pl.col("ts").max(), more)
        kept = {name: frame for name, frame in state.items() if name.startswith(TEXTS)}
        known = pl.concat([frame.select("key") for frame in kept.values()] or [keys.select("key").clear()])
        new = counted.join(known, on="key", how="anti", maintain_order="left").get_column("key")
        if len(new):
            kept[f"{TEXTS}/{given.batch}"] = pl.DataFrame({"key": new, "text": texts(new, self._load.text_bytes)})
        before = [frame for name, frame in state.items() if name.startswith(COUNTS)]
        parts = [*before, counted.select("key", pl.col("more").alias("count"))]
        counts = pl.concat(parts).group_by("key", maintain_order=True).agg(pl.col("count").sum())
        heads = pl.concat([frame.select("key", pl.col("text").str.head(SHOWN)) for frame in kept.values()])
        touched = counted.select("ts", "key").join(counts, on="key", how="left", maintain_order="left")
        rows = touched.join(heads, on="key", how="left", maintain_order="left")
        return StepOutput({**kept, f"{COUNTS}/{given.batch}": counts}, rows)


def texts(keys: pl.Series, length: int) -> list[str]:
    """A text for every key, which hardly shrinks when it is compressed."""
    dice = (np.random.default_rng(key) for key in keys.to_list())
    return [base64.b64encode(each.bytes(-(-3 * length // 4))).decode()[:length] for each in dice]


def varying(seed: int, load: Load, tap: Tap, tasks: int) -> Application:
    """The application; the run says where results go."""
    topology = Topology("varying")
    rows = topology.source(ROWS, VaryingRows(seed, load, tap), partitions=PARTITIONS)
    looked_up = rows.key_by("key").apply(Lookups(load, tap), parallelism=tasks, time=None, name=LOOKUPS)
    looked_up.output(FOUND, parquet(Path(FOUND)))
    return topology.build()
