"""Aggregates over tumbling and sliding windows of event time, kept up pane by pane."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tenax.errors import InvalidRequest
from tenax.operators.aggregates import ORDERED, TIME, Aggregate, result_types, split_aggregates
from tenax.operators.computation import NO_WATERMARK_US, Computation, State, StepInput, StepOutput
from tenax.operators.durations import microseconds
from tenax.operators.event_time import WINDOW_END, WINDOW_START, check_names, check_time, event_times
from tenax.operators.panes import closing, completed, cover, name_of, outlived, top_level
from tenax.operators.waiting import WaitingRoom, limits

PANE = "tenax.pane"
MERGED_ROWS = 1_000_000  # windows that close together are merged together up to so many rows, to bound the memory


@dataclass(frozen=True, slots=True, eq=False)
class Windows(Computation):
    """Aggregates per key over windows [end − length, end), an end every `every`.

    - Rows: the keys, the aggregates, `window_start`, `window_end`; only windows with at least one row; sorted by
      (`window_end`, keys). The event time of a result is `window_end` − 1 µs, see `event_time`.
    - A pane is [index · every, (index + 1) · every). A batch becomes partial aggregates by (pane, key). They wait until
      the watermark has passed their pane; then the pane is complete and becomes a leaf of a binary tree over the panes.
      A node is merged from its two children when its last pane is complete; a window is merged from O(log panes) nodes
      as soon as its last pane is complete.
    - A node stays while a window to come needs it, see `panes`: the tree keeps about as many panes as a window has
      (after Tangwongsan et al., "General incremental sliding-window aggregation", 2015).
    - A row without a time, or of a pane that is already complete, is left out: the source has decided what is late, so
      such rows come only from a map that changes times.

    Cost of a step: its rows; for each window that closes its keys, O(log panes) times; a copy of the names of nodes.
    """

    time: str
    keys: tuple[str, ...]
    length_us: int
    every_us: int
    expressions: tuple[pl.Expr, ...]
    aggregates: tuple[Aggregate, ...]

    def step(self, state: State, given: StepInput) -> StepOutput:
        """Let the rows of the batch in, close what the watermark completes."""
        rows = given.frames[0]
        check_time(rows, self.time)
        for key in self.keys:
            if key not in rows.columns:
                raise InvalidRequest(f"a key must be a column: {key!r} is not among {rows.columns}; name one of these")
        types = result_types(rows, self.aggregates, self.expressions)
        complete = given.watermark_us // self.every_us - 1  # the last pane that ends at the watermark or before
        limit = limits(state, None if given.watermark_us == NO_WATERMARK_US else complete)
        room = WaitingRoom("pending", PANE, lambda frames: self.merged(frames).sort(PANE, maintain_order=True))
        taken = room.take(state, self.partials(rows), given.batch, limit)
        nodes = {name: frame for name, frame in state.items() if name.startswith("node/")}
        results: list[pl.DataFrame] = []
        if limit.moved and limit.now is not None:
            nodes |= self.leaves(taken.leaving)
            self.grow(nodes, limit.before, limit.now)
            ends = closing(nodes, self.panes, limit.before, limit.now)
            results = [self.finished(merged, rows, types) for merged in self.closed(nodes, ends)]
            for node in list(outlived(nodes, self.panes, limit.before, limit.now)):
                nodes.pop(name_of(node), None)
        return StepOutput(
            {**taken.segments, **nodes, **limit.segments()},
            pl.concat(results) if results else self.nothing(rows, types),
        )

    @property
    def panes(self) -> int:
        """How many panes a window has."""
        return self.length_us // self.every_us

    def partials(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The batch by (pane, key), in the order of panes."""
        rows = rows.filter(pl.col(self.time).is_not_null())
        times = event_times(rows, self.time)
        # columns made here, not derived: a sort flag on them would change how Polars sums, and flags do not travel
        rows = rows.with_columns(pl.Series(TIME, times), pl.Series(PANE, times // self.every_us))
        if any(one.kind in ORDERED for one in self.aggregates):
            rows = rows.sort(TIME, maintain_order=True)
        parts = [part for one in self.aggregates for part in one.partial()]
        return rows.group_by(PANE, *self.keys, maintain_order=True).agg(parts).sort(PANE, maintain_order=True)

    def merged(self, frames: Sequence[pl.DataFrame], panes: Sequence[int] | None = None) -> pl.DataFrame:
        """Partials by (pane, key) in the order of arrival, each frame taken as that of the pane given for it."""
        together = pl.concat(frames, rechunk=True)
        numbers = (
            together[PANE].to_numpy()
            if panes is None
            else np.repeat(np.array(panes, np.int64), [frame.height for frame in frames])
        )
        parts = [part for one in self.aggregates for part in one.merged()]
        grouped = together.with_columns(pl.Series(PANE, numbers)).group_by(PANE, *self.keys, maintain_order=True)
        return grouped.agg(parts)

    def leaves(self, leaving: Sequence[pl.DataFrame]) -> dict[str, pl.DataFrame]:
        """The panes that are complete now."""
        if not leaving:
            return {}
        merged = self.merged(leaving).sort(PANE, maintain_order=True)
        return {name_of((0, pane)): frame for pane, frame in by_pane(merged)}

    def grow(self, nodes: dict[str, pl.DataFrame], before: int | None, now: int) -> None:
        """Add the nodes whose last pane this step completes, level by level, each from its two children."""
        for level in range(1, top_level(self.panes) + 1):
            children = [
                (index, nodes[child])
                for index in completed(nodes, level, before, now)
                for child in (name_of((level - 1, 2 * index)), name_of((level - 1, 2 * index + 1)))
                if child in nodes
            ]
            if children:
                merged = self.merged([frame for _, frame in children], [index for index, _ in children])
                nodes |= {name_of((level, index)): frame for index, frame in by_pane(merged)}

    def closed(self, nodes: dict[str, pl.DataFrame], ends: Iterable[int]) -> Iterator[pl.DataFrame]:
        """The merged parts of the windows with these ends, if they have any, many windows at a time."""
        frames: list[pl.DataFrame] = []
        panes: list[int] = []
        total = 0
        for end in ends:
            found = [nodes[name] for name in map(name_of, cover(end - self.panes, end)) if name in nodes]
            frames += found
            panes += [end] * len(found)
            total += sum(frame.height for frame in found)
            if total > MERGED_ROWS:
                yield self.merged(frames, panes)
                frames, panes, total = [], [], 0
        if frames:
            yield self.merged(frames, panes)

    def finished(self, merged: pl.DataFrame, rows: pl.DataFrame, types: pl.Schema) -> pl.DataFrame:
        """The results of closed windows, sorted."""
        end = pl.col(PANE) * self.every_us
        return merged.select(
            *self.keys,
            *(one.final(types[one.name]) for one in self.aggregates),
            (end - self.length_us).cast(rows.schema[self.time]).alias(WINDOW_START),
            end.cast(rows.schema[self.time]).alias(WINDOW_END),
        ).sort(WINDOW_END, *self.keys)

    def nothing(self, rows: pl.DataFrame, types: pl.Schema) -> pl.DataFrame:
        """No results, with the columns of results."""
        schema = {key: rows.schema[key] for key in self.keys} | {one.name: types[one.name] for one in self.aggregates}
        return pl.DataFrame(schema=schema | {WINDOW_START: rows.schema[self.time], WINDOW_END: rows.schema[self.time]})


def windows(time: str, keys: Sequence[str], length: str, every: str | None, aggregates: Sequence[pl.Expr]) -> Windows:
    """Windows of `length` that begin every `every` (tumbling if None), as spans of time such as "10s"."""
    length_us = microseconds(length)
    every_us = length_us if every is None else microseconds(every)
    if every_us < 1 or length_us < every_us or length_us % every_us:
        raise InvalidRequest(
            f"a window's length is a multiple of its every: found length {length}, every {every}; choose such a pair"
        )
    check_names(keys, "a key")
    known = split_aggregates(aggregates)
    for one in known:
        if one.name in keys:
            raise InvalidRequest(
                f"an aggregate has another name than the keys: found {one.name!r} among both; give it an .alias(...)"
            )
    return Windows(time, tuple(keys), length_us, every_us, tuple(aggregates), known)


def by_pane(frame: pl.DataFrame) -> list[tuple[int, pl.DataFrame]]:
    """A frame whose panes lie together, cut into panes."""
    panes = frame[PANE].to_numpy()
    starts = np.flatnonzero(np.diff(panes, prepend=panes[0] - 1)).tolist() if len(panes) else []
    return [(int(panes[start]), frame[start:end]) for start, end in zip(starts, [*starts[1:], len(panes)], strict=True)]
