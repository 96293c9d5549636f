"""Files as a source: Parquet, CSV and NDJSON, also those that appear while a topology runs."""

from __future__ import annotations

import base64
import glob
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl

from tenax.connectors import schemas
from tenax.connectors.formats import FORMATS, Cut, FileFormat
from tenax.connectors.source import Limits, NothingNew, Planned, Source
from tenax.connectors.times import EventTimes
from tenax.errors import ChangedSource, InvalidSource, UnreadableSource
from tenax.model.durations import Span, microseconds
from tenax.store import records
from tenax.store.records import Json

MAX_FILES = 100_000  # that match at one time; names of all that were read are kept in the log
MAX_FILES_PER_BATCH = 256  # so that planning a batch takes bounded time: about 1 ms a file


@dataclass(frozen=True, slots=True)
class _Open:
    """A file that a partition has begun to read; `size` and `changed_ns` tell it from a later one of its name.

    `checksum` is that of all before `at`, by which a file that was corrected further on is known.
    """

    name: str
    size: int
    changed_ns: int
    at: int
    row: int
    end: int
    checksum: int | None

    def to_data(self) -> list[Json]:
        return [self.name, self.size, self.changed_ns, self.at, self.row, self.end, self.checksum]

    @classmethod
    def from_data(cls, data: Json) -> _Open:
        match list(records.items(data)):
            case [str(name), int(size), int(changed), int(at), int(row), int(end), (int() | None) as checksum]:
                return cls(name, size, changed, at, row, end, checksum)
        raise UnreadableSource(f"a position of files was expected, found {data!r}: is the store of another source?")

    def reaching(self, end: Cut, checksum: int | None) -> _Open:
        """The same file, read up to there."""
        return replace(self, at=end.at, row=end.row, checksum=checksum)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A piece of a file: from where `begin` stands to `end`, with the checksum of all before its end."""

    begin: _Open
    end: Cut
    checksum: int | None

    def to_data(self) -> Json:
        return [self.begin.to_data(), self.end.at, self.end.row, self.checksum]

    @classmethod
    def from_data(cls, data: Json) -> _Piece:
        match list(records.items(data)):
            case [begin, int(at), int(row), (int() | None) as checksum]:
                return cls(_Open.from_data(begin), Cut(at, row), checksum)
        raise UnreadableSource(f"a piece of a file was expected, found {data!r}: is the store of another source?")


@dataclass(slots=True)
class Progress:
    """A position while a plan is made: the names seen, the file that each partition is in, the schema of all."""

    seen: set[str]
    current: list[_Open | None]
    schema: Json
    now_us: int = 0
    unseen: list[str] = field(default_factory=list)
    pieces: list[list[Json]] = field(default_factory=list)
    rows: int = 0


class FileSource(Source):
    """The files of a folder, or those that match a pattern.

    - Files are taken in the order of their names among those that are there when one is needed; the log fixes it.
    - A file belongs to one partition, which reads it in order; a large one in several batches.
    - A file must not change once it is there: write it under another name (hidden, or without the suffix) and rename.
      A range names its file's size and modification time; another file of that name is refused.
    - While no driver runs, a file may be corrected from the first row on that no result depends on. Rows of text files
      are known by a checksum of their bytes; Parquet files are taken as a whole.
    - With `follow`, new files are picked up while running, and a file that vanished and came back is new; without, the
      source ends when the files that are there have been read. A partition that finds none left waits no more.
    - A range says up to when its event times are believed, so that a replay refuses or reads the same rows.
    - The columns of the first file are those of all. Types of CSV and NDJSON come from its first rows, unless they are
      `stated`. What was seen of them before the first plan is what that plan goes by.
    """

    def __init__(
        self,
        where: str | Path,
        times: EventTimes,
        *,
        follow: bool,
        lateness: Span,
        idle_after: Span | None,
        schema: Mapping[str, pl.DataType] | None,
    ) -> None:
        if not isinstance(where, str | Path) or not str(where) or not isinstance(times.column, str):
            raise InvalidSource(
                "files are named by a folder or pattern and the column of event times, found "
                f"{where!r} and {times.column!r}: "
                "write tx.files('data/*.csv', time='ts')"
            )
        self.root, self.pattern = _split(Path(where))
        self.times = times
        self.time = times.column
        self.lateness_us = microseconds(lateness)
        self.bounded = not follow
        self.idle_after_us = None if idle_after is None or not follow else microseconds(idle_after)
        self.stated = None if schema is None else pl.Schema(schema)
        self._seen: pl.Schema | None = None
        if self.stated is not None and self.time not in self.stated:
            raise InvalidSource(f"a schema has the column of event times, found no {self.time!r}: add it")
        if self.stated is not None:
            times.check(self.stated[self.time], "schema")

    def parameters(self) -> Mapping[str, object]:
        """As they were given: what was seen of the files is not among them."""
        given = {name: value for name, value in super().parameters().items() if name != "_seen"}
        given["schema"] = given.pop("stated")
        return given

    def schema(self) -> pl.Schema | None:
        """What was stated, or the columns of the first file that tells them: its footer, or its first rows."""
        if self.stated is None:
            self._seen = self._first_schema()
        columns = self.stated or self._seen
        return None if columns is None else schemas.empty(columns, self.time).schema

    def schema_at(self, position: Json) -> pl.Schema | None:
        """The columns that the log has: files that were read may be gone."""
        return schemas.empty(schemas.from_data(records.mapping(position)["schema"]), self.time).schema

    def _first_schema(self) -> pl.Schema | None:
        for name in sorted(self._present()):
            path = self.root / name
            columns = self._schema_of(path) if path.is_file() else None
            if columns is not None:
                self._check_time(columns, path)
                return columns
        return None

    def _schema_of(self, path: Path) -> pl.Schema | None:
        """The columns of a file; none if it has no rows from which they could be seen."""
        return _format(path).schema(path)

    def plan(self, position: Json, partitions: int, limits: Limits, now_us: int) -> Planned | NothingNew:
        """Each partition goes on in its file, and takes the next name when it has none, up to its share of the limits.

        Costs a listing, and for text one scan for row ends of what the batch will read.
        """
        progress = self._resume(position, partitions)
        progress.now_us = now_us
        before = len(progress.seen)
        rows = max(1, limits.rows // partitions)
        size_bytes = max(1, limits.bytes // partitions)
        left = [(rows, size_bytes)] * partitions
        opened = 0
        while True:  # each turn finishes a file or a partition's share
            open_shares = [p for p in range(partitions) if left[p][0] > 0 and left[p][1] > 0]
            ready = [p for p in open_shares if progress.current[p] is not None]
            if not ready and open_shares and progress.unseen and opened < MAX_FILES_PER_BATCH:
                # All have finished their files: the one that has read least takes the next.
                ready = [min(open_shares, key=lambda p: (-left[p][0], p))]
                self._open_next(progress, ready[0])
                opened += 1
            if not ready:
                break
            for partition in ready:
                left[partition] = self._take(progress, partition, *left[partition])
        exhausted = not progress.unseen and not any(progress.current)
        ended = self.bounded and exhausted
        # Files without rows are looked at again as long as no columns are known: an empty range has columns too.
        stated = position is None and self.stated is not None
        if progress.schema is None or (not progress.rows and len(progress.seen) == before and not stated):
            return NothingNew(ended)
        return self._planned(progress, ended, more=not exhausted)

    def _planned(self, progress: Progress, ended: bool, *, more: bool) -> Planned:
        until_us = self.times.until(progress.now_us)
        ranges = tuple(
            {"schema": progress.schema, "pieces": pieces, "until_us": until_us} for pieces in progress.pieces
        )
        quiet = tuple(partition for partition, pieces in enumerate(progress.pieces) if not pieces)
        complete = self.bounded and not progress.unseen
        done = tuple(p for p in quiet if complete and progress.current[p] is None)
        return Planned(ranges, _position(progress, complete), progress.rows, ended, quiet, done, more)

    def read(self, partition: int, planned: Json) -> pl.DataFrame:  # noqa: ARG002
        """The pieces of a range, one after the other."""
        logged = records.mapping(planned)
        schema = schemas.from_data(logged["schema"])
        frames = [schemas.empty(schema, self.time)]
        for piece in _pieces(planned):
            begin = piece.begin
            path = self.root / begin.name
            _check_unchanged(path, begin)
            rows = _format(path).read(path, Cut(begin.at, begin.row), piece.end, schema)
            _check_unchanged(path, begin)
            rows = rows.select(schema.names())
            frames.append(self.times.apply(rows, str(path), begin.row, until_of(logged)))
        return pl.concat(frames)

    def changed(self, planned: Json) -> str | None:
        """The first file of a range that was changed or removed; costs a look at each file."""
        for piece in _pieces(planned):
            path = self.root / piece.begin.name
            try:
                _check_unchanged(path, piece.begin)
            except UnreadableSource:
                return str(path)
        return None

    def renewed(self, planned: Json) -> Json:
        """The range in the files as they are now, if these pieces of them are the same bytes."""
        if self.changed(planned) is None:
            return planned
        pieces = []
        for piece in _pieces(planned):
            begin, end = piece.begin, piece.end
            pieces.append(replace(piece, begin=self._same(begin, begin.at, end, begin.checksum, piece.checksum)))
        return {**records.mapping(planned), "pieces": [piece.to_data() for piece in pieces]}

    def resumed(self, position: Json) -> Json:
        """The position in the files as they are now, if all that was read of them is the same bytes."""
        data = records.mapping(position)
        opened: list[Json] = []
        for data_of_file in records.items(data["open"]):
            before = None if data_of_file is None else _Open.from_data(data_of_file)
            if before is not None:
                before = self._same(before, 0, Cut(before.at, before.row), None, before.checksum)
            # A file that was cut off right there has been read.
            opened.append(None if before is None or before.at >= before.end else before.to_data())
        return {**data, "open": opened, "complete": False}  # what was added while no driver ran is read

    def _same(self, opened: _Open, begin: int, end: Cut, before: int | None, checksum: int | None) -> _Open:
        """The file as it is now, if its bytes from `begin` to `end` are those that were planned."""
        path = self.root / opened.name
        kept = "it" if checksum is None else f"its first {end.row:,} rows"
        try:
            _check_unchanged(path, opened, f"results depend on {kept}, put back what was there")
            return opened
        except ChangedSource:
            file, status = _format(path), path.stat()
            if checksum is None or file.checksum(path, begin, end.at, before) != checksum:
                raise
        return replace(opened, size=status.st_size, changed_ns=status.st_mtime_ns, end=file.end(path, status.st_size))

    def _resume(self, position: Json, partitions: int) -> Progress:
        current: list[_Open | None] = [None] * partitions
        if position is None:
            progress = Progress(set(), current, self._known_schema())
        else:
            data = records.mapping(position)
            progress = Progress(_unpack(records.text(data, "seen")), current, data["schema"])
            opened = [
                None if data_of_file is None else _Open.from_data(data_of_file)
                for data_of_file in records.items(data["open"])
            ]
            if len(opened) != partitions:
                raise InvalidSource(
                    f"{self.root}: a source keeps its partitions while it runs ({len(opened)}), found {partitions}: "
                    "keep the parallelism"
                )
            current[:] = opened
        progress.pieces = [[] for _ in range(partitions)]
        present = self._present()
        if position is None and self.bounded and not present:
            raise UnreadableSource(
                f"{self.root / self.pattern}: a source that does not follow has files, found none: correct the path"
            )
        if position is None or not (self.bounded and records.mapping(position).get("complete")):
            progress.unseen = sorted(present - progress.seen, reverse=True)
            self._pass_folders(progress)
        progress.seen &= present | {opened_file.name for opened_file in current if opened_file is not None}
        return progress

    def _known_schema(self) -> Json:
        """The schema that the user has stated, or that was seen; None if it comes from the first file."""
        known = self.stated or self._seen
        return None if known is None else schemas.to_data(known, str(self.root))

    def _present(self) -> set[str]:
        """The names that match, none hidden; folders among them are sorted out when they are unseen."""
        # Texts rather than paths: with thousands of files this is most of what an idle plan costs.
        names = {
            name
            for name in glob.iglob(self.pattern, root_dir=self.root, recursive=True)  # noqa: PTH207
            if name.endswith(tuple(FORMATS)) and not name.startswith("_") and "/_" not in name
        }
        if len(names) > MAX_FILES:
            raise UnreadableSource(
                f"{self.root}: a source has at most {MAX_FILES:,} files at a time, found {len(names):,}: "
                "move those away that were read"
            )
        return names

    def _pass_folders(self, progress: Progress) -> None:
        """Let the next unseen name be that of a file; looking at all of them would cost most of a plan."""
        while progress.unseen and not (self.root / progress.unseen[-1]).is_file():
            progress.unseen.pop()

    def _open_next(self, progress: Progress, partition: int) -> None:
        name = progress.unseen.pop()
        self._pass_folders(progress)
        path = self.root / name
        file = _format(path)
        status = path.stat()
        progress.seen.add(name)
        columns = file.schema(path)
        if columns is None:
            return  # a text file without rows
        self._check_columns(progress, path, columns)
        start, end = file.start(path), file.end(path, status.st_size)
        if start.at < end:
            head = file.checksum(path, 0, start.at, None)
            opened = _Open(name, status.st_size, status.st_mtime_ns, start.at, start.row, end, head)
            progress.current[partition] = opened

    def _check_columns(self, progress: Progress, path: Path, columns: pl.Schema) -> None:
        """The columns of the first file are those of all."""
        file = _format(path)
        if progress.schema is None:
            progress.schema = schemas.to_data(columns, str(path))
        expected = schemas.from_data(progress.schema)
        self._check_time(expected, path)
        if self.stated is None or not file.inferred:
            schemas.check_same(expected, columns, str(path), inferred=file.inferred, sparse=file.sparse)
        elif not file.sparse:
            same = pl.Schema({name: expected.get(name, kind) for name, kind in columns.items()})
            schemas.check_same(expected, same, str(path), inferred=True, sparse=False)

    def _check_time(self, columns: pl.Schema, path: Path) -> None:
        if self.time not in columns:
            raise UnreadableSource(
                f"{path}: a source has its column of event times, found no {self.time!r} among {list(columns)}: "
                "name one of these"
            )
        self.times.check(columns[self.time], str(path))

    def _take(self, progress: Progress, partition: int, rows: int, size_bytes: int) -> tuple[int, int]:
        """Give a partition the next piece of its file; what is left of its share."""
        begin = progress.current[partition]
        if begin is None:
            return rows, size_bytes
        path = self.root / begin.name
        _check_unchanged(path, begin)
        file = _format(path)
        end = file.cut(path, Cut(begin.at, begin.row), begin.end, rows, size_bytes)
        taken = end.row - begin.row
        checksum = file.checksum(path, begin.at, end.at, begin.checksum)
        progress.pieces[partition].append(_Piece(begin, end, checksum).to_data())
        progress.rows += taken
        done = end.at >= begin.end
        progress.current[partition] = None if done else begin.reaching(end, checksum)
        if not done:
            return 0, 0  # a share ended within the file
        return rows - taken, size_bytes - file.size_bytes(path, Cut(begin.at, begin.row), end)


def files(
    where: str | Path,
    *,
    time: str,
    follow: bool = True,
    tail: bool = False,
    lateness: Span = "0s",
    time_unit: str | None = None,
    any_time: bool = False,
    idle_after: Span | None = "10s",
    schema: Mapping[str, pl.DataType] | None = None,
) -> FileSource:
    """The files of a folder, or those that match a pattern, with `time` as the column of event times.

    - `follow` picks up new files while the topology runs; without, the source ends with those that are there.
    - `tail` reads on in CSV and NDJSON files that grow, line by line.
    - Rows may be so much behind the newest before them: `lateness`.
    - Whole numbers as times have a `time_unit`: "s", "ms", "us" or "ns". Times before 1990 or more than a day ahead of
      the clock are refused, unless `any_time`.
    - A partition that had no rows for `idle_after` holds no windows back; None lets them wait for it.
    """
    times = EventTimes(time, time_unit, any_time)
    if tail:
        from tenax.connectors.tails import TailSource  # which builds on this module

        return TailSource(where, times, follow=follow, lateness=lateness, idle_after=idle_after, schema=schema)
    return FileSource(where, times, follow=follow, lateness=lateness, idle_after=idle_after, schema=schema)


def _split(where: Path) -> tuple[Path, str]:
    """A folder without wildcards, and the pattern below it."""
    parts = where.absolute().parts
    wild = next((number for number, part in enumerate(parts) if any(sign in part for sign in "*?[")), None)
    if wild is not None:
        return Path(*parts[:wild]), "/".join(parts[wild:])
    if where.suffix in FORMATS and not where.is_dir():
        return where.absolute().parent, where.name
    return where.absolute(), "*"


def _format(path: Path) -> FileFormat:
    return FORMATS[path.suffix]


def pieces_of(planned: Json) -> list[tuple[str, int, int]]:
    """The files of a range: name, size and time of change."""
    return [(piece.begin.name, piece.begin.size, piece.begin.changed_ns) for piece in _pieces(planned)]


def seen_in(position: Json) -> set[str]:
    """The names of all files that were taken."""
    return _unpack(records.text(records.mapping(position), "seen"))


def _pieces(planned: Json) -> list[_Piece]:
    return [_Piece.from_data(piece) for piece in records.items(records.mapping(planned)["pieces"])]


def _check_unchanged(
    path: Path,
    planned: _Open,
    remedy: str = "put the old one back, new rows into a new file, or tail the source (tail=True)",
) -> None:
    try:
        status = path.stat()
    except OSError as error:
        raise UnreadableSource(
            f"{path}: a file stays until the checkpoints no longer need it, found {error.strerror}: put it back"
        ) from error
    if (status.st_size, status.st_mtime_ns) != (planned.size, planned.changed_ns):
        raise ChangedSource(
            f"{path}: a file does not change once it was seen, found {status.st_size} bytes changed at "
            f"{status.st_mtime_ns} for {planned.size} at {planned.changed_ns}: {remedy}"
        )


def until_of(logged: records.JsonObject) -> int | None:
    """Up to when the event times of a range are believed."""
    return None if logged["until_us"] is None else records.integer(logged, "until_us")


def _position(progress: Progress, complete: bool) -> Json:
    """As plain data; `complete` says that all files were taken that a source which does not follow will read."""
    opened: Sequence[Json] = [
        None if opened_file is None else opened_file.to_data() for opened_file in progress.current
    ]
    position: dict[str, Json] = {"seen": _pack(progress.seen), "open": opened, "schema": progress.schema}
    return {**position, "at_us": progress.now_us, "complete": complete}


def _pack(names: set[str]) -> str:
    """Names as text: sorted names share most of their letters, so this takes a few bytes each."""
    return base64.b64encode(zlib.compress("\0".join(sorted(names)).encode(), 6)).decode()


def _unpack(text: str) -> set[str]:
    joined = zlib.decompress(base64.b64decode(text)).decode()
    return set(joined.split("\0")) if joined else set()
