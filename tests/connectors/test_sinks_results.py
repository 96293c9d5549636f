"""Sinks: each final result once, whoever commits it how often; orphans swept; ordinary folders of Parquet."""

from __future__ import annotations

import io
import pickle
from pathlib import Path

import polars as pl
import pytest

from tenax.connectors.delivery import CallbackSink, callback, console
from tenax.connectors.parquet import StagedFile, parquet, read_committed, visible_name
from tenax.connectors.sink import stage
from tenax.errors import ConflictingResults, DamagedStore, EpochLost

RUN = "run"


def rows(*values: int) -> pl.DataFrame:
    return pl.DataFrame({"value": values}, schema={"value": pl.Int64})


def test_the_folder_read_by_polars_is_the_committed_rows(tmp_path: Path) -> None:
    sink = parquet(tmp_path / "jams")
    committer = sink.committer("jams", tmp_path, RUN, 1)
    for batch in (1, 2, 3):
        staged = [stage(sink, "jams", partition, batch, "9", rows(batch, partition)) for partition in (1, 0)]
        committer.commit(batch, staged)
    expected = rows(1, 0, 1, 1, 2, 0, 2, 1, 3, 0, 3, 1)
    assert read_committed(tmp_path / "jams").equals(expected)
    assert pl.read_parquet(tmp_path / "jams").equals(expected)
    assert {path.suffix for path in (tmp_path / "jams").iterdir()} == {".parquet"}


def test_staged_results_are_not_visible(tmp_path: Path) -> None:
    sink = parquet(tmp_path / "jams")
    sink.committer("jams", tmp_path, RUN, 1)
    first, second = (StagedFile.of(stage(sink, "jams", 0, 1, "9", rows(1))) for _ in range(2))
    assert first.name != second.name
    assert (first.rows, first.bytes, first.crc32) == (second.rows, second.bytes, second.crc32)
    assert list((tmp_path / "jams").iterdir()) == []


def test_an_empty_result_is_committed_without_a_file(tmp_path: Path) -> None:
    sink = parquet(tmp_path / "jams")
    committer = sink.committer("jams", tmp_path, RUN, 1)
    committer.commit(1, [stage(sink, "jams", 0, 1, "9", rows())])
    assert committer.is_committed(1, 0)
    assert not committer.is_committed(1, 1)
    assert list((tmp_path / "jams").iterdir()) == []
    assert sink.committer("jams", tmp_path, RUN, 2).is_committed(1, 0)
    assert read_committed(tmp_path / "jams").is_empty()


def test_a_commit_repeated_changes_nothing_and_another_result_is_refused(tmp_path: Path) -> None:
    sink = parquet(tmp_path / "jams")
    committer = sink.committer("jams", tmp_path, RUN, 1)
    committer.commit(1, [stage(sink, "jams", 0, 1, "9", rows(1, 2))])
    committer.commit(1, [stage(sink, "jams", 0, 1, "10", rows(1, 2))])
    assert list(sink.staged.iterdir()) == []
    with pytest.raises(ConflictingResults, match=r"batch 1, partition 0.*found 1 rows of batch 1 after 2"):
        committer.commit(1, [stage(sink, "jams", 0, 1, "11", rows(1))])
    assert read_committed(tmp_path / "jams").equals(rows(1, 2))


def test_other_attempts_at_a_result_are_cleared_when_it_is_committed(tmp_path: Path) -> None:
    sink = parquet(tmp_path / "jams")
    committer = sink.committer("jams", tmp_path, RUN, 1)
    stage(sink, "jams", 0, 1, "cancelled", rows(1))
    other = stage(sink, "jams", 0, 2, "9", rows(2))
    committer.commit(1, [stage(sink, "jams", 0, 1, "9", rows(1))])
    assert [path.name for path in sink.staged.iterdir()] == [StagedFile.of(other).name]


def test_partitions_may_be_committed_apart_and_out_of_order(tmp_path: Path) -> None:
    sink = parquet(tmp_path / "jams")
    committer = sink.committer("jams", tmp_path, RUN, 1)
    committer.commit(2, [stage(sink, "jams", 0, 2, "9", rows(20))])
    committer.commit(1, [stage(sink, "jams", 0, 1, "9", rows(10))])
    committer.commit(1, [stage(sink, "jams", 1, 1, "9", rows(11))])
    assert read_committed(tmp_path / "jams").equals(rows(10, 11, 20))
    assert committer.last_batch(0) == 2
    assert committer.last_batch(1) == 1


def test_an_older_driver_commits_nothing(tmp_path: Path) -> None:
    sink = parquet(tmp_path / "jams")
    old = sink.committer("jams", tmp_path, RUN, 1)
    new = sink.committer("jams", tmp_path, RUN, 2)
    with pytest.raises(EpochLost, match="found epoch 2 beside this one's 1"):
        old.commit(1, [stage(sink, "jams", 0, 1, "9", rows(1))])
    assert not new.is_committed(1, 0)
    assert list((tmp_path / "jams").iterdir()) == []
    with pytest.raises(EpochLost):
        sink.committer("jams", tmp_path, RUN, 1)


def test_a_folder_of_another_run_is_refused_and_left_to_it(tmp_path: Path) -> None:
    sink = parquet(tmp_path / "jams")
    owner = sink.committer("jams", tmp_path, RUN, 1)
    owner.commit(1, [stage(sink, "jams", 0, 1, "9", rows(1))])
    with pytest.raises(ConflictingResults, match="run run"):
        sink.committer("jams", tmp_path, "another", 2)
    owner.commit(2, [stage(sink, "jams", 0, 2, "9", rows(2))])
    assert read_committed(tmp_path / "jams").equals(rows(1, 2))


def test_a_damaged_result_is_named(tmp_path: Path) -> None:
    sink = parquet(tmp_path / "jams")
    sink.committer("jams", tmp_path, RUN, 1).commit(1, [stage(sink, "jams", 0, 1, "9", rows(1))])
    path = tmp_path / "jams" / visible_name("jams", 0, 1)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DamagedStore, match=path.name):
        read_committed(tmp_path / "jams")


def test_a_staged_result_that_vanished_is_named_and_can_be_staged_again(tmp_path: Path) -> None:
    sink = parquet(tmp_path / "jams")
    committer = sink.committer("jams", tmp_path, RUN, 1)
    staged = stage(sink, "jams", 0, 1, "9", rows(1))
    name = StagedFile.of(staged).name
    (sink.staged / name).unlink()
    with pytest.raises(DamagedStore, match=name):
        committer.commit(1, [staged])
    committer.commit(1, [stage(sink, "jams", 0, 1, "10", rows(1))])
    assert read_committed(tmp_path / "jams").equals(rows(1))


def test_a_function_gets_each_result_once_in_order(tmp_path: Path) -> None:
    got: list[tuple[int, int, list[int]]] = []
    sink = callback(lambda batch, partition, frame: got.append((batch, partition, frame["value"].to_list())))
    shipped = pickle.loads(pickle.dumps(sink))
    assert isinstance(shipped, CallbackSink)
    staged = [stage(shipped, "jams", partition, 1, "9", rows(partition)) for partition in (1, 0)]
    empty = stage(shipped, "jams", 2, 1, "9", rows())
    committer = sink.committer("jams", tmp_path, RUN, 1)
    committer.commit(1, [*staged, empty])
    committer.commit(1, [*staged, empty])
    sink.committer("jams", tmp_path, RUN, 2).commit(1, staged)
    assert got == [(1, 0, [0]), (1, 1, [1])]


def test_a_function_that_fails_gets_that_result_again_and_no_other(tmp_path: Path) -> None:
    got: list[int] = []

    def deliver(batch: int, partition: int, frame: pl.DataFrame) -> None:
        got.append(partition)
        if got == [0, 1]:
            raise ConnectionError

    sink = callback(deliver)
    staged = [stage(sink, "jams", partition, 1, "9", rows(partition)) for partition in range(3)]
    with pytest.raises(ConnectionError):
        sink.committer("jams", tmp_path, RUN, 1).commit(1, staged)
    sink.committer("jams", tmp_path, RUN, 2).commit(1, staged)
    assert got == [0, 1, 1, 2]


def test_the_console_shows_rows(tmp_path: Path) -> None:
    screen = io.StringIO()
    sink = console(screen, rows=2)
    sink.committer("jams", tmp_path, RUN, 1).commit(4, [stage(sink, "jams", 0, 4, "9", rows(5, 6, 7, 8, 9))])
    assert "batch 4, partition 0: 5 rows" in screen.getvalue()
    assert len(screen.getvalue().splitlines()) < 14
