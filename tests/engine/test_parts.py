"""What a node adds to a checkpoint: which segments share a file, and in which order they are listed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tenax.engine.worker.parts import LARGE_BYTES, Part, store_parts
from tenax.model.tasks import Task
from tenax.store.checkpoints import read_segment

A, B = Task("a", 0), Task("a", 1)


def part(name: str, size: int = 10) -> Part:
    content = name.encode().ljust(size, b".")
    return Part(name, len(content), None, lambda: content)


def test_small_segments_of_a_task_share_a_file_and_large_ones_have_their_own(tmp_path: Path) -> None:
    given = [part("1"), part("base", LARGE_BYTES), part("2"), part("other base", LARGE_BYTES), part("3")]
    listed = store_parts(tmp_path, {A: given, B: [part("1")]})
    assert [part.segment for part in listed[A]] == [other.segment for other in given]
    assert [read_segment(tmp_path, part) for part in listed[A]] == [other.read() for other in given]
    first, base, second, other, third = (part.file for part in listed[A])
    assert first == second == third
    assert len({first, base, other, listed[B][0].file}) == 4


def test_what_is_stored_is_not_read_again_and_keeps_its_place(tmp_path: Path) -> None:
    before = store_parts(tmp_path, {A: [part("kept"), part("dropped")]})[A][0]

    def read() -> bytes:
        raise AssertionError("it is in the store already")

    listed = store_parts(tmp_path, {A: [part("new"), Part("kept", before.bytes, before, read)], B: []})
    assert [part.segment for part in listed[A]] == ["new", "kept"]
    assert listed[A][1] == before
    assert listed[B] == ()


def test_pieces_of_one_segment_keep_their_places(tmp_path: Path) -> None:
    stored = store_parts(tmp_path, {A: [part("shared")], B: [part("shared", 20)]})
    pieces = [replace(stored[A][0], groups="f" * 32, origin="a[0]"), replace(stored[B][0], origin="a[1]")]
    given = [Part("shared", piece.bytes, piece, lambda: b"") for piece in pieces]
    assert store_parts(tmp_path, {A: [*given, part("new")]})[A][:2] == tuple(pieces)
