"""A commit log for sinks whose place has no transactions of its own: what is in the log counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from tenax.connectors.ledger import FINAL, LOST, TENTATIVE, Committed, Ledger, parts_of
from tenax.connectors.sink import Committer, Key, Sink, Staged, Survey
from tenax.errors import ConflictingResults
from tenax.store import journal, records
from tenax.store.records import Json, JsonObject


class LoggedSink(Sink):
    """A sink that keeps a commit log, by a `LoggedCommitter` on the folder that `log_of` names.

    The log tells without the sink which results count, so that `tenax verify` and a driver that takes over can hold it
    against checkpoints and batches.
    """

    def log_of(self, output: str, store: Path) -> Path:
        """The folder of the commit log of an output: another folder has other results."""
        return store / "outputs" / output

    def survey(self, output: str, store: Path, *, read: bool = False) -> Survey | None:  # noqa: ARG002
        """What the log says: of the results themselves nothing is known."""
        ledger = Ledger.of(journal.read(self.log_of(output, store)))
        return Survey(frozenset(ledger.final), frozenset(ledger.lost))

    def give_up(self, output: str, key: Key) -> None:
        """Take a damaged result out of sight, so that the next start misses it; nothing if there is none to see."""


class LoggedCommitter(Committer):
    r"""A committer that keeps a commit log in a folder of its own: a result is committed when the log has its entry.

    - The log is fenced by epochs, and survives any death of the driver; an entry is on disk when `append` returns.
    - `fresh` are the results of a commit that the log does not have yet; after they are where they belong, or before,
      `append` makes them count. A sink that hands over before it appends repeats at most what it handed over last.
    - A final result with another number of rows than before is refused.
    - `note` says what the log remembers of a result, beside its rows: plain data without bytes, for instance a name.

    Example, results as lines of text. A death between the two steps of a commit writes a result twice, under the same
    batch and partition: at least once.

        from pathlib import Path

        import polars as pl
        import tenax as tx

        class LinesCommitter(tx.LoggedCommitter):
            def __init__(self, path: Path, log: Path, output: str, identity: str, epoch: int) -> None:
                super().__init__(log, output, identity, epoch)
                self.path = path

            def commit(self, batch, staged):
                for result in self.fresh(batch, staged):
                    self.check_epoch()
                    with self.path.open("a") as file:
                        file.write(f"batch {batch}, partition {result.partition}: {result.data}\n")
                    self.append(batch, [result])

        class Lines(tx.LoggedSink):
            def __init__(self, path: Path) -> None:
                self.path = path
                self.place = str(path)

            def write(self, output, partition, batch, pass_id, rows):
                return rows.write_json()

            def committer(self, output, store, identity, epoch):
                return LinesCommitter(self.path, self.log_of(output, store), output, identity, epoch)
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
        self._journal, entries = journal.Journal.open(log, epoch)
        self._ledger = Ledger.of(entries)  # as it was taken over
        self._rows: dict[Key, int] = {}
        self._tentative: dict[Key, float] = {}
        for entry in entries:
            self._remember(entry)

    def note(self, staged: Staged) -> Sequence[Json]:  # noqa: ARG002
        """What the log remembers of a result, beside its partition and number of rows."""
        return ()

    def fresh(self, batch: int, staged: Sequence[Staged]) -> list[Staged]:
        """Final results that are not in the log yet, in the order of partitions; refuses those that differ."""
        new = []
        for result in sorted(staged, key=lambda result: result.partition):
            rows = self._rows.get((batch, result.partition))
            if result.batch != batch or rows not in {None, result.rows}:
                raise ConflictingResults(
                    f"output {self.output!r}, batch {batch}, partition {result.partition}: a final result is committed "
                    f"once, found {result.rows} rows of batch {result.batch} after {rows}: is an operator not "
                    "deterministic?"
                )
            if rows is None:
                new.append(result)
        return new

    def not_final(self, batch: int, staged: Sequence[Staged]) -> list[Staged]:
        """Tentative results that no final one has overtaken, in the order of partitions."""
        fresh = [result for result in staged if not self.is_committed(batch, result.partition)]
        return sorted(fresh, key=lambda result: result.partition)

    def append(self, batch: int, staged: Sequence[Staged], quality: float | None = None) -> None:
        """Log results: final ones, or tentative ones with their quality. When this returns, they count."""
        revised = any(self.is_tentative(batch, result.partition) for result in staged)
        kind = FINAL if quality is None else TENTATIVE
        parts = [Committed(result.partition, batch, result.rows, tuple(self.note(result))) for result in staged]
        entry = commit_entry(self._identity, self.output, kind, self.epoch, batch, parts)
        entry |= {"revision": int(quality is None and revised), "quality": 1.0 if quality is None else quality}
        self._journal.append(entry)
        self._remember(entry)

    def check_epoch(self) -> None:
        """Refuse if a newer driver has taken over; for sinks that hand results over before they log them."""
        self._journal.check_epoch()

    def is_committed(self, batch: int, partition: int) -> bool:
        """Whether the log has that final result."""
        return (batch, partition) in self._rows

    def is_tentative(self, batch: int, partition: int) -> bool:
        """Whether there is a tentative result and no final one."""
        return (batch, partition) in self._tentative

    def last_batch(self, partition: int) -> int:
        """The newest batch up to which all final results of a partition are there; 0 if there is none."""
        newest = max((batch for batch, number in self._rows if number == partition), default=0)
        return min((batch - 1 for batch, number in self.owed if number == partition), default=newest)

    @property
    def highest(self) -> int:
        """The newest batch with any result, final or tentative; 0 if there is none."""
        return max((batch for batch, _ in (*self._rows, *self._tentative)), default=0)

    def close(self) -> None:
        """Let the log go."""
        self._journal.close()

    def _remember(self, entry: JsonObject) -> None:
        for part in parts_of(entry):
            if entry["kind"] == TENTATIVE:
                if part.key not in self._rows:
                    self._tentative[part.key] = records.number(entry, "quality")
            elif entry["kind"] != LOST:
                self._rows[part.key] = part.rows
                self._tentative.pop(part.key, None)


def commit_entry(
    identity: str, output: str, kind: str, epoch: int, batch: int, parts: Iterable[Committed]
) -> dict[str, Json]:
    """An entry of a commit log."""
    return {
        "run": identity,
        "output": output,
        "kind": kind,
        "batch": batch,
        "epoch": epoch,
        "parts": [part.to_data() for part in parts],
    }
