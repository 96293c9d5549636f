"""What an operator computes: the contract that every built-in and custom computation keeps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import polars as pl

from tenax.errors import InvalidRequest
from tenax.operators.groups import Groups
from tenax.operators.parameters import attributes

State = Mapping[str, pl.DataFrame]
"""A task's state: named segments.

A segment never changes, and its name never stands for another content of the same task: a step that changes something
gives it a new name (say, with the batch in it) and leaves the rest as it is. So what a step has written is the segments
with new names, and that is all that a store must keep.
"""

NO_WATERMARK_US = -(2**63)  # before any row was read: nothing is late, nothing is complete
END_WATERMARK_US = 2**63 - 1  # after the last row of a bounded source: everything is complete


@dataclass(frozen=True, slots=True)
class StepInput:
    """What a task gets for one batch.

    - `frames` has one frame per declared input, in that order: the chunks of its producers in the order of their index.
    - `watermark_us` is the smallest over all producers after this batch, and never less than after the batch before: no
      row with an earlier event time will come, but for those of a source partition that was idle and has come back.
      Where an upgrade has put a new source before a task that goes on with its state, it begins anew, once.
    """

    frames: tuple[pl.DataFrame, ...]
    watermark_us: int
    batch: int


@dataclass(frozen=True, slots=True)
class StepOutput:
    """What a task gives back: its state after the batch, the rows for its consumers, and how many rows it has left out.

    Those that are left out have come too late: what they belong to was complete before this batch.
    """

    state: State
    rows: pl.DataFrame
    late: int = 0


class Splits(Enum):
    """How the states of tasks are split and merged when their operator is rescaled.

    - `BY_KEY`: each segment has rows, with the columns that rows are shared by, or says something of the whole task.
    - `ANYWHERE`: rows may be with any task, as long as each is with one.
    - `NOT`: only as `split` and `merge` say, if they are there.
    """

    NOT = "not"
    BY_KEY = "by key"
    ANYWHERE = "anywhere"


class Computation(ABC):
    """What the tasks of an operator do, batch after batch.

    The whole of an operator of your own, with its test; for state by key `KeyedComputation` takes less:

        from datetime import datetime

        import polars as pl
        import tenax as tx


        class SinceLast(tx.Computation):
            '''The seconds since the last row before; of a task's very first row null.'''

            def step(self, state: tx.State, given: tx.StepInput) -> tx.StepOutput:
                [rows] = given.frames
                before = pl.concat([frame["ts"] for frame in state.values()] or [rows["ts"].clear()])
                times = pl.concat([before, rows["ts"]])
                seconds = times.diff().dt.total_milliseconds().slice(len(before)) / 1000
                if rows.height:  # a segment never changes: what is new gets a new name
                    state = {f"last/{given.batch}": rows.select("ts").tail(1)}
                return tx.StepOutput(state, rows.with_columns(seconds.alias("seconds")))


        rows = pl.DataFrame({"ts": [datetime(2024, 1, 1, 0, 0, second) for second in (1, 3, 7)]})
        tx.testing.check_computation(SinceLast(), rows, time="ts")

        topology = tx.Topology("gaps")
        source = topology.source("rows", tx.files("rows/*.csv", time="ts", schema={"ts": pl.Datetime("us")}))
        source.apply(SinceLast()).output("gaps", tx.console())
        gaps = tx.testing.run(topology, {"rows": rows}, batch_rows=2)["gaps"]
        assert gaps["seconds"].to_list() == [None, 2.0, 4.0]

    The contract:

    - A step is a pure function of (state, input) to (state, output), deterministic to the byte: same inputs in the same
      order, same rows in the same order. It reads no clock and draws nothing at random.
    - A step changes neither the state nor the frames it is given.
    - The cost of a step follows its input, not the size of the state.
    - A computation with `deterministic = False` says that it breaks the first rule; exact replay then refuses it.
    - One with `stateless = True` says that its state is always empty, so that nothing needs to be kept for it.
    - One with `bounded = True` says that its state follows from the batches since `oldest` and the watermark before
      them, so that it need not be kept either: stepped through these from its initial state, it gives the same bytes.
    - One with `any_batches = True` says that what comes out follows from the rows of each key in their order, wherever
      batches are cut: the reference of chaos then steps it once, through its whole input.
    - One with `correlated = True` and several inputs says that each is worthless without the others, as in a join: what
      is lost of one is then lost of all when replicas are planned and results are estimated.
    - `schema` derives the columns that come out from those that go in, before anything runs. Where it is not
      declared, a step is tried without rows; with rows the same columns come out, of the same types and in that order.
    - A step takes rows as their producers send them, or what `combined` makes of them.
    - `parameters` are all that it was made with: a store remembers them, and refuses a state that others have made.
    - `splits` says how its state is split by key groups when its operator is rescaled. `Splits.BY_KEY` needs nothing
      else where every segment has the key columns, or says something of the whole task that tasks fed alike agree in;
      any other state is split by `split` and `merge`, or its operator keeps the tasks that it has.
    """

    deterministic = True
    stateless = False
    bounded = False
    any_batches = False
    correlated = False
    splits = Splits.NOT

    def initial(self) -> State:
        """The state before the first batch."""
        return {}

    def parameters(self) -> Mapping[str, object]:
        """What decides, beside its code, what it computes, by the names that a user knows; all attributes if not told.

        Two computations of the same class and parameters compute the same.
        """
        return attributes(self)

    def schema(self, inputs: Sequence[pl.Schema]) -> pl.Schema:
        """The columns of its rows, given those of each input; what a step from the initial state makes of no rows."""
        frames = tuple(self.combined(number, pl.DataFrame(schema=columns)) for number, columns in enumerate(inputs))
        return self.step(self.initial(), StepInput(frames, NO_WATERMARK_US, 1)).rows.schema

    def combined(self, number: int, rows: pl.DataFrame) -> pl.DataFrame:  # noqa: ARG002
        """What a producer task may send in place of its rows of a batch for input `number`: fewer that say as much.

        Pure and deterministic to the byte, like a step. The key columns stay, because rows are split by key afterwards,
        and no row that is sent stands for rows of different keys.
        """
        return rows

    def oldest(self, state: State, batch: int) -> int:  # noqa: ARG002
        """The oldest batch whose rows a state after a batch may depend on; the next batch if there is none.

        May be too old, never too new. Only asked of a bounded computation.
        """
        return 1

    @abstractmethod
    def step(self, state: State, given: StepInput) -> StepOutput:
        """One batch."""

    def holds_rows(self, name: str) -> bool:  # noqa: ARG002
        """Whether a segment of that name has rows of keys; one that has not says something of the whole task.

        Only asked of a computation whose state splits by key, or anywhere.
        """
        return True

    def unite(self, name: str, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:  # noqa: ARG002
        """A segment with the rows of those of its name of several tasks, given in their order.

        No key is in two of them, if the state splits by key.
        """
        return pl.concat(frames)

    def split(self, state: State, groups: Groups, keys: Sequence[str]) -> State:  # noqa: ARG002
        """The part of a state that belongs to these key groups; `keys` are the columns that rows are shared by.

        `groups.rows(frame, keys)` are the rows of a frame that do. Asked once for each task that gets a part: together
        these have every group, and none twice. Pure and deterministic to the byte, like a step.
        """
        raise InvalidRequest(f"a state is split as its computation says, found {type(self).__name__} that does not")

    def merge(self, states: Sequence[State]) -> State:  # noqa: ARG002
        """The state of a task that gets these parts, in the order of the tasks that they come from."""
        raise InvalidRequest(f"states are merged as their computation says, found {type(self).__name__} that does not")


def splits_itself(computation: Computation) -> bool:
    """Whether a computation says by methods of its own how its state is split and merged."""
    kind = type(computation)
    return kind.split is not Computation.split and kind.merge is not Computation.merge
