"""Files as a source: any planned range reads the same rows again; new, changed and broken files."""

from __future__ import annotations

import json
import os
import pickle
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenax.connectors import formats
from tenax.connectors.files import FileSource, files
from tenax.connectors.source import Limits, NothingNew, Planned
from tenax.errors import ChangedSource, DifferingSchemas, InvalidRequest, InvalidSource, UnreadableSource
from tenax.store.records import Json

START = datetime(2024, 1, 1)
MAX_PLANS = 500
NOW_US = 1_800_000_000_000_000  # the driver's clock: 2027
MANY = Limits(rows=1_000_000)
SUFFIXES = ("parquet", "csv", "ndjson")


def frame(first: int, rows: int) -> pl.DataFrame:
    numbers = range(first, first + rows)
    texts = [f'row "{n}",\nwith a break' if n % 3 == 0 else f"row {n}" for n in numbers]
    return pl.DataFrame({"ts": [START + timedelta(seconds=n) for n in numbers], "n": numbers, "text": texts})


def write(path: Path, rows: pl.DataFrame) -> None:
    match path.suffix:
        case ".parquet":
            rows.write_parquet(path, row_group_size=7)
        case ".csv":
            rows.write_csv(path, datetime_format="%Y-%m-%dT%H:%M:%S%.6f")
        case _:
            rows.with_columns(pl.col("ts").dt.strftime("%Y-%m-%dT%H:%M:%S%.6f")).write_ndjson(path)


def drain(
    source: FileSource, partitions: int, limits: Limits, position: Json = None
) -> tuple[list[Planned], list[pl.DataFrame]]:
    """Plan until nothing is left; the plans, and for each partition all its rows, read in a shuffled order."""
    plans: list[Planned] = []
    for _ in range(MAX_PLANS):
        # As a restarted driver would: through the log, as JSON.
        planned = source.plan(json.loads(json.dumps(position)), partitions, limits, NOW_US)
        if isinstance(planned, NothingNew):
            break
        plans.append(planned)
        position = planned.position
        if planned.ended:
            break
    shipped = pickle.loads(pickle.dumps(source))
    read = {
        (number, partition): shipped.read(partition, json.loads(json.dumps(plans[number].ranges[partition])))
        for number in reversed(range(len(plans)))
        for partition in range(partitions)
    }
    return plans, [pl.concat([read[number, p] for number in range(len(plans))]) for p in range(partitions)]


@pytest.mark.parametrize("suffix", SUFFIXES)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    partitions=st.integers(1, 3),
    limits=st.builds(Limits, rows=st.integers(1, 60), bytes=st.integers(1, 3_000)),
)
@settings(deadline=None, max_examples=12)
def test_ranges_read_alone_are_the_rows_read_whole(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, sizes: list[int], partitions: int, limits: Limits
) -> None:
    folder = tmp_path_factory.mktemp("data")
    whole, first = [], 0
    for number, size in enumerate(sizes):
        whole.append(frame(first, size))
        write(folder / f"{number:03d}.{suffix}", whole[-1])
        first += size
    plans, by_partition = drain(files(folder, time="ts", follow=False), partitions, limits)
    everything = pl.concat(by_partition)
    assert everything.schema == {"ts": pl.Datetime("us"), "n": pl.Int64, "text": pl.String}
    assert everything.sort("n").equals(pl.concat(whole))
    for rows in by_partition:
        assert rows["n"].is_sorted()
    assert plans[-1].ended
    assert sum(plan.rows for plan in plans) == first
    assert all(plan.rows <= max(limits.rows, partitions) for plan in plans)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_range_reads_the_same_rows_in_the_same_order_each_time(tmp_path: Path, suffix: str) -> None:
    write(tmp_path / f"a.{suffix}", frame(0, 100))
    source = files(tmp_path / f"a.{suffix}", time="ts", follow=False)
    plans, rows = drain(source, 2, Limits(rows=14))
    assert len(plans) == 15
    assert pl.concat(rows).equals(frame(0, 100))
    assert source.read(0, plans[3].ranges[0]).equals(source.read(0, plans[3].ranges[0]))
    assert source.read(0, plans[3].ranges[0])["n"].to_list() == list(range(21, 28))
    assert source.read(1, plans[3].ranges[1]).height == 0


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_new_files_are_picked_up_while_running(tmp_path: Path, suffix: str) -> None:
    source = files(tmp_path, time="ts")
    assert source.plan(None, 2, MANY, NOW_US) == NothingNew()
    write(tmp_path / f"b.{suffix}", frame(0, 5))
    first = source.plan(None, 2, MANY, NOW_US)
    assert isinstance(first, Planned)
    assert not first.ended
    assert source.plan(first.position, 2, MANY, NOW_US) == NothingNew()
    write(tmp_path / f"c.{suffix}", frame(10, 5))
    write(tmp_path / f"a.{suffix}", frame(20, 5))
    plans, rows = drain(source, 2, MANY, first.position)
    assert len(plans) == 1
    assert sorted(pl.concat(rows)["n"]) == [*range(10, 15), *range(20, 25)]


def test_files_are_taken_in_the_order_of_names_among_those_present(tmp_path: Path) -> None:
    for name in ("c", "a", "b"):
        write(tmp_path / f"{name}.parquet", frame({"a": 0, "b": 10, "c": 20}[name], 10))
    _, rows = drain(files(tmp_path, time="ts", follow=False), 1, Limits(rows=4))
    assert rows[0]["n"].to_list() == list(range(30))


def test_each_partition_reads_files_of_its_own_in_balance(tmp_path: Path) -> None:
    for number in range(4):
        write(tmp_path / f"{number}.csv", frame(number * 100, 50))
    _, rows = drain(files(tmp_path, time="ts", follow=False), 4, Limits(rows=40))
    assert [row["n"].to_list() for row in rows] == [list(range(p * 100, p * 100 + 50)) for p in range(4)]


def test_a_batch_of_a_large_text_file_reads_little_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.csv"
    path.write_text("ts,n\n" + "".join(f"{n},{n}\n" for n in range(600_000)))
    assert path.stat().st_size > 8_000_000
    source = files(tmp_path, time="ts", time_unit="us", any_time=True)
    read: list[int] = []
    real = formats.read_block

    def counted(file: Path, at: int, length: int) -> bytes:
        read.append(length)
        return real(file, at, length)

    monkeypatch.setattr(formats, "read_block", counted)
    first = source.plan(None, 1, Limits(rows=100), NOW_US)
    assert isinstance(first, Planned)
    read.clear()
    second = source.plan(first.position, 1, Limits(rows=100), NOW_US)
    assert isinstance(second, Planned)
    assert sum(read) <= (1 << 20) + 2_000  # a look for the ends of rows, and the piece for its checksum
    assert source.read(0, second.ranges[0])["n"].to_list() == list(range(100, 200))


def test_rows_longer_than_the_limit_of_bytes_come_one_by_one(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", frame(0, 9))
    plans, rows = drain(files(tmp_path, time="ts", follow=False), 1, Limits(rows=100, bytes=1))
    assert [plan.rows for plan in plans] == [1] * 9
    assert rows[0].equals(frame(0, 9))


def test_bytes_of_parquet_rows_are_counted_as_they_lie_in_memory_not_in_the_file(tmp_path: Path) -> None:
    rows = 10_000
    same = pl.DataFrame({"ts": [START] * rows, "n": [7] * rows, "x": [0.5] * rows})
    same.write_parquet(tmp_path / "a.parquet")
    assert (tmp_path / "a.parquet").stat().st_size < rows  # a byte a row, where three columns have 24
    plans, _ = drain(files(tmp_path, time="ts", follow=False), 2, Limits(rows=rows, bytes=24 * 2_000))
    assert [plan.rows for plan in plans] == [1_000] * 10  # one file, and half of the bytes for each partition
    texts = pl.DataFrame({"ts": [START] * 100, "text": [f"{n:0100}" for n in range(100)]})
    texts.write_parquet(tmp_path / "b.parquet")
    source = files(tmp_path / "b.parquet", time="ts", follow=False)
    planned = source.plan(None, 1, Limits(rows=100, bytes=10 * (8 + 100)), NOW_US)
    assert isinstance(planned, Planned)
    assert 5 <= planned.rows <= 10


def test_a_plan_looks_at_the_files_that_it_takes_not_at_all_that_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(50):
        write(tmp_path / f"{number:02}.parquet", frame(10 * number, 10))
    looked: list[Path] = []
    is_file = Path.is_file

    def look(path: Path) -> bool:
        looked.append(path)
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", look)
    planned = files(tmp_path, time="ts", follow=False).plan(None, 1, Limits(rows=20), NOW_US)
    assert isinstance(planned, Planned)
    assert planned.rows == 20
    assert len(looked) <= 3


def test_hidden_and_foreign_files_are_left_alone(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", frame(0, 3))
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".b.csv").write_text("half")
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "folder.csv").mkdir()
    _, rows = drain(files(tmp_path, time="ts", follow=False), 1, MANY)
    assert rows[0].height == 3


def test_a_pattern_may_span_folders_and_formats_of_text(tmp_path: Path) -> None:
    for number, name in enumerate(("x/a.csv", "y/b.csv", "y/z/c.ndjson")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write(tmp_path / name, frame(number * 10, 10))
    _, rows = drain(files(tmp_path / "**" / "*.*", time="ts", follow=False), 1, MANY)
    assert rows[0]["n"].to_list() == list(range(30))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_changed_file_is_refused_by_name(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    write(path, frame(0, 50))
    source = files(tmp_path, time="ts")
    planned = source.plan(None, 1, Limits(rows=10), NOW_US)
    assert isinstance(planned, Planned)
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    with pytest.raises(ChangedSource, match=path.name):
        source.read(0, planned.ranges[0])
    with pytest.raises(ChangedSource, match=path.name):
        source.plan(planned.position, 1, Limits(rows=10), NOW_US)
    path.unlink()
    with pytest.raises(UnreadableSource, match=path.name):
        source.read(0, planned.ranges[0])


def test_a_row_that_cannot_be_parsed_is_named_by_file_and_row(tmp_path: Path) -> None:
    csv = "ts,n\n" + "".join(f"2024-01-01T00:00:00,{n}\n" for n in range(20_000))
    (tmp_path / "a.csv").write_text(csv + "2024-01-01T00:00:00,oops\n2024-01-01T00:00:00,1\n")
    ndjson = "".join(f'{{"ts": {n}, "n": {n}}}\n' for n in range(20_000))
    (tmp_path / "b.ndjson").write_text(ndjson + '{"ts": 1, "n": tru\n{"ts": 2, "n": 3}\n')
    for name in ("a.csv", "b.ndjson"):
        unit = "us" if name == "b.ndjson" else None
        source = files(tmp_path / name, time="ts", time_unit=unit, any_time=True)
        with pytest.raises(UnreadableSource) as error:
            drain(source, 1, Limits(rows=6_000))
        assert f"{name}, row 20001:" in str(error.value)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.ndjson"])
def test_a_file_that_is_not_of_its_format_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b'"\x00\xff never closed\n')
    with pytest.raises(UnreadableSource, match=name) as error:
        drain(files(tmp_path, time="ts"), 1, MANY)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("change", ["more", "less", "type"])
def test_files_with_other_columns_are_refused_by_name(tmp_path: Path, suffix: str, change: str) -> None:
    rows = frame(0, 5)
    write(tmp_path / f"a.{suffix}", rows)
    other = {
        "more": rows.with_columns(extra=pl.lit(1)),
        "less": rows.drop("text"),
        "type": rows.with_columns(n=pl.lit("x")),
    }[change]
    write(tmp_path / f"b.{suffix}", other)
    source = files(tmp_path, time="ts")
    if suffix == "ndjson" and change == "less":  # there, rows may leave columns out
        _, read = drain(source, 1, MANY)
        assert read[0]["text"].null_count() == 5
        return
    with pytest.raises(DifferingSchemas, match=rf"b\.{suffix}: "):
        drain(source, 1, MANY)


def test_a_stated_schema_decides_the_types_of_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ts,code\n0,007\n1,42\n")
    schema: dict[str, pl.DataType] = {"ts": pl.Int64(), "code": pl.String()}
    source = files(tmp_path, time="ts", time_unit="s", any_time=True, follow=False, schema=schema)
    _, rows = drain(source, 1, MANY)
    assert rows[0]["code"].to_list() == ["007", "42"]


@pytest.mark.parametrize(
    "times",
    [
        ["2024-01-01T01:00:00+01:00", "2023-12-31 23:00:00.5-01:00"],
        ["2024-01-01T00:00:00Z", "2024-01-01 00:00:00.500"],
    ],
)
def test_event_times_are_read_as_utc_microseconds(tmp_path: Path, times: list[str]) -> None:
    (tmp_path / "a.ndjson").write_text("".join(json.dumps({"ts": time}) + "\n" for time in times))
    _, rows = drain(files(tmp_path, time="ts", follow=False), 1, MANY)
    assert rows[0]["ts"].dtype == pl.Datetime("us")
    assert rows[0]["ts"].to_list() == [START, START + timedelta(seconds=0.5)]


def test_event_times_of_parquet_with_a_zone_are_converted(tmp_path: Path) -> None:
    there = datetime(2024, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))).astimezone(UTC)
    zoned = pl.Series("ts", [there]).dt.cast_time_unit("ns").dt.convert_time_zone("Europe/Berlin")
    pl.DataFrame([zoned]).write_parquet(tmp_path / "a.parquet")
    _, rows = drain(files(tmp_path, time="ts", follow=False), 1, MANY)
    assert rows[0]["ts"].to_list() == [START]


def test_a_row_without_an_event_time_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ts,n\n2024-01-01T00:00:00,1\nyesterday,2\n")
    with pytest.raises(UnreadableSource, match=r"a\.csv, row 2: .*'yesterday'"):
        drain(files(tmp_path, time="ts"), 1, MANY)
    with pytest.raises(UnreadableSource, match="found no 'when'"):
        drain(files(tmp_path, time="when"), 1, MANY)


def test_files_without_rows_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ts,n\n")
    source = files(tmp_path, time="ts", follow=False)
    assert source.plan(None, 1, MANY, NOW_US) == NothingNew(ended=True)
    (tmp_path / "b.csv").write_text("ts,n\n2024-01-01T00:00:00,1")
    _, rows = drain(source, 1, MANY)
    assert rows[0]["n"].to_list() == [1]


def test_arguments_are_checked(tmp_path: Path) -> None:
    with pytest.raises(UnreadableSource, match="found none: correct the path"):
        files(tmp_path / "*.csv", time="ts", follow=False).plan(None, 1, MANY, NOW_US)
    with pytest.raises(InvalidSource):
        Limits(rows=0)
    with pytest.raises(InvalidRequest, match="a span of time is whole numbers with units"):
        files(tmp_path, time="ts", lateness="-1s")
    with pytest.raises(InvalidSource, match="a time_unit is one of s, ms, us, ns, found 'minutes'"):
        files(tmp_path, time="ts", time_unit="minutes")
    write(tmp_path / "a.csv", frame(0, 50))
    planned = files(tmp_path, time="ts").plan(None, 2, Limits(rows=4), NOW_US)
    assert isinstance(planned, Planned)
    with pytest.raises(InvalidSource, match="keep the parallelism"):
        files(tmp_path, time="ts").plan(planned.position, 3, MANY, NOW_US)
