"""Files that were corrected while no driver ran: what no result depends on is planned anew, the rest stays as it is."""

from __future__ import annotations

import threading
from pathlib import Path

import polars as pl
import pytest

from tenax.api.streams import Topology
from tenax.application.application import Application
from tenax.batching.batches import BatchPlanner, Forgotten
from tenax.connectors.files import FileSource, files
from tenax.connectors.parquet import parquet
from tenax.connectors.source import Limits, Planned
from tenax.errors import ChangedSource, UnreadableSource
from tenax.store.store import Store

ROWS_EACH = 10  # of a batch
SCHEMA = {"ts": pl.Int64(), "n": pl.Int64()}
TEXTS = ("csv", "ndjson")


def write(path: Path, numbers: list[int]) -> None:
    rows = pl.DataFrame({"ts": numbers, "n": numbers}, schema=SCHEMA)
    match path.suffix:
        case ".csv":
            rows.write_csv(path)
        case ".ndjson":
            rows.write_ndjson(path)
        case _:
            rows.write_parquet(path)


def source_of(folder: Path) -> FileSource:
    return files(folder, time="ts", time_unit="us", any_time=True, follow=False)


def planned_twice(source: FileSource) -> tuple[Planned, Planned]:
    first = source.plan(None, 1, Limits(ROWS_EACH), 0)
    assert isinstance(first, Planned)
    second = source.plan(first.position, 1, Limits(ROWS_EACH), 0)
    assert isinstance(second, Planned)
    return first, second


@pytest.mark.parametrize("suffix", TEXTS)
def test_a_file_corrected_behind_what_was_read_gives_the_same_ranges_and_goes_on_with_the_new_rows(
    tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"a.{suffix}"
    write(path, list(range(25)))
    source = source_of(tmp_path)
    first, second = planned_twice(source)
    write(path, [*range(20), 777, 888])
    for number, planned in enumerate((first, second)):
        assert source.changed(planned.ranges[0]) == str(path)
        again = source.read(0, source.renewed(planned.ranges[0]))
        assert again["n"].to_list() == list(range(number * 10, number * 10 + 10))
    third = source.plan(source.resumed(second.position), 1, Limits(ROWS_EACH), 0)
    assert isinstance(third, Planned)
    assert third.ended
    assert source.read(0, third.ranges[0])["n"].to_list() == [777, 888]


@pytest.mark.parametrize("suffix", TEXTS)
def test_a_file_cut_off_where_it_was_read_up_to_has_been_read(tmp_path: Path, suffix: str) -> None:
    write(tmp_path / f"a.{suffix}", list(range(25)))
    source = source_of(tmp_path)
    _, second = planned_twice(source)
    write(tmp_path / f"a.{suffix}", list(range(20)))
    write(tmp_path / f"b.{suffix}", [777])
    third = source.plan(source.resumed(second.position), 1, Limits(ROWS_EACH), 0)
    assert isinstance(third, Planned)
    assert source.read(0, third.ranges[0])["n"].to_list() == [777]


@pytest.mark.parametrize(
    ("suffix", "first_part", "both_parts"),
    [*((suffix, "its first 10 rows", "its first 20 rows") for suffix in TEXTS), ("parquet", "it", "it")],
)
def test_a_file_corrected_in_what_was_read_is_refused_by_name(
    tmp_path: Path, suffix: str, first_part: str, both_parts: str
) -> None:
    path = tmp_path / f"a.{suffix}"
    write(path, list(range(25)))
    source = source_of(tmp_path)
    first, second = planned_twice(source)
    write(path, [*range(5), 555, *range(6, 25)])
    with pytest.raises(ChangedSource, match=rf"{path.name}.*depend on {first_part}, put"):
        source.renewed(first.ranges[0])
    with pytest.raises(ChangedSource, match=rf"{path.name}.*depend on {both_parts}, put") as refused:
        source.resumed(second.position)
    assert "\n" not in str(refused.value)
    path.unlink()
    with pytest.raises(UnreadableSource, match=rf"{path.name}.*put it back"):
        source.renewed(first.ranges[0])


def application(data: Path, out: Path) -> Application:
    """rows (1) --> plain (1)"""
    topology = Topology("plain")
    topology.source("rows", source_of(data)).output("plain", parquet(out))
    return topology.build()


class Drivers:
    """Drivers that start one after the other on a store, and plan whatever there is."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.data.mkdir()
        self.application = application(self.data, folder / "out")
        self.folder = folder / "store"

    def start(self, checkpoint: int = 0, bound: int = 0) -> tuple[list[list[int]], Forgotten | None]:
        """The rows of each batch as the next driver would read them, and what it has forgotten."""
        store = Store.open(self.folder, {})
        planner = BatchPlanner(self.application, store, Limits(ROWS_EACH), 0.0)
        forgotten = planner.renew(checkpoint, bound)
        if planner.logged == 0 or not planner.batch(planner.logged).ended:
            planner.log(planner.logged + 1, 100, threading.Event())
        source = self.application.sources["rows"]
        ranges = [planner.batch(number).ranges["rows"][0] for number in range(checkpoint + 1, planner.logged + 1)]
        store.close()
        return [source.read(0, planned)["n"].to_list() for planned in ranges], forgotten


def test_batches_that_no_result_depends_on_are_planned_anew_from_the_first_that_reads_a_changed_file(
    tmp_path: Path,
) -> None:
    drivers = Drivers(tmp_path)
    write(drivers.data / "a.csv", list(range(10)))
    write(drivers.data / "b.csv", list(range(10, 25)))
    assert drivers.start() == ([[*range(10)], [*range(10, 20)], [*range(20, 25)]], None)
    write(drivers.data / "b.csv", [777])
    expected = [[*range(10)], [777]]
    assert drivers.start() == (expected, Forgotten(2, str(drivers.data / "b.csv")))
    assert drivers.start() == (expected, None)


def test_a_file_that_stopped_a_run_may_also_be_removed(tmp_path: Path) -> None:
    drivers = Drivers(tmp_path)
    for number, name in enumerate(("a", "b", "c")):
        write(drivers.data / f"{name}.csv", [*range(number * 10, number * 10 + 10)])
    drivers.start()
    (drivers.data / "b.csv").unlink()
    assert drivers.start(bound=1) == ([[*range(10)], [*range(20, 30)]], Forgotten(2, str(drivers.data / "b.csv")))


def test_a_file_half_of_which_is_in_results_may_be_corrected_in_the_other_half(tmp_path: Path) -> None:
    drivers = Drivers(tmp_path)
    write(drivers.data / "a.csv", list(range(25)))
    drivers.start()
    write(drivers.data / "a.csv", [*range(12), 777])
    expected = [[*range(10)], [10, 11, 777]]
    assert drivers.start(bound=1) == (expected, Forgotten(2, str(drivers.data / "a.csv")))
    assert drivers.start(bound=2) == (expected, None)


def test_a_file_that_results_depend_on_is_refused_and_the_log_stays(tmp_path: Path) -> None:
    drivers = Drivers(tmp_path)
    write(drivers.data / "a.csv", list(range(25)))
    before = drivers.start()
    kept = (drivers.data / "a.csv").stat()
    write(drivers.data / "a.csv", [777, *range(1, 25)])
    with pytest.raises(ChangedSource, match=r"a\.csv"):
        drivers.start(bound=1)
    write(drivers.data / "a.csv", list(range(25)))
    assert (drivers.data / "a.csv").stat().st_mtime_ns != kept.st_mtime_ns
    assert drivers.start(bound=3) == before


def test_what_a_checkpoint_covers_may_change_or_go(tmp_path: Path) -> None:
    drivers = Drivers(tmp_path)
    write(drivers.data / "a.csv", list(range(10)))
    write(drivers.data / "b.csv", list(range(10, 20)))
    drivers.start()
    (drivers.data / "a.csv").unlink()
    assert drivers.start(checkpoint=1, bound=2) == ([[*range(10, 20)]], None)
