"""An append-only log of numbered, chained records with one writer at a time, fenced by epochs."""

from __future__ import annotations

import contextlib
import json
import os
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tenax.errors import DamagedStore, EpochLost, StoreFailed
from tenax.store import durable, records
from tenax.store.records import JsonObject

_NAME = re.compile(r"(\d{8})\.jsonl")
_LINE = re.compile(rb'\{"crc32":"([0-9a-f]{8})","number":(\d+),"record":(.*)\}', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Content:
    """What a log holds.

    - Its entries are numbered from 1 on; those up to `dropped` have been let go of.
    - `begun` and `chain` are the checksums before the first entry that is kept and after the last: each takes up that
      of the entry before it, so it stands for all entries ever.
    """

    entries: tuple[JsonObject, ...] = ()
    dropped: int = 0
    begun: int = 0
    chain: int = 0


class Journal:
    """An append-only log of records.

    - Every line carries its number and a checksum that takes up that of the line before, so that a line that is
      missing, doubled, swapped or changed is an error that names it. That the last lines are missing is seen by those
      who know how far the log must reach.
    - Every epoch writes a file of its own, which starts with what it found: opening copies the newest file of an older
      epoch in one rename, and from then on the older files count for nothing.
    - So what a driver that was thought dead still appends is seen before the copy, or never.
    - `append` returns when the record is on disk and no newer epoch has a file; a caller acts on a record only then.
      One that failed leaves nothing, and may be tried again.
    - A line torn by a death is left out when the next epoch opens; nobody has acted on it.
    - `last` is the number of the newest entry; those up to `dropped` have been let go of.
    """

    def __init__(self, path: Path, epoch: int, content: Content, size: int) -> None:
        self.path = path
        self.epoch = epoch
        self.dropped = content.dropped
        self.last = content.dropped + len(content.entries)
        self._chain = content.chain
        self._size = size
        self._descriptor: int | None = os.open(path, os.O_WRONLY | os.O_APPEND)

    @classmethod
    def open(cls, folder: Path, epoch: int) -> tuple[Journal, list[JsonObject]]:
        """Take the log over in the name of an epoch; gives it with the records it holds."""
        durable.make_folder(folder)
        path = folder / f"{epoch:08d}.jsonl"
        if path.exists():
            raise EpochLost(f"{path}: an epoch opens a log once, found it open: start again under a new epoch")
        _refuse_older(folder, epoch)
        content = read_content(folder)
        payload = encoded(content.entries, content.dropped, content.begun)[0]
        durable.write_file(path, payload)
        _refuse_older(folder, epoch)
        for name in durable.names(folder):
            # A partial file has a dot before the epoch; those of newer epochs may be in use.
            if name.lstrip(".")[:8] < f"{epoch:08d}":
                durable.remove(folder / name)
        return cls(path, epoch, content, len(payload)), list(content.entries)

    def append(self, record: JsonObject) -> None:
        """Add a record; when this returns it survives any death."""
        _refuse_older(self.path.parent, self.epoch)
        line, chain = _line(self.last + 1, self._chain, record)
        try:
            self._write(line)
        except OSError as error:
            raise StoreFailed(f"{self.path}: {error.strerror}: check the disk and its permissions") from error
        self.last, self._chain, self._size = self.last + 1, chain, self._size + len(line)
        _refuse_older(self.path.parent, self.epoch)

    def check_epoch(self) -> None:
        """Refuse if a newer epoch has taken the log over."""
        _refuse_older(self.path.parent, self.epoch)

    def rewrite(self, dropped: int, kept: Sequence[JsonObject]) -> None:
        """Let go of all entries up to a number and put these in place of the rest, in one rename."""
        _refuse_older(self.path.parent, self.epoch)
        content = read_content(self.path.parent)
        gone = content.entries[: dropped - content.dropped]
        if content.dropped + len(gone) != dropped:
            raise StoreFailed(f"{self.path}: entries from {content.dropped + 1} on are let go of, found {dropped}")
        begun = encoded(gone, content.dropped, content.begun)[1]
        payload, chain = encoded(kept, dropped, begun)
        durable.write_file(self.path, payload)
        self.close()  # the next append opens what is there now
        self.dropped, self.last, self._chain, self._size = dropped, dropped + len(kept), chain, len(payload)

    def close(self) -> None:
        """Let the file go; what was appended stays."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _write(self, line: bytes) -> None:
        if self._descriptor is None:
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        if os.fstat(self._descriptor).st_size > self._size:
            # Half a line of an attempt that failed must not become the beginning of the next one.
            os.ftruncate(self._descriptor, self._size)
        try:
            durable.write_all(self._descriptor, line)
        except OSError:
            with contextlib.suppress(OSError):  # else the next append does it
                os.ftruncate(self._descriptor, self._size)
            raise


def read(folder: Path) -> list[JsonObject]:
    """The records of the newest epoch's file, without claiming anything."""
    return list(read_content(folder).entries)


def read_content(folder: Path) -> Content:
    """What the newest epoch's file holds, every line checked; nothing if there is no file."""
    known = epochs(folder)
    if not known:
        return Content()
    path = folder / f"{known[-1]:08d}.jsonl"
    return decoded(durable.read_bytes(path), str(path))


def encoded(entries: Iterable[JsonObject], dropped: int = 0, begun: int = 0) -> tuple[bytes, int]:
    """A log as a file: where it begins, then a line for each entry; and the checksum after the last."""
    lines = [records.encode({"dropped": dropped, "chain": f"{begun:08x}"})]
    chain = begun
    for number, entry in enumerate(entries, start=dropped + 1):
        line, chain = _line(number, chain, entry)
        lines.append(line)
    return b"".join(lines), chain


def decoded(payload: bytes, where: str) -> Content:
    """The log in a file, without a torn end.

    An append that never finished leaves a last line without its newline, or with zero bytes where a page was not yet
    on disk. Nobody acted on it, so it is left out. Any other line that is not as it was written is damage.
    """
    lines = payload.split(b"\n")
    lines.pop()  # what follows the last newline: nothing, or a torn line
    if len(lines) > 1 and b"\0" in lines[-1]:
        lines.pop()
    if not lines:
        raise DamagedStore(f"{where}: a log begins with a line of its own, found none: restore it from a copy")
    head = records.decode_object(lines[0] + b"\n", f"{where}, line 1")
    if head.keys() != {"dropped", "chain"}:
        raise DamagedStore(f"{where}, line 1: a log says where it begins, found {head}: restore it from a copy")
    dropped, begun = records.integer(head, "dropped"), int(records.text(head, "chain"), 16)
    entries, chain = [], begun
    for place, line in enumerate(lines[1:], start=2):
        entry, chain = _entry(line, dropped + place - 1, chain, f"{where}, line {place}")
        entries.append(entry)
    return Content(tuple(entries), dropped, begun, chain)


def _entry(line: bytes, number: int, before: int, where: str) -> tuple[JsonObject, int]:
    """The next entry, and the chain after it."""
    match = _LINE.fullmatch(line)
    if match is None:
        raise DamagedStore(
            f"{where}: an entry has a checksum, a number and a record, found other text: restore the log from a copy"
        )
    if int(match[2]) != number:
        raise DamagedStore(
            f"{where}: entries follow each other, found number {int(match[2])} where {number} belongs: lines are "
            "missing or doubled; restore the log from a copy"
        )
    chain = _chained(number, before, match[3])
    if int(match[1], 16) != chain:
        raise DamagedStore(
            f"{where}: an entry matches its checksum, which takes up that of the one before, found one that does not: "
            "restore the log from a copy"
        )
    return records.mapping(json.loads(match[3])), chain


def _line(number: int, before: int, entry: JsonObject) -> tuple[bytes, int]:
    """An entry as a line, and the chain after it."""
    body = records.body(entry)
    chain = _chained(number, before, body)
    return b'{"crc32":"%08x","number":%d,"record":%b}\n' % (chain, number, body), chain


def _chained(number: int, before: int, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(b"%d:" % number, before))


def _refuse_older(folder: Path, epoch: int) -> None:
    known = epochs(folder)
    if known and known[-1] > epoch:
        raise EpochLost(
            f"{folder}: only the newest driver writes, found epoch {known[-1]} beside this one's {epoch}: "
            "let this driver end"
        )


def epochs(folder: Path) -> list[int]:
    """The epochs that have a file, oldest first."""
    return [int(match[1]) for name in durable.names(folder) if (match := _NAME.fullmatch(name))]
