"""Rows that wait until the watermark has passed them, in few segments, without ever being scanned in vain."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tenax.operators.computation import State

PASSED = "passed"


@dataclass(frozen=True, slots=True)
class WaitingRoom:
    """A part of a task's state, called `{name}/{batch}`, at most one new a batch.

    - A segment is sorted by `due`, a column of whole numbers or times: what is due is the front of every segment, found
      by binary search, and comes out in the order of arrival.
    - Whatever is due up to where an earlier step came has left; the segment stays as it is until nothing in it
      waits any longer.
    - `merge` makes one sorted frame of several, in the order of arrival. Segments are merged so that each is at least
      twice as long as the next newer one: their number is logarithmic in the rows that wait, and a row is merged
      O(log rows) times.
    """

    name: str
    due: str
    merge: Callable[[Sequence[pl.DataFrame]], pl.DataFrame]

    def take(self, state: State, rows: pl.DataFrame, batch: int, passage: Passage) -> Taken:
        """Let the rows of a batch in and those that are due out."""
        leaving: list[pl.DataFrame] = []
        staying: list[tuple[str, pl.DataFrame, int]] = []
        for segment in numbered(state, self.name):
            frame = state[segment]
            start, end = self.bounds(frame, passage)
            if start < end:
                leaving.append(frame[start:end])
            if end < frame.height:
                staying.append((segment, frame, end))
        start, end = self.bounds(rows, passage)
        if start < end:
            leaving.append(rows[start:end])
        segments = {segment: frame for segment, frame, _ in staying}
        if end < rows.height:
            waiting = [frame.height - gone for _, frame, gone in staying]
            absorbed = staying[len(staying) + 1 - newest_to_merge([*waiting, rows.height - end]) :]
            for segment, _, _ in absorbed:
                del segments[segment]
            tail = [*(frame[gone:] for _, frame, gone in absorbed), rows[end:]]
            segments[f"{self.name}/{batch}"] = (self.merge(tail) if absorbed else tail[0]).rechunk()
        return Taken(leaving, segments)

    def bounds(self, frame: pl.DataFrame, passage: Passage) -> tuple[int, int]:
        """Where the rows that have not left begin, and where those that are not due begin."""
        if not frame.height:
            return 0, 0
        values = frame[self.due].to_numpy().view(np.int64)
        start = 0 if passage.before is None else int(np.searchsorted(values, passage.before, "right"))
        return start, start if passage.now is None else int(np.searchsorted(values, passage.now, "right"))


@dataclass(frozen=True, slots=True)
class Taken:
    """The rows that leave, by arrival, and the segments of those that wait on."""

    leaving: list[pl.DataFrame]
    segments: dict[str, pl.DataFrame]


@dataclass(frozen=True, slots=True)
class Passage:
    """Up to where rows had left before this step, and up to where they leave now; None is nowhere."""

    before: int | None
    now: int | None

    @classmethod
    def of(cls, state: State, now: int | None) -> Passage:
        """From what the state remembers to where this step could come; it never goes back."""
        before = next((int(frame[PASSED][0]) for name, frame in state.items() if name.startswith(f"{PASSED}/")), None)
        return cls(before, max((place for place in (before, now) if place is not None), default=None))

    @property
    def moved(self) -> bool:
        """Whether this step completes anything."""
        return self.now is not None and self.now != self.before

    def segments(self) -> dict[str, pl.DataFrame]:
        """The segment that remembers how far this step came."""
        return {} if self.now is None else {f"{PASSED}/{self.now}": pl.DataFrame({PASSED: [self.now]})}


def numbered(state: Iterable[str], name: str) -> list[str]:
    """The segments called `{name}/{batch}`, oldest first."""
    return sorted((one for one in state if one.startswith(f"{name}/")), key=lambda one: int(one.rpartition("/")[2]))


def newest_to_merge(sizes: Sequence[int]) -> int:
    """How many of the newest segments become one, so that each segment is at least twice the next newer one.

    The geometric merging of log-structured stores (O'Neil et al., "The log-structured merge-tree", 1996): each merge
    makes the segment around a row larger by half or more, hence O(log rows) merges for each row.
    """
    count, total = 1, sizes[-1]
    for size in reversed(sizes[:-1]):
        if size >= 2 * total:
            break
        count, total = count + 1, total + size
    return count


def in_order(due: str) -> Callable[[Sequence[pl.DataFrame]], pl.DataFrame]:
    """The plain merge: all rows by `due`, then by arrival."""
    return lambda frames: pl.concat(frames).sort(due, maintain_order=True)
