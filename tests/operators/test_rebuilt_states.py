"""A state that is rebuilt from a few batches gives the same bytes as one that was never lost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from operators.step_runs import ROW_SCHEMA, SECOND, Batch, Totals, row_batches, timed, window_batches

from tenax.operators.chunks import encode
from tenax.operators.computation import END_WATERMARK_US, Computation, State, StepInput
from tenax.operators.join import join
from tenax.operators.stateless import filter_rows
from tenax.operators.top import top
from tenax.operators.windows import windows

BATCHES = 40
AGGREGATES = [
    pl.col("v").sum(),
    pl.col("v").mean().alias("mean"),
    pl.col("v").std().alias("std"),
    pl.col("v").first().alias("first"),
    pl.col("v").last().alias("last"),
    pl.col("v").max().alias("max"),
    pl.len(),
]


def stream(seed: int, odd_times: bool) -> list[Batch]:
    """About a second a batch, 3 s late at most, some batches without rows; floats whose sums depend on their order.

    With odd times a few rows come long after the watermark, or long before their time, as a map may make them.
    """
    draw = np.random.default_rng(seed)
    batches: list[Batch] = []
    for number in range(1, BATCHES + 1):
        size = 0 if draw.random() < 0.15 else int(draw.integers(1, 60))
        times = number * SECOND - draw.integers(0, 3 * SECOND, size)
        if odd_times:
            times += np.where(draw.random(size) < 0.05, draw.integers(-30, 12, size) * SECOND, 0)
        frame = pl.DataFrame(
            {
                "t": pl.Series(times, dtype=pl.Int64).cast(pl.Datetime("us")),
                "k": pl.Series([f"key {number}" for number in draw.integers(0, 6, size)], dtype=pl.String),
                "n": draw.integers(0, 2, size),
                "v": pl.Series(draw.normal(0, 1, size) ** 3, dtype=pl.Float64),
            }
        )
        lag = int(draw.integers(0, 3)) if number % 7 else 0
        watermark = max([(number - 3 - lag) * SECOND, *(batch.watermark_us for batch in batches[-1:])])
        batches.append(Batch((frame,), watermark))
    return [*batches[:-1], Batch(batches[-1].frames, END_WATERMARK_US)]


def of_windows(batches: Sequence[Batch]) -> list[Batch]:
    """The same rows as results of windows, in two inputs."""
    end = (pl.col("t").dt.truncate("2s") + pl.duration(seconds=2)).alias("window_end")
    results = []
    for batch in batches:
        rows = batch.frames[0].select("k", "n", "v", (end - pl.duration(seconds=4)).alias("window_start"), end)
        results.append(Batch((rows, rows.filter(pl.col("v") > 0)), batch.watermark_us))
    return results


def stepped(computation: Computation, batches: Sequence[Batch]) -> tuple[list[State], list[bytes]]:
    """The states and outputs after every batch, counted from 1; the state before the first comes first."""
    states, outputs = [computation.initial()], [b""]
    for number, batch in enumerate(batches, start=1):
        output = computation.step(states[-1], StepInput(batch.frames, batch.watermark_us, number))
        states.append(output.state)
        outputs.append(encode(output.rows, 0))
    return states, outputs


def since(computation: Computation, state: State, batch: int) -> int:
    """The first batch that is stepped to rebuild a state: the one before the oldest that it depends on."""
    return max(1, min(computation.oldest(state, batch) - 1, batch))


def rebuilt(computation: Computation, batches: Sequence[Batch], first: int, last: int) -> State:
    """The state after a batch, from the initial one; of its first batch nothing but the watermark counts."""
    state = computation.initial()
    for number in range(first, last + 1):
        frames, watermark = batches[number - 1].frames, batches[number - 1].watermark_us
        if number == first > 1:
            frames = tuple(frame.clear() for frame in frames)
        state = computation.step(state, StepInput(frames, watermark, number)).state
    return state


def judge(computation: Computation, batches: Sequence[Batch], lost_after: Sequence[int]) -> list[int]:
    """Whatever batch it is lost after, a rebuilt state goes on alike; how many batches each was rebuilt from."""
    states, outputs = stepped(computation, batches)
    needed = []
    for lost in lost_after:
        first = since(computation, states[lost], lost)
        needed.append(lost - first + 1)
        state = rebuilt(computation, batches, first, lost)
        for number in range(lost + 1, len(batches) + 1):
            batch = batches[number - 1]
            output = computation.step(state, StepInput(batch.frames, batch.watermark_us, number))
            assert encode(output.rows, 0) == outputs[number], f"lost after {lost}, rebuilt from {first}: {number}"
            again = since(computation, output.state, number)
            assert again >= min(first, since(computation, states[number], number)), "it never needs more than before"
            state = output.state
    return needed


COMPUTATIONS: dict[str, Computation] = {
    "tumbling": windows("t", ["k"], "5s", None, AGGREGATES),
    "sliding": windows("t", ["k"], "8s", "1s", AGGREGATES),
    "sliding by an odd number of panes": windows("t", ["k", "n"], "14s", "2s", AGGREGATES),
    "one pane a batch and more": windows("t", [], "3s", "500ms", AGGREGATES),
}
OF_WINDOWS: dict[str, Computation] = {
    "windows over windows": windows("window_end", ["k"], "8s", "4s", AGGREGATES),
    "join": join(["k", "window"]),
    "top": top(3, by="v", per=["n"]),
}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("odd_times", [False, True])
@pytest.mark.parametrize("name", [*COMPUTATIONS, *OF_WINDOWS])
def test_a_rebuilt_state_gives_the_same_bytes_from_then_on(name: str, odd_times: bool, seed: int) -> None:
    batches = stream(seed, odd_times)
    computation = COMPUTATIONS.get(name) or OF_WINDOWS[name]
    if name in OF_WINDOWS:
        batches = of_windows(batches)
    needed = judge(computation, batches, range(3 + 4 * seed, BATCHES, 12))
    if not odd_times:
        assert needed[-1] < BATCHES * 3 // 4, "what a state depends on follows its windows, not its age"


def test_rows_that_were_left_out_stay_left_out() -> None:
    # of the second batch nothing is in the state, but only the watermark tells that its row comes too late
    given = [((0, "a"), 20), ((15, "late"), 20), ((20, "a"), 20), ((21, "a"), 22), ((22, "a"), 30)]
    batches = [
        Batch((timed([(at * SECOND, key, 0, 1.0)], ROW_SCHEMA),), watermark * SECOND) for (at, key), watermark in given
    ]
    assert judge(windows("t", ["k"], "8s", "1s", AGGREGATES), batches, [3]) == [2]


@settings(deadline=None, max_examples=25)
@given(row_batches(), st.sampled_from(["4s", "2s", "1s"]))
def test_windows_of_any_rows_are_rebuilt_alike(drawn: tuple[pl.DataFrame, list[Batch]], every: str) -> None:
    _, batches = drawn
    judge(windows("t", ["k"], "4s", every, AGGREGATES), batches, range(1, len(batches)))


@settings(deadline=None, max_examples=25)
@given(window_batches(2))
def test_joins_of_any_rows_are_rebuilt_alike(drawn: tuple[list[pl.DataFrame], list[Batch]]) -> None:
    _, batches = drawn
    judge(join(["k", "window"]), batches, range(1, len(batches)))


@settings(deadline=None, max_examples=25)
@given(window_batches(1))
def test_the_top_of_any_rows_is_rebuilt_alike(drawn: tuple[list[pl.DataFrame], list[Batch]]) -> None:
    _, batches = drawn
    judge(top(2, by="v", per=["k"]), batches, range(1, len(batches)))


def test_few_segments_wait_however_long_the_stream() -> None:
    batches = stream(1, odd_times=False)
    states, _ = stepped(windows("t", ["k"], "40s", None, AGGREGATES), batches)
    assert max(sum(name.startswith("pending/") for name in state) for state in states) <= BATCHES.bit_length()


def test_only_windows_joins_and_tops_say_that_they_can_be_rebuilt() -> None:
    assert all(computation.bounded for computation in (*COMPUTATIONS.values(), *OF_WINDOWS.values()))
    assert not Totals().bounded
    assert filter_rows(pl.col("v") > 0).stateless
