"""Files that grow: CSV and NDJSON, read on line by line as they are written."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from tenax.connectors import schemas
from tenax.connectors.files import FileSource, Progress, until_of
from tenax.connectors.formats import FORMATS, Cut, TextFormat, read_block
from tenax.connectors.source import Limits, NothingNew, Planned
from tenax.errors import ChangedSource, InvalidSource, UnreadableSource
from tenax.store import records
from tenax.store.records import Json

MAX_TAILS = 1_000  # files that are followed at a time; the log has all of them with each batch
ANCHOR_BYTES = 1 << 16  # before where a file is read on, which are looked at again when it has grown


@dataclass(frozen=True, slots=True)
class _Tail:
    """A file that may grow, read up to `at`; `identity`, `size` and `changed_ns` are as it was last seen.

    `checksum` is that of all before `at`, `anchor` that of the last of it: enough to see that a file which has grown is
    still the one that was read, without reading it all again.
    """

    name: str
    partition: int
    identity: int
    size: int
    changed_ns: int
    at: int
    row: int
    checksum: int
    anchor: int

    def to_data(self) -> Json:
        seen = (self.name, self.partition, self.identity, self.size, self.changed_ns)
        return (*seen, self.at, self.row, self.checksum, self.anchor)

    @classmethod
    def from_data(cls, data: Json) -> _Tail:
        name, *numbers = records.items(data)
        if not isinstance(name, str) or len(numbers) != 8 or not all(isinstance(number, int) for number in numbers):
            raise UnreadableSource(f"a file that grows was expected, found {data!r}: is the store of another source?")
        return cls(name, *(number for number in numbers if isinstance(number, int)))


@dataclass(frozen=True, slots=True)
class _Lines:
    """Lines of a file: from `begin` to `end`, with the checksums of all before both."""

    name: str
    begin: Cut
    end: Cut
    before: int
    after: int

    def to_data(self) -> Json:
        return [self.name, self.begin.at, self.begin.row, self.end.at, self.end.row, self.before, self.after]

    @classmethod
    def from_data(cls, data: Json) -> _Lines:
        match list(records.items(data)):
            case [str(name), int(at), int(row), int(end), int(end_row), int(before), int(after)]:
                return cls(name, Cut(at, row), Cut(end, end_row), before, after)
        raise UnreadableSource(f"lines of a file were expected, found {data!r}: is the store of another source?")


class TailSource(FileSource):
    """CSV and NDJSON files that are read on as they grow.

    - Only whole lines are taken: a line counts once its newline is there. Where the source does not follow, nobody
      writes any more, and the last line counts without.
    - A file belongs to one partition, which reads on in all of its files in turn.
    - What was read of a file stays as it is: one that was cut off, replaced or renamed is refused by name. Every range
      has a checksum of its bytes, which is held against what a task reads.
    - A file that was read to its end may be removed.
    """

    def plan(self, position: Json, partitions: int, limits: Limits, now_us: int) -> Planned | NothingNew:
        """Each partition reads on in its files, up to its share of the limits; costs a look at every file."""
        progress = Progress(set(), [None] * partitions, self._known_schema(), now_us)
        tails: dict[str, _Tail] = {}
        turn = 0
        if position is not None:
            data = records.mapping(position)
            progress.schema = data["schema"]
            turn = records.integer(data, "turn")
            tails = {tail.name: tail for tail in map(_Tail.from_data, records.items(data["tails"]))}
            self._check_partitions(records.integer(data, "partitions"), partitions)
        progress.pieces = [[] for _ in range(partitions)]
        known, before = set(tails), tails
        tails = self._looked_at(before)
        gone = [tail for name, tail in before.items() if name not in tails]
        self._begin_new(progress, tails, gone, first=position is None)
        more = self._take_lines(progress, tails, limits, turn)
        ended = self.bounded and not more
        stated = position is None and self.stated is not None
        if progress.schema is None or (not progress.rows and set(tails) == known and not stated):
            return NothingNew(ended)
        planned = self._planned(progress, ended, more=bool(more))
        after: Json = {
            "tails": [tails[name].to_data() for name in sorted(tails)],
            "schema": progress.schema,
            "partitions": partitions,
            "turn": turn + 1,
            "at_us": now_us,
        }
        done = tuple(partition for partition in planned.quiet if self.bounded and partition not in more)
        return replace(planned, position=after, done=done)

    def read(self, partition: int, planned: Json) -> pl.DataFrame:  # noqa: ARG002
        """The lines of a range, file by file, if they are the bytes that were planned."""
        logged = records.mapping(planned)
        schema = schemas.from_data(logged["schema"])
        frames = [schemas.empty(schema, self.time)]
        for lines in _lines(planned):
            path = self.root / lines.name
            if not self._same_bytes(path, lines):
                raise _changed(path, "its lines")
            rows = _text(path).read(path, lines.begin, lines.end, schema).select(schema.names())
            frames.append(self.times.apply(rows, str(path), lines.begin.row, until_of(logged)))
        return pl.concat(frames)

    def changed(self, planned: Json) -> str | None:
        """The first file of a range whose lines are not what they were; reads them again."""
        for lines in _lines(planned):
            if not self._same_bytes(self.root / lines.name, lines):
                return str(self.root / lines.name)
        return None

    def renewed(self, planned: Json) -> Json:
        """The range as it is, if its lines are still there: lines have no other place."""
        what = self.changed(planned)
        if what is not None:
            raise _changed(Path(what), "results depend on its lines, which")
        return planned

    def resumed(self, position: Json) -> Json:
        """The position as it is, if what was read of every file is still the same; reads those that were touched."""
        for tail in map(_Tail.from_data, records.items(records.mapping(position)["tails"])):
            if (self.root / tail.name).exists():
                self._look(tail, grown_is_enough=False)
        return position

    def _looked_at(self, tails: dict[str, _Tail]) -> dict[str, _Tail]:
        """The files as they are now; those that were read to their end may be gone."""
        seen = {}
        for name, tail in tails.items():
            path = self.root / name
            if path.exists():
                seen[name] = self._look(tail, grown_is_enough=True)
            elif tail.at < tail.size:
                raise UnreadableSource(
                    f"{path}: a file that grows stays until it was read to its end, found it gone with "
                    f"{tail.size - tail.at:,} bytes unread: put it back"
                )
        return seen

    def _look(self, tail: _Tail, *, grown_is_enough: bool) -> _Tail:
        """A file as it is now, if it is the one that was read."""
        path = self.root / tail.name
        status = path.stat()
        if (status.st_ino, status.st_size, status.st_mtime_ns) == (tail.identity, tail.size, tail.changed_ns):
            return tail
        if status.st_size < tail.at:
            raise ChangedSource(
                f"{path}: a file that is tailed only grows, found {status.st_size:,} bytes where {tail.at:,} were "
                "read: put back what was there, new rows behind it or into a new file"
            )
        if status.st_ino == tail.identity and status.st_size > tail.size and grown_is_enough:
            same = _anchor(path, tail.at) == tail.anchor
        else:
            same = _text(path).checksum(path, 0, tail.at, None) == tail.checksum
        if not same:
            raise _changed(path, f"its first {tail.row:,} rows")
        return replace(tail, identity=status.st_ino, size=status.st_size, changed_ns=status.st_mtime_ns)

    def _begin_new(self, progress: Progress, tails: dict[str, _Tail], gone: list[_Tail], *, first: bool) -> None:
        """Files that are new and have a whole line: each goes to the partition with the fewest."""
        present = self._present()
        if first and self.bounded and not present:
            raise UnreadableSource(
                f"{self.root / self.pattern}: a source that does not follow has files, found none: correct the path"
            )
        counts = [sum(tail.partition == p for tail in tails.values()) for p in range(len(progress.pieces))]
        for name in sorted(name for name in present - set(tails) if (self.root / name).is_file()):
            path = self.root / name
            start = self._start(path)
            if start is None:
                continue
            if len(tails) >= MAX_TAILS:
                raise UnreadableSource(
                    f"{self.root}: a source tails at most {MAX_TAILS:,} files at a time, found more: move those away "
                    "that were read"
                )
            status = path.stat()
            columns = self._schema_within(path, start, status.st_size)
            if columns is None:
                continue  # its first line is not there yet
            self._check_columns(progress, path, columns)
            self._refuse_renamed(path, status.st_ino, gone)
            partition = counts.index(min(counts))
            counts[partition] += 1
            head = _text(path).checksum(path, 0, start.at, None) or 0
            seen = (status.st_ino, status.st_size, status.st_mtime_ns)
            tails[name] = _Tail(name, partition, *seen, start.at, 0, head, _anchor(path, start.at))

    def _schema_of(self, path: Path) -> pl.Schema | None:
        """The columns of a file, from whole lines."""
        start = self._start(path)
        return None if start is None else self._schema_within(path, start, path.stat().st_size)

    def _schema_within(self, path: Path, start: Cut, size: int) -> pl.Schema | None:
        end = self._end(path, start, size)
        return None if end is None else _text(path).schema(path, end)

    def _refuse_renamed(self, path: Path, identity: int, gone: list[_Tail]) -> None:
        """A file that was renamed while it is tailed would be read twice."""
        for tail in gone:
            if tail.identity == identity and _text(path).checksum(path, 0, tail.at, None) == tail.checksum:
                raise ChangedSource(
                    f"{path}: a file that is tailed keeps its name, found {tail.name!r} renamed to it: rename it "
                    "back, or move it where the source does not look"
                )

    def _start(self, path: Path) -> Cut | None:
        """Where the first row begins; none if the header of a CSV file is not whole yet."""
        file, size = _text(path), path.stat().st_size
        if not file.has_header:
            return Cut(0, 0)
        end = file.whole(path, Cut(0, 0), size, 1, 1 << 16)
        return None if end is None else Cut(end.at, 0)

    def _end(self, path: Path, start: Cut, size: int) -> int | None:
        """Where the last whole row of the beginning ends, from which types are seen; none if there is no row."""
        if self.bounded:
            return size if start.at < size else None
        last = _text(path).whole(path, start, size, 10_000, 4 << 20)
        return None if last is None else last.at

    def _take_lines(self, progress: Progress, tails: dict[str, _Tail], limits: Limits, turn: int) -> set[int]:
        """Give every partition the next lines of its files; for which of them there are more than they may take."""
        partitions, more = len(progress.pieces), set[int]()
        for partition in range(partitions):
            rows, size_bytes = max(1, limits.rows // partitions), max(1, limits.bytes // partitions)
            names = sorted(name for name, tail in tails.items() if tail.partition == partition)
            at = turn % len(names) if names else 0
            for name in names[at:] + names[:at]:  # another one first each time, so that none waits for ever
                tail = tails[name]
                end = self._next(tail, rows, size_bytes) if rows > 0 and size_bytes > 0 else None
                if end is not None:
                    path, begin = self.root / name, Cut(tail.at, tail.row)
                    checksum = _text(path).checksum(path, begin.at, end.at, tail.checksum) or 0
                    progress.pieces[partition].append(_Lines(name, begin, end, tail.checksum, checksum).to_data())
                    progress.rows += end.row - begin.row
                    rows, size_bytes = rows - (end.row - begin.row), size_bytes - (end.at - begin.at)
                    tail = replace(tail, at=end.at, row=end.row, checksum=checksum, anchor=_anchor(path, end.at))
                    tails[name] = tail
                if self._next(tail, 1, 1) is not None:
                    more.add(partition)
        return more

    def _next(self, tail: _Tail, rows: int, size_bytes: int) -> Cut | None:
        """Where the next lines of a file end; none if there is no whole one."""
        path, begin = self.root / tail.name, Cut(tail.at, tail.row)
        if tail.at >= tail.size:
            return None
        if self.bounded:
            return _text(path).cut(path, begin, tail.size, rows, size_bytes)
        return _text(path).whole(path, begin, tail.size, rows, size_bytes)

    def _check_partitions(self, before: int, now: int) -> None:
        if before != now:
            raise InvalidSource(
                f"{self.root}: a source keeps its partitions while it runs ({before}), found {now}: keep the "
                "parallelism"
            )

    def _same_bytes(self, path: Path, lines: _Lines) -> bool:
        try:
            length = lines.end.at - lines.begin.at
            block = read_block(path, lines.begin.at, length)
        except OSError as error:
            raise UnreadableSource(
                f"{path}: a file stays until the checkpoints no longer need it, found {error.strerror}: put it back"
            ) from error
        return len(block) == length and zlib.crc32(block, lines.before) == lines.after


def _text(path: Path) -> TextFormat:
    file = FORMATS[path.suffix]
    if not isinstance(file, TextFormat):
        raise UnreadableSource(
            f"{path}: CSV and NDJSON files can be tailed, found {path.suffix!r}: read it without tail"
        )
    return file


def _anchor(path: Path, at: int) -> int:
    begin = max(0, at - ANCHOR_BYTES)
    return zlib.crc32(read_block(path, begin, at - begin))


def _lines(planned: Json) -> Sequence[_Lines]:
    return [_Lines.from_data(piece) for piece in records.items(records.mapping(planned)["pieces"])]


def _changed(path: Path, what: str) -> ChangedSource:
    size = path.stat().st_size if path.exists() else 0
    return ChangedSource(
        f"{path}: a file that is tailed only grows, found {what} changed or replaced ({size:,} bytes now): put back "
        "what was there, new rows behind it or into a new file"
    )
