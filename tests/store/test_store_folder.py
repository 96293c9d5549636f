"""The driver's store: epochs, the batch log, checkpoints that share segments, damage named, strangers refused."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenax.errors import DamagedStore, EpochLost, StoreFailed, UnsuitableStore
from tenax.model.tasks import Task
from tenax.store import durable, journal, records
from tenax.store.checkpoints import (
    Checkpoint,
    NoCheckpoint,
    ValidCheckpoint,
    damage_of,
    read_segment,
    upload_segments,
)
from tenax.store.events import EventLog, read_events
from tenax.store.store import Store, Trimmed, first_difference

A, B = Task("a", 0), Task("b", 1)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def store_with(folder: Path, checkpoints: int, batches_each: int = 2) -> Store:
    """A store whose every checkpoint shares one segment with all others and has one of its own."""
    store = Store.open(folder, {})
    for number in range(1, checkpoints + 1):
        for _ in range(batches_each):
            batch = len(store.batches) + 1
            store.log_batch(batch, {"reads": batch})
        commit(store, number * batches_each)
    return store


def commit(store: Store, batch: int) -> Checkpoint:
    shared = upload_segments(store.folder, A, {"base": b"shared" * 100})[0]
    own = upload_segments(store.folder, B, {f"delta/{batch}": f"own {batch}".encode()})[0]
    checkpoint = Checkpoint(batch, store.epoch, {A: (shared,), B: (own,)}, {"source": [batch]}, {"watermark": batch})
    store.commit_checkpoint(checkpoint)
    return checkpoint


def trim(store: Store) -> Trimmed:
    """As the coordinator instructs it: behind the newest two checkpoints, of which the beginning is one."""
    oldest = [0, *(number for number, _ in store.checkpoints.known())][-2:][0]
    return store.trim(oldest, oldest + 1)


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


@given(PLAIN)
@settings(deadline=None, max_examples=100)
def test_a_record_reads_back_equal(record: records.Json) -> None:
    assert records.decode(records.encode(record), "here") == record


def test_a_restarted_driver_finds_its_batches(tmp_path: Path) -> None:
    first = store_with(tmp_path, 1)
    second = Store.open(tmp_path, {})
    assert second.epoch == first.epoch + 1
    assert [(batch.number, batch.data) for batch in second.batches] == [(1, {"reads": 1}), (2, {"reads": 2})]
    assert second.identity == first.identity


def test_an_older_driver_is_refused_everywhere_and_leaves_no_trace(tmp_path: Path) -> None:
    old = store_with(tmp_path, 1)
    new = Store.open(tmp_path, {})
    for action in (
        old.check_epoch,
        lambda: trim(old),
        lambda: old.log_batch(3, {"reads": "old"}),
        lambda: commit(old, 4),
        lambda: old.commit_checkpoint(Checkpoint(3, new.epoch, {})),
    ):
        with pytest.raises(EpochLost):
            action()
    new.log_batch(3, {"reads": "new"})
    assert Store.open(tmp_path, {}).batches[-1].data == {"reads": "new"}
    assert [key[0] for key in new.checkpoints.known()] == [2]


def test_what_a_frozen_driver_appends_after_the_takeover_is_never_read(tmp_path: Path) -> None:
    old = store_with(tmp_path, 1)
    # Frozen between its check and its write: it holds the file open.
    descriptor = os.open(next((tmp_path / "batches").glob("*.jsonl")), os.O_WRONLY | os.O_APPEND)
    new = Store.open(tmp_path, {})
    os.write(descriptor, b"whatever it had begun\n")
    new.log_batch(3, "new")
    assert [batch.data for batch in Store.open(tmp_path, {}).batches][2:] == ["new"]
    assert old.epoch == 1


def test_drivers_that_start_together_get_epochs_of_their_own(tmp_path: Path) -> None:
    from tenax.store import store as module

    claimed: list[int] = []
    threads = [threading.Thread(target=lambda: claimed.append(module.claim(tmp_path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sorted(claimed) == list(range(1, 9))


def test_a_store_of_another_topology_is_refused_by_the_first_difference(tmp_path: Path) -> None:
    Store.open(tmp_path, {"name": "traffic", "operators": {"speed": {"parallelism": 3}}})
    with pytest.raises(UnsuitableStore) as refused:
        Store.open(tmp_path, {"name": "traffic", "operators": {"speed": {"parallelism": 4}}})
    assert "operators.speed.parallelism is 3 in the store, 4 in this run" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_store_of_another_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "store.json").write_bytes(records.encode({"format": 99, "identity": "x", "topology": {}}))
    with pytest.raises(UnsuitableStore, match="stores of format 6, found 99"):
        Store.open(tmp_path, {})


def test_differences_are_said_in_words() -> None:
    assert first_difference({"a": [1, 2]}, {"a": [1, 2]}) is None
    assert first_difference({"a": [1, 2]}, {"a": [1, 3]}) == "a[1] is 2 in the store, 3 in this run"
    assert first_difference({"a": [1]}, {"a": [1, 2]}) == "a has 1 entries in the store, 2 in this run"
    assert first_difference({"a": 1}, {}) == "a is in the store only"
    assert first_difference({}, {"a": 1}) == "a is not in the store"


def test_a_file_system_without_exclusive_create_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    def replace(source: Path, target: Path) -> None:
        target.write_bytes(Path(source).read_bytes())

    for link in (refuse, replace):
        monkeypatch.setattr(os, "link", link)
        with pytest.raises(UnsuitableStore, match="exclusive create"):
            durable.check_exclusive_create(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_batches_are_logged_without_gaps(tmp_path: Path) -> None:
    store = store_with(tmp_path, 1)
    with pytest.raises(StoreFailed, match="found 4 after 2"):
        store.log_batch(4, None)


def test_a_checkpoint_reads_back_equal_with_its_segments(tmp_path: Path) -> None:
    store = store_with(tmp_path, 1)
    written = commit(store, 4)
    newest = store.newest_valid()
    assert newest == ValidCheckpoint(written)
    assert read_segment(tmp_path, written.segments[B][0]) == b"own 4"


def test_a_segment_is_uploaded_once_and_repaired_if_damaged(tmp_path: Path) -> None:
    first = upload_segments(tmp_path, A, {"base": b"content"})[0]
    path = tmp_path / first.file
    before = path.stat().st_ino
    assert upload_segments(tmp_path, A, {"base": b"content"})[0] == first
    assert path.stat().st_ino == before
    flip(path, 2)
    assert upload_segments(tmp_path, A, {"base": b"content"})[0] == first
    assert path.read_bytes() == b"content"
    assert upload_segments(tmp_path, A, {"base": b"other"})[0].file != first.file


def test_segments_that_share_a_file_are_read_and_checked_one_by_one(tmp_path: Path) -> None:
    contents = {"first": b"one", "nothing": b"", "last": b"three"}
    parts = upload_segments(tmp_path, A, contents)
    assert len({part.file for part in parts}) == 1
    assert {part.segment: read_segment(tmp_path, part) for part in parts} == contents
    flip(tmp_path / parts[0].file, 4)  # within the last one
    assert [damage_of(tmp_path, part, verify=True) is None for part in parts] == [True, True, False]
    assert upload_segments(tmp_path, A, contents) == parts
    assert all(damage_of(tmp_path, part, verify=True) is None for part in parts)


def test_a_manifest_tells_of_pieces_that_tasks_share_and_of_nothing_more_without_them(tmp_path: Path) -> None:
    store = Store.open(tmp_path, {})
    store.log_batch(1, None)
    whole = upload_segments(tmp_path, A, {"x": b"content"})[0]
    pieces = (replace(whole, groups="0f" * 16, origin="a[0]"), replace(whole, groups="f0" * 16, origin="a[1]"))
    checkpoint = Checkpoint(1, store.epoch, {A: (whole,), B: pieces})
    store.commit_checkpoint(checkpoint)
    [path] = (tmp_path / "checkpoints").iterdir()
    listed = records.decode_object(path.read_bytes(), "")["segments"]
    fields = [whole.segment, whole.file, whole.offset, whole.bytes, whole.crc32]
    assert listed == {"a[0]": [fields], "b[1]": [[*fields, "0f" * 16, "a[0]"], [*fields, "f0" * 16, "a[1]"]]}
    read = Store.open(tmp_path, {}).newest_valid()
    assert isinstance(read, ValidCheckpoint)
    assert read.checkpoint.segments == checkpoint.segments
    flip(tmp_path / whole.file, 2)
    damaged = Store.open(tmp_path, {}).newest_valid()
    assert isinstance(damaged, NoCheckpoint)
    assert len(damaged.damage) == 1  # what tasks share is told once


@pytest.mark.parametrize(
    "more", [["0f" * 16], ["0g" * 16, "a[0]"], ["0f" * 15, "a[0]"], ["", "a"], ["0f" * 16, ""], [1, 2]]
)
def test_a_piece_that_nobody_wrote_is_damage(more: list[object], tmp_path: Path) -> None:
    store = store_with(tmp_path, 1)
    [path] = (tmp_path / "checkpoints").iterdir()
    record = records.decode_object(path.read_bytes(), "")
    listed = records.mapping(record["segments"])
    [fields] = records.items(listed["a[0]"])
    path.write_bytes(records.encode({**record, "segments": {**listed, "a[0]": [[*records.items(fields), *more]]}}))  # type: ignore[list-item]
    with pytest.raises(DamagedStore, match="or these with groups and origin"):
        store.checkpoints.read(store.checkpoints.known()[0])


def test_a_file_lives_as_long_as_one_of_its_segments_is_listed(tmp_path: Path) -> None:
    store = Store.open(tmp_path, {})
    shared = upload_segments(tmp_path, A, {"short": b"short", "long": b"long"})
    for batch in range(1, 5):
        store.log_batch(batch, None)
        own = upload_segments(tmp_path, B, {f"{batch}": b"own"})
        listed = shared if batch == 1 else shared[1:] if batch < 3 else ()
        store.commit_checkpoint(Checkpoint(batch, store.epoch, {A: listed, B: own}))
        trim(store)
        assert (tmp_path / shared[0].file).exists() == (batch < 4)


def test_segments_may_have_any_name(tmp_path: Path) -> None:
    for name in ("../../x", ".hidden", "a/b", "ä" * 200, "", "x" * 119 + "1", "x" * 300):
        part = upload_segments(tmp_path, A, {name: name.encode()})[0]
        assert (tmp_path / part.file).resolve().parent == (tmp_path / "segments" / "a.0").resolve()
        assert read_segment(tmp_path, part) == name.encode()


@pytest.mark.parametrize("harm", ["missing", "shorter", "flipped", "manifest"])
def test_damage_is_named_and_the_checkpoint_before_is_used(tmp_path: Path, harm: str) -> None:
    store = store_with(tmp_path, 2)
    newest = store.newest_valid()
    assert isinstance(newest, ValidCheckpoint)
    part = newest.checkpoint.segments[B][0]
    path = tmp_path / part.file
    match harm:
        case "missing":
            path.unlink()
        case "shorter":
            path.write_bytes(b"own")
        case "flipped":
            flip(path, 3)
        case _:
            path = tmp_path / "checkpoints" / "0000000004-00000001.json"
            flip(path, 50)
    newest = store.newest_valid()
    assert isinstance(newest, ValidCheckpoint)
    assert newest.checkpoint.batch == 2
    assert len(newest.damage) == 1
    assert path.name in newest.damage[0]
    assert newest.damage[0].startswith("checkpoint 4 of epoch 1")


def test_damage_that_every_checkpoint_shares_leaves_the_beginning_of_the_log(tmp_path: Path) -> None:
    store = store_with(tmp_path, 2)
    newest = store.newest_valid()
    assert isinstance(newest, ValidCheckpoint)
    flip(tmp_path / newest.checkpoint.segments[A][0].file, 0)
    nothing = store.newest_valid()
    assert isinstance(nothing, NoCheckpoint)
    assert len(nothing.damage) == 2
    with pytest.raises(DamagedStore, match="checksum"):
        read_segment(tmp_path, newest.checkpoint.segments[A][0])


def test_a_way_back_that_leads_into_trimmed_batches_is_an_error(tmp_path: Path) -> None:
    store = store_with(tmp_path, 3)
    trim(store)
    for path in (tmp_path / "segments" / "a.0").iterdir():
        path.unlink()
    with pytest.raises(DamagedStore, match="recovery needs batches 1 to 4"):
        store.newest_valid()


def test_a_checkpoint_that_lists_a_missing_file_is_not_committed(tmp_path: Path) -> None:
    store = store_with(tmp_path, 1)
    part = upload_segments(tmp_path, A, {"late": b"late"})[0]
    (tmp_path / part.file).unlink()
    with pytest.raises(DamagedStore, match=r"checkpoint 4: segments/a\.0/late.* is missing"):
        store.commit_checkpoint(Checkpoint(4, store.epoch, {A: (part,)}))


def test_trimming_keeps_what_the_two_newest_checkpoints_need(tmp_path: Path) -> None:
    store = store_with(tmp_path, 4)
    uploading = upload_segments(tmp_path, A, {"of the next checkpoint": b"not listed yet"})[0]
    assert trim(store) == Trimmed(checkpoints=2, segments=2, batches=6)
    assert [key[0] for key in store.checkpoints.known()] == [6, 8]
    assert [batch.number for batch in store.batches] == [7, 8]
    assert (tmp_path / uploading.file).exists()
    for key in store.checkpoints.known():
        for file in store.checkpoints.read(key).files:
            assert (tmp_path / file).exists()
    store.log_batch(9, None)
    assert [batch.number for batch in Store.open(tmp_path, {}).batches] == [7, 8, 9]


def test_a_trim_removes_exactly_what_its_bounds_say(tmp_path: Path) -> None:
    store = store_with(tmp_path, 4)  # checkpoints 2, 4, 6, 8
    own = {number: store.checkpoints.read((number, store.epoch)).segments[B][0].file for number in (2, 4, 6, 8)}
    assert store.trim(checkpoints_before=4, batches_before=3) == Trimmed(checkpoints=1, segments=1, batches=2)
    assert [number for number, _ in store.checkpoints.known()] == [4, 6, 8]
    assert [batch.number for batch in store.batches] == [3, 4, 5, 6, 7, 8]
    assert [number for number, file in own.items() if (tmp_path / file).exists()] == [4, 6, 8]
    assert store.trim(checkpoints_before=6, batches_before=0) == Trimmed(checkpoints=1, segments=1, batches=0)
    assert [batch.number for batch in store.batches] == [3, 4, 5, 6, 7, 8]
    assert store.trim(checkpoints_before=0, batches_before=7) == Trimmed(checkpoints=0, segments=0, batches=4)
    assert [number for number, _ in store.checkpoints.known()] == [6, 8]


def test_a_trim_behind_what_a_kept_checkpoint_needs_is_refused(tmp_path: Path) -> None:
    store = store_with(tmp_path, 3)
    with pytest.raises(StoreFailed, match="batches after 4, the oldest of checkpoint 4, stay, found a trim before 6"):
        store.trim(checkpoints_before=4, batches_before=6)
    assert len(store.batches) == 6
    assert store.trim(checkpoints_before=6, batches_before=5) == Trimmed(0, 0, 0)  # only one would stay


def test_nothing_is_trimmed_while_there_is_only_one_checkpoint(tmp_path: Path) -> None:
    store = store_with(tmp_path, 1)
    assert trim(store) == Trimmed(0, 0, 0)
    assert len(store.batches) == 2


def test_a_damaged_checkpoint_is_not_one_of_those_that_trimming_keeps(tmp_path: Path) -> None:
    store = store_with(tmp_path, 3)
    newest = store.newest_valid()
    assert isinstance(newest, ValidCheckpoint)
    (tmp_path / newest.checkpoint.segments[B][0].file).unlink()
    trim(store)
    assert [key[0] for key in store.checkpoints.known()] == [2, 4, 6]  # the way back to 2 stays
    assert len(store.batches) == 6


def test_a_start_sweeps_uploads_that_no_checkpoint_lists(tmp_path: Path) -> None:
    store = store_with(tmp_path, 1)
    orphan = upload_segments(tmp_path, A, {"orphan": b"orphan"})[0]
    (tmp_path / "segments" / "a.0" / ".x.1234.partial").write_bytes(b"half")
    again = Store.open(tmp_path, {})
    assert not (tmp_path / orphan.file).exists()
    assert not list(tmp_path.rglob("*.partial"))
    assert isinstance(again.newest_valid(), ValidCheckpoint)
    assert again.epoch == store.epoch + 1


def test_events_survive_a_torn_line_and_stay_bounded(tmp_path: Path) -> None:
    log = EventLog(tmp_path, 3, max_bytes=200)
    log.append({"event": "NodesLost", "nodes": ["n1"]})
    with (tmp_path / "events.jsonl").open("a") as file:
        file.write('{"event": "Tor')
    log.append({"event": "PassFinished"})
    assert [entry["event"] for entry in read_events(tmp_path)] == ["NodesLost", "PassFinished"]
    for number in range(50):
        log.append({"event": str(number)})
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 500
    assert read_events(tmp_path)[-1] == {"epoch": 3, "event": "49"}


def test_stored_files_are_plain_json(tmp_path: Path) -> None:
    store_with(tmp_path, 1)
    for path in [*tmp_path.rglob("*.json"), *tmp_path.rglob("*.jsonl")]:
        for line in path.read_text().splitlines():
            assert set(json.loads(line)) - {"number"} == {"crc32", "record"}


def test_batches_that_are_logged_during_a_trim_stay_in_the_log(tmp_path: Path) -> None:
    store = store_with(tmp_path, checkpoints=3)
    over = threading.Event()

    def trim_again_and_again() -> None:
        while not over.is_set():
            trim(store)

    trimming = threading.Thread(target=trim_again_and_again)
    trimming.start()
    try:
        for _ in range(100):
            batch = store.batches[-1].number + 1
            store.log_batch(batch, {"reads": batch})
            if batch % 5 == 0:
                commit(store, batch - 1)
    finally:
        over.set()
        trimming.join()
    numbers = [batch.number for batch in store.batches]
    assert numbers == list(range(numbers[0], 107))
    assert [records.integer(entry, "batch") for entry in journal.read(tmp_path / "batches")] == numbers


def test_checkpoints_that_were_passed_over_do_not_count_beside_those_that_follow(tmp_path: Path) -> None:
    store = store_with(tmp_path, checkpoints=3)
    store.set_aside(2)
    assert store.checkpoints.known() == [(2, 1)]
    commit(store, 3)
    trim(store)
    assert store.checkpoints.known() == [(2, 1), (3, 1)]  # 4 and 6 are out of the way


def test_a_driver_that_is_no_longer_the_newest_sets_nothing_aside_and_sweeps_nothing(tmp_path: Path) -> None:
    older = store_with(tmp_path, checkpoints=3)
    newer = Store.open(tmp_path, {})
    commit(newer, 7)
    with pytest.raises(EpochLost):
        older.set_aside(2)
    known = newer.checkpoints.known()
    older.checkpoints.set_aside(2, older.epoch)  # had it been slow after it looked
    assert newer.checkpoints.known() == [key for key in known if key[0] == 2 or key[1] == newer.epoch]
    stray = tmp_path / "segments" / "a.0" / "on its way"
    stray.write_bytes(b"a part of a checkpoint that the newer one has not committed yet")
    with pytest.raises(EpochLost):
        older.checkpoints.sweep(older.check_epoch)
    assert stray.exists()
