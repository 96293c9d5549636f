"""The k largest rows of every window, by one column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from tenax.errors import InvalidRequest
from tenax.operators.computation import NO_WATERMARK_US, Computation, Splits, State, StepInput, StepOutput
from tenax.operators.event_time import WINDOW_END, WINDOW_START, check_windows
from tenax.operators.missing import missing
from tenax.operators.waiting import PASSED, PENDING, Passage, WaitingRoom, oldest_waiting


@dataclass(frozen=True, slots=True)
class Top(Computation):
    """The `k` rows of each window with the largest `by`, for each group of the columns `per`.

    - Rows come when the watermark has passed the end of their window, sorted by (`window_end`, `window_start`, `per`,
      `by` from the largest down, all other columns). Ties are broken on all columns, so the order is total; nulls of
      `by` come last, NaN first.
    - The order being total, the top of a part holds whatever of it is in the top of the whole: only the top of what has
      come so far waits, and the same computation serves many local levels and one global level above them.

    Cost of a step: its rows, and k rows for each group of the windows that close.
    """

    bounded = True
    splits = Splits.ANYWHERE  # the top of tops is the same, whichever rows each of them had

    k: int
    by: str
    per: tuple[str, ...]

    def oldest(self, state: State, batch: int) -> int:
        """What waits was not there before."""
        return oldest_waiting(state, [PENDING], batch)

    def step(self, state: State, given: StepInput) -> StepOutput:
        """Let the rows of the batch in, emit the top of the windows that the watermark completes."""
        rows = given.frames[0]
        check_windows(rows, "top")
        for name in (self.by, *self.per):
            if name not in rows.columns:
                raise missing("top is by columns that are there", name, rows.columns)
        passage = Passage.of(state, None if given.watermark_us == NO_WATERMARK_US else given.watermark_us)
        room = WaitingRoom(PENDING, WINDOW_END, lambda frames: self.best(pl.concat(frames)))
        taken = room.take(state, self.best(rows.filter(pl.col(WINDOW_END).is_not_null())), given.batch, passage)
        emitted = self.best(pl.concat(taken.leaving)) if taken.leaving else rows.clear()
        return StepOutput({**taken.segments, **passage.segments()}, emitted, passage.left_behind(rows[WINDOW_END]))

    def holds_rows(self, name: str) -> bool:
        """How far windows have closed is said of the whole task."""
        return not name.startswith(f"{PASSED}/")

    def unite(self, name: str, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:  # noqa: ARG002
        """The top of them."""
        return self.best(pl.concat(frames))

    def best(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The top of every window and group among these rows, in the order that the class says."""
        group = list(dict.fromkeys([WINDOW_END, WINDOW_START, *self.per]))
        order = list(dict.fromkeys([*group, self.by, *rows.columns]))
        ordered = rows.sort(order, descending=[name == self.by for name in order], nulls_last=True, maintain_order=True)
        return ordered.group_by(group, maintain_order=True).head(self.k).select(rows.columns)


def top(k: int, by: str, per: Sequence[str] = ()) -> Top:
    """The k largest rows of every window by a column, for each group of the columns `per`."""
    if k < 1:
        raise InvalidRequest(f"top keeps at least one row: found k = {k}; choose k of 1 or more")
    if by in per:
        raise InvalidRequest(f"top compares rows within a group: found {by!r} in both by and per; drop it from per")
    return Top(k, by, tuple(per))
