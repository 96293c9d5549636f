"""What producers send in place of rows: windows of it are windows of the rows, whoever combined what."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from operators.step_runs import ROW_SCHEMA, Batch, row_batches, run, scenarios, timed
from polars.testing import assert_frame_equal

from tenax.errors import InvalidRequest
from tenax.operators.chunks import decode, encode
from tenax.operators.computation import END_WATERMARK_US, Computation, StepInput
from tenax.operators.keys import owners, split
from tenax.operators.windows import Windows, windows

KINDS = ("sum", "mean", "min", "max", "count", "len", "first", "last", "std", "var")
EVERY_KIND = [
    getattr(pl.col(column), kind)().alias(f"{kind} {column}") for column in ("v", "whole") for kind in KINDS
] + [pl.len()]


def sent(computation: Computation, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """What arrives of the rows of several producers, through bytes and in their order."""
    chunks = [decode(encode(computation.combined(0, frame), 0))[0] for frame in frames]
    return pl.concat([chunk for chunk in chunks if chunk.height] or chunks[:1], rechunk=True)


@settings(deadline=None, max_examples=60)
@given(
    row_batches(), st.sampled_from(["2s", "5s", "16s"]), st.sampled_from([(), ("k",), ("k", "n")]), st.integers(1, 4)
)
def test_windows_of_what_producers_combined_are_those_of_their_rows(
    drawn: tuple[pl.DataFrame, list[Batch]], length: str, keys: tuple[str, ...], producers: int
) -> None:
    _, batches = drawn
    computation = windows("t", keys, length, "1s", EVERY_KIND)
    raw, combined = [], []
    for number, batch in enumerate(batches):
        frame = batch.frames[0].with_columns((pl.col("v") * 4).cast(pl.Int64).alias("whole"))
        cuts = [frame.height * cut // producers for cut in range(producers + 1)]
        frames = [frame[start:end] for start, end in pairwise(cuts)]
        if number % 2:
            frames.append(frame.clear())
        raw.append(Batch((frame,), batch.watermark_us))
        combined.append(Batch((sent(computation, frames),), batch.watermark_us))
    expected, actual = run(computation, raw).rows, run(computation, combined, restore=True).rows
    exact = [name for name, kind in expected.schema.items() if not kind.is_float()]
    assert "sum whole" in exact
    assert actual.select(exact).equals(expected.select(exact))
    assert_frame_equal(actual, expected, rel_tol=1e-9, abs_tol=1e-9)


def test_of_equal_times_the_producer_that_comes_first_has_the_first_row_and_the_last_one_the_last() -> None:
    computation = windows("t", ["k"], "1s", None, [pl.col("v").first().alias("one"), pl.col("v").last().alias("two")])
    frames = [timed([(5, "a", 0, value), (5, "a", 0, value + 1)], ROW_SCHEMA) for value in (10.0, 20.0, 30.0)]
    output = computation.step({}, StepInput((sent(computation, frames),), END_WATERMARK_US, 0)).rows
    assert output.select("one", "two").rows() == [(10.0, 31.0)]


def test_partial_aggregates_of_split_keys_reach_the_task_of_their_rows() -> None:
    computation = windows("t", ["k"], "2s", "1s", [pl.len()])
    rows = timed([(n * 1000, None if n % 5 == 0 else f"key {n % 37}", 0, 1.0) for n in range(2_000)], ROW_SCHEMA)
    of_rows = split(rows, ["k"], owners([1.0] * 4), 4)
    of_parts = split(computation.combined(0, rows), ["k"], owners([1.0] * 4), 4)
    for mine, parts in zip(of_rows, of_parts, strict=True):
        assert set(mine["k"].unique()) == set(parts["k"].unique())
        assert mine.height == parts["tenax.0.len"].sum()


def test_what_is_sent_follows_the_groups_and_not_the_rows() -> None:
    computation = windows("t", ["k"], "10s", "1s", [pl.col("v").mean()])
    frames = [
        timed([(n * 10, f"key {n % 20}", 0, float(n)) for n in range(rows)], ROW_SCHEMA) for rows in (1_000, 20_000)
    ]
    few, many = (len(encode(computation.combined(0, frame), 0)) for frame in frames)
    assert many == few
    assert many < len(encode(frames[1], 0)) / 100


TYPES: dict[str, pl.DataType] = {
    "small": pl.Int8(),
    "unsigned": pl.UInt64(),
    "narrow": pl.Float32(),
    "flag": pl.Boolean(),
    "price": pl.Decimal(10, 2),
    "span": pl.Duration("ms"),
    "day": pl.Date(),
    "text": pl.String(),
    "choice": pl.Enum(["a", "b"]),
}


@pytest.mark.parametrize("column", TYPES)
@pytest.mark.parametrize("zone", [None, "Asia/Tokyo"])
def test_results_have_the_types_of_polars_with_rows_and_without(column: str, zone: str | None) -> None:
    kind = pl.Datetime("us", zone)
    rows = pl.DataFrame({"t": [1, 2]}).select(
        pl.col("t").cast(pl.Datetime("us")).dt.replace_time_zone(zone), pl.lit(None, TYPES[column]).alias(column)
    )
    for name in KINDS:
        aggregate = getattr(pl.col(column), name)().alias("result")
        try:
            expected = rows.select(aggregate).schema["result"]
        except pl.exceptions.InvalidOperationError:
            continue  # a sum of texts, say
        if name in ("mean", "std", "var") and not expected.is_float():
            continue  # refused, see test_windows
        computation = windows("t", [], "2s", "1s", [aggregate])
        empty, full = computation.combined(0, rows.clear()), computation.combined(0, rows)
        assert empty.schema == full.schema
        for frame in (empty, full):
            output = computation.step({}, StepInput((frame,), END_WATERMARK_US, 0))
            assert output.rows.schema == {"result": expected, "window_start": kind, "window_end": kind}
            assert not any("type" in name for segment in output.state.values() for name in segment.columns)


def test_columns_that_tell_types_do_not_get_into_the_state() -> None:
    computation = windows("t", ["k"], "2s", "1s", [pl.col("v").mean(), pl.col("v").std().alias("std")])
    rows = timed([(1, "a", 0, 1.0)], ROW_SCHEMA).with_columns(pl.col("v").cast(pl.Float32))
    arrived = computation.combined(0, rows)
    assert arrived.schema["tenax.0.type"] == pl.Float32
    state = computation.step({}, StepInput((arrived,), 0, 0)).state
    assert state["pending/0-0"].columns == [
        "tenax.pane",
        "k",
        "tenax.0.sum",
        "tenax.0.count",
        "tenax.1.count",
        "tenax.1.mean",
        "tenax.1.squares",
    ]


def test_wrong_columns_are_refused_before_anything_is_sent() -> None:
    rows = timed([(0, "a", 0, 1.0)], ROW_SCHEMA)
    for computation, text in (
        (windows("n", ["k"], "1s", None, [pl.len()]), "a time column is Datetime"),
        (windows("x", ["k"], "1s", None, [pl.len()]), "the time column must be there: 'x' is not among"),
        (windows("t", ["x"], "1s", None, [pl.len()]), "a key must be a column: 'x' is not among"),
        (windows("t", ["k"], "1s", None, [pl.col("x").sum()]), "aggregates need their columns: 'x' is not among"),
        (windows("t", ["k"], "1s", None, [pl.col("t").mean()]), "a mean is taken of numbers"),
    ):
        for frame in (rows, rows.clear()):
            with pytest.raises(InvalidRequest, match=text) as error:
                computation.combined(0, frame)
            assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "name", sorted(name for name, (computation, _) in scenarios().items() if isinstance(computation, Windows))
)
def test_the_same_rows_are_combined_to_the_same_bytes_whatever_was_done_to_make_them(name: str) -> None:
    computation, batches = scenarios()[name]
    for batch in batches:
        for number, frame in enumerate(batch.frames):
            pieces = [frame[start : start + 50] for start in range(0, max(1, frame.height), 50)]
            again = decode(encode(pl.concat(pieces, rechunk=False), 0))[0]
            assert encode(computation.combined(number, frame), 0) == encode(computation.combined(number, again), 0)


def test_rows_that_have_no_time_are_not_sent() -> None:
    computation = windows("t", ["k"], "1s", None, [pl.len()])
    rows = timed([(None, "a", 0, 1.0), (1, "b", 0, 1.0)], ROW_SCHEMA)
    assert computation.combined(0, rows)["k"].to_list() == ["b"]
    assert computation.combined(0, rows[:1]).equals(computation.combined(0, rows.clear()))


def test_integers_that_no_float_holds_are_summed_exactly() -> None:
    values = [int(number) for number in np.random.default_rng(3).integers(2**60, 2**61, 3)]
    computation = windows("t", [], "1s", None, [pl.col("n").sum()])
    frames = [timed([(1, "a", value, 1.0)], ROW_SCHEMA) for value in values]
    output = computation.step({}, StepInput((sent(computation, frames),), END_WATERMARK_US, 0)).rows
    assert output["n"].to_list() == [sum(values)]
