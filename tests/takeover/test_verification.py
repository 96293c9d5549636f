"""Verifying a run that has ended: everything is read, damage is named, and what can be made again is set aside."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tenax.api.streams import Topology
from tenax.connectors.parquet import ParquetSink, read_committed, visible_name
from tenax.connectors.sink import stage
from tenax.connectors.workloads import elements
from tenax.control.versions import Cut, PassId, Version
from tenax.errors import DamagedStore
from tenax.model.tasks import Task
from tenax.store import cuts
from tenax.store.checkpoints import Checkpoint, upload_segments
from tenax.store.store import Store
from tenax.takeover.consistency import check_takeover
from tenax.takeover.verification import (
    ACCEPTED,
    CAN_BE_MADE,
    GONE,
    MADE_AGAIN,
    PASSED_OVER,
    STOPS,
    STRANGE,
    Findings,
    note_outputs,
    verify,
)

BATCHES = 12
TASK = Task("b", 0)


class Left:
    """What a run of twelve batches has left, with a checkpoint after every fourth; the log is trimmed, or whole."""

    def __init__(self, folder: Path, *, trimmed: bool) -> None:
        self.store = folder / "store"
        self.sink = ParquetSink(folder / "jams")
        store = Store.open(self.store, {})
        committer = self.sink.committer("jams", self.store, store.identity, store.epoch)
        note_outputs(self.store, {"jams": (self.sink, 1)})
        for batch in range(1, BATCHES + 1):
            store.log_batch(batch, {"reads": batch})
            rows = pl.DataFrame({"value": [batch]})
            committer.commit(batch, [stage(self.sink, "jams", 0, batch, "1.1", rows)])
            if batch % 4 == 0:
                self._checkpoint(store, batch)
                store.trim(batch - 4, batch - 3 if trimmed else 0)
        store.close()
        committer.close()

    def _checkpoint(self, store: Store, batch: int) -> None:
        notes = cuts.to_record(Cut(batch, (Version(TASK, batch, PassId(1, batch)),)))
        parts = upload_segments(self.store, TASK, {f"state/{batch}": b"state" * batch})
        store.commit_checkpoint(Checkpoint(batch, store.epoch, {TASK: parts}, {}, notes))

    def path(self, batch: int) -> Path:
        return self.sink.folder / visible_name("jams", 0, batch)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def thens(findings: Findings) -> list[str]:
    return [problem.then for problem in findings.problems]


def test_a_run_that_is_as_it_was_written_has_no_findings(tmp_path: Path) -> None:
    left = Left(tmp_path, trimmed=True)
    findings = verify(left.store)
    assert findings.problems == []
    assert (findings.checkpoints, findings.batches, findings.results) == (2, 4, BATCHES)


def test_a_changed_byte_in_a_result_is_found_and_set_aside_to_be_made_again(tmp_path: Path) -> None:
    left = Left(tmp_path, trimmed=False)
    flip(left.path(3))
    assert thens(verify(left.store, repair=False)) == [CAN_BE_MADE]
    assert left.path(3).exists()
    (finding,) = verify(left.store).problems
    assert finding.then == MADE_AGAIN
    assert left.path(3).name in finding.what
    assert not left.path(3).exists()
    assert list(left.sink.set_aside.rglob("*.parquet"))
    epoch = Store.open(left.store, {}).epoch
    committer = left.sink.committer("jams", left.store, Store.open(left.store, {}).identity, epoch)
    assert list(committer.owed) == [(3, 0)]


def test_a_result_before_what_is_kept_of_the_batch_log_is_lost_unless_that_is_accepted(tmp_path: Path) -> None:
    left = Left(tmp_path, trimmed=True)
    left.path(2).unlink()
    flip(left.path(4))
    flip(left.path(11))
    assert thens(verify(left.store, repair=False)) == [GONE, GONE, CAN_BE_MADE]
    assert thens(verify(left.store, accept_losses=True)) == [ACCEPTED, ACCEPTED, MADE_AGAIN]
    assert thens(verify(left.store)) == [MADE_AGAIN]  # still to be made, by the next start
    store = Store.open(left.store, {})
    committer = left.sink.committer("jams", left.store, store.identity, store.epoch)
    assert list(committer.owed) == [(11, 0)]
    committer.commit(11, [stage(left.sink, "jams", 0, 11, "9.1", pl.DataFrame({"value": [11]}))])
    assert read_committed(left.sink.folder)["value"].to_list() == [1, 3, *range(5, BATCHES + 1)]


def test_damaged_checkpoints_are_passed_over_as_long_as_there_is_a_way_on(tmp_path: Path) -> None:
    left = Left(tmp_path, trimmed=True)
    older, newer = sorted((left.store / "segments").rglob("state*"))
    flip(newer)
    assert thens(verify(left.store)) == [PASSED_OVER]
    flip(older)
    assert thens(verify(left.store)) == [STOPS, STOPS]


def test_logs_that_contradict_each_other_stop_the_run(tmp_path: Path) -> None:
    left = Left(tmp_path, trimmed=True)
    (log,) = left.sink.log.iterdir()
    whole = log.read_bytes()
    log.write_bytes(b"".join(whole.splitlines(keepends=True)[:6]))
    problems = verify(left.store).problems
    assert [problem.then for problem in problems if problem.is_lost] == [STOPS]
    assert "commit log of output 'jams' ends at batch 5" in problems[0].what
    assert len(list(left.sink.folder.iterdir())) == BATCHES
    log.write_bytes(whole.replace(b'"batch":3', b'"batch":4'))
    (finding,) = verify(left.store).problems
    assert "line 4" in finding.what


def test_a_start_refuses_what_cannot_be_made_again_and_what_other_code_would_have_to_make(tmp_path: Path) -> None:
    left = Left(tmp_path, trimmed=True)
    topology = Topology("t")
    topology.source("rows", elements()).output("jams", left.sink)
    application = topology.build()
    check_takeover(left.store, application, {}, changed=True)
    left.path(11).unlink()
    check_takeover(left.store, application, {}, changed=False)
    with pytest.raises(DamagedStore, match=r"b0000000011.* made again by the code that made them, found other code"):
        check_takeover(left.store, application, {}, changed=True)
    left.path(2).unlink()
    with pytest.raises(DamagedStore, match=r"b0000000002.* cannot be made again: .* --accept-losses"):
        check_takeover(left.store, application, {}, changed=False)


def test_without_any_checkpoint_a_trimmed_log_is_refused_before_its_segments_are_swept(tmp_path: Path) -> None:
    left = Left(tmp_path, trimmed=True)
    topology = Topology("t")
    topology.source("rows", elements()).output("jams", left.sink)
    for manifest in (left.store / "checkpoints").iterdir():
        manifest.unlink()
    with pytest.raises(DamagedStore, match=r"found a batch log from batch 9 on and no whole checkpoint"):
        check_takeover(left.store, topology.build(), {}, changed=False)
    assert list((left.store / "segments").rglob("state*"))


def test_files_that_no_commit_names_are_named(tmp_path: Path) -> None:
    left = Left(tmp_path, trimmed=True)
    left.path(99).write_bytes(b"who are you")
    (finding,) = verify(left.store).problems
    assert finding.then == STRANGE
    assert left.path(99).name in finding.what


def test_results_that_were_moved_are_found_where_they_are_said_to_be(tmp_path: Path) -> None:
    left = Left(tmp_path, trimmed=True)
    for name in ("jams", ".jams.tenax"):
        (tmp_path / "moved").mkdir(exist_ok=True)
        (tmp_path / name).rename(tmp_path / "moved" / name)
    assert verify(left.store).problems
    assert verify(left.store, folders={"jams": tmp_path / "moved" / "jams"}).problems == []


@pytest.mark.parametrize("words", [["--results", "jams"], ["--look-only", "--accept-losses"]])
def test_wrong_words_are_refused_in_one_line(
    tmp_path: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    from tenax.cli.main import run

    left = Left(tmp_path, trimmed=True)
    assert run(["verify", str(left.store), *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_command_says_what_is_damaged_and_exits_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tenax.cli.main import run

    left = Left(tmp_path, trimmed=False)
    assert run(["verify", str(left.store)]) == 0
    assert "all as it was written" in capsys.readouterr().out
    flip(left.path(3))
    assert run(["verify", str(left.store)]) == 1
    said = capsys.readouterr().out
    assert left.path(3).name in said.replace("\n", "")
    assert "makes it again" in said
