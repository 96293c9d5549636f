"""What a sink is: tasks stage results, the driver commits them, each final result once."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import polars as pl

from tenax.errors import InvalidSource

Key = tuple[int, int]
"""(batch, partition)"""

Plain: TypeAlias = "bool | int | float | str | bytes | Sequence[Plain] | Mapping[str, Plain] | None"
"""Plain data, as JSON knows it, and bytes."""


@dataclass(frozen=True, slots=True)
class Staged:
    """A result that a task has staged and nobody sees yet; `data` is what the sink's `write` gave for it."""

    output: str
    partition: int
    batch: int
    rows: int
    data: Plain = None

    @property
    def key(self) -> Key:
        """What it is the result of."""
        return self.batch, self.partition


@dataclass(frozen=True, slots=True)
class Survey:
    """What a sink holds, seen without taking it over.

    - `final` results count; `lost` ones counted once, and are gone for good, as somebody has accepted.
    - `damaged` final results are not as they were committed, in words; they count, and must be made again.
    - `staged` ones are committed and only need to be made visible: a driver died in between.
    - `unexplained` files are among the results, and no commit names them.
    - `bytes` is the size of all final results.
    """

    final: frozenset[Key] = frozenset()
    lost: frozenset[Key] = frozenset()
    damaged: Mapping[Key, str] = field(default_factory=dict)
    staged: frozenset[Key] = frozenset()
    unexplained: tuple[Path, ...] = ()
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Results:
    """All results of an output, as those see them who look at the sink's place.

    - Final and tentative rows are by (batch, partition), in the order of the task that made them. Results without rows
      may be left out. Tentative ones are those that are still shown.
    - `corrected` were tentative once, as far as the sink knows; `repeated` are there more than once, which is wrong.
    """

    final: Mapping[Key, pl.DataFrame]
    tentative: Mapping[Key, pl.DataFrame] = field(default_factory=dict)
    corrected: frozenset[Key] = frozenset()
    repeated: tuple[Key, ...] = ()


class Sink(ABC):
    """Where an output's results go. Subclass it to write to a place of your own; `tx.testing.check_sink` tries it.

    - A task calls `write`, any number of times for the same result: attempts do not disturb each other, and nobody sees
      them. What it returns is the sink's own business: plain data that leads its committer to what was staged, a name,
      a transaction, or the rows themselves.
    - The driver calls `committer` once per epoch, and then `commit` for final and `show` for tentative results. A
      final result counts once for each (output, batch, partition), and takes back the tentative one before it.
    - A driver may die between any two steps. The next one begins with `committer` in a higher epoch, and whatever the
      old one still does must then fail with `tx.EpochLost`.
    - A worker calls `open` before its first `write` and `close` at its end, on a copy of the sink that was given to the
      topology: a connection that `open` makes need not be picklable. A process that is killed closes nothing. All
      else travels to the nodes, pickled; what only the driver needs stays behind (`__getstate__`).
    - `tx.SinkFailed`, in `write` or in a committer, says that the place refuses just now: the run pauses, and tries
      again later. Any other error ends it.
    - `place` says to people where its results are, and tells two places apart.
    - A sink that can be read back says so with `results`, and by `for_trial` takes part in chaos runs.

    Example, results in the memory of the driver. It survives no driver, so it has nothing to go on from:

        import polars as pl
        import tenax as tx

        class MemoryCommitter(tx.Committer):
            def __init__(self) -> None:
                self.final: dict[tuple[int, int], pl.DataFrame] = {}

            def commit(self, batch, staged):
                for result in staged:
                    self.final.setdefault(result.key, pl.read_ipc(result.data))

            def is_committed(self, batch, partition):
                return (batch, partition) in self.final

            def last_batch(self, partition):
                return max((batch for batch, number in self.final if number == partition), default=0)

            @property
            def highest(self):
                return max((batch for batch, _ in self.final), default=0)

        class Memory(tx.Sink):
            place = "memory of the driver"

            def write(self, output, partition, batch, pass_id, rows):
                return rows.write_ipc(None).getvalue()

            def committer(self, output, store, identity, epoch):
                return MemoryCommitter()

    `tx.LoggedSink` and `tx.LoggedCommitter` keep a commit log for places that cannot; a place with transactions of its
    own needs none (see docs/extending.md for both).
    """

    place: str

    def open(self) -> None:  # noqa: B027
        """Connect to where results go; once in a worker's process, before it writes."""

    def close(self) -> None:  # noqa: B027
        """Let go of what `open` has connected."""

    @abstractmethod
    def write(self, output: str, partition: int, batch: int, pass_id: str, rows: pl.DataFrame) -> Plain:
        """Stage the result of one task for one batch; on the worker. What leads the committer to it is returned."""

    @abstractmethod
    def committer(self, output: str, store: Path, identity: str, epoch: int) -> Committer:
        """Take over the output in the name of an epoch, and finish what a dead driver began; in the driver.

        - A place whose results are of another run, by its `identity`, is refused with `tx.ConflictingResults`, and one
          that a newer epoch has, with `tx.EpochLost`.
        - What it does not understand it sets aside and names (`Committer.notices`), and deletes nothing of it.
        - `store` is the folder of what survives the driver; `store / "outputs" / output` belongs to this sink.
        """

    def survey(self, output: str, store: Path, *, read: bool = False) -> Survey | None:  # noqa: ARG002
        """What is there, without taking anything over; `read` looks at every byte. None if that cannot be told."""
        return None

    def results(self, output: str) -> Results | None:  # noqa: ARG002
        """All results of an output, read back; None if this sink cannot."""
        return None

    def for_trial(self, folder: Path) -> Sink | None:  # noqa: ARG002
        """A sink like this one for a run that is only a trial, with all that it writes below a folder of its own.

        Its results can be read back. Made again for the same folder, it is the same place. None if there is none.
        """
        return None


class Committer(ABC):
    """The driver's side of a sink for one output, held by one epoch.

    - `commit` and `show` may be repeated until they return: what is committed stays and is passed over, what is not yet
      visible is made so. Calls come one after the other, from any thread.
    - `commit` makes some or all partitions of a batch final. When it returns they survive any death, and are told to
      nobody before. What was staged stays until its final result is safe.
    - A final result with other rows than before is refused with `tx.ConflictingResults`: final results do not change.
    - `show` makes results visible as tentative ones, of an estimated quality between 0 and 1, until the final one takes
      their place; where a final one is there, nothing happens. A sink that has no place for tentative results need not
      define it.
    - After a newer epoch has taken over, all calls raise `tx.EpochLost` and change nothing.
    - `tx.SinkFailed` says: not now, try again later.
    - `notices` are what it came upon that people should know, when it took over.
    """

    notices: Sequence[str] = ()

    @abstractmethod
    def commit(self, batch: int, staged: Sequence[Staged]) -> None:
        """Commit the final results of some or all partitions for one batch."""

    def show(self, batch: int, staged: Sequence[Staged], quality: float) -> None:  # noqa: B027
        """Show tentative results of some partitions for one batch, of an estimated quality between 0 and 1."""

    @abstractmethod
    def is_committed(self, batch: int, partition: int) -> bool:
        """Whether that final result counts already."""

    @abstractmethod
    def last_batch(self, partition: int) -> int:
        """The newest batch up to which all final results of a partition are there; 0 if there is none."""

    @property
    @abstractmethod
    def highest(self) -> int:
        """The newest batch with any result, final or tentative; 0 if there is none."""

    @property
    def owed(self) -> tuple[Key, ...]:
        """The final results that count and are not there any more, by batch and partition: they are made again."""
        return ()

    def close(self) -> None:  # noqa: B027
        """Let go of whatever it holds; nothing is committed by this."""


def stage(sink: Sink, output: str, partition: int, batch: int, pass_id: str, rows: pl.DataFrame) -> Staged:
    """Let a sink stage a result; what it returns must be plain data."""
    data = sink.write(output, partition, batch, pass_id, rows)
    strange = _strange(data)
    if strange is not None:
        raise InvalidSource(
            f"output {output!r}: a sink stages plain data (None, numbers, texts, bytes, lists, objects), found "
            f"{strange} from {type(sink).__name__}.write: return what leads to it, such as a name"
        )
    return Staged(output, partition, batch, rows.height, data)


def _strange(data: object) -> str | None:
    """What is no plain data in it, in words; None if all is."""
    match data:
        case None | bool() | int() | str() | bytes():
            return None
        case float():
            return None if math.isfinite(data) else str(data)
        case list() | tuple():
            return next((strange for each in data if (strange := _strange(each)) is not None), None)
        case dict():
            keys = (f"the key {key!r}" for key in data if not isinstance(key, str))
            return next(keys, None) or _strange(list(data.values()))
    return f"{type(data).__module__}.{type(data).__qualname__}"
