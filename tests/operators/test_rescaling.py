"""Operators whose tasks become more and fewer give what they give with one task, and remember what they must."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from operators.rescaled_runs import Outputs, Tasks, assert_same, followed, rows_of
from operators.step_runs import SECOND, Batch, Totals, row_batches, scenarios, timed, window_batches

from tenax.errors import StatesDiffer
from tenax.operators import rescaling
from tenax.operators.chunks import encode
from tenax.operators.computation import (
    NO_WATERMARK_US,
    Computation,
    Splits,
    State,
    StepInput,
    StepOutput,
    splits_itself,
)
from tenax.operators.groups import ALL, Groups
from tenax.operators.join import join
from tenax.operators.keys import key_groups
from tenax.operators.rescaling import Piece
from tenax.operators.top import Top, top
from tenax.operators.windows import windows

Rows = tuple[pl.DataFrame, list[Batch]]
Results = tuple[list[pl.DataFrame], list[Batch]]
COUNTS = st.dictionaries(st.integers(1, 6), st.integers(1, 4), max_size=4)
AGGREGATES = [
    pl.col("v").sum().alias("sum"),
    pl.col("v").mean().alias("mean"),
    pl.col("v").min().alias("min"),
    pl.col("v").max().alias("max"),
    pl.col("v").std().alias("std"),
    pl.col("v").var(ddof=0).alias("var"),
    pl.col("v").first().alias("first"),
    pl.col("v").last().alias("last"),
    pl.col("n").count().alias("count"),
    pl.len(),
]


class Own(Computation):
    """The highest value of every key so far, in segments that only it can read."""

    def step(self, state: State, given: StepInput) -> StepOutput:
        rows = given.frames[0]
        known = pl.concat([rows.select("k", "v").clear(), *(unpacked(frame) for frame in state.values())])
        best = pl.concat([known, rows.select("k", "v")]).group_by("k", maintain_order=True).agg(pl.col("v").max())
        if rows.height:
            state = {f"best/{given.batch}": packed(best)}
        return StepOutput(state, rows.select("k").unique(maintain_order=True).join(best, on="k", nulls_equal=True))

    def split(self, state: State, groups: Groups, keys: Sequence[str]) -> State:
        assert list(keys) == ["k"]
        return {f"{name}/part": packed(groups.rows(unpacked(frame), keys)) for name, frame in state.items()}

    def merge(self, states: Sequence[State]) -> State:
        frames = [unpacked(frame) for state in states for frame in state.values()]
        return {"merged": packed(pl.concat(frames))} if frames else {}


def packed(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select(pl.struct("k", "v").alias("both"))


def unpacked(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.unnest("both")


def check(
    computation: Computation,
    keys: Sequence[str],
    batches: Sequence[Batch],
    counts: dict[int, int],
    merged: Callable[[pl.DataFrame], pl.DataFrame] = lambda rows: rows,
) -> Outputs:
    outputs = followed(computation, keys, batches, counts)
    assert_same(outputs, followed(computation, keys, batches, {}), merged)
    again = followed(computation, keys, batches, counts)
    for mine, other in zip(outputs, again, strict=True):
        assert [encode(output.rows, 0) for output in mine] == [encode(output.rows, 0) for output in other]
    return outputs


@given(row_batches(), COUNTS, st.sampled_from([("4s", "1s"), ("3s", None), ("14s", "2s"), ("1s", None)]), st.booleans())
@settings(max_examples=60, deadline=None)
def test_windows(drawn: Rows, counts: dict[int, int], size: tuple[str, str | None], two: bool) -> None:
    keys = ["k", "n"] if two else ["k"]
    aggregates = [each for each in AGGREGATES if not (two and "n" in each.meta.root_names())]
    check(windows("t", keys, *size, aggregates), keys, drawn[1], counts)
    check(windows("t", ["k", "n"], *size, aggregates[:-2]), ["k"], drawn[1], counts)  # shared by one of the keys


@given(window_batches(2), COUNTS)
@settings(max_examples=60, deadline=None)
def test_joins(drawn: Results, counts: dict[int, int]) -> None:
    check(join(["k", "window"]), ["k"], drawn[1], counts)


@given(window_batches(1), COUNTS, st.integers(1, 3), st.booleans())
@settings(max_examples=60, deadline=None)
def test_tops_of_each_task(drawn: Results, counts: dict[int, int], k: int, per: bool) -> None:
    computation = top(k, by="v", per=["n"] if per else [])
    check(computation, ["k"], drawn[1], counts, computation.best)


@given(row_batches(), COUNTS)
@settings(max_examples=60, deadline=None)
def test_state_by_key(drawn: Rows, counts: dict[int, int]) -> None:
    check(Totals(), ["k", "n"], drawn[1], counts)
    check(Totals(), ["n"], drawn[1], counts)  # shared by one of the keys


@given(row_batches(), COUNTS)
@settings(max_examples=40, deadline=None)
def test_a_computation_that_splits_by_itself(drawn: Rows, counts: dict[int, int]) -> None:
    assert splits_itself(Own())
    check(Own(), ["k"], drawn[1], counts)


def held_back(batches: Sequence[Batch]) -> list[Batch]:
    """The same rows with a watermark that lags, so that they wait for some batches."""
    return [
        Batch(batch.frames, batches[number // 3].watermark_us if number < len(batches) - 1 else batch.watermark_us)
        for number, batch in enumerate(batches)
    ]


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("counts", [{3: 2, 6: 3, 9: 2}, {2: 4, 7: 1}, {4: 3, 5: 2, 6: 5, 11: 1}])
@pytest.mark.parametrize("name", ["sliding", "sliding by two keys", "tumbling over windows", "join", "top", "custom"])
def test_thousands_of_rows(name: str, counts: dict[int, int], waits: bool) -> None:
    computation, batches = scenarios()[name]
    batches = held_back(batches) if waits else batches
    keys = {"tumbling over windows": ["n"], "sliding by two keys": ["n", "k"], "top": ["k"]}.get(name, ["k"])
    merged = computation.best if isinstance(computation, Top) else lambda rows: rows
    outputs = check(computation, keys, batches, counts, merged)
    assert sum(rows_of(output).height for output in outputs) > 10


@given(row_batches(), COUNTS)
@settings(max_examples=60, deadline=None)
def test_late_rows_are_counted_alike(drawn: Rows, counts: dict[int, int]) -> None:
    # the watermark runs ahead of the rows: those behind it are left out, whichever task they come to
    batches = [Batch(batch.frames, number * 4 * SECOND) for number, batch in enumerate(drawn[1])]
    check(windows("t", ["k"], "4s", "2s", [pl.len()]), ["k"], batches, counts)


def check_rebuilt(computation: Computation, batches: Sequence[Batch], counts: dict[int, int]) -> None:
    """After every batch lose the states of now, and rebuild them from the batches that they say with the same tasks."""
    merged = computation.best if isinstance(computation, Top) else lambda rows: rows

    def rebuilt(tasks: Tasks, number: int) -> None:
        oldest = min(computation.oldest(state, number) for state in tasks.states)
        first = max(1, min(oldest - 1, number))
        fresh = Tasks(computation, tasks.keys, tasks.table)
        kept = Tasks(computation, tasks.keys, tasks.table, tasks.states)
        for earlier in range(first, number + 1):
            batch = batches[earlier - 1]
            if earlier == first > 1:  # of the batch before the oldest, the watermark alone counts
                batch = Batch(tuple(frame.clear() for frame in batch.frames), batch.watermark_us)
            fresh.step(batch, earlier)
        later = list(enumerate(batches[number:], start=number + 1))
        again = [fresh.step(batch, each) for each, batch in later]
        assert_same(again, [kept.step(batch, each) for each, batch in later], merged)

    followed(computation, ["k"], batches, counts, rebuilt)


@given(row_batches(), COUNTS)
@settings(max_examples=60, deadline=None)
def test_what_is_rebuilt_after_a_rescale_goes_on_alike(drawn: Rows, counts: dict[int, int]) -> None:
    check_rebuilt(windows("t", ["k"], "6s", "2s", [pl.col("v").sum(), pl.len()]), drawn[1], counts)


@given(window_batches(2), window_batches(1), COUNTS)
@settings(max_examples=40, deadline=None)
def test_so_are_joins_and_tops(drawn: Results, single: Results, counts: dict[int, int]) -> None:
    check_rebuilt(join(["k", "window"]), drawn[1], counts)
    check_rebuilt(top(2, by="v"), single[1], counts)


def test_every_row_is_with_one_task_and_what_is_said_of_tasks_with_all() -> None:
    computation, batches = scenarios()["sliding"]
    tasks = Tasks(computation, ["k"])
    for number in range(1, 8):
        tasks.step(batches[number - 1], number)
    parts = tasks.rescaled(3)
    [whole] = tasks.states
    for task, state in enumerate(parts.states):
        own = Groups.of(parts.table, task)
        for name, frame in state.items():
            if computation.holds_rows(name):
                assert own.covers(Groups(sum(1 << group for group in set(key_groups(frame, ["k"]).tolist()))))
            else:
                assert frame.equals(whole[name])
    for name in whole:
        held = [state[name] for state in parts.states if name in state]
        if computation.holds_rows(name):
            assert sum(frame.height for frame in held) == whole[name].height
        else:
            assert len(held) == 3
    back = parts.rescaled(1)
    assert {
        name: frame.sort(pl.all()).equals(whole[name].sort(pl.all())) for name, frame in back.states[0].items()
    } == (dict.fromkeys(whole, True))


def test_a_key_called_as_a_segment_is_does_not_confuse_them() -> None:
    # the segment passed/… has a column of that name
    rows = timed([(number * SECOND, number % 5) for number in range(40)], {"passed": pl.Int64})
    batches = [Batch((rows[start : start + 8],), (start + 4) * SECOND) for start in range(0, 40, 8)]
    check(windows("t", ["passed"], "4s", "2s", [pl.len()]), ["passed"], batches, {2: 3, 4: 2})


def test_tasks_at_different_watermarks_are_not_merged() -> None:
    computation = windows("t", ["k"], "2s", None, [pl.len()])
    rows = timed([(SECOND, "a")], {"k": pl.String})
    states = [computation.step({}, StepInput((rows,), watermark, 1)).state for watermark in (4 * SECOND, 8 * SECOND)]
    pieces = {name: [Piece(frame)] for state in states for name, frame in state.items()}
    with pytest.raises(StatesDiffer, match="stand at one watermark, found passed/1 and passed/3 of Windows"):
        rescaling.restored(computation, ["k"], pieces)


class Said(Computation):
    """Splits by key, but for what it says of the task."""

    splits = Splits.BY_KEY

    def step(self, state: State, given: StepInput) -> StepOutput:
        return StepOutput(state, given.frames[0])


def test_what_tasks_say_of_themselves_is_merged_if_they_agree() -> None:
    same = {"said": [Piece(pl.DataFrame({"x": [1]}), ALL)] * 2}
    assert rescaling.restored(Said(), ["k"], same)["said"].equals(pl.DataFrame({"x": [1]}))
    other = {"said": [Piece(pl.DataFrame({"x": [1]}), ALL), Piece(pl.DataFrame({"x": [2]}), ALL)]}
    with pytest.raises(StatesDiffer, match="found Said with different segments 'said'"):
        rescaling.restored(Said(), ["k"], other)


def test_an_operator_that_has_read_nothing_can_be_rescaled() -> None:
    computation = windows("t", ["k"], "2s", None, [pl.len()])
    nothing = timed([], {"k": pl.String})
    batches = [Batch((nothing,), NO_WATERMARK_US)] * 3
    check(computation, ["k"], batches, {2: 3, 3: 2})
