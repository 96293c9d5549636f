"""Retained outputs: the chunks that a task has sent, kept on its node so that lost consumers can be fed again."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path

from tenax.control.versions import PassId
from tenax.engine.worker.versions import HEADER, make_task_folder
from tenax.errors import DamagedStore
from tenax.store.checkpoints import RETAINED

MARK = b"TNXO"
SUFFIX = ".out"

Address = tuple[int, int, int, int]
"""Of a chunk: consumer task, input, producer index, batch."""


def write_outputs(folder: Path, batch: int, pass_id: PassId, chunks: Mapping[Address, bytes]) -> int:
    """Keep what a task sent for one batch; returns the bytes written. The file appears by one rename."""
    listed = json.dumps([[*address, len(chunk), zlib.crc32(chunk)] for address, chunk in chunks.items()]).encode()
    make_task_folder(folder)
    path = outputs_path(folder, batch, pass_id)
    draft = folder / f".{path.name}.{os.getpid()}"
    with draft.open("wb") as file:
        file.write(HEADER.pack(MARK, len(listed), zlib.crc32(listed)))
        file.write(listed)
        file.writelines(chunks.values())
    size = draft.stat().st_size
    draft.rename(path)
    return size


def read_outputs(folder: Path, batch: int, pass_id: PassId) -> dict[Address, bytes]:
    """What a task sent for a batch in a pass, checked."""
    path = outputs_path(folder, batch, pass_id)
    return unpacked(path.read_bytes(), str(path))


def unpacked(content: bytes, path: str) -> dict[Address, bytes]:
    """The chunks in the content of a file of outputs, checked; `path` names it in errors."""
    mark, length, checksum = HEADER.unpack_from(content)
    listed = content[HEADER.size : HEADER.size + length]
    if mark != MARK or zlib.crc32(listed) != checksum:
        raise DamagedStore(f"{path}: retained outputs match their checksum, found some that do not: replay the task")
    chunks: dict[Address, bytes] = {}
    start = HEADER.size + length
    for consumer, number, producer, of_batch, size, crc32 in json.loads(listed):
        chunk = content[start : start + size]
        if zlib.crc32(chunk) != crc32:
            raise DamagedStore(f"{path}: a chunk matches its checksum, found one that does not: replay the task")
        chunks[consumer, number, producer, of_batch] = chunk
        start += size
    return chunks


def drop_outputs(folder: Path, before: int) -> None:
    """Let go of the outputs of earlier batches."""
    for path in folder.glob(f"*{SUFFIX}"):
        if int(path.name.split("-", 1)[0]) < before:
            path.unlink(missing_ok=True)


def retained_segment(batch: int, pass_id: PassId) -> str:
    """How the outputs of a batch are called that lie beside a state in the store."""
    return f"{RETAINED}{batch}/{pass_id}"


def outputs_path(folder: Path, batch: int, pass_id: PassId) -> Path:
    """Where the outputs of a batch lie."""
    return folder / f"{batch:010d}-{pass_id}{SUFFIX}"
