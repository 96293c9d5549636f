"""What a sink is: tasks stage results, the driver commits them, and the commit log decides what counts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from tenax.connectors.ledger import FINAL, LOST, TENTATIVE, Key, Ledger, StagedFile, parts_of
from tenax.errors import ConflictingResults
from tenax.store import journal, records
from tenax.store.records import JsonObject


@dataclass(frozen=True, slots=True)
class Survey:
    """What a sink holds, against its commit log.

    - `damaged` final results are not as they were committed, in words; they count, and must be made again.
    - `staged` ones are committed and only need to be made visible: a driver died in between.
    - `unexplained` files are among the results, and no entry of the log names them.
    """

    ledger: Ledger
    damaged: dict[Key, str] = field(default_factory=dict)
    staged: frozenset[Key] = frozenset()
    unexplained: tuple[Path, ...] = ()


class Sink(ABC):
    """Where an output's results go.

    - A task calls `write`, any number of times for the same result: attempts do not disturb each other.
    - The driver calls `committer` once per epoch, and then `commit` for final and `show` for tentative results. A
      result is committed when the log has its entry; a final one counts once for each (output, batch, partition), and
      takes back the tentative one before it.
    - A sink is shipped to the workers; what only the driver needs stays behind.
    - `place` says to people where its results are.
    """

    place: str

    @abstractmethod
    def write(self, output: str, partition: int, batch: int, pass_id: str, rows: pl.DataFrame) -> StagedFile:
        """Stage the result of one task for one batch; on the worker."""

    def log_of(self, output: str, store: Path) -> Path:
        """The folder of the commit log of an output: another folder has other results."""
        return store / "outputs" / output

    @abstractmethod
    def committer(self, output: str, store: Path, identity: str, epoch: int) -> Committer:
        """Take over the commit log in the name of an epoch, and finish what a dead driver began.

        What it does not understand it sets aside and names (`Committer.notices`), and deletes nothing of it.
        """

    def survey(self, output: str, store: Path, *, read: bool = False) -> Survey:  # noqa: ARG002
        """Hold the results against the log, without claiming anything; `read` looks at every byte of them."""
        return Survey(Ledger.of(journal.read(self.log_of(output, store))))


class Committer(ABC):
    """The driver's side of a sink, held by one epoch.

    - `commit` may be repeated until it is done: what is in the log is not logged again, and what is not yet visible is
      made so. Nothing staged is deleted before the final result is seen.
    - An entry with another number of rows than before is refused: final results do not change.
    - Results that are in the log and lost (`owed`) are taken again, if they are the same to the byte.
    """

    def __init__(self, log: Path, output: str, identity: str, epoch: int) -> None:
        self.output = output
        self.epoch = epoch
        self.notices: list[str] = []
        self._identity = identity
        for record in journal.read(log):  # before anything is taken over from whom it belongs to
            if record["run"] != identity or record["output"] != output:
                raise ConflictingResults(
                    f"{log.parent}: an output has a folder of its own, found results of output {record['output']!r} of "
                    f"run {record['run']}: choose another folder, or delete this one with all results"
                )
        self._journal, self._found = journal.Journal.open(log, epoch)
        self._rows: dict[Key, int] = {}
        self._tentative: dict[Key, float] = {}
        self._owed: dict[Key, StagedFile] = {}
        for record in self._found:
            self._remember(record)

    @abstractmethod
    def commit(self, batch: int, staged: Sequence[StagedFile]) -> None:
        """Commit the final results of some or all partitions for one batch."""

    @abstractmethod
    def show(self, batch: int, staged: Sequence[StagedFile], quality: float) -> None:
        """Commit tentative results of some partitions for one batch, of an estimated quality between 0 and 1."""

    def is_committed(self, batch: int, partition: int) -> bool:
        """Whether that final result counts already."""
        return (batch, partition) in self._rows

    def is_tentative(self, batch: int, partition: int) -> bool:
        """Whether there is a tentative result and no final one."""
        return (batch, partition) in self._tentative

    @property
    def owed(self) -> tuple[Key, ...]:
        """The final results that count and are not there, by batch and partition."""
        return tuple(sorted(self._owed))

    def last_batch(self, partition: int) -> int:
        """The newest batch up to which all final results of a partition are there; 0 if there is none."""
        newest = max((batch for batch, one in self._rows if one == partition), default=0)
        return min((batch - 1 for batch, one in self._owed if one == partition), default=newest)

    @property
    def highest(self) -> int:
        """The newest batch with any result, final or tentative; 0 if there is none."""
        return max((batch for batch, _ in (*self._rows, *self._tentative)), default=0)

    def close(self) -> None:
        """Let the log go."""
        self._journal.close()

    def _new(self, batch: int, staged: Sequence[StagedFile]) -> list[StagedFile]:
        """What is not in the log yet, in the order of partitions."""
        fresh = []
        for one in sorted(staged, key=lambda one: one.partition):
            rows = self._rows.get((batch, one.partition))
            if one.batch != batch or rows not in {None, one.rows}:
                raise ConflictingResults(
                    f"output {self.output!r}, batch {batch}, partition {one.partition}: a final result is committed "
                    f"once, found {one.rows} rows of batch {one.batch} after {rows}: is an operator not deterministic?"
                )
            if rows is None:
                fresh.append(one)
        return fresh

    def _not_final(self, batch: int, staged: Sequence[StagedFile]) -> list[StagedFile]:
        """Tentative results that no final one has overtaken, in the order of partitions."""
        fresh = [one for one in staged if not self.is_committed(batch, one.partition)]
        return sorted(fresh, key=lambda one: one.partition)

    def _append(self, batch: int, staged: Sequence[StagedFile], quality: float | None = None) -> None:
        """Log results: final ones, or tentative ones with their quality."""
        revised = any(self.is_tentative(batch, one.partition) for one in staged)
        kind = FINAL if quality is None else TENTATIVE
        entry = commit_entry(self._identity, self.output, kind, self.epoch, batch, staged)
        entry |= {"revision": int(quality is None and revised), "quality": 1.0 if quality is None else quality}
        self._journal.append(entry)
        self._remember(entry)

    def _remember(self, record: JsonObject) -> None:
        for one in parts_of(record):
            if record["kind"] == TENTATIVE:
                if one.key not in self._rows:
                    self._tentative[one.key] = records.number(record, "quality")
            elif record["kind"] != LOST:
                self._rows[one.key] = one.rows
                self._tentative.pop(one.key, None)


def commit_entry(
    identity: str, output: str, kind: str, epoch: int, batch: int, parts: Sequence[StagedFile]
) -> dict[str, records.Json]:
    """An entry of a commit log."""
    return {
        "run": identity,
        "output": output,
        "kind": kind,
        "batch": batch,
        "epoch": epoch,
        "parts": [[one.partition, one.rows, one.bytes, one.crc32, one.name] for one in parts],
    }
