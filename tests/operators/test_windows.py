"""Windows against a definition written anew: every row copied into every window that holds it, then one group_by."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from operators.step_runs import SECOND, Batch, row_batches, run, scenarios, timed
from polars.testing import assert_frame_equal

from tenax.errors import InvalidRequest
from tenax.operators.computation import END_WATERMARK_US, NO_WATERMARK_US, StepInput
from tenax.operators.windows import Windows, windows

AGGREGATES = [
    pl.col("v").sum(),
    pl.col("v").mean().alias("mean"),
    pl.col("v").std().alias("std"),
    pl.col("v").var(ddof=0).alias("var"),
    pl.col("v").min().alias("min"),
    pl.col("v").max().alias("max"),
    pl.col("v").count().alias("count"),
    pl.col("v").first().alias("first"),
    pl.col("v").last().alias("last"),
    (pl.col("n") * 2 + 1).sum().alias("twice"),
    pl.col("v").filter(pl.col("v") > 0).len().alias("positive"),
    pl.len(),
]


def whole_windows(
    rows: pl.DataFrame, time: str, keys: Sequence[str], length_us: int, every_us: int, aggregates: Sequence[pl.Expr]
) -> pl.DataFrame:
    """The definition: window [start, start + length) with start a multiple of every, and the rows in it."""
    moment = pl.col(time).cast(pl.Int64) - (1 if time == "window_end" else 0)
    offsets = pl.DataFrame({"offset": range(length_us // every_us)})
    copies = (
        rows.with_columns(moment.alias("moment"))
        .sort("moment", maintain_order=True)
        .drop("window_start", "window_end", strict=False)
        .join(offsets, how="cross", maintain_order="left_right")
        .with_columns(start=(pl.col("moment") // every_us - pl.col("offset")) * every_us)
    )
    start = pl.col("start").cast(pl.Datetime("us"))
    return (
        copies.group_by("start", *keys, maintain_order=True)
        .agg(aggregates)
        .with_columns(start.alias("window_start"), (start + pl.duration(microseconds=length_us)).alias("window_end"))
        .drop("start")
        .sort("window_end", *keys)
    )


SPANS = [("2s", None), ("4s", "2s"), ("5s", "1s"), ("7s", "500ms"), ("16s", "1s"), ("1s", "250ms"), ("3us", "1us")]
IN_US = {"2s": 2_000_000, "4s": 4_000_000, "5s": 5_000_000, "7s": 7_000_000, "16s": 16_000_000, "1s": 1_000_000}
IN_US |= {"500ms": 500_000, "250ms": 250_000, "3us": 3, "1us": 1}


@settings(deadline=None, max_examples=80)
@given(row_batches(), st.sampled_from(SPANS), st.sampled_from([(), ("k",), ("k", "n")]))
def test_windows_of_any_batches_are_those_of_the_whole_input(
    drawn: tuple[pl.DataFrame, list[Batch]], span: tuple[str, str | None], keys: tuple[str, ...]
) -> None:
    rows, batches = drawn
    length, every = span
    result = run(windows("t", keys, length, every, aggregates_for(keys)), batches)
    expected = whole_windows(rows, "t", keys, IN_US[length], IN_US[every or length], aggregates_for(keys))
    # Polars says 0.0 for the variance of one null when it is grouped, and null when it is not; we say null
    expected = expected.with_columns(pl.when(pl.col("count") > 0).then("var").alias("var"))
    assert_frame_equal(result.rows, expected, rel_tol=1e-9, abs_tol=1e-9)
    assert all(output.equals(output.sort("window_end", *keys)) for output in result.outputs)
    assert {name.split("/")[0] for name in result.states[-1]} == {"passed"}, "something waits after the end"


def aggregates_for(keys: Sequence[str]) -> list[pl.Expr]:
    return [aggregate for aggregate in AGGREGATES if aggregate.meta.output_name() not in keys]


@settings(deadline=None, max_examples=40)
@given(row_batches())
def test_a_window_closes_in_the_batch_whose_watermark_reaches_its_end(drawn: tuple[pl.DataFrame, list[Batch]]) -> None:
    _, batches = drawn
    result = run(windows("t", ["k"], "4s", "2s", [pl.len()]), batches)
    before = NO_WATERMARK_US
    for output, batch in zip(result.outputs, batches, strict=True):
        ends = output["window_end"].cast(pl.Int64).to_list()
        assert all(before < end <= batch.watermark_us for end in ends)
        before = batch.watermark_us


@settings(deadline=None, max_examples=30)
@given(row_batches())
def test_windows_over_windows_put_results_where_their_rows_were(drawn: tuple[pl.DataFrame, list[Batch]]) -> None:
    """
    rows -> 2 s by (k, n) -> 4 s every 2 s by k -> 8 s over all.
    """
    rows, batches = drawn
    levels = [
        (windows("t", ["k", "n"], "2s", None, [pl.len().alias("c")]), "t", ("k", "n"), (2, 2), [pl.len().alias("c")]),
        (
            windows("window_end", ["k"], "4s", "2s", [pl.col("c").sum()]),
            "window_end",
            ("k",),
            (4, 2),
            [pl.col("c").sum()],
        ),
        (windows("window_end", [], "8s", None, [pl.col("c").sum()]), "window_end", (), (8, 8), [pl.col("c").sum()]),
    ]
    expected = rows
    for computation, time, keys, (length, every), aggregates in levels:
        result = run(computation, batches)
        batches = [Batch((output,), batch.watermark_us) for output, batch in zip(result.outputs, batches, strict=True)]
        expected = whole_windows(expected, time, keys, length * SECOND, every * SECOND, aggregates)
        assert_frame_equal(result.rows, expected)


def test_a_result_of_ten_seconds_is_in_the_outer_window_of_the_same_ten_seconds() -> None:
    rows = timed([(9_999_999, "a", 0, 1.0)], {"k": pl.String, "n": pl.Int64, "v": pl.Float64})
    inner = windows("t", ["k"], "10s", None, [pl.len()]).step({}, StepInput((rows,), 10 * SECOND, 0)).rows
    outer = windows("window_end", [], "10s", None, [pl.col("len").sum()])
    result = outer.step({}, StepInput((inner,), 10 * SECOND, 0)).rows
    assert result["window_end"].cast(pl.Int64).to_list() == [10 * SECOND]


def steady(panes: int, batches: int, keys: int = 3) -> list[Batch]:
    return [
        Batch(
            (
                timed(
                    [(number * SECOND + key, f"k{key}", 0, 1.0) for key in range(keys)],
                    {"k": pl.String, "n": pl.Int64, "v": pl.Float64},
                ),
            ),
            (number - panes // 10) * SECOND,
        )
        for number in range(batches)
    ]


@pytest.mark.parametrize("panes", [1, 10, 64, 100])
def test_segments_stay_bounded_by_the_panes_of_a_window(panes: int) -> None:
    result = run(windows("t", ["k"], f"{panes}s", "1s", [pl.len()]), steady(panes, 300), watch=False)
    counts = [len(state) for state in result.states]
    assert max(counts[150:]) <= max(counts[:300]) <= panes + 2 * panes.bit_length() + 6
    held = [sum(frame.height for name, frame in state.items() if name.startswith("node")) for state in result.states]
    assert max(held) <= 3 * (panes + 2 * panes.bit_length())


def test_a_watermark_that_stands_still_leaves_few_segments() -> None:
    still = [Batch(batch.frames, NO_WATERMARK_US) for batch in steady(10, 400)]
    most = len(still).bit_length()  # as many as a binary counter of the batches has digits
    assert run(windows("t", ["k"], "1h", "1h", [pl.len()]), still, watch=False).most_segments <= most
    assert run(windows("t", ["k"], "10s", "1s", [pl.len()]), still, watch=False).most_segments <= most


def test_a_long_silence_costs_no_look_at_every_empty_pane() -> None:
    rows = [timed([(moment, "a", 0, 1.0)], {"k": pl.String, "n": pl.Int64, "v": pl.Float64}) for moment in (0, 10**15)]
    batches = [
        Batch((rows[0],), NO_WATERMARK_US),
        Batch((rows[1],), 10**15),
        Batch((rows[1].clear(),), END_WATERMARK_US),
    ]
    result = run(windows("t", ["k"], "10us", "1us", [pl.len()]), batches)
    assert [output.height for output in result.outputs] == [0, 10, 10]


def test_a_row_behind_the_watermark_or_without_a_time_is_left_out() -> None:
    schema: dict[str, type[pl.DataType]] = {"k": pl.String, "n": pl.Int64, "v": pl.Float64}
    batches = [
        Batch((timed([(1, "a", 0, 1.0)], schema),), 10 * SECOND),
        Batch((timed([(2, "a", 0, 1.0), (None, "a", 0, 1.0), (11 * SECOND, "a", 0, 1.0)], schema),), 10 * SECOND),
        Batch((timed([], schema),), END_WATERMARK_US),
    ]
    result = run(windows("t", ["k"], "2s", None, [pl.len()]), batches)
    assert result.rows["len"].to_list() == [1, 1]


def test_spread_of_large_numbers_keeps_its_precision() -> None:
    frames = [timed([(n, "a", 0, 1e9 + n % 3)], {"k": pl.String, "n": pl.Int64, "v": pl.Float64}) for n in range(300)]
    batches = [Batch((frame,), NO_WATERMARK_US) for frame in frames] + [Batch((frames[0].clear(),), END_WATERMARK_US)]
    result = run(windows("t", ["k"], "1s", None, [pl.col("v").var(ddof=0)]), batches)
    assert result.rows["v"][0] == pytest.approx(2 / 3, rel=1e-8)  # a mean near 1e9 is itself known to 1e-7


@pytest.mark.parametrize("keys", [(), ("k",)])
def test_a_sort_flag_that_does_not_travel_changes_no_float_sum(keys: tuple[str, ...]) -> None:
    values = np.random.default_rng(5).normal(0, 1, 5000) ** 3
    rows = timed(
        [(n, "a", 0, value) for n, value in enumerate(values)], {"k": pl.String, "n": pl.Int64, "v": pl.Float64}
    )
    flagged = rows.with_columns(pl.col("t", "k", "n").set_sorted())
    computation = windows("t", keys, "3ms", "1ms", [pl.col("v").sum(), pl.col("v").last().alias("last")])
    outputs = [run(computation, [Batch((frame,), END_WATERMARK_US)]).digest() for frame in (rows, flagged)]
    assert outputs[0] == outputs[1]


def test_how_many_windows_are_merged_at_a_time_does_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    computation, batches = scenarios()["sliding"]
    together = run(computation, batches, watch=False).digest()
    monkeypatch.setattr("tenax.operators.windows.MERGED_ROWS", 2)
    assert run(computation, batches, watch=False).digest() == together


def test_types_are_those_of_polars_and_of_the_time_column() -> None:
    rows = pl.DataFrame(
        {"t": [0], "k": [1], "small": [1], "flag": [True], "when": [5]},
        schema={"t": pl.Int64, "k": pl.Int16, "small": pl.Int8, "flag": pl.Boolean, "when": pl.Int64},
    ).with_columns(
        pl.col("t").cast(pl.Datetime("us", "UTC")), pl.col("when").cast(pl.Date), f=pl.col("k").cast(pl.Float32)
    )
    aggregates = [
        pl.col("small").sum(),
        pl.col("flag").sum(),
        pl.col("flag").mean().alias("share"),
        pl.col("when").max(),
        pl.col("f").mean(),
        pl.col("f").std().alias("spread"),
        pl.col("when").first().alias("early"),
    ]
    output = windows("t", ["k"], "1s", None, aggregates).step({}, StepInput((rows,), END_WATERMARK_US, 0)).rows
    expected = rows.group_by("k").agg(aggregates)
    assert_frame_equal(output.drop("window_start", "window_end"), expected)
    assert output.schema["window_end"] == pl.Datetime("us", "UTC")


def test_a_computation_can_be_sent_to_another_process() -> None:
    computation = windows("t", ["k"], "4s", "2s", AGGREGATES)
    copied = pickle.loads(pickle.dumps(computation))
    assert isinstance(copied, Windows)
    batches = steady(2, 12)
    assert run(computation, batches).digest() == run(copied, batches).digest()


@pytest.mark.parametrize(
    ("aggregate", "message"),
    [
        (pl.col("v").n_unique(), "n_unique"),
        (pl.col("v").mean() + 1, "mean"),
        (pl.col("v"), 'col("v")'),
        (pl.col("v").quantile(0.5), "quantile"),
        (pl.col("v").unique().count(), "unique"),
        ((pl.col("v") - pl.col("v").mean()).sum(), "mean"),
        (pl.col("v").cum_sum().max(), "cum_sum"),
        (pl.col("v").sum().over("k"), "over"),
        (pl.col("v", "n").sum(), "sum"),
        (pl.col("v").filter(pl.col("n") > 0).first(), "first"),
        (pl.col("v").std(ddof=3), "std"),
    ],
)
def test_an_aggregate_that_cannot_be_kept_up_is_refused_in_one_line(aggregate: pl.Expr, message: str) -> None:
    with pytest.raises(InvalidRequest, match="aggregate first, then with_columns") as error:
        windows("t", ["k"], "4s", "2s", [aggregate])
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("length", "every", "keys", "aggregates"),
    [
        ("5s", "2s", ["k"], [pl.len()]),
        ("1s", "2s", ["k"], [pl.len()]),
        ("0s", None, ["k"], [pl.len()]),
        ("ten", None, ["k"], [pl.len()]),
        ("1s", None, ["window_end"], [pl.len()]),
        ("1s", None, ["k"], [pl.len().alias("window_start")]),
        ("1s", None, ["k"], [pl.len().alias("k")]),
        ("1s", None, ["k"], [pl.len(), pl.col("v").sum().alias("len")]),
        ("1s", None, ["k"], []),
    ],
)
def test_a_wrong_window_is_refused_in_one_line(
    length: str, every: str | None, keys: list[str], aggregates: list[pl.Expr]
) -> None:
    with pytest.raises(InvalidRequest) as error:
        windows("t", keys, length, every, aggregates)
    assert "\n" not in str(error.value)


def test_a_time_that_does_not_count_microseconds_and_a_mean_of_times_are_refused() -> None:
    rows = timed([(0, "a", 0, 1.0)], {"k": pl.String, "n": pl.Int64, "v": pl.Float64})
    with pytest.raises(InvalidRequest, match="Datetime\\('us'\\)"):
        windows("n", ["k"], "1s", None, [pl.len()]).step({}, StepInput((rows,), 0, 0))
    for keys, aggregate in ((["x"], pl.len()), (["k"], pl.col("x").sum())):
        with pytest.raises(InvalidRequest, match="'x' is not among"):
            windows("t", keys, "1s", None, [aggregate]).step({}, StepInput((rows,), 0, 0))
    with pytest.raises(InvalidRequest, match="cast it to a number"):
        windows("t", ["k"], "1s", None, [pl.col("t").mean()]).step({}, StepInput((rows,), 0, 0))
