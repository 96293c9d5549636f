"""Committed results are never lost: made visible until they are, noticed when damaged, set aside when unexplained."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tenax.connectors.parquet import ParquetCommitter, ParquetSink, read_committed, visible_name
from tenax.connectors.sink import stage
from tenax.errors import ConflictingResults, DamagedStore, StoreFailed

RUN = "run"


def rows(*values: int) -> pl.DataFrame:
    return pl.DataFrame({"value": values}, schema={"value": pl.Int64})


class Output:
    """An output of one partition, and the driver that has it now."""

    def __init__(self, folder: Path) -> None:
        self.sink = ParquetSink(folder / "jams")
        self.epoch = 0
        self.next_driver()

    def next_driver(self) -> ParquetCommitter:
        self.epoch += 1
        self.committer = self.sink.committer("jams", self.sink.folder.parent, RUN, self.epoch)
        return self.committer

    def commit(self, *batches: int) -> None:
        for batch in batches:
            self.committer.commit(batch, [stage(self.sink, "jams", 0, batch, "1.9", rows(batch))])

    def path(self, batch: int) -> Path:
        return self.sink.folder / visible_name("jams", 0, batch)


@pytest.fixture
def output(tmp_path: Path) -> Output:
    return Output(tmp_path)


def test_a_folder_that_is_away_for_a_moment_loses_nothing_however_often_a_commit_is_tried(output: Output) -> None:
    output.commit(1)
    away = output.sink.folder.with_name("elsewhere")
    staged = [stage(output.sink, "jams", 0, 2, "1.9", rows(2))]
    output.sink.folder.rename(away)
    for _ in range(3):
        with pytest.raises(StoreFailed, match="No such file"):
            output.committer.commit(2, staged)
    assert not output.sink.folder.exists()  # made anew it could not come back
    away.rename(output.sink.folder)
    output.committer.commit(2, staged)
    output.commit(3)
    assert read_committed(output.sink.folder).equals(rows(1, 2, 3))
    assert list(output.sink.staged.iterdir()) == []


def test_a_driver_that_ends_while_the_folder_is_away_leaves_all_to_the_next(output: Output) -> None:
    output.commit(1)
    away = output.sink.folder.with_name("elsewhere")
    staged = [stage(output.sink, "jams", 0, 2, "1.9", rows(2))]
    output.sink.folder.rename(away)
    with pytest.raises(StoreFailed):
        output.committer.commit(2, staged)
    with pytest.raises(DamagedStore, match=r"has 2 committed results in this folder, found no folder: put it back"):
        output.next_driver()
    away.rename(output.sink.folder)
    assert output.next_driver().last_batch(0) == 2
    assert read_committed(output.sink.folder).equals(rows(1, 2))


def test_a_tentative_result_that_could_not_be_shown_is_shown_when_tried_again(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged = [stage(output.sink, "jams", 0, 1, "1.9", rows(1))]
    output.sink.tentative.write_text("a file is in the way")
    with pytest.raises(StoreFailed):
        output.committer.show(1, staged, 0.5)
    output.sink.tentative.unlink()
    output.committer.show(1, staged, 0.5)
    assert pl.read_parquet(output.sink.tentative).equals(rows(1))
    output.committer.commit(1, [stage(output.sink, "jams", 0, 1, "1.10", rows(1, 2))])
    assert list(output.sink.tentative.iterdir()) == []


def test_without_a_commit_log_results_are_set_aside_and_named_and_none_is_deleted(output: Output) -> None:
    output.commit(*range(1, 10))
    before = {path.name: path.read_bytes() for path in output.sink.folder.iterdir()}
    for path in output.sink.log.iterdir():
        path.unlink()
    committer = output.next_driver()
    assert list(output.sink.folder.iterdir()) == []
    aside = output.sink.set_aside / "00000002"
    assert {path.name: path.read_bytes() for path in aside.iterdir()} == before
    assert len(committer.notices) == 9
    assert all("no entry of the commit log names it" in notice and str(aside) in notice for notice in committer.notices)
    output.commit(*range(1, 10))
    assert read_committed(output.sink.folder).equals(rows(*range(1, 10)))


def test_taking_over_sets_unexplained_results_aside_and_spares_files_of_others(output: Output) -> None:
    output.commit(1)
    stage(output.sink, "jams", 0, 2, "1.9", rows(2))
    rows(7).write_parquet(output.path(7))
    notes = output.sink.folder / "notes.parquet"
    rows(8).write_parquet(notes)
    strange = output.sink.staged / "strange"
    strange.write_text("nobody knows")
    output.next_driver()
    assert not output.path(7).exists()
    assert pl.read_parquet(output.sink.set_aside).equals(rows(7))
    assert notes.exists()
    assert [path.name for path in output.sink.staged.iterdir()] == ["strange"]
    assert read_committed(output.sink.folder).equals(rows(1))


@pytest.mark.parametrize("harm", ["deleted", "shortened", "lengthened"])
def test_a_damaged_result_is_owed_until_it_is_made_again(output: Output, harm: str) -> None:
    output.commit(1, 2, 3)
    path = output.path(2)
    match harm:
        case "deleted":
            path.unlink()
        case "shortened":
            path.write_bytes(path.read_bytes()[:-9])
        case _:
            path.write_bytes(path.read_bytes() + b"more")
    committer = output.next_driver()
    assert list(committer.owed) == [(2, 0)]
    assert committer.last_batch(0) == 1
    assert path.name in committer.notices[0]
    assert not path.exists()
    with pytest.raises(ConflictingResults, match="found 2 rows of batch 2 after 1"):
        committer.commit(2, [stage(output.sink, "jams", 0, 2, "2.1", rows(2, 2))])
    with pytest.raises(ConflictingResults, match=r"made again to the byte"):
        committer.commit(2, [stage(output.sink, "jams", 0, 2, "2.1", rows(5))])
    output.commit(2, 3)
    assert list(committer.owed) == []
    assert committer.last_batch(0) == 3
    assert read_committed(output.sink.folder).equals(rows(1, 2, 3))
    assert output.next_driver().notices == []


def test_a_survey_that_reads_finds_a_changed_byte(output: Output) -> None:
    output.commit(1, 2)
    content = bytearray(output.path(1).read_bytes())
    content[9] ^= 1
    output.path(1).write_bytes(content)
    store = output.sink.folder.parent
    assert output.sink.survey("jams", store).damaged == {}
    damaged = output.sink.survey("jams", store, read=True).damaged
    assert list(damaged) == [(1, 0)]
    assert "checksum" in damaged[1, 0]
