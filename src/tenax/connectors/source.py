"""What a source is: the driver plans ranges of it, tasks read exactly those, as often as they like."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from tenax.errors import InvalidSource
from tenax.model.durations import span
from tenax.operators.parameters import attributes
from tenax.store.records import Json

ONLY_PLANNED = frozenset({"bounded", "endless", "idle_after", "times.anytime"})
"""Parameters that decide what is planned next, and nothing about what was planned before."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one batch may take from a source, all partitions together."""

    rows: int
    bytes: int = 1 << 62

    def __post_init__(self) -> None:
        for name, value in (("rows", self.rows), ("bytes", self.bytes)):
            if value < 1:
                raise InvalidSource(f"a batch takes at least 1 of its limit of {name}, found {value}: raise the limit")


@dataclass(frozen=True, slots=True)
class Planned:
    """What a batch reads of a source.

    - `ranges` has plain data for each partition; `position` is where the next plan goes on. Both belong in the log.
    - `rows` is an estimate; `ended` says that nothing will ever follow.
    - `quiet` partitions get no rows in this batch; those that are `done` will get none any more.
    - `more` says whether the source has rows beyond this batch already; where it does not say, it is taken to have
      more if the batch has as many rows as it may.
    """

    ranges: tuple[Json, ...]
    position: Json
    rows: int
    ended: bool = False
    quiet: tuple[int, ...] = ()
    done: tuple[int, ...] = ()
    more: bool | None = None

    def has_more(self, limits: Limits) -> bool:
        """Whether there is more than this batch takes."""
        return self.rows >= limits.rows if self.more is None else self.more


@dataclass(frozen=True, slots=True)
class NothingNew:
    """The source has nothing now, or, if it has ended, nothing any more."""

    ended: bool = False


class Source(ABC):
    """Where rows come from. Subclass it to read from a place of your own; `tx.testing.check_source` tries it.

    - `time` is the column of event times, read as Datetime in microseconds; a row is late if it lies more than
      `lateness_us` behind the highest time before it in its partition. A `bounded` source ends; an `endless` one always
      has more.
    - A partition without rows for `idle_after_us` is idle: windows go on without it. None means that they wait.
    - The driver calls `plan` with the position that the last plan left (none at first). It logs the answer before any
      task acts on it, so whatever `plan` saw (new files, a clock) is fixed from then on. Positions and ranges are plain
      data, as JSON knows it; a list comes back as a list.
    - A task calls `read` with a logged range: the same rows in the same order, whoever reads it and whenever. That is
      all that recovery builds on.
    - `schema` tells its columns before any row is read, and before `open`, so that everything behind it can be checked
      when a topology is built; `schema_at` those of a run that goes on.
    - A driver that starts asks whether what was planned is still as it was: `changed` for ranges that no result
      depends on, which can be planned anew; `renewed` and `resumed` for those that must give the same rows again.
    - `released` says up to where the run will never ask again: what lies before may be deleted.
    - Every process that plans or reads calls `open` first and `close` at its end, on a copy of the source that was
      given to the topology: a connection that `open` makes need not be picklable. A process that is killed closes
      nothing. All else travels to the nodes, pickled.
    - `parameters` are all that it was made with: a store remembers them, for a logged range means something to the
      same source only. Those in `only_planned` may change from one run to the next, and so may the lateness.
    - `tx.SourceFailed`, in `plan` or `read`, says that its place refuses just now: the run pauses, and tries again
      later. What cannot be read is `tx.UnreadableSource`, and ends the run with its text: the rule, the value, the
      remedy.

    Example, whole numbers and their squares, one a second:

        import polars as pl
        import tenax as tx

        class Squares(tx.Source):
            time, lateness_us, bounded = "ts", 0, True

            def __init__(self, rows: int) -> None:
                self.rows = rows

            def plan(self, position, partitions, limits, now_us):
                first = 0 if position is None else position
                if first >= self.rows:
                    return tx.NothingNew(ended=True)
                end = min(self.rows, first + limits.rows)
                ranges = tuple([first + partition, end, partitions] for partition in range(partitions))
                return tx.Planned(ranges, position=end, rows=end - first, ended=end == self.rows)

            def read(self, partition, planned):
                first, end, step = planned
                number = pl.int_range(first, max(first, end), step, eager=True)
                return pl.DataFrame({"ts": (number * 1_000_000).cast(pl.Datetime("us")), "square": number**2})

        topology = tx.Topology("squares")
        topology.source("numbers", Squares(1_000), partitions=2).output("squares", tx.parquet("out/squares"))
    """

    time: str
    lateness_us: int
    bounded: bool
    endless: bool = False
    idle_after_us: int | None = None
    only_planned: frozenset[str] = ONLY_PLANNED

    def parameters(self) -> Mapping[str, object]:
        """What decides, beside its code, which rows it gives, by the names that a user knows; all attributes."""
        known = dict(attributes(self))
        for name in ("lateness", "idle_after"):
            length_us = known.pop(f"{name}_us", None)
            known[name] = span(length_us) if isinstance(length_us, int) else None
        return known

    def open(self) -> None:  # noqa: B027
        """Connect to whatever is read; once in a process, before it plans or reads."""

    def close(self) -> None:  # noqa: B027
        """Let go of what `open` has connected."""

    @abstractmethod
    def plan(self, position: Json, partitions: int, limits: Limits, now_us: int) -> Planned | NothingNew:
        """What the next batch reads, at most `limits`; in the driver."""

    @abstractmethod
    def read(self, partition: int, planned: Json) -> pl.DataFrame:
        """The rows of a partition's range; in a task."""

    def schema(self) -> pl.Schema | None:
        """The columns of its rows, from what costs little to look at; None if they cannot be known yet; in the driver.

        Where a source does not say it, its first rows are looked at when a run starts.
        """
        return None

    def schema_at(self, position: Json) -> pl.Schema | None:  # noqa: ARG002
        """The columns of what follows a logged position, though what told them first may be gone; in the driver."""
        return self.schema()

    def changed(self, planned: Json) -> str | None:  # noqa: ARG002
        """What a range reads that is no longer as it was when planned, by name; None if all is; in the driver."""
        return None

    def renewed(self, planned: Json) -> Json:
        """A range that reads the same rows from what is there now; refuses if nothing can; in the driver."""
        return planned

    def resumed(self, position: Json) -> Json:
        """A position behind the same rows in what is there now; refuses if there is none; in the driver."""
        return position

    def released(self, position: Json) -> None:  # noqa: B027
        """No range that was planned before this position is ever read again; in the driver.

        It may be called again with the same position or an older one, by this driver or the next, and while a plan is
        made, in another thread. What it raises is told and does no harm: the next call comes after the next checkpoint.
        """
