"""Lateness, row by row, against a loop over rows."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from operators.step_runs import cuts, timed

from tenax.errors import InvalidRequest
from tenax.model.durations import microseconds
from tenax.operators.computation import NO_WATERMARK_US
from tenax.operators.lateness import Overdue, admit, readable


def one_by_one(times: list[int | None], allowed: int) -> tuple[list[int], list[int], int | None]:
    latest: int | None = None
    on_time, late = [], []
    for position, time in enumerate(times):
        if time is None or (latest is not None and time < latest - allowed):
            late.append(position)
        else:
            on_time.append(position)
            latest = time if latest is None else max(latest, time)
    return on_time, late, latest


@settings(deadline=None, max_examples=60)
@given(st.lists(st.none() | st.integers(-50, 50), max_size=40), st.integers(0, 30), st.data())
def test_lateness_does_not_depend_on_the_cut(times: list[int | None], allowed: int, data: st.DataObject) -> None:
    frame = timed([(time, position) for position, time in enumerate(times)], {"at": pl.Int64})
    on_time: list[int] = []
    late: list[int] = []
    maximum = watermark = NO_WATERMARK_US
    for start, end in data.draw(cuts(len(times))):
        admitted = admit(frame[start:end], "t", maximum, allowed)
        on_time += admitted.on_time["at"].to_list()
        late += admitted.late["at"].to_list()
        assert admitted.on_time["t"].cast(pl.Int64).min() is None or all(
            time >= watermark for time in admitted.on_time["t"].cast(pl.Int64).to_list()
        )
        maximum, watermark = admitted.maximum_us, admitted.watermark_us
    expected_on_time, expected_late, latest = one_by_one(times, allowed)
    assert (on_time, late) == (expected_on_time, expected_late)
    assert maximum == (NO_WATERMARK_US if latest is None else latest)
    assert watermark == (NO_WATERMARK_US if latest is None else latest - allowed)


def test_a_column_that_is_no_time_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="cast it"):
        admit(pl.DataFrame({"t": [1]}), "t", NO_WATERMARK_US, 0)
    with pytest.raises(InvalidRequest, match="is not among"):
        admit(pl.DataFrame({"t": [1]}), "u", NO_WATERMARK_US, 0)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 10**9) | st.integers(1, 2**50), min_size=1, max_size=60), st.integers(0, 20_000))
def test_the_lateness_that_is_advised_keeps_what_it_promises(needed: list[int], on_time: int) -> None:
    overdue = Overdue.of(np.array(needed, np.int64))
    assert overdue.most_us == max(needed)
    assert sum(overdue.buckets.values()) == len(needed)
    rows = len(needed) + on_time
    lateness_us, share = overdue.would_keep(rows)
    written = microseconds(readable(lateness_us))
    assert written >= lateness_us
    for allowed_us in (lateness_us, written):
        dropped = sum(time > allowed_us for time in needed)
        assert dropped <= rows * (1.0 - share) + 1e-9
    if len(needed) > rows * 0.001:  # it is not much more than was needed
        wanted = sorted(needed)[-1 - int(rows * 0.001)]
        assert lateness_us <= max(wanted * 1.2, wanted + 1)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.integers(1, 10**9), max_size=10), min_size=1, max_size=4))
def test_how_late_rows_were_adds_up_over_batches(batches: list[list[int]]) -> None:
    together = Overdue()
    for batch in batches:
        together = together.and_also(Overdue.of(np.array(batch, np.int64)))
    assert together == Overdue.of(np.array([time for batch in batches for time in batch], np.int64))


def test_an_allowed_lateness_of_what_is_advised_makes_no_row_late() -> None:
    rng = np.random.default_rng(7)
    times = np.arange(20_000) * 1_000 - rng.integers(0, 1_800_000, 20_000)
    frame = timed([(int(time),) for time in times], {})
    dropped = admit(frame, "t", NO_WATERMARK_US, 0)
    assert dropped.late.height > 0.9 * frame.height
    lateness_us, share = dropped.overdue.would_keep(frame.height)
    assert readable(lateness_us) == "2s"
    kept = admit(frame, "t", NO_WATERMARK_US, microseconds("2s"))
    assert kept.late.height <= frame.height * (1 - share)


@pytest.mark.parametrize(
    ("span_us", "written"),
    [
        (0, "1ms"),
        (1, "1ms"),
        (1_001, "2ms"),
        (400_000, "500ms"),
        (500_001, "1s"),
        (1_700_000, "2s"),
        (50_000_000, "1m"),
        (46 * 60_000_000, "1h"),
        (13 * 3_600_000_000, "1d"),
        (25 * 3_600_000_000, "2d"),
    ],
)
def test_spans_are_rounded_up_to_what_people_write(span_us: int, written: str) -> None:
    assert readable(span_us) == written
