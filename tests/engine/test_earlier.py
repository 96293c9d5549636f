"""What a node has of tasks from before a rescale is not read from the store again."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pytest

from tenax.control.versions import PassId, Version
from tenax.engine.worker.earlier import Earlier
from tenax.engine.worker.orders import Places
from tenax.engine.worker.process import is_same_run
from tenax.engine.worker.states import States
from tenax.errors import StoreFailed
from tenax.model.tasks import Task
from tenax.operators.custom import DELETED, HASH, Changes, KeyedComputation
from tenax.operators.groups import Groups
from tenax.operators.keys import key_hashes
from tenax.store.checkpoints import StoredSegment, upload_segments

TASK, NEW = Task("sums", 0), Task("sums", 1)
AFTER = PassId(1, 9)


class Counts(KeyedComputation):
    keys = ("key",)
    state_schema = pl.Schema({"key": pl.Int64, "n": pl.Int64})

    def step_keys(self, rows: pl.DataFrame, state: pl.DataFrame, watermark_us: int) -> tuple[pl.DataFrame, Changes]:  # noqa: ARG002
        return rows, Changes()


def segment(rows: int) -> pl.DataFrame:
    frame = pl.DataFrame({"key": range(rows), "n": [1] * rows}).with_columns(pl.lit(False).alias(DELETED))
    return frame.with_columns(pl.Series(HASH, key_hashes(frame, ["key"]), dtype=pl.UInt64)).sort(HASH)


@pytest.fixture
def left(tmp_path: Path) -> tuple[States, tuple[StoredSegment, ...]]:
    """A node with a version of the old task, which lies in the store as well; its store is gone afterwards."""
    (tmp_path / "nodes").mkdir()
    (tmp_path / "store").mkdir()
    states = States(Places(tmp_path / "nodes", tmp_path / "store"), "node")
    version = Version(TASK, 4, PassId(1, 4))
    states.save(version, {}, {"keys/4": segment(50)})
    payloads = {part.segment: part.read() for part in states.parts(version, {})}
    stored = upload_segments(tmp_path / "store", TASK, payloads)
    shutil.rmtree(tmp_path / "store")
    return states, stored


def half(stored: tuple[StoredSegment, ...]) -> list[StoredSegment]:
    groups = str(Groups.of([group % 2 for group in range(128)], 1))
    return [
        StoredSegment(part.segment, part.file, part.offset, part.bytes, part.crc32, groups, str(TASK))
        for part in stored
    ]


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_task_that_stays_on_its_node_reads_nothing_from_the_store(
    left: tuple[States, tuple[StoredSegment, ...]], tmp_path: Path, in_memory: bool
) -> None:
    states, stored = left
    if not in_memory:
        states.forget(TASK)
    now = States(Places(tmp_path / "nodes", tmp_path / "store"), "node")
    now.earlier = Earlier(states)
    state = now.load(Version(NEW, 4, AFTER), half(stored), Counts(), ["key"]).state
    wanted = segment(50)
    groups = (key_hashes(wanted, ["key"]) >> 57) % 2 == 1
    assert state["keys/4"].equals(wanted.filter(pl.Series(groups)))


def test_another_process_of_the_node_finds_it_some_batches_later(
    left: tuple[States, tuple[StoredSegment, ...]], tmp_path: Path
) -> None:
    states, stored = left
    places, here = Places(tmp_path / "nodes", tmp_path / "store"), half(stored)
    first = States(places, "node")
    first.earlier = Earlier(states)
    held = first.load(Version(TASK, 4, AFTER), here, Counts(), ["key"])
    for batch in range(5, 12):
        first.save(Version(TASK, batch, AFTER), held.index, held.state)
    second = States(places, "node")
    second.earlier = Earlier(second)
    assert second.load(Version(TASK, 11, AFTER), None, Counts(), ["key"]).state["keys/4"].equals(held.state["keys/4"])
    assert first.read_bytes == second.read_bytes == 0


def test_what_is_not_there_is_read_from_the_store(
    left: tuple[States, tuple[StoredSegment, ...]], tmp_path: Path
) -> None:
    _, stored = left
    elsewhere = States(Places(tmp_path / "nodes", tmp_path / "store"), "another")
    elsewhere.earlier = Earlier(elsewhere)
    with pytest.raises(StoreFailed):  # it is gone
        elsewhere.load(Version(NEW, 4, AFTER), half(stored), Counts(), ["key"])


def test_another_content_of_that_name_is_not_taken(
    left: tuple[States, tuple[StoredSegment, ...]], tmp_path: Path
) -> None:
    states, stored = left
    states.save(Version(TASK, 5, PassId(1, 5)), {}, {"keys/4": segment(49)})
    states.forget(TASK)
    shutil.rmtree(states.folder(TASK))
    now = States(Places(tmp_path / "nodes", tmp_path / "store"), "node")
    now.earlier = Earlier(states)
    with pytest.raises(StoreFailed):
        now.load(Version(NEW, 4, AFTER), half(stored), Counts(), ["key"])


def test_versions_of_one_run_are_told_from_other_runs() -> None:
    assert is_same_run("ab12-3", "ab12-3v2")
    assert is_same_run("ab12-3v2", "ab12-3v3")
    assert not is_same_run("ab12-3", "ab12-4")
    assert not is_same_run("ab12-3v2", "cd12-3v2")
