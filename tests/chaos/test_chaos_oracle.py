"""The oracle without a cluster: every way in which results can be wrong is found and counted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from tenax.chaos.oracle import Verdict, compare, copy_batches
from tenax.connectors.parquet import ParquetSink, visible_name
from tenax.connectors.sink import stage
from tenax.errors import DamagedStore
from tenax.store import journal
from tenax.store.store import LoggedBatch, Store

OUTPUT = "out"
BATCHES, PARTITIONS = 3, 2


class Folder:
    """Results of a run, written by hand."""

    def __init__(self, folder: Path) -> None:
        self.sink = ParquetSink(folder / OUTPUT)
        self.committer = self.sink.committer(OUTPUT, folder, "run", 1)

    def commit(self, batch: int, partition: int, value: int) -> None:
        staged = stage(self.sink, OUTPUT, partition, batch, "1.1", pl.DataFrame({"value": [value]}))
        self.committer.commit(batch, [staged])

    def show(self, batch: int, partition: int, value: int) -> None:
        staged = stage(self.sink, OUTPUT, partition, batch, "1.2", pl.DataFrame({"value": [value]}))
        self.committer.show(batch, [staged], 0.5)

    def path(self, batch: int, partition: int) -> Path:
        return self.sink.folder / visible_name(OUTPUT, partition, batch)


def compared(folders: tuple[Folder, Folder]) -> Verdict:
    actual, expected = ({OUTPUT: folder.sink} for folder in folders)
    return compare(actual, expected)


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[tuple[Folder, Folder]]:
    """A run under faults without its last result, and a whole one."""
    written, expected = Folder(tmp_path / "found"), Folder(tmp_path / "expected")
    for batch in range(1, BATCHES + 1):
        for partition in range(PARTITIONS):
            expected.commit(batch, partition, 10 * batch + partition)
            if (batch, partition) != (BATCHES, PARTITIONS - 1):
                written.commit(batch, partition, 10 * batch + partition)
    yield written, expected
    written.committer.close()
    expected.committer.close()


def test_equal_results_hold_also_those_that_were_tentative_first(
    folders: tuple[Folder, Folder], tmp_path: Path
) -> None:
    folders[0].show(BATCHES, 1, 5)
    folders[0].commit(BATCHES, 1, 31)
    verdict = compared(folders)
    assert verdict.held
    assert (verdict.final, verdict.tentative, verdict.corrected) == (6, 1, 1)


def test_a_missing_result_is_lost(folders: tuple[Folder, Folder], tmp_path: Path) -> None:
    verdict = compared(folders)
    assert not verdict.held
    assert verdict.lost == ("out batch 3 partition 1",)
    assert (verdict.duplicated, verdict.different, verdict.uncorrected) == ((), (), ())


def test_a_result_that_stayed_tentative_is_lost_and_uncorrected(folders: tuple[Folder, Folder], tmp_path: Path) -> None:
    folders[0].show(BATCHES, 1, 31)
    verdict = compared(folders)
    assert len(verdict.lost) == 1
    assert verdict.uncorrected[0] == "out batch 3 partition 1"
    assert verdict.corrected == 0


def test_other_rows_are_different(folders: tuple[Folder, Folder], tmp_path: Path) -> None:
    folders[0].commit(BATCHES, 1, 99)
    verdict = compared(folders)
    assert verdict.different == ("out batch 3 partition 1",)


def test_a_file_changed_after_its_commit_is_different(folders: tuple[Folder, Folder], tmp_path: Path) -> None:
    folders[0].commit(BATCHES, 1, 31)
    path = folders[0].path(1, 0)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    folders[0].path(2, 0).unlink()
    verdict = compared(folders)
    assert verdict.different == ("out batch 1 partition 0", "out batch 2 partition 0")


def test_a_result_that_nobody_expects_is_different(folders: tuple[Folder, Folder], tmp_path: Path) -> None:
    folders[0].commit(BATCHES, 1, 31)
    folders[0].commit(BATCHES + 1, 0, 41)
    verdict = compared(folders)
    assert verdict.different == ("out batch 4 partition 0",)


def test_what_is_committed_or_visible_twice_is_duplicated(folders: tuple[Folder, Folder], tmp_path: Path) -> None:
    written = folders[0]
    written.commit(BATCHES, 1, 31)
    again = journal.read(written.sink.log)[0]
    written.committer._journal.append(again)
    (written.sink.folder / "out-b0000000001-p00000-copy.parquet").write_bytes(written.path(1, 0).read_bytes())
    verdict = compared(folders)
    assert verdict.duplicated == ("out batch 1 partition 0", "out-b0000000001-p00000-copy.parquet")


def test_a_replay_begins_with_the_batch_log_of_the_run(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store", {"name": "a"})
    for number in (1, 2, 3):
        store.log_batch(number, {"rows": number})
    store.close()
    copy_batches(tmp_path / "store", tmp_path / "again")
    again = Store.open(tmp_path / "again", {"name": "a"})
    assert again.batches == store.batches
    assert again.epoch == 1
    again.close()


def test_a_trimmed_batch_log_cannot_be_replayed(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store", {"name": "a"})
    for number in (1, 2):
        store.log_batch(number, {"rows": 1})
    store.replace_batches([LoggedBatch(2, {"rows": 1})])
    store.close()
    with pytest.raises(DamagedStore, match="from batch 1 on, found 2"):
        copy_batches(tmp_path / "store", tmp_path / "again")
