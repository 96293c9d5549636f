"""Transformations without state, unions and users' own keyed operators."""

from __future__ import annotations

import pickle

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from operators.step_runs import Batch, Totals, row_batches, run
from polars.testing import assert_frame_equal

from tenax.errors import InvalidRequest
from tenax.model.durations import microseconds
from tenax.operators.computation import StepInput
from tenax.operators.custom import Changes
from tenax.operators.stateless import filter_rows, map_frames, select_columns, with_columns
from tenax.operators.union import Union

Drawn = tuple[pl.DataFrame, list[Batch]]


def without_n(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.drop("n")


@settings(deadline=None, max_examples=40)
@given(row_batches())
def test_a_chain_of_any_batches_is_that_of_the_whole_input_in_its_order(drawn: Drawn) -> None:
    rows, batches = drawn
    chain = (
        filter_rows(pl.col("v") > -5, pl.col("n") == 0)
        .then(with_columns((pl.col("v") * 2).alias("w")))
        .then(map_frames(without_n))
        .then(select_columns(pl.col("w"), pl.col("k"), pl.col("t")))
    )
    kept = [
        (row["v"] * 2, row["k"], row["t"])
        for row in rows.to_dicts()
        if row["v"] is not None and row["v"] > -5 and row["n"] == 0
    ]
    assert run(chain, batches).rows.rows() == kept
    assert run(pickle.loads(pickle.dumps(chain)), batches).rows.rows() == kept


@pytest.mark.parametrize(
    "expression",
    [pl.col("v").sum(), pl.col("v").cum_sum(), pl.col("v").shift(), pl.col("v") - pl.col("v").mean(), pl.len()],
)
def test_an_expression_that_would_show_where_batches_are_cut_is_refused(expression: pl.Expr) -> None:
    for build in (with_columns, select_columns, filter_rows):
        with pytest.raises(InvalidRequest, match="one row at a time") as error:
            build(expression)
        assert "\n" not in str(error.value)


def test_a_map_that_returns_no_frame_is_refused() -> None:
    broken = map_frames(lambda rows: rows.height)  # type: ignore[arg-type,return-value]
    with pytest.raises(InvalidRequest, match="found int"):
        broken.step({}, StepInput((pl.DataFrame({"a": [1]}),), 0, 0))


def test_a_union_appends_its_inputs_and_names_the_column_that_differs() -> None:
    first, second = pl.DataFrame({"a": [1], "b": ["x"]}), pl.DataFrame({"b": ["y"], "a": [2]})
    assert Union().step({}, StepInput((first, second, first), 0, 0)).rows.rows() == [(1, "x"), (2, "y"), (1, "x")]
    for other, message in (
        (second.drop("a"), "input 2 lacks 'a'"),
        (second.with_columns(c=1), "input 2 has 'c'"),
        (second.cast({"a": pl.Int8}), "'a' as Int8"),
    ):
        with pytest.raises(InvalidRequest, match=message) as error:
            Union().step({}, StepInput((first, other), 0, 0))
        assert "\n" not in str(error.value)


@settings(deadline=None, max_examples=50)
@given(row_batches())
def test_keyed_state_is_what_a_dictionary_would_hold(drawn: Drawn) -> None:
    _, batches = drawn
    totals: dict[tuple[str | None, int], float] = {}
    result = run(Totals(), batches)
    for batch, output in zip(batches, result.outputs, strict=True):
        seen: dict[tuple[str | None, int], float] = {}
        for row in batch.frames[0].iter_rows(named=True):
            key = (row["k"], row["n"])
            seen[key] = seen.get(key, totals.get(key, 0.0)) + (row["v"] or 0.0)
        totals = {key: total for key, total in {**totals, **seen}.items() if total != 0}
        assert {row[:2]: row[2] for row in output.iter_rows()} == pytest.approx(seen)
    probe = pl.DataFrame([(k, n) for k in ("a", "b", "ä", None) for n in (0, 1)], schema=["k", "n"], orient="row")
    held = Totals().looked_up([result.states[-1][name] for name in newest_first(result.states[-1])], probe)
    assert {row[:2]: row[2] for row in held.iter_rows()} == pytest.approx(totals)


def newest_first(names: object) -> list[str]:
    assert isinstance(names, dict)
    return sorted(names, key=lambda name: -int(name.split("/")[1]))


def test_segments_of_keyed_state_stay_logarithmic_and_deleted_keys_leave() -> None:
    draw = np.random.default_rng(3)
    frames = [
        pl.DataFrame({"k": [str(number) for number in draw.integers(0, 2000, 20)], "n": [0] * 20, "v": [1.0] * 20})
        for _ in range(100)
    ]
    batches = [Batch((frame,), 0) for frame in frames]
    result = run(Totals(), batches, watch=False)
    assert result.most_segments <= 11
    undone = [Batch((frame.with_columns(pl.col("v") * -1),), 0) for frame in frames]
    last = run(Totals(), [*batches, *undone], watch=False).states[-1]
    assert sum(frame.height for frame in last.values()) <= 100


def test_a_step_sees_the_state_of_its_own_keys_only_as_they_first_occur() -> None:
    rows = pl.DataFrame({"k": ["a", "b", "c"], "n": [0, 0, 0], "v": [1.0, 2.0, 3.0]})
    state = Totals().step({}, StepInput((rows,), 0, 0)).state
    wanted = pl.DataFrame({"k": ["c", "x", "a"], "n": [0, 0, 0]})
    assert Totals().looked_up(list(state.values()), wanted).rows() == [("c", 0, 3.0), ("a", 0, 1.0)]


class Twice(Totals):
    def step_keys(self, rows: pl.DataFrame, state: pl.DataFrame, watermark_us: int) -> tuple[pl.DataFrame, Changes]:  # noqa: ARG002
        return rows, Changes(upserts=pl.DataFrame({"k": ["a", "a"], "n": [0, 0], "total": [1.0, 2.0]}))


class Partly(Totals):
    def step_keys(self, rows: pl.DataFrame, state: pl.DataFrame, watermark_us: int) -> tuple[pl.DataFrame, Changes]:  # noqa: ARG002
        return rows, Changes(upserts=pl.DataFrame({"k": ["a"], "n": [0]}))


class Unknown(Totals):
    keys = ("k", "m")


@pytest.mark.parametrize("kind", [Twice, Partly, Unknown])
def test_wrong_changes_are_refused_in_one_line(kind: type[Totals]) -> None:
    rows = pl.DataFrame({"k": ["a"], "n": [0], "v": [1.0]})
    with pytest.raises(InvalidRequest) as error:
        kind().step({}, StepInput((rows,), 0, 0))
    assert "\n" not in str(error.value)


def test_a_step_that_changes_nothing_leaves_the_state_as_it_is() -> None:
    rows = pl.DataFrame({"k": ["a"], "n": [0], "v": [1.0]})
    state = Totals().step({}, StepInput((rows,), 0, 0)).state
    output = Totals().step(state, StepInput((rows.clear(),), 0, 1))
    assert output.state == state
    assert_frame_equal(output.rows, pl.DataFrame(schema=Totals.state_schema))


def test_spans_of_time_are_added_up() -> None:
    assert [microseconds(text) for text in ("10s", "250ms", "1h30m", "2d", "1w", "7us")] == [
        10_000_000,
        250_000,
        5_400_000_000,
        172_800_000_000,
        604_800_000_000,
        7,
    ]
    for text in ("", "10", "s", "-1s", "1.5s", "1 s"):
        with pytest.raises(InvalidRequest, match="whole numbers with units"):
            microseconds(text)


def test_a_constant_column_can_be_added() -> None:
    rows = pl.DataFrame({"a": [1, 2]})
    out = with_columns(pl.lit(1).alias("n")).step({}, StepInput((rows,), 0, 1)).rows
    assert out["n"].to_list() == [1, 1]
