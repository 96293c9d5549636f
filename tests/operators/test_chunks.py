"""Chunks: what goes in comes out, equal frames are equal bytes, damage is seen."""

from __future__ import annotations

import datetime

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenax.errors import InvalidFile, InvalidRequest
from tenax.operators.chunks import decode, encode

SCHEMA: dict[str, pl.DataType] = {
    "s": pl.String(),
    "i": pl.Int64(),
    "f": pl.Float64(),
    "b": pl.Boolean(),
    "t": pl.Datetime("us"),
}
MOMENTS = st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2100, 1, 1))
CELLS = st.tuples(
    st.none() | st.text(max_size=20),
    st.none() | st.integers(-9, 9),
    st.none() | st.floats(),
    st.none() | st.booleans(),
    st.none() | MOMENTS,
)


@settings(deadline=None, max_examples=40)
@given(st.lists(CELLS, max_size=20), st.integers(-(2**63), 2**63 - 1))
def test_a_chunk_gives_back_rows_and_watermark(rows: list[tuple[object, ...]], watermark_us: int) -> None:
    frame = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    back, watermark = decode(encode(frame, watermark_us))
    assert back.equals(frame)
    assert back.schema == frame.schema
    assert watermark == watermark_us


@settings(deadline=None, max_examples=40)
@given(st.lists(CELLS, min_size=1, max_size=20), st.data())
def test_equal_frames_are_equal_bytes_whatever_was_done_to_make_them(
    rows: list[tuple[object, ...]], data: st.DataObject
) -> None:
    frame = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    cut = data.draw(st.integers(0, len(rows)))
    plain = encode(frame, 1)
    pieces = pl.concat([frame[:cut], frame[cut:]], rechunk=False)
    framed = pl.concat([frame, frame.reverse(), frame])[len(rows) * 2 :]
    masked = pl.concat([frame.with_columns(keep=True), frame.reverse().with_columns(keep=False)])
    assert encode(pieces, 1) == plain
    assert encode(framed, 1) == plain
    assert encode(masked.filter("keep").drop("keep"), 1) == plain
    assert encode(decode(plain)[0], 1) == plain
    assert encode(frame.sort("i").with_columns(pl.col("i").set_sorted()), 1) == encode(frame.sort("i"), 1)


def test_what_lies_under_a_null_does_not_travel() -> None:
    hidden = pl.DataFrame({"v": [7, 8, 3]}).select(pl.when(pl.col("v") < 5).then("v").alias("v"))
    assert encode(hidden, 0) == encode(pl.DataFrame({"v": [None, None, 3]}), 0)


def test_the_bytes_of_a_chunk_are_pinned_up_to_the_rows() -> None:
    data = encode(pl.DataFrame({"v": [1]}), -2)
    assert data[:4] == b"TNX1"
    assert data[8:16] == (-2).to_bytes(8, "little", signed=True)


def test_every_damaged_byte_is_seen() -> None:
    data = encode(pl.DataFrame({"v": [1, 2, 3], "s": ["a", None, "c"]}), 5)
    for position in range(len(data)):
        damaged = data[:position] + bytes([data[position] ^ 0x40]) + data[position + 1 :]
        with pytest.raises(InvalidFile) as error:
            decode(damaged)
        assert "\n" not in str(error.value)
    for length in (0, 5, 16, len(data) - 1):
        with pytest.raises(InvalidFile):
            decode(data[:length])


def test_columns_that_processes_read_differently_are_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"cast it to pl\.String"):
        encode(pl.DataFrame({"c": pl.Series(["a"], dtype=pl.Categorical)}), 0)


def test_a_filter_that_removes_all_nulls_leaves_no_trace_in_the_bytes() -> None:
    filtered = pl.DataFrame({"v": [1, None, 3], "s": ["a", None, "c"]}).filter(pl.col("v") > 0)
    assert encode(filtered, 0) == encode(pl.DataFrame({"v": [1, 3], "s": ["a", "c"]}), 0)
