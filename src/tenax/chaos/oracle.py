"""The oracle: what a run has committed, held against a run of the same batches without failures."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

import polars as pl

from tenax.application.application import Application
from tenax.chaos.record import Recorder
from tenax.chaos.trial_sinks import with_results_in as with_results_in  # noqa: PLC0414
from tenax.connectors.ledger import Committed, Ledger
from tenax.connectors.parquet import ParquetSink, StagedFile, visible_name
from tenax.connectors.sink import Key, Results, Sink
from tenax.control.instructions import Outcome
from tenax.engine.driver import Driver
from tenax.engine.session import Session
from tenax.errors import ClusterFailed, DamagedStore, InvalidRequest
from tenax.model.settings import Settings
from tenax.store import durable, journal, records
from tenax.store.store import LoggedBatch
from tenax.store.topology_versions import VERSIONS

NO_ROWS = pl.DataFrame()
MAX_SHOWN = 5  # findings that a text names
REPLAY = "replay"  # the folder of the run without failures, beside the store
REPLAYED = Settings.of(replay=True, keep_batches=True, max_batches_per_pass=8)  # no reader waits for single batches


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the oracle found; each finding is one (output, batch, partition).

    - `lost`: a run without failures has it, this one does not.
    - `duplicated`: committed more than once, or a file that no entry of the commit log names.
    - `different`: other rows, other bytes, or a result that a run without failures does not have.
    - `uncorrected`: still tentative, though the run is over.
    - `tentative` results were shown, and of those `corrected` have a final one now.
    """

    final: int
    tentative: int
    corrected: int
    lost: tuple[str, ...] = ()
    duplicated: tuple[str, ...] = ()
    different: tuple[str, ...] = ()
    uncorrected: tuple[str, ...] = ()

    @property
    def held(self) -> bool:
        """Whether the final results are exactly those of a run without failures."""
        return not (self.lost or self.duplicated or self.different or self.uncorrected)

    def and_also(self, other: Verdict) -> Verdict:
        """What was found of more outputs."""
        both = (getattr(self, part.name) + getattr(other, part.name) for part in fields(self))
        return Verdict(*both)

    def __str__(self) -> str:
        if self.held:
            return (
                f"{self.final} final results, all as in a run without failures; {self.corrected} were tentative first"
            )
        return "; ".join(
            f"{len(keys)} {name}: {', '.join(keys[:MAX_SHOWN])}{', ...' if len(keys) > MAX_SHOWN else ''}"
            for name in ("lost", "duplicated", "different", "uncorrected")
            if (keys := getattr(self, name))
        )


def judge(application: Application, store: Path, results: Path, session: Session, nodes: int = 2) -> Verdict:
    """Replay the batch log of a finished run without failures, and compare every final result, to the byte.

    `results` is the folder of its outputs, a folder each (`with_results_in`). The run kept its whole batch log.
    """
    folder = store.parent / REPLAY
    shutil.rmtree(folder, ignore_errors=True)
    copy_batches(store, folder / "store")
    again = with_results_in(application, folder / "results")
    settings = REPLAYED.but(nodes=nodes)
    stop = Driver(again, folder / "store", settings, Recorder(), session).run()
    if stop.outcome is not Outcome.FINISHED:
        raise ClusterFailed(f"a run without failures finishes, found {stop.reason}: correct that first")
    return compare(with_results_in(application, results).sinks, again.sinks)


def copy_batches(store: Path, target: Path) -> None:
    """Make a new store that begins with the batch log of another one, and with the versions of its topology."""
    logged = [
        LoggedBatch(records.integer(record, "batch"), record["data"]) for record in journal.read(store / "batches")
    ]
    if not logged or logged[0].number != 1:
        first = logged[0].number if logged else "none"
        raise DamagedStore(
            f"{store}: a replay needs the batch log from batch 1 on, found {first}: run it with the whole log kept"
        )
    durable.make_folder(target / "batches")
    payload, _ = journal.encoded({"batch": batch.number, "data": batch.data} for batch in logged)
    durable.write_file(target / "batches" / f"{0:08d}.jsonl", payload)  # older than any epoch
    durable.make_folder(target / VERSIONS)
    versions, _ = journal.encoded(journal.read(store / VERSIONS))
    durable.write_file(target / VERSIONS / f"{0:08d}.jsonl", versions)


def compare(actual: Mapping[str, Sink], expected: Mapping[str, Sink]) -> Verdict:
    """Hold the results of all outputs against those of a run without failures: files to the byte, others by rows."""
    verdict = Verdict(0, 0, 0)
    for output, sink in actual.items():
        other = expected[output]
        if isinstance(sink, ParquetSink) and isinstance(other, ParquetSink):
            verdict = verdict.and_also(_files_compared(output, sink, other))
        else:
            verdict = verdict.and_also(_rows_compared(output, _read(output, sink), _read(output, other)))
    return verdict


def _read(output: str, sink: Sink) -> Results:
    results = sink.results(output)
    if results is None:
        raise InvalidRequest(
            f"output {output!r}: results are compared where they can be read back, found {type(sink).__name__} without "
            "results(): define it, or let for_trial() give None"
        )
    return results


def _rows_compared(output: str, ours: Results, theirs: Results) -> Verdict:
    """By rows, in their order; a result that is left out has none."""
    keys = sorted({*ours.final, *theirs.final})
    full = [key for key in keys if theirs.final.get(key, NO_ROWS).height]
    tentative = ours.corrected | ours.tentative.keys()
    return Verdict(
        final=len(ours.final),
        tentative=len(tentative),
        corrected=len(ours.corrected),
        lost=tuple(_named(output, key) for key in full if key not in ours.final),
        duplicated=tuple(_named(output, key) for key in ours.repeated),
        different=tuple(
            _named(output, key)
            for key in keys
            if key in ours.final and not _same_rows(ours.final[key], theirs.final.get(key, NO_ROWS))
        ),
        uncorrected=tuple(_named(output, key) for key in sorted(ours.tentative)),
    )


def _same_rows(rows: pl.DataFrame, other: pl.DataFrame) -> bool:
    return rows.equals(other) or not (rows.height or other.height)


def _files_compared(output: str, actual: ParquetSink, expected: ParquetSink) -> Verdict:
    ours, theirs = (Ledger.of(journal.read(sink.log)) for sink in (actual, expected))
    tentative = ours.corrected | ours.tentative.keys()
    files = {key: StagedFile.of(part) for key, part in ours.final.items()}
    known = {visible_name(output, partition, batch) for (batch, partition), file in files.items() if file.name}
    visible = {path.name for path in actual.folder.glob("*.parquet")}
    shown = {path.name for path in actual.tentative.glob("*.parquet")} if actual.tentative.exists() else set()
    different = [
        key
        for key in sorted(ours.final)
        if key not in theirs.final or not _equal(output, key, (actual, ours.final[key]), (expected, theirs.final[key]))
    ]
    return Verdict(
        final=len(ours.final),
        tentative=len(tentative),
        corrected=len(ours.corrected),
        lost=tuple(_named(output, key) for key in sorted(theirs.final.keys() - ours.final.keys())),
        duplicated=(*(_named(output, key) for key in ours.repeated), *sorted(visible - known)),
        different=tuple(_named(output, key) for key in different),
        uncorrected=(
            *(_named(output, key) for key in sorted(ours.tentative)),
            *(f"{actual.tentative.name}/{name}" for name in sorted(shown)),
        ),
    )


def _equal(output: str, key: Key, ours: tuple[ParquetSink, Committed], theirs: tuple[ParquetSink, Committed]) -> bool:
    """Whether two results are logged alike, and their files are as logged."""
    (sink, part), (other_sink, other_part) = ours, theirs
    file, other_file = StagedFile.of(part), StagedFile.of(other_part)
    if (file.rows, file.bytes, file.crc32) != (other_file.rows, other_file.bytes, other_file.crc32):
        return False
    if not file.name:
        return True
    name = visible_name(output, key[1], key[0])
    path, other_path = sink.folder / name, other_sink.folder / name
    if not (path.exists() and other_path.exists()):
        return False
    content = path.read_bytes()
    return zlib.crc32(content) == file.crc32 and content == other_path.read_bytes()


def _named(output: str, key: Key) -> str:
    return f"{output} batch {key[0]} partition {key[1]}"
