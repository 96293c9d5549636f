"""Versions of task states on a node: one file per pass that changed something, never rewritten."""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from tenax.control.versions import Version
from tenax.errors import DamagedStore
from tenax.operators.chunks import encode
from tenax.operators.computation import NO_WATERMARK_US, State
from tenax.store import durable
from tenax.store.checkpoints import StoredSegment, read_segment

HEADER = struct.Struct("<4sII")  # mark, length of the index, its checksum
MARK = b"TNXV"
IN_STORE = "segments/"  # how the file of a segment begins that lies in the store, not on the node


@dataclass(frozen=True, slots=True)
class Segment:
    """Where a segment's bytes lie: in a version's file on the node, after its index, or in a file of the store.

    Of a piece of one that several tasks share since their operator was rescaled, `groups` and `origin` are those of the
    stored segment.
    """

    file: str
    offset: int
    length: int
    checksum: int
    groups: str = ""
    origin: str = ""

    @property
    def is_stored(self) -> bool:
        """Whether it lies in the store."""
        return self.file.startswith(IN_STORE)

    def stored_as(self, name: str) -> StoredSegment:
        """How a checkpoint lists it, if it lies in the store."""
        return StoredSegment(name, self.file, self.offset, self.length, self.checksum, self.groups, self.origin)

    @classmethod
    def in_store(cls, part: StoredSegment) -> Segment:
        """A segment as a checkpoint lists it."""
        return cls(part.file, part.offset, part.bytes, part.crc32, part.groups, part.origin)


Pieces = tuple[Segment, ...]
"""What a segment is made of: itself, or pieces of segments of the tasks that were, in their order."""

Index = Mapping[str, Pieces]
"""All segments of a version by name: those that it wrote, and those of earlier versions that still live."""


def file_name(version: Version) -> str:
    """The name of a version's file: passes never share one."""
    return f"{version.batch:010d}-{version.pass_id}.seg"


def write_version(folder: Path, version: Version, before: Index, state: State) -> tuple[Index, int]:
    """Write what a pass changed; returns the new index and the bytes written.

    The file appears by one rename, so a reader sees all of it or nothing, and a step that Spark runs twice writes the
    same bytes under the same name.
    """
    name = file_name(version)
    index = {segment: before[segment] for segment in state if segment in before}
    parts: list[bytes] = []
    offset = 0
    for segment, rows in state.items():
        if segment not in index:
            data = encode(rows, NO_WATERMARK_US)
            index[segment] = (Segment(name, offset, len(data), zlib.crc32(data)),)
            parts.append(data)
            offset += len(data)
    listed = json.dumps({name: _listed(pieces) for name, pieces in index.items()}).encode()
    make_task_folder(folder)
    draft = folder / f".{name}.{os.getpid()}"
    with draft.open("wb") as file:
        file.write(HEADER.pack(MARK, len(listed), zlib.crc32(listed)))
        file.write(listed)
        file.writelines(parts)
    draft.rename(folder / name)
    return index, HEADER.size + len(listed) + offset


def make_task_folder(folder: Path) -> None:
    """Make the folder of a task and that of its node, but not the one of all nodes, which the driver has made."""
    durable.make_folder(folder, below=folder.parent.parent)


def read_index(path: Path) -> Index:
    """The index of a version's file."""
    with path.open("rb") as file:
        header = file.read(HEADER.size)
        mark, length, checksum = HEADER.unpack(header) if len(header) == HEADER.size else (b"", 0, 0)
        listed = file.read(length)
    if mark != MARK or zlib.crc32(listed) != checksum:
        raise DamagedStore(
            f"{path}: a version matches its checksum, found one that does not: restart from a checkpoint"
        )
    return {name: _pieces(fields) for name, fields in json.loads(listed).items()}


def stored_index(parts: Iterable[StoredSegment]) -> Index:
    """The index of a version that a checkpoint lists."""
    index: dict[str, Pieces] = {}
    for part in parts:
        index[part.segment] = (*index.get(part.segment, ()), Segment.in_store(part))
    return index


def _listed(pieces: Pieces) -> Sequence[object]:
    """A segment on one line of an index: its place; of one that is shared, the place of every piece."""
    if len(pieces) == 1 and not (pieces[0].groups or pieces[0].origin):
        return astuple(pieces[0])[:4]
    return [astuple(piece) for piece in pieces]


def _pieces(listed: Sequence[Any]) -> Pieces:
    return (Segment(*listed),) if isinstance(listed[0], str) else tuple(Segment(*piece) for piece in listed)


def segment_bytes(folder: Path, store: Path, name: str, segment: Segment) -> bytes:
    """The bytes of a segment, checked; `folder` is that of its task on the node."""
    if segment.is_stored:
        return read_segment(store, segment.stored_as(name))
    path = folder / segment.file
    with path.open("rb") as file:
        start = HEADER.size + HEADER.unpack(file.read(HEADER.size))[1]
        file.seek(start + segment.offset)
        data = file.read(segment.length)
    if zlib.crc32(data) != segment.checksum:
        raise DamagedStore(f"{path}: segment {name!r} does not match its checksum: restart from a checkpoint")
    return data
