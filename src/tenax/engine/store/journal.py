"""An append-only log of checksummed records with one writer at a time, fenced by epochs."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from tenax.engine.errors import EpochLost, StoreFailed
from tenax.engine.store import durable, records
from tenax.engine.store.records import JsonObject

_NAME = re.compile(r"(\d{8})\.jsonl")


class Journal:
    """An append-only log of checksummed records.

    - Every epoch writes a file of its own, which starts with what it found: opening copies the newest file of an older
      epoch in one rename, and from then on the older files count for nothing.
    - So what a driver that was thought dead still appends is seen before the copy, or never.
    - `append` returns when the record is on disk and no newer epoch has a file; a caller acts on a record only then.
    - A line torn by a death is left out when the next epoch opens; nobody has acted on it.
    """

    def __init__(self, path: Path, epoch: int, size: int) -> None:
        self.path = path
        self.epoch = epoch
        self._size = size
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)

    @classmethod
    def open(cls, folder: Path, epoch: int) -> tuple[Journal, list[JsonObject]]:
        """Take the log over in the name of an epoch; gives it with the records it holds."""
        durable.make_folder(folder)
        path = folder / f"{epoch:08d}.jsonl"
        if path.exists():
            raise EpochLost(f"{path}: an epoch opens a log once, found it open: start again under a new epoch")
        _refuse_older(folder, epoch)
        found = read(folder)
        payload = b"".join(records.encode(record) for record in found)
        durable.write_file(path, payload)
        _refuse_older(folder, epoch)
        for name in durable.names(folder):
            # A partial file has a dot before the epoch; those of newer epochs may be in use.
            if name.lstrip(".")[:8] < f"{epoch:08d}":
                durable.remove(folder / name)
        return cls(path, epoch, len(payload)), found

    def append(self, record: JsonObject) -> None:
        """Add a record; when this returns it survives any death."""
        _refuse_older(self.path.parent, self.epoch)
        payload = records.encode(record)
        try:
            durable.write_all(self._descriptor, payload)
        except OSError as error:
            # Half a line must not become the beginning of the next one.
            os.ftruncate(self._descriptor, self._size)
            raise StoreFailed(f"{self.path}: {error.strerror}: free some space and start again") from error
        self._size += len(payload)
        _refuse_older(self.path.parent, self.epoch)

    def rewrite(self, kept: Sequence[JsonObject]) -> None:
        """Replace the content, in one rename."""
        _refuse_older(self.path.parent, self.epoch)
        payload = b"".join(records.encode(record) for record in kept)
        durable.write_file(self.path, payload)
        os.close(self._descriptor)
        self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        self._size = len(payload)

    def close(self) -> None:
        """Let the file go; what was appended stays."""
        os.close(self._descriptor)


def read(folder: Path) -> list[JsonObject]:
    """The records of the newest epoch's file, without claiming anything."""
    epochs = _epochs(folder)
    if not epochs:
        return []
    path = folder / f"{epochs[-1]:08d}.jsonl"
    return records.decode_lines(durable.read_bytes(path), str(path))


def _refuse_older(folder: Path, epoch: int) -> None:
    epochs = _epochs(folder)
    if epochs and epochs[-1] > epoch:
        raise EpochLost(
            f"{folder}: only the newest driver writes, found epoch {epochs[-1]} beside this one's {epoch}: "
            "let this driver end"
        )


def _epochs(folder: Path) -> list[int]:
    return [int(match[1]) for name in durable.names(folder) if (match := _NAME.fullmatch(name))]
