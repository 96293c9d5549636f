"""Results as an ordinary folder of Parquet files, in which each final result appears exactly once."""

from __future__ import annotations

import io
import re
import secrets
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow
from pyarrow import parquet as pq

from tenax.connectors.formats import as_frame
from tenax.connectors.ledger import Committed, Ledger
from tenax.connectors.logged import LoggedCommitter, LoggedSink
from tenax.connectors.sink import Key, Plain, Results, Staged, Survey
from tenax.errors import ConflictingResults, DamagedStore, InvalidSource
from tenax.store import durable, journal
from tenax.store.records import Json

TENTATIVE_SUFFIX = "-tentative"  # of the folder beside that of the final results
_VISIBLE = re.compile(r"(.+)-b(\d{10})-p(\d{5,})\.parquet")
_STAGED = re.compile(r"(.+)-b(\d{10})-p(\d{5,})\.parquet\.(\d+\.\d+|[^.]+)\.[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A result in a staged file; `name` is empty if nothing had to be written."""

    partition: int
    batch: int
    name: str
    rows: int
    bytes: int
    crc32: int

    @property
    def key(self) -> Key:
        """What it is the result of."""
        return self.batch, self.partition

    @property
    def note(self) -> list[Json]:
        """What leads to it, and by which it is known again."""
        return [self.bytes, self.crc32, self.name]

    @classmethod
    def of(cls, result: Staged | Committed) -> StagedFile:
        """As it was staged, or as the log has it."""
        note = result.data if isinstance(result, Staged) else result.note
        match note:
            case [int() as size, int() as crc32, str() as name]:
                return cls(result.partition, result.batch, name, result.rows, size, crc32)
        raise DamagedStore(f"a result in a file is [bytes, crc32, name], found {note!r}: was another version at work?")


class ParquetSink(LoggedSink):
    """Results as a folder of Parquet files, one per partition and batch that has rows.

    - The folder holds nothing but committed files, because Polars reads hidden files too; the commit log and staged
      files lie in a hidden folder beside it, on the same file system.
    - Order of a commit: staged file on disk, log entry on disk (now it counts), rename into the folder.
    - A folder that is away while the log names results in it is waited for, never made anew.
    - Tentative results lie in a sibling folder, `NAME-tentative`, until the final ones take their place.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).absolute()

    @property
    def place(self) -> str:  # type: ignore[override]
        """Its folder."""
        return str(self.folder)

    def write(self, output: str, partition: int, batch: int, pass_id: str, rows: pl.DataFrame) -> Plain:
        """Stage a result under a name that no other attempt has; an empty result needs no file."""
        if rows.is_empty():
            return StagedFile(partition, batch, "", 0, 0, 0).note
        buffer = io.BytesIO()
        rows.write_parquet(buffer)
        payload = buffer.getvalue()
        name = f"{visible_name(output, partition, batch)}.{pass_id}.{secrets.token_hex(4)}"
        durable.write_file(self.staged / name, payload)  # its folder is never made here: it may be away for a moment
        return StagedFile(partition, batch, name, rows.height, len(payload), zlib.crc32(payload)).note

    def log_of(self, output: str, store: Path) -> Path:  # noqa: ARG002
        """It lies beside the folder, not in the store: whoever has the results has it."""
        return self.log

    def survey(self, output: str, store: Path, *, read: bool = False) -> Survey:  # noqa: ARG002
        """Compare names and sizes with the log, or all bytes; a listing and a look at each file."""
        visible = durable.names(self.folder)  # before the log: a driver that runs meanwhile logs first
        return surveyed(self, output, visible, Ledger.of(journal.read(self.log)), read=read)

    def committer(self, output: str, store: Path, identity: str, epoch: int) -> ParquetCommitter:
        """Take over the folder's commit log, make the last commit visible, set aside what no entry explains."""
        self.survey(output, store)  # refuses before anything is touched
        durable.make_folder(self.folder)
        durable.make_folder(self.staged)
        return ParquetCommitter(self, output, identity, epoch)

    def give_up(self, output: str, key: Key) -> None:
        """Move a damaged result out of the folder."""
        path = self.folder / visible_name(output, key[1], key[0])
        if path.exists():
            folder = self.set_aside / "verified"
            durable.make_folder(folder)
            durable.move(path, folder / path.name)
            durable.sync_folder(folder)
            durable.sync_folder(self.folder)

    def results(self, output: str) -> Results:
        """What any reader of the two folders sees, and what the log says of it."""
        ledger = Ledger.of(journal.read(self.log))
        final, tentative = (_visible(folder, output) for folder in (self.folder, self.tentative))
        return Results(final, tentative, frozenset(ledger.corrected), tuple(ledger.repeated))

    def for_trial(self, folder: Path) -> ParquetSink:
        """The same in another folder."""
        return ParquetSink(folder)

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

    @property
    def set_aside(self) -> Path:
        """The folder of files that were found and not understood, by epoch."""
        return self.log.parent / "set-aside"


def surveyed(sink: ParquetSink, output: str, visible: Iterable[str], ledger: Ledger, *, read: bool = False) -> Survey:
    """What lies in the folder of a sink, against what its log says."""
    shown = {key: file for key, part in ledger.final.items() if (file := StagedFile.of(part)).name}
    if shown and not sink.folder.is_dir():
        raise DamagedStore(
            f"{sink.folder}: output {output!r} has {len(shown):,} committed results in this folder, found no folder: "
            "put it back; or make it empty, and what can be made again will be"
        )
    staged = set(durable.names(sink.staged))
    waiting: set[Key] = set()
    damaged: dict[Key, str] = {}
    for key, part in shown.items():
        path = sink.folder / visible_name(output, part.partition, part.batch)
        wrong = _damage(path, part, read=read)
        if wrong is not None and part.name in staged:
            waiting.add(key)
        elif wrong is not None:
            damaged[key] = f"{path}: {wrong}"
    names = {visible_name(output, part.partition, part.batch) for part in shown.values()}
    unexplained = [
        sink.folder / name
        for name in visible
        if (match := _VISIBLE.fullmatch(name)) and match[1] == output and name not in names
    ]
    size = sum(file.bytes for file in shown.values())
    return Survey(
        frozenset(ledger.final), frozenset(ledger.lost), damaged, frozenset(waiting), tuple(unexplained), size
    )


def _damage(path: Path, part: StagedFile, *, read: bool) -> str | None:
    """How a visible file differs from what was committed; None if it does not."""
    try:
        size = path.stat().st_size
        if size != part.bytes:
            return f"{part.bytes:,} bytes were committed, found {size:,}"
        if read and (checksum := durable.checksum(path, 0, size)) != part.crc32:
            return f"the checksum {part.crc32:08x} was committed, found {checksum:08x}"
    except FileNotFoundError:
        return f"{part.bytes:,} bytes were committed, found no file"
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
    return None


class ParquetCommitter(LoggedCommitter):
    """The driver's side of a folder of Parquet files."""

    def __init__(self, sink: ParquetSink, output: str, identity: str, epoch: int) -> None:
        super().__init__(sink.log, output, identity, epoch)
        self._sink = sink
        ledger, self._ledger = self._ledger, Ledger()
        survey = surveyed(sink, output, durable.names(sink.folder), ledger)
        self._to_show: dict[Key, str] = {}
        self._owed = {key: StagedFile.of(ledger.final[key]) for key in (*survey.staged, *survey.damaged)}
        self._set_aside(survey)
        for key in sorted(survey.staged):
            self._make_visible([key], {})
        for part in ledger.tentative.values():
            self._show(StagedFile.of(part))
        self._sweep(ledger)

    @property
    def owed(self) -> tuple[Key, ...]:
        """The final results that count and are not in the folder, by batch and partition."""
        return tuple(sorted(self._owed))

    def note(self, staged: Staged) -> Sequence[Json]:
        """Size, checksum and name of the file."""
        return StagedFile.of(staged).note

    def commit(self, batch: int, staged: Sequence[Staged]) -> None:
        """Make staged results count, then visible: all of them, whether they are in the log by now or before."""
        fresh = self.fresh(batch, staged)
        again = [StagedFile.of(result) for result in staged if result.key in self._owed and result not in fresh]
        for file in again:
            self._check_same(file)
        files = [StagedFile.of(result) for result in fresh]
        self._check_staged(batch, files)
        if fresh:
            self.append(batch, fresh)
            self._owed |= {file.key: file for file in files}
        self._make_visible([result.key for result in staged], {file.key: file.name for file in again})
        # Other attempts at the same results will never be needed.
        done = tuple(f"{visible_name(self.output, result.partition, batch)}." for result in staged)
        for name in durable.names(self._sink.staged):
            if name.startswith(done):
                durable.remove(self._sink.staged / name)

    def show(self, batch: int, staged: Sequence[Staged], quality: float) -> None:
        """Make staged results visible as tentative ones, unless final ones are there."""
        fresh = self.not_final(batch, staged)
        new = [result for result in fresh if self._to_show.get(result.key) != StagedFile.of(result).name]
        self._check_staged(batch, map(StagedFile.of, new))
        if new:
            self.append(batch, new, quality)
            self._to_show |= {result.key: StagedFile.of(result).name for result in new}
        for file in map(StagedFile.of, fresh):
            self._show(file)
            self._to_show.pop(file.key, None)

    def _show(self, file: StagedFile) -> None:
        """Rename a tentative result into its folder, if it is still staged."""
        if file.name and (self._sink.staged / file.name).exists():
            durable.make_folder(self._sink.tentative, below=self._sink.folder.parent)
            durable.move(self._sink.staged / file.name, self._sink.tentative / self._name(file.key))
            durable.sync_folder(self._sink.tentative)
            durable.sync_folder(self._sink.staged)

    def _check_staged(self, batch: int, fresh: Iterable[StagedFile]) -> None:
        for file in fresh:
            if file.name and not (self._sink.staged / file.name).exists():
                raise DamagedStore(
                    f"output {self.output!r}, batch {batch}: a result is staged until it is committed, found no "
                    f"{file.name}: run the batch again"
                )

    def _check_same(self, made: StagedFile) -> None:
        """A lost result that was made again is the one that was committed, to the byte."""
        owed = self._owed[made.key]
        if (made.bytes, made.crc32) != (owed.bytes, owed.crc32):
            raise ConflictingResults(
                f"output {self.output!r}, batch {made.batch}, partition {made.partition}: a lost result is made again "
                f"to the byte, found {made.bytes:,} bytes with {made.crc32:08x} for {owed.bytes:,} with "
                f"{owed.crc32:08x}: restore {self._name(made.key)} from a copy, or run the versions that made it"
            )

    def _make_visible(self, keys: Iterable[Key], made_again: dict[Key, str]) -> None:
        """Rename results into the folder until they are seen there; what is done already stays.

        A final result takes back the tentative one, and is owed until it is seen.
        """
        owed = [self._owed[key] for key in keys if key in self._owed]
        shown = [file for file in owed if file.name]
        for file in shown:
            target = self._sink.folder / self._name(file.key)
            names = (file.name, made_again.get(file.key, file.name))
            source = next((self._sink.staged / name for name in names if (self._sink.staged / name).exists()), None)
            if source is not None:
                durable.move(source, target)
            elif _damage(target, file, read=False) is not None:
                raise DamagedStore(
                    f"{target}: a committed result is in its folder or staged, found neither {file.name}: "
                    "start again to have it made again"
                )
        if shown:
            durable.sync_folder(self._sink.folder)
            durable.sync_folder(self._sink.staged)
        for file in owed:
            if self._sink.tentative.exists():
                durable.remove(self._sink.tentative / self._name(file.key))
            del self._owed[file.key]

    def _set_aside(self, survey: Survey) -> None:
        """Move what is not as committed, and what nobody has committed, out of the folder; both are named."""
        files = {path: f"{path}: no entry of the commit log names it" for path in survey.unexplained}
        for key, wrong in survey.damaged.items():
            path = self._sink.folder / self._name(key)
            if path.exists():
                files[path] = wrong
            else:
                self.notices.append(wrong)
        folder = self._sink.set_aside / f"{self.epoch:08d}"
        for path, wrong in files.items():
            durable.make_folder(folder)
            durable.move(path, folder / path.name)
            self.notices.append(f"{wrong}: set aside in {folder}")
        if files:
            durable.sync_folder(folder)
            durable.sync_folder(self._sink.folder)

    def _sweep(self, ledger: Ledger) -> None:
        """Delete what is understood and of no use: staged files of dead attempts, tentative results that are final."""
        for name in durable.names(self._sink.staged):
            match = _STAGED.fullmatch(name)
            partial = name.startswith(f".{self.output}-b") and name.endswith(durable.PARTIAL)
            if partial or (match and match[1] == self.output):
                durable.remove(self._sink.staged / name)
        for name in durable.names(self._sink.tentative) if self._sink.tentative.exists() else ():
            match = _VISIBLE.fullmatch(name)
            key = (int(match[2]), int(match[3])) if match and match[1] == self.output else None
            if key is not None and (key in ledger.corrected or key in ledger.final):
                durable.remove(self._sink.tentative / name)

    def _name(self, key: Key) -> str:
        return visible_name(self.output, key[1], key[0])


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
    entries = journal.read(sink.log)
    ledger = Ledger.of(entries)
    output = str(entries[0]["output"]) if entries else ""
    wanted = {key: (StagedFile.of(part), False) for key, part in ledger.final.items()}
    if latest:  # one that is not there is no loss: its final result will follow
        shown = set(durable.names(sink.tentative))
        for key, part in ledger.tentative.items():
            if visible_name(output, part.partition, part.batch) in shown:
                wanted[key] = StagedFile.of(part), True
    frames = []
    for _, (file, tentative) in sorted(wanted.items()):
        if not file.name:
            continue
        path = (sink.tentative if tentative else sink.folder) / visible_name(output, file.partition, file.batch)
        payload = durable.read_bytes(path)
        if len(payload) != file.bytes or zlib.crc32(payload) != file.crc32:
            raise DamagedStore(f"{path}: a result is as it was committed, found other bytes: restore it from a copy")
        rows = as_frame(pq.read_table(pyarrow.BufferReader(payload), use_threads=False))
        frames.append(rows.with_columns(tentative=pl.lit(tentative)) if latest else rows)
    return pl.concat(frames) if frames else pl.DataFrame()


def _visible(folder: Path, output: str) -> dict[Key, pl.DataFrame]:
    """The files of an output in a folder, whoever put them there."""
    frames: dict[Key, pl.DataFrame] = {}
    for name in sorted(durable.names(folder)) if folder.exists() else ():
        match = _VISIBLE.fullmatch(name)
        if match and match[1] == output:
            payload = durable.read_bytes(folder / name)
            rows = as_frame(pq.read_table(pyarrow.BufferReader(payload), use_threads=False))
            frames[int(match[2]), int(match[3])] = rows
    return frames
