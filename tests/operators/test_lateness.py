"""Lateness, row by row, against a loop over rows."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from operators.step_runs import cuts, timed

from tenax.errors import InvalidRequest
from tenax.operators.computation import NO_WATERMARK_US
from tenax.operators.lateness import admit


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
