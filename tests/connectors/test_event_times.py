"""Event times of files: units, zones, and times that nobody can have meant."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from tenax.connectors.files import FileSource, files
from tenax.connectors.source import Limits, NothingNew, Planned
from tenax.connectors.times import AHEAD_US
from tenax.errors import UnreadableSource
from tenax.store import records

START = datetime(2024, 1, 1)
START_S = 1_704_067_200
NOW_US = (START_S + 3_600) * 1_000_000
MANY = Limits(rows=1_000_000)


def read(source: FileSource, now_us: int = NOW_US) -> pl.DataFrame:
    planned = source.plan(None, 1, MANY, now_us)
    assert isinstance(planned, Planned)
    return source.read(0, json.loads(json.dumps(planned.ranges[0])))


def write(folder: Path, *times: object) -> Path:
    (folder / "a.ndjson").write_text("".join(json.dumps({"ts": time}) + "\n" for time in times))
    return folder


@pytest.mark.parametrize(("unit", "per_s"), [("s", 1), ("ms", 1_000), ("us", 1_000_000), ("ns", 1_000_000_000)])
def test_whole_numbers_count_in_the_unit_that_is_stated(tmp_path: Path, unit: str, per_s: int) -> None:
    write(tmp_path, START_S * per_s, (START_S + 2) * per_s)
    rows = read(files(tmp_path, time="ts", time_unit=unit))
    assert rows["ts"].dtype == pl.Datetime("us")
    assert rows["ts"].to_list() == [START, START + timedelta(seconds=2)]


def test_whole_numbers_without_a_unit_are_refused_before_any_row_is_read(tmp_path: Path) -> None:
    write(tmp_path, START_S)
    with pytest.raises(UnreadableSource) as raised:
        files(tmp_path, time="ts").plan(None, 1, MANY, NOW_US)
    assert str(raised.value) == (
        f"{tmp_path}/a.ndjson: whole numbers as event times need a unit, found Int64 in column 'ts': write "
        "time_unit='s', 'ms', 'us' or 'ns'"
    )
    with pytest.raises(UnreadableSource, match="schema: whole numbers as event times need a unit, found Int32"):
        files(tmp_path, time="ts", schema={"ts": pl.Int32()})  # at the call, where a schema tells


def test_a_unit_for_times_that_are_no_numbers_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "2024-01-01T00:00:00")
    with pytest.raises(UnreadableSource, match="a time_unit is for whole numbers, found String in column 'ts'"):
        files(tmp_path, time="ts", time_unit="ms").plan(None, 1, MANY, NOW_US)


def test_a_time_before_1990_is_refused_with_its_row_and_value(tmp_path: Path) -> None:
    write(tmp_path, START_S * 1_000, START_S)  # one row in seconds among milliseconds
    source = files(tmp_path, time="ts", time_unit="ms")
    with pytest.raises(UnreadableSource) as raised:
        read(source)
    assert str(raised.value) == (
        f"{tmp_path}/a.ndjson, row 2: event times lie between 1990 and tomorrow, found {START_S} ms in column 'ts', "
        "which is before 1990: correct the row, or the time_unit, or allow it with any_time=True"
    )
    assert read(files(tmp_path, time="ts", time_unit="ms", any_time=True))["ts"][1] == datetime(
        1970, 1, 20, 17, 21, 7, 200_000
    )


def test_a_time_more_than_a_day_ahead_of_the_drivers_clock_is_refused_whenever_the_range_is_read(
    tmp_path: Path,
) -> None:
    tomorrow = START + timedelta(days=1, hours=1)
    write(tmp_path, START.isoformat(), tomorrow.isoformat(), (tomorrow + timedelta(seconds=1)).isoformat())
    source = files(tmp_path, time="ts")
    planned = source.plan(None, 1, MANY, NOW_US)
    assert isinstance(planned, Planned)
    assert records.mapping(planned.ranges[0])["until_us"] == NOW_US + AHEAD_US
    with pytest.raises(
        UnreadableSource, match=r"row 3: .*'2024-01-02T01:00:01'.*after 2024-01-02 01:00 UTC, a day ahead"
    ):
        source.read(0, planned.ranges[0])
    assert read(source, NOW_US + 2_000_000).height == 3
    allowed = files(tmp_path, time="ts", any_time=True)
    assert allowed.read(0, planned.ranges[0]).height == 3  # also of what was planned before it was allowed


def test_numbers_that_pass_64_bits_of_microseconds_are_named(tmp_path: Path) -> None:
    write(tmp_path, START_S, 2**62)
    with pytest.raises(
        UnreadableSource, match=rf"row 2: event times fit into 64 bits of microseconds, found {2**62} s"
    ):
        read(files(tmp_path, time="ts", time_unit="s", any_time=True))


def test_dates_are_midnight_in_utc(tmp_path: Path) -> None:
    pl.DataFrame({"ts": [START.date()]}).write_parquet(tmp_path / "a.parquet")
    assert read(files(tmp_path, time="ts"))["ts"].to_list() == [START]


def test_a_stated_schema_lets_a_run_begin_before_the_first_file_is_there(tmp_path: Path) -> None:
    source = files(tmp_path, time="ts", schema={"ts": pl.String(), "n": pl.Int64()})
    planned = source.plan(None, 2, MANY, NOW_US)
    assert isinstance(planned, Planned)
    assert (planned.rows, planned.quiet, planned.ended) == (0, (0, 1), False)
    assert source.read(0, planned.ranges[0]).schema == {"ts": pl.Datetime("us"), "n": pl.Int64}
    assert source.plan(planned.position, 2, MANY, NOW_US) == NothingNew()
