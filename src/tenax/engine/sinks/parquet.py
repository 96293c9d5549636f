"""Results as an ordinary folder of Parquet files, in which each final result appears exactly once."""

from __future__ import annotations

import io
import re
import secrets
import zlib
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pyarrow
from pyarrow import parquet as pq

from tenax.engine.errors import DamagedStore, InvalidSource
from tenax.engine.sinks.sink import FINAL, Committer, Sink, StagedFile, parts_of
from tenax.engine.sources.formats import as_frame
from tenax.engine.store import durable, journal
from tenax.engine.store.records import JsonObject

TENTATIVE_SUFFIX = "-tentative"  # of the folder beside that of the final results
_VISIBLE = re.compile(r"(.+)-b(\d{10})-p(\d{5,})\.parquet")


class ParquetSink(Sink):
    """Results as a folder of Parquet files, one per partition and batch that has rows.

    - The folder holds nothing but committed files, because Polars reads hidden files too; the commit log and staged
      files lie in a hidden folder beside it, on the same file system.
    - Order of a commit: staged file on disk, log entry on disk (now it counts), rename into the folder.
    - Only the last entry can lack its renames; taking over finishes them.
    - Tentative results lie in a sibling folder, `NAME-tentative`, until the final ones take their place.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).absolute()

    def write(self, output: str, partition: int, batch: int, pass_id: str, rows: pl.DataFrame) -> StagedFile:
        """Stage a result under a name that no other attempt has; an empty result needs no file."""
        if rows.is_empty():
            return StagedFile(partition, batch, "", 0, 0, 0)
        buffer = io.BytesIO()
        rows.write_parquet(buffer)
        payload = buffer.getvalue()
        name = f"{visible_name(output, partition, batch)}.{pass_id}.{secrets.token_hex(4)}"
        durable.make_folder(self.staged)
        durable.write_file(self.staged / name, payload)
        return StagedFile(partition, batch, name, rows.height, len(payload), zlib.crc32(payload))

    def committer(self, output: str, store: Path, identity: str, epoch: int) -> ParquetCommitter:  # noqa: ARG002
        """Take over the folder's commit log, finish the last commit, sweep staged files and orphans."""
        durable.make_folder(self.folder)
        return ParquetCommitter(self, output, identity, epoch)

    @property
    def tentative(self) -> Path:
        """The folder of tentative results."""
        return self.folder.parent / f"{self.folder.name}{TENTATIVE_SUFFIX}"

    @property
    def log(self) -> Path:
        """The folder of the commit log."""
        return self.folder.parent / f".{self.folder.name}.tenax" / "log"

    @property
    def staged(self) -> Path:
        """The folder of staged files."""
        return self.log.parent / "staged"


class ParquetCommitter(Committer):
    """The driver's side of a folder of Parquet files."""

    def __init__(self, sink: ParquetSink, output: str, identity: str, epoch: int) -> None:
        super().__init__(sink.log, output, identity, epoch)
        self._sink = sink
        if self._found:
            self._make_visible(self._found[-1])
        self._found = []
        self._sweep()

    def commit(self, batch: int, staged: Sequence[StagedFile]) -> None:
        """Make staged results count, then visible; what is in the log already is only cleared away."""
        fresh = self._new(batch, staged)
        self._check_staged(batch, fresh)
        if fresh:
            self._make_visible(self._append(batch, fresh))
        # Other attempts at the same results will never be needed.
        done = tuple(f"{visible_name(self.output, one.partition, batch)}." for one in staged)
        for name in durable.names(self._sink.staged):
            if name.startswith(done):
                durable.remove(self._sink.staged / name)

    def show(self, batch: int, staged: Sequence[StagedFile], quality: float) -> None:
        """Make staged results visible as tentative ones, unless final ones are there."""
        fresh = self._not_final(batch, staged)
        self._check_staged(batch, fresh)
        if fresh:
            durable.make_folder(self._sink.tentative)
            self._make_visible(self._append(batch, fresh, quality))

    def _check_staged(self, batch: int, fresh: Sequence[StagedFile]) -> None:
        for one in fresh:
            if one.name and not (self._sink.staged / one.name).exists():
                raise DamagedStore(
                    f"output {self.output!r}, batch {batch}: a result is staged until it is committed, found no "
                    f"{one.name}: run the batch again"
                )

    def _make_visible(self, record: JsonObject) -> None:
        """Rename the files of an entry into their folder; those that are there already stay.

        A final result takes back the tentative one.
        """
        final = record["kind"] == FINAL
        folder = self._sink.folder if final else self._sink.tentative
        shown = [one for one in parts_of(record) if one.name]
        for one in parts_of(record) if final and self._sink.tentative.exists() else ():
            durable.remove(self._sink.tentative / visible_name(self.output, one.partition, one.batch))
        for one in shown:
            source = self._sink.staged / one.name
            target = folder / visible_name(self.output, one.partition, one.batch)
            if source.exists():
                durable.move(source, target)
            elif not target.exists():
                raise DamagedStore(
                    f"{target}: a committed result is in its folder or staged, found neither {one.name}: "
                    "restore it from a copy"
                )
        if shown:
            durable.sync_folder(folder)
            durable.sync_folder(self._sink.staged)

    def _sweep(self) -> None:
        """Delete what no entry names: staged files of dead attempts, and visible files that lost a race of epochs."""
        for name in durable.names(self._sink.staged):
            durable.remove(self._sink.staged / name)
        for name in durable.names(self._sink.folder):
            match = _VISIBLE.fullmatch(name)
            if match and match[1] == self.output and not self.is_committed(int(match[2]), int(match[3])):
                durable.remove(self._sink.folder / name)
        for name in durable.names(self._sink.tentative) if self._sink.tentative.exists() else ():
            match = _VISIBLE.fullmatch(name)
            if match and match[1] == self.output and not self.is_tentative(int(match[2]), int(match[3])):
                durable.remove(self._sink.tentative / name)


def parquet(folder: str | Path) -> ParquetSink:
    """Results as Parquet files in a folder of their own."""
    if not isinstance(folder, str | Path) or not str(folder):
        raise InvalidSource(f"parquet writes to a folder, found {folder!r}: name one, as in tx.parquet('out/jams')")
    return ParquetSink(folder)


def visible_name(output: str, partition: int, batch: int) -> str:
    """The name of a result's file: the same whoever writes it, and in batch order when sorted."""
    return f"{output}-b{batch:010d}-p{partition:05d}.parquet"


def read_committed(folder: str | Path) -> pl.DataFrame:
    """All final rows in the order of batches, then partitions; each file is checked against the commit log."""
    return _read(ParquetSink(folder), latest=False)


def read_latest(folder: str | Path) -> pl.DataFrame:
    """All final rows, and tentative ones where no final result is there yet, told apart by the column `tentative`."""
    return _read(ParquetSink(folder), latest=True)


def _read(sink: ParquetSink, *, latest: bool) -> pl.DataFrame:
    newest: dict[tuple[int, int], tuple[StagedFile, str, bool]] = {}
    for record in journal.read(sink.log):
        final = record["kind"] == FINAL
        for one in parts_of(record):
            key = one.batch, one.partition
            if final or (latest and (key not in newest or not newest[key][2])):
                newest[key] = one, str(record["output"]), final
    frames = []
    for _, (one, output, final) in sorted(newest.items()):
        if not one.name:
            continue
        path = (sink.folder if final else sink.tentative) / visible_name(output, one.partition, one.batch)
        payload = durable.read_bytes(path)
        if len(payload) != one.bytes or zlib.crc32(payload) != one.crc32:
            raise DamagedStore(f"{path}: a result is as it was committed, found other bytes: restore it from a copy")
        rows = as_frame(pq.read_table(pyarrow.BufferReader(payload), use_threads=False))
        frames.append(rows.with_columns(tentative=pl.lit(not final)) if latest else rows)
    return pl.concat(frames) if frames else pl.DataFrame()
