"""Versions of a topology and requests for others in a store: numbered, exclusive, checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenax.errors import DamagedStore, EpochLost, StoreFailed
from tenax.model.topology_versions import Target, TopologyVersion
from tenax.operators.keys import KEY_GROUPS
from tenax.store import topology_versions
from tenax.store.topology_versions import (
    VERSIONS,
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


def ours() -> None:
    """No newer driver has claimed the store."""


def lost() -> None:
    raise EpochLost("a newer driver")


def test_versions_are_read_as_they_were_recorded(tmp_path: Path) -> None:
    assert read_versions(tmp_path) == ()
    assert begun_after(tmp_path) == 0
    for version in (FIRST, SECOND):
        record_version(tmp_path, version, ours)
    assert read_versions(tmp_path) == (FIRST, SECOND)
    assert begun_after(tmp_path) == 17


def test_recording_again_what_was_recorded_half_way_finds_it_there(tmp_path: Path) -> None:
    record_version(tmp_path, FIRST, ours)
    record_version(tmp_path, FIRST, ours)
    assert read_versions(tmp_path) == (FIRST,)


def test_another_version_of_a_number_is_a_newer_drivers(tmp_path: Path) -> None:
    record_version(tmp_path, FIRST, ours)
    with pytest.raises(EpochLost, match="recorded once"):
        record_version(tmp_path, TopologyVersion(1, 0, {"rows": 2}), ours)


def test_an_overtaken_driver_records_nothing(tmp_path: Path) -> None:
    with pytest.raises(EpochLost):
        record_version(tmp_path, FIRST, lost)
    assert read_versions(tmp_path) == ()


def test_a_missing_version_is_named(tmp_path: Path) -> None:
    for version in (FIRST, SECOND):
        record_version(tmp_path, version, ours)
    (tmp_path / VERSIONS / "00000001.json").unlink()
    with pytest.raises(DamagedStore, match="without gaps, found 2 in place of 1"):
        read_versions(tmp_path)


@pytest.mark.parametrize("owner", [-1, 2, 7])
def test_a_table_with_an_owner_that_there_is_not_is_refused(tmp_path: Path, owner: int) -> None:
    record_version(tmp_path, TopologyVersion(1, 0, {"sums": 2}, {"sums": (owner, *TABLE[1:])}), ours)
    with pytest.raises(DamagedStore, match="found another one of 'sums'"):
        read_versions(tmp_path)


def test_a_damaged_version_is_named_and_not_believed(tmp_path: Path) -> None:
    record_version(tmp_path, FIRST, ours)
    path = tmp_path / VERSIONS / "00000001.json"
    path.write_bytes(path.read_bytes().replace(b'"after":0', b'"after":9'))
    with pytest.raises(DamagedStore, match="matches its checksum"):
        read_versions(tmp_path)


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
