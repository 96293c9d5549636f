"""Rows that wait until the watermark has passed them, in few segments, without ever being scanned in vain."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tenax.operators.computation import State

PASSED = "passed"
PENDING = "pending"


@dataclass(frozen=True, slots=True)
class WaitingRoom:
    """A part of a task's state, called `{name}/{first}-{last}` after its batches, at most one new a batch.

    - A segment is sorted by `due`, a column of whole numbers or times: what is due is the front of every segment, found
      by binary search, and comes out in the order of arrival.
    - Whatever is due up to where an earlier step came has left; the segment stays as it is until nothing in it
      waits any longer.
    - `merge` makes one sorted frame of several, in the order of arrival. After batch i · 2^k, i odd, the segments of
      the last 2^k batches become one, as digits of a binary counter carry: their number is logarithmic in the batches
      that wait, and a row is merged O(log batches) times.
    - So what is merged with what follows from the numbers of batches alone: rows that wait have gone through the same
      merges, and come out as the same bytes, whenever the state began.
    """

    name: str
    due: str
    merge: Callable[[Sequence[pl.DataFrame]], pl.DataFrame]

    def take(self, state: State, rows: pl.DataFrame, batch: int, passage: Passage) -> Taken:
        """Let the rows of a batch in and those that are due out."""
        leaving: list[pl.DataFrame] = []
        oldest = batch
        segments: dict[str, pl.DataFrame] = {}
        carried: list[pl.DataFrame] = []  # what becomes one segment now
        first = batch
        carry_after = batch - (batch & -batch)
        for since, last, segment in spans(state, self.name):
            frame = state[segment]
            start, end = self.bounds(frame, passage)
            if start < end:
                leaving.append(frame[start:end])
                oldest = min(oldest, since)
            if end < frame.height:
                segments[segment] = frame
                if last > carry_after:
                    carried.append(frame[end:])
                    first = min(first, since)
        start, end = self.bounds(rows, passage)
        if start < end:
            leaving.append(rows[start:end])
        if end < rows.height:
            carried.append(rows[end:])
        if end < rows.height or len(carried) > 1:
            segments = {
                segment: segments[segment] for _, last, segment in spans(segments, self.name) if last <= carry_after
            }
            segments[f"{self.name}/{first}-{batch}"] = (
                self.merge(carried) if len(carried) > 1 else carried[0]
            ).rechunk()
        return Taken(leaving, segments, oldest)

    def bounds(self, frame: pl.DataFrame, passage: Passage) -> tuple[int, int]:
        """Where the rows that have not left begin, and where those that are not due begin."""
        if not frame.height:
            return 0, 0
        values = frame[self.due].to_numpy().view(np.int64)
        start = 0 if passage.before is None else int(np.searchsorted(values, passage.before, "right"))
        return start, start if passage.now is None else int(np.searchsorted(values, passage.now, "right"))


@dataclass(frozen=True, slots=True)
class Taken:
    """The rows that leave, by arrival, and the segments of those that wait on.

    None of those that leave has come before batch `oldest`.
    """

    leaving: list[pl.DataFrame]
    segments: dict[str, pl.DataFrame]
    oldest: int


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

    def left_behind(self, due: pl.Series) -> int:
        """How many of these rows should have left before this step: they are left out."""
        if self.before is None or not len(due):
            return 0
        return int((due.drop_nulls().to_numpy().view(np.int64) <= self.before).sum())

    def segments(self) -> dict[str, pl.DataFrame]:
        """The segment that remembers how far this step came."""
        return {} if self.now is None else {f"{PASSED}/{self.now}": pl.DataFrame({PASSED: [self.now]})}


def spans(state: Iterable[str], name: str) -> list[tuple[int, int, str]]:
    """The segments called `{name}/{first}-{last}`, oldest first, with the batches that they may have rows of.

    Spans overlap only where the states of tasks were merged; then no key is in two of them.
    """
    named = []
    for segment in state:
        if segment.startswith(f"{name}/"):
            first, _, last = segment.rpartition("/")[2].partition("-")
            named.append((int(first), int(last), segment))
    return sorted(named, key=lambda span: (span[1], span[0]))


def oldest_waiting(state: Iterable[str], names: Iterable[str], batch: int) -> int:
    """The oldest batch that rows which wait under these names may have come with; the next batch if there are none."""
    return min((first for name in names for first, _, _ in spans(state, name)), default=batch + 1)


def numbered(state: Iterable[str], name: str) -> list[str]:
    """The segments called `{name}/{batch}`, oldest first."""
    return sorted(
        (segment for segment in state if segment.startswith(f"{name}/")),
        key=lambda segment: int(segment.rpartition("/")[2]),
    )


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
