"""Versions of a topology and requests for others in a store: numbered, exclusive, checked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tenax.errors import DamagedStore, EpochLost, StoreFailed
from tenax.model.topology_versions import Target, TopologyVersion
from tenax.operators.keys import KEY_GROUPS
from tenax.store import topology_versions
from tenax.store.store import Store
from tenax.store.topology_versions import (
    answer,
    answered,
    ask,
    begun_after,
    open_request,
    overtake,
    read_versions,
    record_version,
)

TABLE = tuple(group % 2 for group in range(KEY_GROUPS))
FIRST = TopologyVersion(1, 0, {"rows": 1, "sums": 2}, {"sums": TABLE})
SECOND = TopologyVersion(2, 17, {"rows": 1, "sums": 1}, {"sums": (0,) * KEY_GROUPS}, 4, "by hand", 3)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "store", {})
    yield opened
    opened.close()


def test_versions_are_read_as_they_were_recorded(store: Store) -> None:
    assert read_versions(store.folder) == ()
    assert begun_after(store.folder) == 0
    for version in (FIRST, SECOND):
        record_version(store, version)
    assert read_versions(store.folder) == (FIRST, SECOND)
    assert begun_after(store.folder) == 17


def test_recording_again_what_was_recorded_half_way_finds_it_there(store: Store) -> None:
    record_version(store, FIRST)
    record_version(store, FIRST)
    assert read_versions(store.folder) == (FIRST,)


def test_what_an_overtaken_driver_records_never_counts(store: Store) -> None:
    record_version(store, FIRST)
    newer = Store.open(store.folder, {})
    with pytest.raises(EpochLost):
        record_version(store, SECOND)
    assert read_versions(store.folder) == (FIRST,)
    record_version(newer, SECOND)
    assert read_versions(store.folder) == (FIRST, SECOND)
    newer.close()


def test_a_driver_that_hangs_before_its_write_and_wakes_behind_a_newer_ones_claim_changes_nothing(
    store: Store,
) -> None:
    record_version(store, FIRST)
    hung = store.versions.path.open("ab")  # as if the write were on its way
    newer = Store.open(store.folder, {})
    hung.write(b"whatever it was about to say\n")
    hung.close()
    assert read_versions(store.folder) == (FIRST,)
    newer.close()


def test_a_gap_among_versions_is_named(store: Store) -> None:
    record_version(store, SECOND)
    with pytest.raises(DamagedStore, match="without gaps, found 2 in place of 1"):
        read_versions(store.folder)


@pytest.mark.parametrize("owner", [-1, 2, 7])
def test_a_table_with_an_owner_that_there_is_not_is_refused(store: Store, owner: int) -> None:
    record_version(store, TopologyVersion(1, 0, {"sums": 2}, {"sums": (owner, *TABLE[1:])}))
    with pytest.raises(DamagedStore, match="found another one of 'sums'"):
        read_versions(store.folder)


def test_a_damaged_version_is_named_and_not_believed(store: Store) -> None:
    record_version(store, FIRST)
    path = store.versions.path
    path.write_bytes(path.read_bytes().replace(b'"after":0', b'"after":9'))
    with pytest.raises(DamagedStore, match="matches its checksum"):
        read_versions(store.folder)


def test_the_newest_request_is_open_until_it_is_answered(tmp_path: Path) -> None:
    assert open_request(tmp_path) is None
    first = ask(tmp_path, Target({"sums": 4}, cause="by hand"))
    second = ask(tmp_path, Target({"sums": 3}, 6))
    assert (first, second) == (1, 2)
    assert open_request(tmp_path) == Target({"sums": 3}, 6, "", 2)
    assert answered(tmp_path, second) is None
    answer(tmp_path, second, done=False, words="tasks are missing")
    answer(tmp_path, second, done=True, words="too late")  # the first answer counts
    assert answered(tmp_path, second) == (False, "tasks are missing")
    assert open_request(tmp_path) is None
    assert answered(tmp_path, first) is None
    overtake(tmp_path, second)
    assert answered(tmp_path, first) == (False, "a newer request has taken its place")


def test_what_the_run_decides_by_itself_needs_no_answer(tmp_path: Path) -> None:
    answer(tmp_path, 0, done=True, words="done")
    assert not (tmp_path / topology_versions.REQUESTS).exists()


def test_a_replay_of_what_was_asked_of_another_store_answers_nobody(tmp_path: Path) -> None:
    answer(tmp_path, 3, done=True, words="done")
    assert not (tmp_path / topology_versions.REQUESTS).exists()


def test_nothing_is_asked_where_there_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed):
        ask(tmp_path / "away", Target({"sums": 2}))
    assert not (tmp_path / "away").exists()
