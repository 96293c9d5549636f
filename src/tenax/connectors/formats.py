"""File formats: which pieces a file can be cut into, and how a piece is read."""

from __future__ import annotations

import functools
import io
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import polars as pl
import pyarrow
from pyarrow import parquet

from tenax.errors import UnreadableSource

INFERENCE_ROWS = 10_000  # of the first file, from which the types of text files are taken
MAX_RECORD_BYTES = 64 << 20  # of one row in a text file
_INFERENCE_BYTES = 4 << 20
_SCAN_BYTES = 1 << 20  # the first look for row ends
KEPT_FOOTERS = 1_024  # of Parquet files
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 8}  # bytes, by Parquet's types
_VIEW_BYTES = 16  # of a text beside its letters

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a piece of a file begins: for text a byte at the start of a row, else the number of a row."""

    at: int
    row: int


class FileFormat(ABC):
    """How a kind of file is read. Units are bytes for text and rows otherwise: whichever finds a piece at once."""

    inferred = True  # types are guessed from the first rows
    sparse = False  # rows may leave columns out

    @abstractmethod
    def schema(self, path: Path, size: int | None = None) -> pl.Schema | None:
        """The file's columns; none if a text file has no rows from which types could be seen, up to `size` if given."""

    @abstractmethod
    def end(self, path: Path, size: int) -> int:
        """Where the file ends, in the format's units."""

    @abstractmethod
    def start(self, path: Path) -> Cut:
        """Where the first row begins."""

    @abstractmethod
    def cut(self, path: Path, begin: Cut, end: int, rows: int, size_bytes: int) -> Cut:
        """The end of the largest piece from `begin` within both limits, at least one row."""

    @abstractmethod
    def size_bytes(self, path: Path, begin: Cut, end: Cut) -> int:
        """About how many bytes the rows of a piece have in memory."""

    @abstractmethod
    def checksum(self, path: Path, begin: int, end: int, before: int | None) -> int | None:
        """That of all that lies before `end`, given that of all before `begin`; none where rows are not bytes."""

    @abstractmethod
    def read(self, path: Path, begin: Cut, end: Cut, schema: pl.Schema) -> pl.DataFrame:
        """The rows of a piece."""


class ParquetFormat(FileFormat):
    """Parquet: cut by row numbers, which its metadata gives.

    Read with Arrow: the reader of Polars runs on its streaming engine, which was once seen to wait for ever.
    """

    inferred = False

    def schema(self, path: Path, size: int | None = None) -> pl.Schema | None:  # noqa: ARG002
        """The columns that the file declares."""
        return _footer(path).schema

    def end(self, path: Path, size: int) -> int:  # noqa: ARG002
        """The number of rows."""
        return _footer(path).rows

    def start(self, path: Path) -> Cut:  # noqa: ARG002
        """Row 0."""
        return Cut(0, 0)

    def cut(self, path: Path, begin: Cut, end: int, rows: int, size_bytes: int) -> Cut:
        """So many rows, or as many as would fill the bytes if all rows were of the same size."""
        by_bytes = int(size_bytes / _footer(path).row_bytes)
        at = min(end, begin.at + max(1, min(rows, by_bytes)))
        return Cut(at, at)

    def size_bytes(self, path: Path, begin: Cut, end: Cut) -> int:
        """By the widths of its columns: in the file, rows are encoded and compressed to a part of that."""
        return int((end.at - begin.at) * _footer(path).row_bytes)

    def checksum(self, path: Path, begin: int, end: int, before: int | None) -> int | None:  # noqa: ARG002
        """None: the bytes of a row lie anywhere."""
        return None

    def read(self, path: Path, begin: Cut, end: Cut, schema: pl.Schema) -> pl.DataFrame:  # noqa: ARG002
        """A slice of the rows; row groups outside it are not read."""
        return _naming(path, lambda: _row_groups(path, begin.at, end.at))


@dataclass(frozen=True, slots=True)
class _Footer:
    """What the end of a Parquet file tells: columns, rows, and about how many bytes a row has in memory."""

    schema: pl.Schema
    rows: int
    row_bytes: float


def _footer(path: Path) -> _Footer:
    """Read once for as long as the file stays as it is: a plan asks several times."""
    status = _naming(path, path.stat)
    return _read_footer(path, status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=KEPT_FOOTERS)
def _read_footer(path: Path, _size: int, _changed_ns: int) -> _Footer:
    metadata = _naming(path, lambda: parquet.read_metadata(path))
    schema = _naming(path, lambda: as_frame(metadata.schema.to_arrow_schema().empty_table()).schema)
    return _Footer(schema, int(metadata.num_rows), _row_bytes(metadata))


def _row_bytes(metadata: parquet.FileMetaData) -> float:
    """By the columns of the first row group: their widths, and for texts what is said of their bytes."""
    if not metadata.num_row_groups or not metadata.row_group(0).num_rows:
        return 1.0
    group = metadata.row_group(0)
    total = 0.0
    for number in range(group.num_columns):
        column = group.column(number)
        width = _WIDTHS.get(column.physical_type)
        total += column.num_values * (width or _VIEW_BYTES) + (0 if width else column.total_uncompressed_size)
    return max(1.0, total / int(group.num_rows))


def as_frame(table: pyarrow.Table) -> pl.DataFrame:
    """An Arrow table as a frame."""
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


def _row_groups(path: Path, begin: int, end: int) -> pl.DataFrame:
    """Rows `begin` to `end` of a Parquet file, from the row groups that hold them."""
    with parquet.ParquetFile(path) as file:
        counts = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
        firsts = np.concatenate([[0], np.cumsum(counts)])
        wanted = [number for number in range(len(counts)) if firsts[number] < end and firsts[number + 1] > begin]
        table = file.read_row_groups(wanted, use_threads=False)
    skipped = int(firsts[wanted[0]]) if wanted else 0
    return as_frame(table.slice(begin - skipped, end - begin))


class TextFormat(FileFormat):
    """Text with a row per line: cut by bytes at the ends of rows."""

    has_header = False

    def end(self, path: Path, size: int) -> int:  # noqa: ARG002
        """The number of bytes."""
        return size

    def cut(self, path: Path, begin: Cut, end: int, rows: int, size_bytes: int) -> Cut:
        """The last end of a row within the limits, found by reading at most about twice what the piece holds."""
        end_of_rows = self._cut(path, begin, end, rows, size_bytes, closed=True)
        if end_of_rows is None:
            raise UnreadableSource(f"{path}, row {begin.row + 1}: a row ends, found an open quote: close it")
        return end_of_rows

    def whole(self, path: Path, begin: Cut, end: int, rows: int, size_bytes: int) -> Cut | None:
        """The same of a file that may grow: a row ends with its newline. None if there is no whole row yet."""
        return self._cut(path, begin, end, rows, size_bytes, closed=False) if begin.at < end else None

    def _cut(self, path: Path, begin: Cut, end: int, rows: int, size_bytes: int, *, closed: bool) -> Cut | None:
        allowed = min(max(1, size_bytes), end - begin.at)
        length = min(allowed, _SCAN_BYTES)
        while True:  # the length doubles, so this ends at the limits, at the end of the file, or at too long a row
            block = read_block(path, begin.at, length)
            at_end = begin.at + len(block) >= end or len(block) < length  # it may have been cut off meanwhile
            ends = self._row_ends(block, closed=at_end and closed)
            if ends.size >= rows or (ends.size and (length >= allowed or at_end)):
                taken = min(rows, max(1, int(np.searchsorted(ends, allowed, side="right"))))
                return Cut(begin.at + int(ends[taken - 1]), begin.row + taken)
            if not ends.size and at_end:
                return None
            if not ends.size and length >= MAX_RECORD_BYTES:
                raise UnreadableSource(
                    f"{path}, row {begin.row + 1}: a row has at most {MAX_RECORD_BYTES:,} bytes, found more: split it"
                )
            length = min(2 * length, allowed if ends.size else end - begin.at)

    def size_bytes(self, path: Path, begin: Cut, end: Cut) -> int:  # noqa: ARG002
        """As many as in the file."""
        return end.at - begin.at

    def checksum(self, path: Path, begin: int, end: int, before: int | None) -> int | None:
        """The CRC-32 of the bytes, in blocks."""
        result = before or 0
        for at in range(begin, end, _SCAN_BYTES):
            result = zlib.crc32(read_block(path, at, min(_SCAN_BYTES, end - at)), result)
        return result

    def read(self, path: Path, begin: Cut, end: Cut, schema: pl.Schema) -> pl.DataFrame:
        """The rows of a piece, parsed by the source's schema."""
        block = read_block(path, begin.at, end.at - begin.at)
        try:
            return self._parse(block, schema)
        except pl.exceptions.PolarsError as error:
            row = begin.row + self._first_bad(block, schema) + 1
            raise UnreadableSource(
                f"{path}, row {row}: rows fit the source's columns, found {_one_line(error)}: correct the row, "
                "or state a schema"
            ) from error

    def _first_bad(self, block: bytes, schema: pl.Schema) -> int:
        """The number of the first row that cannot be parsed, by halving: O(log rows) parses."""
        ends = self._row_ends(block, closed=True)
        good, bad = 0, int(ends.size)
        while bad - good > 1:
            middle = (good + bad) // 2
            try:
                self._parse(block[: int(ends[middle - 1])], schema)
                good = middle
            except pl.exceptions.PolarsError:
                bad = middle
        return good

    @abstractmethod
    def _parse(self, block: bytes, schema: pl.Schema) -> pl.DataFrame:
        """Whole rows by a schema."""

    @abstractmethod
    def _row_ends(self, block: bytes, *, closed: bool) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """The positions behind each row; `closed` says that the last row may lack its newline."""


class CsvFormat(TextFormat):
    """CSV with a header: a newline within quotes does not end a row (RFC 4180)."""

    has_header = True

    def schema(self, path: Path, size: int | None = None) -> pl.Schema | None:
        """Names from the header, types from the first rows."""
        start = self.start(path)
        size = path.stat().st_size if size is None else size
        if start.at >= size:
            return None
        end = self.cut(path, start, size, INFERENCE_ROWS, _INFERENCE_BYTES)
        block = read_block(path, 0, end.at)
        return _naming(path, lambda: pl.read_csv(block, infer_schema_length=None).schema)

    def start(self, path: Path) -> Cut:
        """Behind the header."""
        size = path.stat().st_size
        if size == 0:
            raise UnreadableSource(f"{path}: a CSV file begins with its header, found an empty file: remove it")
        return Cut(self.cut(path, Cut(0, 0), size, 1, 1 << 16).at, 0)

    def _parse(self, block: bytes, schema: pl.Schema) -> pl.DataFrame:
        return pl.read_csv(io.BytesIO(block), has_header=False, schema=schema)

    def _row_ends(self, block: bytes, *, closed: bool) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        data = np.frombuffer(block, dtype=np.uint8)
        ends = np.flatnonzero(data == ord("\n"))
        quotes = np.flatnonzero(data == ord('"'))
        # A doubled quote within quotes counts twice, so it changes nothing: a row ends where the count is even.
        inside = np.searchsorted(quotes, ends) % 2 == 1
        ends = ends[~inside] + 1
        if closed and quotes.size % 2 == 0 and (not ends.size or ends[-1] < len(block)) and block:
            ends = np.append(ends, len(block))
        return ends.astype(np.int64)


class NdjsonFormat(TextFormat):
    """JSON with an object per line."""

    sparse = True

    def schema(self, path: Path, size: int | None = None) -> pl.Schema | None:
        """Columns and types as seen in the first rows."""
        size = path.stat().st_size if size is None else size
        if size == 0:
            return None
        end = self.cut(path, Cut(0, 0), size, INFERENCE_ROWS, _INFERENCE_BYTES)
        block = read_block(path, 0, end.at)
        return _naming(path, lambda: pl.read_ndjson(io.BytesIO(block), infer_schema_length=None).schema)

    def start(self, path: Path) -> Cut:  # noqa: ARG002
        """The first byte."""
        return Cut(0, 0)

    def _parse(self, block: bytes, schema: pl.Schema) -> pl.DataFrame:
        return pl.read_ndjson(io.BytesIO(block), schema=schema)

    def _row_ends(self, block: bytes, *, closed: bool) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        ends = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == ord("\n")) + 1
        if closed and block and (not ends.size or ends[-1] < len(block)):
            ends = np.append(ends, len(block))
        return ends.astype(np.int64)


FORMATS: dict[str, FileFormat] = {
    ".parquet": ParquetFormat(),
    ".csv": CsvFormat(),
    ".ndjson": NdjsonFormat(),
    ".jsonl": NdjsonFormat(),
}


def read_block(path: Path, at: int, length: int) -> bytes:
    """So many bytes of a file, or as many as it has."""
    with path.open("rb") as file:
        file.seek(at)
        return file.read(length)


def _naming(path: Path, action: Callable[[], T]) -> T:
    try:
        return action()
    except (pl.exceptions.PolarsError, pyarrow.ArrowException, OSError) as error:
        raise UnreadableSource(f"{path}: cannot be read: {_one_line(error)}: correct the file, or remove it") from error


def _one_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0].rstrip(".:")
