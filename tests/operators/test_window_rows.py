"""Joins and tops of windows, against one computation over the whole input."""

from __future__ import annotations

import pickle

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from operators.step_runs import SECOND, Batch, run, window_batches, window_rows
from polars.testing import assert_frame_equal

from tenax.errors import InvalidRequest
from tenax.operators.computation import NO_WATERMARK_US, StepInput
from tenax.operators.join import join
from tenax.operators.top import top

Drawn = tuple[list[pl.DataFrame], list[Batch]]


@settings(deadline=None, max_examples=50)
@given(window_batches(2))
def test_a_join_of_any_batches_is_that_of_the_whole_input(drawn: Drawn) -> None:
    (left, right), batches = drawn
    result = run(join(["k", "window"]), batches)
    on = ["k", "window_start", "window_end"]
    pairs = left.join(right.rename({"n": "n_2", "v": "v_2"}), on=on, how="inner")
    order = ["window_end", "k", "window_start", "n", "v", "n_2", "v_2"]
    assert_frame_equal(result.rows, pairs.sort(order))
    assert {name.split("/")[0] for name in result.states[-1]} == {"passed"}
    check_ends(result.outputs, batches)


@settings(deadline=None, max_examples=30)
@given(window_batches(3))
def test_a_join_of_three_streams_gives_each_column_the_number_of_its_input(drawn: Drawn) -> None:
    (first, second, third), batches = drawn
    result = run(join(["k", "n", "window"]), batches)
    on = ["k", "n", "window_start", "window_end"]
    triples = first.join(second.rename({"v": "v_2"}), on=on).join(third.rename({"v": "v_3"}), on=on)
    assert_frame_equal(result.rows, triples.sort("window_end", "k", "n", "window_start", "v", "v_2", "v_3"))


@settings(deadline=None, max_examples=50)
@given(window_batches(1), st.integers(1, 3), st.sampled_from([(), ("k",)]))
def test_a_top_of_any_batches_is_that_of_the_whole_input(drawn: Drawn, k: int, per: tuple[str, ...]) -> None:
    (rows,), batches = drawn
    result = run(top(k, by="v", per=per), batches)
    assert result.rows.rows() == largest(rows, k, per)
    check_ends(result.outputs, batches)


def largest(rows: pl.DataFrame, k: int, per: tuple[str, ...]) -> list[tuple[object, ...]]:
    """The definition in plain Python: sort everything, count within each group."""

    def up(value: object) -> tuple[bool, object]:
        return value is None, 0 if value is None else value

    def order(row: dict[str, object]) -> list[tuple[bool, object]]:
        down = row["v"]
        assert down is None or isinstance(down, float)
        group = [up(row[name]) for name in ("window_end", "window_start", *per)]
        return [*group, up(None if down is None else -down), *(up(row[name]) for name in rows.columns)]

    taken: dict[tuple[object, ...], int] = {}
    kept = []
    for row in sorted(rows.iter_rows(named=True), key=order):
        group = tuple(row[name] for name in ("window_end", *per))
        taken[group] = taken.get(group, 0) + 1
        if taken[group] <= k:
            kept.append(tuple(row.values()))
    return kept


@settings(deadline=None, max_examples=25)
@given(window_batches(2))
def test_the_top_of_local_tops_is_the_top_of_all(drawn: Drawn) -> None:
    """
    left  -> top[0] \\
                     -> top of both
    right -> top[1] /
    """
    (left, right), batches = drawn
    locals_ = [
        run(top(2, by="v"), [Batch((batch.frames[side],), batch.watermark_us) for batch in batches]) for side in (0, 1)
    ]
    both = [
        Batch((pl.concat([locals_[0].outputs[number], locals_[1].outputs[number]]),), batch.watermark_us)
        for number, batch in enumerate(batches)
    ]
    assert run(top(2, by="v"), both).rows.rows() == largest(pl.concat([left, right]), 2, ())


def check_ends(outputs: list[pl.DataFrame], batches: list[Batch]) -> None:
    before = NO_WATERMARK_US
    for output, batch in zip(outputs, batches, strict=True):
        assert all(before < end <= batch.watermark_us for end in output["window_end"].cast(pl.Int64).to_list())
        before = batch.watermark_us


def test_rows_that_wait_for_ever_stay_in_few_segments() -> None:
    batches = [Batch((window_rows([(n + 5, "a", n, 1.0), (n + 6, "b", n, 2.0)]),) * 2, SECOND) for n in range(200)]
    assert run(join(["k", "window"]), batches, watch=False).most_segments <= 2 * 10 + 1
    single = [Batch(batch.frames[:1], SECOND) for batch in batches]
    assert run(top(1, by="v"), single, watch=False).most_segments <= 12


def test_only_the_top_of_what_has_come_waits() -> None:
    batches = [Batch((window_rows([(50, "a", n, float(n))]),), SECOND) for n in range(100)]
    last = run(top(2, by="v"), batches, watch=False).states[-1]
    assert sum(frame.height for name, frame in last.items() if name.startswith("pending")) <= 8


def test_joins_and_tops_can_be_sent_to_another_process() -> None:
    assert pickle.loads(pickle.dumps(join(["k", "window"]))) == join(["k", "window"])
    assert pickle.loads(pickle.dumps(top(2, by="v"))) == top(2, by="v")


def test_wrong_joins_and_tops_are_refused_in_one_line() -> None:
    rows = window_rows([(1, "a", 1, 1.0)])
    bare = rows.drop("window_start")
    for action in (
        lambda: join(["k"]),
        lambda: join(["k", "k", "window"]),
        lambda: top(0, by="v"),
        lambda: top(1, by="v", per=["v"]),
        lambda: join(["x", "window"]).step({}, StepInput((rows, rows), 0, 0)),
        lambda: join(["k", "window"]).step({}, StepInput((rows, bare), 0, 0)),
        lambda: join(["k", "window"]).step({}, StepInput((rows.with_columns(v_2=1), rows), 0, 0)),
        lambda: top(1, by="x").step({}, StepInput((rows,), 0, 0)),
        lambda: top(1, by="v").step({}, StepInput((bare,), 0, 0)),
    ):
        with pytest.raises(InvalidRequest) as error:
            action()
        assert "\n" not in str(error.value)
