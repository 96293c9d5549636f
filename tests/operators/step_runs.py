"""Runs of computations for tests: batches drawn at random, the contract of a step watched, scenarios with a seed."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import polars as pl
from hypothesis import strategies as st

from tenax.operators.chunks import decode, encode
from tenax.operators.computation import END_WATERMARK_US, NO_WATERMARK_US, Computation, State, StepInput
from tenax.operators.custom import Changes, KeyedComputation
from tenax.operators.join import join
from tenax.operators.stateless import filter_rows, map_frames, with_columns
from tenax.operators.top import top
from tenax.operators.union import Union
from tenax.operators.windows import windows

SECOND = 1_000_000


@dataclass(frozen=True)
class Batch:
    frames: tuple[pl.DataFrame, ...]
    watermark_us: int


@dataclass(frozen=True)
class Run:
    outputs: list[pl.DataFrame]
    states: list[State]

    @property
    def rows(self) -> pl.DataFrame:
        return pl.concat(self.outputs)

    @property
    def most_segments(self) -> int:
        return max(len(state) for state in self.states)

    def digest(self) -> str:
        whole = hashlib.sha256()
        for output, state in zip(self.outputs, self.states, strict=True):
            whole.update(encode(output, 0))
            for name in sorted(state):
                whole.update(name.encode() + encode(state[name], 0))
        return whole.hexdigest()


def run(computation: Computation, batches: Sequence[Batch], *, restore: bool = False, watch: bool = True) -> Run:
    """Step through batches; with restore, the state and the inputs go through bytes before every step.

    Watching means to check that a step changes nothing it was given, and that a name stands for one content.
    """
    state: State = computation.initial()
    contents: dict[str, bytes] = {}
    result = Run([], [])
    for number, batch in enumerate(batches):
        frames = batch.frames
        if restore:
            state = {name: decode(encode(segment, 0))[0] for name, segment in state.items()}
            frames = tuple(decode(encode(frame, 0))[0] for frame in frames)
        before = fingerprint(state, frames) if watch else []
        output = computation.step(state, StepInput(frames, batch.watermark_us, number))
        assert not watch or fingerprint(state, frames) == before, "a step changed what it was given"
        state = output.state
        for name, segment in state.items() if watch else ():
            assert contents.setdefault(name, encode(segment, 0)) == encode(segment, 0), f"{name} changed"
        result.outputs.append(output.rows)
        result.states.append(state)
    assert len({tuple(output.schema.items()) for output in result.outputs}) == 1, "the columns changed"
    return result


def fingerprint(state: State, frames: Sequence[pl.DataFrame]) -> list[bytes]:
    return [name.encode() + encode(state[name], 0) for name in state] + [encode(frame, 0) for frame in frames]


def timed(rows: Sequence[tuple[object, ...]], schema: Mapping[str, type[pl.DataType]]) -> pl.DataFrame:
    """A frame with the time in microseconds in its column t."""
    frame = pl.DataFrame(rows, schema={"t": pl.Int64, **schema}, orient="row")
    return frame.with_columns(pl.col("t").cast(pl.Datetime("us")))


def watermarks(times: Sequence[Sequence[int]], slack: Sequence[int]) -> list[int]:
    """After each batch at most the smallest time still to come; everything is complete after the last."""
    result: list[int] = []
    for number in range(len(times) - 1):
        coming = [time for later in times[number + 1 :] for time in later]
        latest = (min(coming) if coming else END_WATERMARK_US) - slack[number] * SECOND // 2
        result.append(max([latest, *result[-1:]]) if slack[number] < 9 else (result[-1:] or [NO_WATERMARK_US])[0])
    return [*result, END_WATERMARK_US]


@st.composite
def cuts(draw: st.DrawFn, length: int, max_batches: int = 6) -> list[tuple[int, int]]:
    """Random batches of a sequence, empty ones too."""
    points = sorted(draw(st.lists(st.integers(0, length), max_size=max_batches - 1)))
    return list(zip([0, *points], [*points, length], strict=True))


QUARTERS = st.none() | st.integers(-40, 40).map(lambda number: number / 4)
TIMES = st.integers(-60, 120).map(lambda number: number * SECOND // 4) | st.integers(-9 * SECOND, 9 * SECOND)
ROWS = st.lists(st.tuples(TIMES, st.sampled_from(["a", "b", "ä", None]), st.integers(0, 1), QUARTERS), max_size=40)
ROW_SCHEMA: Mapping[str, type[pl.DataType]] = {"k": pl.String, "n": pl.Int64, "v": pl.Float64}


@st.composite
def row_batches(draw: st.DrawFn) -> tuple[pl.DataFrame, list[Batch]]:
    """Rows in a roughly rising order of time, and the same rows in batches with watermarks that keep their promise."""
    rows = draw(ROWS)
    if draw(st.booleans()):
        rows = sorted(rows, key=lambda row: row[0])
    pieces = [rows[start:end] for start, end in draw(cuts(len(rows)))]
    slack = draw(st.lists(st.integers(0, 9), min_size=len(pieces), max_size=len(pieces)))
    promised = watermarks([[row[0] for row in piece] for piece in pieces], slack)
    batches = [Batch((timed(piece, ROW_SCHEMA),), after) for piece, after in zip(pieces, promised, strict=True)]
    return timed(rows, ROW_SCHEMA), batches


@st.composite
def window_batches(draw: st.DrawFn, inputs: int) -> tuple[list[pl.DataFrame], list[Batch]]:
    """Streams of windows of 4 s that end every 2 s, whole and in batches."""
    cells = st.tuples(st.integers(-4, 8), st.sampled_from(["a", "b", None]), st.integers(-3, 3), QUARTERS)
    streams = [draw(st.lists(cells, max_size=25)) for _ in range(inputs)]
    count = draw(st.integers(1, 5))
    pieces: list[list[list[tuple[int, str | None, int, float | None]]]] = []
    for stream in streams:
        points = sorted(draw(st.lists(st.integers(0, len(stream)), min_size=count - 1, max_size=count - 1)))
        pieces.append([stream[a:b] for a, b in zip([0, *points], [*points, len(stream)], strict=True)])
    times = [[cell[0] * 2 * SECOND - 1 for piece in pieces for cell in piece[number]] for number in range(count)]
    promised = watermarks(times, draw(st.lists(st.integers(0, 9), min_size=count, max_size=count)))
    batches = [
        Batch(tuple(window_rows(piece[number]) for piece in pieces), promised[number]) for number in range(count)
    ]
    return [window_rows(stream) for stream in streams], batches


def window_rows(cells: Sequence[tuple[int, str | None, int, float | None]]) -> pl.DataFrame:
    frame = pl.DataFrame(
        cells, schema={"end": pl.Int64, **{"k": pl.String, "n": pl.Int64, "v": pl.Float64}}, orient="row"
    )
    end = (pl.col("end") * 2 * SECOND).cast(pl.Datetime("us"))
    return frame.select("k", "n", "v", (end - pl.duration(seconds=4)).alias("window_start"), end.alias("window_end"))


class Totals(KeyedComputation):
    """The running total of each key after each batch; a total of exactly 0 is forgotten."""

    keys = ("k", "n")
    state_schema = pl.Schema({"k": pl.String, "n": pl.Int64, "total": pl.Float64})

    def step_keys(self, rows: pl.DataFrame, state: pl.DataFrame, watermark_us: int) -> tuple[pl.DataFrame, Changes]:  # noqa: ARG002
        known = pl.concat([state, rows.select("k", "n", total=pl.col("v"))])
        totals = known.group_by("k", "n", maintain_order=True).agg(pl.col("total").sum())
        zero = pl.col("total") == 0
        return totals.sort("k", "n"), Changes(totals.filter(~zero), totals.filter(zero).select("k", "n"))


@cache
def scenarios() -> dict[str, tuple[Computation, list[Batch]]]:
    """Every computation over the same thousands of rows, with floats whose sums depend on their order."""
    draw = np.random.default_rng(20)
    batches: list[Batch] = []
    results: list[Batch] = []
    for number in range(12):
        size = 0 if number == 5 else 400
        times = np.sort(draw.integers(0, 5 * SECOND, size)) + number * 4 * SECOND - 20 * SECOND
        frame = pl.DataFrame(
            {
                "t": times,
                "k": pl.Series(
                    [None if number == 7 else f"key {number} of thirty" for number in draw.integers(0, 30, size)],
                    dtype=pl.String,
                ),
                "n": draw.integers(0, 2, size),
                "v": pl.Series(
                    [None if number > 2 else number for number in draw.normal(0, 1, size) ** 3], dtype=pl.Float64
                ),
            }
        ).with_columns(pl.col("t").cast(pl.Datetime("us")))
        watermark = END_WATERMARK_US if number == 11 else number * 4 * SECOND - 17 * SECOND
        batches.append(Batch((frame,), watermark))
        end = (pl.col("t").dt.truncate("2s") + pl.duration(seconds=2)).alias("window_end")
        whole = frame.select("k", "n", "v", (end - pl.duration(seconds=4)).alias("window_start"), end)
        results.append(Batch((whole,), watermark))
    twice = [Batch((batch.frames[0], batch.frames[0].filter(pl.col("v") > 0)), batch.watermark_us) for batch in results]
    twice_v = (pl.col("v") * 2).alias("w")
    aggregates = [
        pl.col("v").sum(),
        pl.col("v").mean().alias("mean"),
        pl.col("v").std().alias("std"),
        pl.col("v").last().alias("last"),
        pl.len(),
    ]
    sliding = windows("t", ["k"], "14s", "2s", aggregates)
    halves = [(batch.frames[0][::2], batch.frames[0][1::2]) for batch in batches]
    combined = [
        Batch((pl.concat([sliding.combined(0, half) for half in pair], rechunk=True),), batch.watermark_us)
        for pair, batch in zip(halves, batches, strict=True)
    ]
    return {
        "sliding": (sliding, batches),
        "sliding over two producers": (sliding, combined),
        "sliding without keys": (windows("t", [], "14s", "2s", aggregates), batches),
        "sliding by two keys": (windows("t", ["k", "n"], "3s", "1s", aggregates), batches),
        "tumbling over windows": (windows("window_end", ["n"], "8s", None, aggregates), results),
        "stateless": (
            filter_rows(pl.col("v") > 0).then(with_columns(twice_v)).then(map_frames(lambda rows: rows.drop("n"))),
            batches,
        ),
        "join": (join(["k", "window"]), twice),
        "top": (top(3, by="v", per=["n"]), results),
        "union": (Union(), [Batch(batch.frames * 2, batch.watermark_us) for batch in batches]),
        "custom": (Totals(), batches),
    }


if __name__ == "__main__":
    for name, (computation, batches) in scenarios().items():
        sys.stdout.write(f"{name}: {run(computation, batches).digest()}\n")
