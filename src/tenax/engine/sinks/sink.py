"""What a sink is: tasks stage results, the driver commits them, and the commit log decides what counts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from tenax.engine.errors import ConflictingResults, DamagedStore
from tenax.engine.store import journal, records
from tenax.engine.store.records import JsonObject

FINAL = "final"
TENTATIVE = "tentative"  # never among finals; the log names the kind so that both can be told apart


Payload = bytes


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A result that a task has staged and nobody sees yet.

    - `name` is the staged file, or empty if nothing had to be written.
    - `payload` carries the rows to the driver (Arrow IPC) if the sink delivers them there.
    """

    partition: int
    batch: int
    name: str
    rows: int
    bytes: int
    crc32: int
    payload: Payload = b""


class Sink(ABC):
    """Where an output's results go.

    - A task calls `write`, any number of times for the same result: attempts do not disturb each other.
    - The driver calls `committer` once per epoch, and then `commit` for final and `show` for tentative results. A
      result is committed when the log has its entry; a final one counts once for each (output, batch, partition), and
      takes back the tentative one before it.
    - A sink is shipped to the workers; what only the driver needs stays behind.
    """

    @abstractmethod
    def write(self, output: str, partition: int, batch: int, pass_id: str, rows: pl.DataFrame) -> StagedFile:
        """Stage the result of one task for one batch; on the worker."""

    def log_of(self, output: str, store: Path) -> Path:
        """The folder of the commit log of an output: another folder has other results."""
        return store / "outputs" / output

    @abstractmethod
    def committer(self, output: str, store: Path, identity: str, epoch: int) -> Committer:
        """Take over the commit log in the name of an epoch, finish what a dead driver began, sweep what it left."""


class Committer(ABC):
    """The driver's side of a sink, held by one epoch.

    - `commit` may be repeated: what is in the log is not done again.
    - An entry with another number of rows than before is refused: final results do not change.
    """

    def __init__(self, log: Path, output: str, identity: str, epoch: int) -> None:
        self.output = output
        self.epoch = epoch
        self._identity = identity
        for record in journal.read(log):  # before anything is taken over from whom it belongs to
            if record["run"] != identity or record["output"] != output:
                raise ConflictingResults(
                    f"{log.parent}: an output has a folder of its own, found results of output {record['output']!r} of "
                    f"run {record['run']}: choose another folder, or delete this one with all results"
                )
        self._journal, self._found = journal.Journal.open(log, epoch)
        self._rows: dict[tuple[int, int], int] = {}
        self._tentative: dict[tuple[int, int], float] = {}
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

    def last_batch(self, partition: int) -> int:
        """The newest batch with a final result of a partition; 0 if there is none."""
        return max((batch for batch, one in self._rows if one == partition), default=0)

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

    def _append(self, batch: int, staged: Sequence[StagedFile], quality: float | None = None) -> JsonObject:
        """Log results: final ones, or tentative ones with their quality."""
        revised = any(self.is_tentative(batch, one.partition) for one in staged)
        record: JsonObject = {
            "run": self._identity,
            "output": self.output,
            "kind": FINAL if quality is None else TENTATIVE,
            "revision": int(quality is None and revised),
            "quality": 1.0 if quality is None else quality,
            "batch": batch,
            "epoch": self.epoch,
            "parts": [[one.partition, one.rows, one.bytes, one.crc32, one.name] for one in staged],
        }
        self._journal.append(record)
        self._remember(record)
        return record

    def _remember(self, record: JsonObject) -> None:
        for one in parts_of(record):
            if record["kind"] == TENTATIVE:
                self._tentative[one.batch, one.partition] = records.number(record, "quality")
            else:
                self._rows[one.batch, one.partition] = one.rows
                self._tentative.pop((one.batch, one.partition), None)


def parts_of(record: JsonObject) -> list[StagedFile]:
    """The results that an entry of a commit log makes count."""
    batch = records.integer(record, "batch")
    parts = []
    for part in records.items(record["parts"]):
        match list(records.items(part)):
            case [int() as partition, int() as rows, int() as size, int() as crc32, str() as name]:
                parts.append(StagedFile(partition, batch, name, rows, size, crc32))
            case _:
                raise DamagedStore(
                    f"a result is [partition, rows, bytes, crc32, name], found {part!r}: was another version at work?"
                )
    return parts
