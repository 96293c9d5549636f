"""Logs: every line is numbered and takes up the checksum of the one before; only a torn end is left out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenax.errors import DamagedStore, StoreFailed
from tenax.store import journal

ENTRIES = st.lists(st.dictionaries(st.text(), st.integers(), max_size=3), min_size=1, max_size=5)


def lines_of(entries: list[dict[str, int]], dropped: int = 0) -> list[bytes]:
    """A log, line by line; the first says where it begins."""
    return journal.encoded(entries, dropped, 7)[0].splitlines(keepends=True)


@given(ENTRIES, st.integers(0, 9), st.data())
@settings(deadline=None, max_examples=100)
def test_a_log_cut_anywhere_gives_its_whole_lines(
    entries: list[dict[str, int]], dropped: int, data: st.DataObject
) -> None:
    lines = lines_of(entries, dropped)
    content = b"".join(lines)
    cut = data.draw(st.integers(len(lines[0]), len(content)))
    whole = sum(1 for number in range(1, len(lines)) if len(b"".join(lines[: number + 1])) <= cut)
    assert list(journal.decoded(content[:cut], "log").entries) == entries[:whole]


@given(st.integers(2, 5), st.data())
@settings(deadline=None, max_examples=100)
def test_a_changed_byte_before_the_end_of_a_log_is_named(count: int, data: st.DataObject) -> None:
    lines = lines_of([{"batch": number} for number in range(1, count + 1)])
    number = data.draw(st.integers(0, count - 1))
    place = data.draw(st.integers(0, len(lines[number]) - 2))
    lines[number] = lines[number][:place] + bytes([lines[number][place] ^ 1]) + lines[number][place + 1 :]
    with pytest.raises(DamagedStore, match=rf"log, line {number + 1}:"):
        journal.decoded(b"".join(lines), "log")


@given(st.integers(2, 6), st.integers(0, 9), st.data())
@settings(deadline=None, max_examples=200)
def test_a_line_that_is_missing_doubled_or_swapped_is_an_error(count: int, dropped: int, data: st.DataObject) -> None:
    # equal entries, so that nothing but their place tells them apart
    lines = lines_of([{"batch": 0}] * count, dropped)
    first = data.draw(st.integers(1, count - 1))
    second = data.draw(st.integers(first + 1, count))
    harmed = data.draw(
        st.sampled_from(
            [
                lines[:first] + lines[first + 1 :],
                lines[: first + 1] + lines[first:],
                [*lines[:first], lines[second], *lines[first + 1 : second], lines[first], *lines[second + 1 :]],
                lines[1:],
            ]
        )
    )
    with pytest.raises(DamagedStore):
        journal.decoded(b"".join(harmed), "log")


def test_a_line_of_another_log_is_an_error() -> None:
    ours, theirs = lines_of([{"batch": 1}, {"batch": 2}, {"batch": 3}]), lines_of([{"batch": 1}, {"batch": 9}])
    with pytest.raises(DamagedStore, match=r"line 4: .* takes up that of the one before"):
        journal.decoded(b"".join([*ours[:2], theirs[2], ours[3]]), "log")


def test_a_page_of_zeros_at_the_end_of_a_log_is_a_torn_line() -> None:
    head, first, second = lines_of([{"batch": 1}, {"batch": 2}])
    for torn in (b"\0" * 20, b"\0" * 8 + second[8:]):
        assert journal.decoded(head + first + torn, "log").entries == ({"batch": 1},)


def test_what_is_kept_of_a_log_goes_on_with_the_numbers_and_the_chain(tmp_path: Path) -> None:
    log, _ = journal.Journal.open(tmp_path, 1)
    for number in range(1, 6):
        log.append({"batch": number})
    log.rewrite(3, [{"batch": 4}, {"batch": 5}])
    log.append({"batch": 6})
    again, entries = journal.Journal.open(tmp_path, 2)
    assert entries == [{"batch": number} for number in (4, 5, 6)]
    assert (again.dropped, again.last) == (3, 6)
    again.rewrite(6, [])
    again.append({"batch": 7})
    assert journal.read(tmp_path) == [{"batch": 7}]
    assert again.last == 7
    with pytest.raises(StoreFailed, match="let go of"):
        again.rewrite(3, [])


def test_the_next_line_after_a_torn_one_is_whole(tmp_path: Path) -> None:
    log, _ = journal.Journal.open(tmp_path, 1)
    log.append({"batch": 1})
    log.path.write_bytes(log.path.read_bytes() + b'{"crc32":"00')
    again, entries = journal.Journal.open(tmp_path, 2)
    again.append({"batch": 2})
    assert entries == [{"batch": 1}]
    assert journal.read(tmp_path) == [{"batch": 1}, {"batch": 2}]


def test_an_append_that_fails_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, _ = journal.Journal.open(tmp_path, 1)
    log.append({"batch": 1})
    real = os.write

    def full(descriptor: int, payload: memoryview) -> int:
        real(descriptor, bytes(payload)[:9])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(StoreFailed, match="No space left"):
            log.append({"batch": 2})
    log.append({"batch": 3})
    assert journal.read(tmp_path) == [{"batch": 1}, {"batch": 3}]


def test_an_append_tried_again_after_a_full_disk_is_in_the_log_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, _ = journal.Journal.open(tmp_path, 1)
    real_write, real_truncate = os.write, os.ftruncate

    def full(descriptor: int, payload: memoryview) -> int:
        real_write(descriptor, bytes(payload)[:9])
        raise OSError(28, "No space left on device")

    def away(descriptor: int, size: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        patch.setattr(os, "ftruncate", away)  # not even that
        for _ in range(2):
            with pytest.raises(StoreFailed):
                log.append({"batch": 1})
            patch.setattr(os, "ftruncate", real_truncate)
    log.append({"batch": 1})
    assert journal.read(tmp_path) == [{"batch": 1}]
