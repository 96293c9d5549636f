"""Files that grow: whole lines are read as they come, whatever else happens to a file is an error by its name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from tenax.connectors.files import FileSource, files
from tenax.connectors.source import Limits, NothingNew, Planned
from tenax.connectors.watching import Change, FileWatch
from tenax.errors import ChangedSource, InvalidSource, UnreadableSource
from tenax.store.records import Json

START = datetime(2024, 1, 1)
NOW_US = 1_800_000_000_000_000
MANY = Limits(rows=1_000_000)
SUFFIXES = ("csv", "ndjson")


def line(suffix: str, number: int) -> str:
    at = (START + timedelta(seconds=number)).isoformat()
    return (
        f'{at},{number},"two\nlines"\n' if suffix == "csv" else json.dumps({"ts": at, "n": number, "text": ""}) + "\n"
    )


def append(path: Path, numbers: Sequence[int], rest: str = "") -> None:
    suffix = path.suffix[1:]
    head = "ts,n,text\n" if suffix == "csv" and not path.exists() else ""
    with path.open("a") as file:
        file.write(head + "".join(line(suffix, number) for number in numbers) + rest)


def planned(source: FileSource, position: Json, limits: Limits = MANY, partitions: int = 1) -> Planned:
    planned = source.plan(json.loads(json.dumps(position)), partitions, limits, NOW_US)
    assert isinstance(planned, Planned)
    return planned


def numbers(source: FileSource, plan: Planned, partition: int = 0) -> list[int]:
    return source.read(partition, json.loads(json.dumps(plan.ranges[partition])))["n"].to_list()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_whole_lines_are_read_as_they_come(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    source = files(tmp_path, time="ts", tail=True)
    assert source.plan(None, 1, MANY, NOW_US) == NothingNew()
    path.write_text("ts,n" if suffix == "csv" else '{"ts": "2024-')  # not even a first line
    assert source.plan(None, 1, MANY, NOW_US) == NothingNew()
    path.unlink()
    half = line(suffix, 3)
    append(path, [0, 1, 2], rest=half[:20])
    first = planned(source, None)
    assert numbers(source, first) == [0, 1, 2]
    assert source.plan(first.position, 1, MANY, NOW_US) == NothingNew()
    append(path, [4], rest="")
    path.write_text(path.read_text().replace(half[:20] + line(suffix, 4), half + line(suffix, 4)))  # the rest of it
    second = planned(source, first.position)
    assert numbers(source, second) == [3, 4]
    assert numbers(source, first) == [0, 1, 2]  # again, from a file that has grown
    assert source.plan(second.position, 1, MANY, NOW_US) == NothingNew()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_limits_hold_and_all_files_get_their_turn(tmp_path: Path, suffix: str) -> None:
    for name in "abc":
        append(tmp_path / f"{name}.{suffix}", range(10))
    source = files(tmp_path, time="ts", tail=True)
    position: Json = None
    read: dict[int, list[int]] = {0: [], 1: []}
    for _ in range(50):
        planned = source.plan(position, 2, Limits(rows=4), NOW_US)
        if isinstance(planned, NothingNew):
            break
        assert planned.rows <= 4
        for partition in read:
            read[partition] += numbers(source, planned, partition)
        position = planned.position
    assert sorted(read[0]) == sorted([*range(10), *range(10)])
    assert read[1] == list(range(10))


def test_the_last_line_counts_without_its_newline_where_nobody_follows(tmp_path: Path) -> None:
    append(tmp_path / "a.csv", [0, 1], rest="2024-01-01T00:00:02,2,x")
    following = planned(files(tmp_path, time="ts", tail=True), None)
    assert following.rows == 2
    source = files(tmp_path, time="ts", tail=True, follow=False)
    rest = planned(source, following.position)
    assert (numbers(source, rest), rest.ended) == ([2], True)
    assert source.plan(rest.position, 1, MANY, NOW_US) == NothingNew(ended=True)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_that_was_cut_off_replaced_or_rewritten_is_refused_by_name(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    append(path, range(20))
    source = files(tmp_path, time="ts", tail=True)
    first = planned(source, None)
    whole = path.read_text()
    path.write_text(whole[:100])
    with pytest.raises(ChangedSource, match=rf"a\.{suffix}: a file that is tailed only grows, found 100 bytes where"):
        planned(source, first.position)
    with pytest.raises(ChangedSource, match=rf"a\.{suffix}"):
        source.read(0, first.ranges[0])
    path.write_text(whole.replace("00:07", "00:08") + line(suffix, 20))  # rewritten, and longer
    with pytest.raises(ChangedSource, match="its first 20 rows changed or replaced"):
        planned(source, first.position)
    other = tmp_path / "other.txt"
    other.write_text("x" * len(whole) * 2)
    other.rename(path)
    with pytest.raises(ChangedSource, match="its first 20 rows changed or replaced"):
        source.resumed(first.position)
    path.write_text(whole + line(suffix, 20))
    assert source.resumed(first.position) == first.position
    assert source.changed(first.ranges[0]) is None
    assert numbers(source, planned(source, first.position)) == [20]


def test_a_file_that_is_renamed_while_it_is_tailed_is_not_read_twice(tmp_path: Path) -> None:
    append(tmp_path / "a.csv", range(5))
    source = files(tmp_path, time="ts", tail=True)
    first = planned(source, None)
    (tmp_path / "a.csv").rename(tmp_path / "b.csv")
    with pytest.raises(ChangedSource, match=r"b\.csv: a file that is tailed keeps its name, found 'a\.csv' renamed"):
        planned(source, first.position)


def test_a_file_may_go_once_it_was_read_to_its_end(tmp_path: Path) -> None:
    append(tmp_path / "a.csv", range(5))
    source = files(tmp_path, time="ts", tail=True)
    half = planned(source, None, Limits(rows=3))
    whole = planned(source, half.position)
    (tmp_path / "a.csv").unlink()
    with pytest.raises(UnreadableSource, match=r"a\.csv: .*found it gone with \d+ bytes unread"):
        planned(source, half.position)
    assert planned(source, whole.position).rows == 0  # it is forgotten, and may come again
    with pytest.raises(UnreadableSource, match=r"a\.csv: a file stays until the checkpoints no longer need it"):
        source.read(0, half.ranges[0])


def test_parquet_is_not_tailed_and_partitions_stay(tmp_path: Path) -> None:
    append(tmp_path / "a.csv", range(5))
    source = files(tmp_path, time="ts", tail=True)
    first = planned(source, None)
    with pytest.raises(InvalidSource, match="keep the parallelism"):
        source.plan(first.position, 2, MANY, NOW_US)
    pl.DataFrame({"ts": [START], "n": [1], "text": ["x"]}).write_parquet(tmp_path / "b.parquet")
    with pytest.raises(UnreadableSource, match=r"b\.parquet: CSV and NDJSON files can be tailed"):
        source.plan(first.position, 1, MANY, NOW_US)


class Clock:
    """Turned by hand."""

    now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 10.0
        return self.now_s


def test_a_followed_file_that_changes_after_it_was_read_is_named_once_for_each_change(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    append(path, range(5))
    source = files(tmp_path, time="ts")
    first = planned(source, None)
    watch = FileWatch(source, None, [], Clock())
    assert watch.look(first) == []
    before = path.stat().st_size
    append(path, [5])
    grown = Change(path, before, path.stat().st_size)
    assert watch.look(NothingNew()) == [grown]
    assert str(grown) == (
        f"{path} has grown from {before} to {path.stat().st_size} bytes after it was read: that is not read. Put new "
        "rows into a new file, or tail the source (tail=True)"
    )
    assert watch.look(NothingNew()) == []
    path.unlink()
    assert watch.look(NothingNew()) == []
    append(path, [7])
    assert len(watch.look(NothingNew())) == 1


def test_rows_that_come_to_a_file_which_had_none_are_not_lost_in_silence(tmp_path: Path) -> None:
    append(tmp_path / "a.csv", range(5))
    append(tmp_path / "b.csv", [])  # its header
    source = files(tmp_path, time="ts")
    first = planned(source, None)
    watch = FileWatch(source, None, [], Clock())
    assert watch.look(first) == []
    append(tmp_path / "b.csv", [5])
    assert [file.path.name for file in watch.look(NothingNew())] == ["b.csv"]


def test_a_driver_that_starts_names_files_that_changed_while_none_ran(tmp_path: Path) -> None:
    for name in "ab":
        append(tmp_path / f"{name}.csv", range(5))
    source = files(tmp_path, time="ts")
    now_us = max((tmp_path / f"{name}.csv").stat().st_mtime_ns for name in "ab") // 1_000 + 1
    first = source.plan(None, 1, MANY, now_us)
    assert isinstance(first, Planned)
    assert FileWatch(source, first.position, [], Clock()).look(NothingNew()) == []  # ranges are trimmed by now
    append(tmp_path / "b.csv", [5])
    (change,) = FileWatch(source, first.position, [], Clock()).look(NothingNew())
    assert str(change).startswith(f"{tmp_path / 'b.csv'} has changed (")
