"""The equi-join of streams of windows, window by window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from tenax.errors import InvalidRequest
from tenax.operators.computation import NO_WATERMARK_US, Computation, Splits, State, StepInput, StepOutput
from tenax.operators.event_time import WINDOW, WINDOW_END, check_windows
from tenax.operators.missing import nearest
from tenax.operators.waiting import PASSED, Passage, WaitingRoom, in_order, oldest_waiting

INPUT = "input/"  # how the names of waiting rooms begin
WINDOW_WORD = "window"  # in a list of columns it stands for window_start and window_end


@dataclass(frozen=True, slots=True)
class Join(Computation):
    """The inner join of two or more streams of windows on `on`, which has the window in it.

    - Rows wait until the watermark has passed the end of their window; then the window is joined and emitted, sorted by
      (`window_end`, the columns of `on`, all other columns).
    - A null matches nothing, as in SQL.
    - Columns: those of the first input, then those of the others without `on`. A column of input 2 that input 1 has too
      gets the suffix `_2`, and so on: `speed`, `speed_2`, `speed_3`.

    Cost of a step: its rows, and the rows of the windows that close, with what they are joined to.
    """

    bounded = True
    correlated = True
    splits = Splits.BY_KEY

    on: tuple[str, ...]

    def oldest(self, state: State, batch: int) -> int:
        """What waits was not there before."""
        return oldest_waiting(
            state, sorted({name.rpartition("/")[0] for name in state if name.startswith(INPUT)}), batch
        )

    def step(self, state: State, given: StepInput) -> StepOutput:
        """Let the rows of the batch in, join the windows that the watermark completes."""
        passage = Passage.of(state, None if given.watermark_us == NO_WATERMARK_US else given.watermark_us)
        segments = passage.segments()
        sides: list[pl.DataFrame] = []
        late = 0
        for number, rows in enumerate(given.frames, start=1):
            self.check(rows, number)
            self.check_types(given.frames[0].schema, rows.schema, number)
            room = WaitingRoom(f"{INPUT}{number}", WINDOW_END, in_order(WINDOW_END))
            known = rows.filter(pl.col(WINDOW_END).is_not_null()).sort(WINDOW_END, maintain_order=True)
            taken = room.take(state, known, given.batch, passage)
            segments |= taken.segments
            late += passage.left_behind(known[WINDOW_END])
            sides.append(pl.concat(taken.leaving) if taken.leaving else rows.clear())
        return StepOutput(segments, self.joined(sides), late)

    def holds_rows(self, name: str) -> bool:
        """How far windows have closed is said of all keys."""
        return not name.startswith(f"{PASSED}/")

    def unite(self, name: str, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:  # noqa: ARG002
        """What waits, in the order of windows."""
        return in_order(WINDOW_END)(frames)

    def check(self, rows: pl.DataFrame, number: int) -> None:
        """An input has the columns that it is joined on."""
        check_windows(rows, "join")
        for name in self.on:
            if name not in rows.columns:
                raise InvalidRequest(
                    f"join is on columns of every input: input {number} lacks {name!r}, it has {rows.columns}; "
                    f"{nearest(name, rows.columns)}"
                )

    def check_types(self, first: pl.Schema, other: pl.Schema, number: int) -> None:
        """What is joined on has one type, or rows that belong together would go to different tasks."""
        for name in self.on:
            kinds = first[name], other[name]
            if kinds[0] != kinds[1] and not all(kind.is_integer() for kind in kinds):
                raise InvalidRequest(
                    f"join is on columns of one type: {name!r} is {kinds[0]} in input 1, {kinds[1]} in input {number}; "
                    "cast one of them"
                )

    def joined(self, sides: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """The rows of closed windows, joined and sorted."""
        result = sides[0]
        for number, side in enumerate(sides[1:], start=2):
            taken = {name for name in result.columns if name not in self.on}
            names = {name: f"{name}_{number}" for name in side.columns if name in taken}
            for name, other in names.items():
                if other in taken or other in side.columns:
                    raise InvalidRequest(
                        f"join calls column {name!r} of input {number} {other!r}: that name is taken; rename one before"
                    )
            result = result.join(side.rename(names), on=list(self.on), how="inner", maintain_order="left_right")
        first = [WINDOW_END, *(name for name in self.on if name != WINDOW_END)]
        return result.sort(*first, *(name for name in result.columns if name not in first), maintain_order=True)


def join(on: Sequence[str]) -> Join:
    """The join on these columns, where "window" stands for the start and the end of the window."""
    columns = [column for name in on for column in (WINDOW if name == WINDOW_WORD else (name,))]
    if not set(WINDOW) <= set(columns):
        raise InvalidRequest(f"a join is on the window, else rows would wait for ever: found {list(on)}; add 'window'")
    if len(set(columns)) < len(columns):
        raise InvalidRequest(f"a join names each column once: found {list(on)}; leave the second one out")
    return Join(tuple(columns))
