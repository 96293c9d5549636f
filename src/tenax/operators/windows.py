"""Aggregates over tumbling and sliding windows of event time, kept up pane by pane."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import polars as pl

from tenax.errors import InvalidRequest
from tenax.model.durations import microseconds, span
from tenax.operators.aggregates import FLOAT, MEANS, ORDERED, TIME, TYPE, Aggregate, result_types, split_aggregates
from tenax.operators.computation import NO_WATERMARK_US, Computation, Splits, State, StepInput, StepOutput
from tenax.operators.event_time import WINDOW_END, WINDOW_START, check_names, check_time, event_times
from tenax.operators.missing import missing
from tenax.operators.panes import closing, completed, cover, name_of, outlived, top_level
from tenax.operators.stateless import collected
from tenax.operators.waiting import PASSED, PENDING, Passage, Taken, WaitingRoom, oldest_waiting

PANE = "tenax.pane"  # in what is sent the time at which a pane begins, in a state its number
ROWS = "tenax.rows"  # in what is sent: how many rows a partial aggregate stands for
ORIGIN = "origin/"  # how the names of segments begin that say which batches panes have come from
MERGED_ROWS = 1_000_000  # windows that close together are merged together up to so many rows, to bound the memory
KNOWN_COLUMNS = 256  # of so many kinds of frames it is remembered what becomes of them


@dataclass(frozen=True, slots=True, eq=False)
class Windows(Computation):
    """Aggregates per key over windows [end − length, end), an end every `every`.

    - Rows: the keys, the aggregates, `window_start`, `window_end`; only windows with at least one row; sorted by
      (`window_end`, keys). The event time of a result is `window_end` − 1 µs, see `event_time`.
    - A pane is [index · every, (index + 1) · every). A batch becomes partial aggregates by (pane, key) before it is
      sent, so that what travels and waits follows groups, not rows; those of several producers are merged when they
      leave or when what waits is merged. They wait until the watermark has passed their pane; then the pane is complete
      and becomes a leaf of a binary tree over the panes. A node is merged from its two children when its last pane is
      complete; a window is merged from O(log panes) nodes as soon as its last pane is complete.
    - A node stays while a window to come needs it, see `panes`: the tree keeps about as many panes as a window has
      (after Tangwongsan et al., "General incremental sliding-window aggregation", 2015).
    - A row without a time, or of a pane that is already complete, is left out, and the latter are counted. Sources have
      decided what is late: such rows come from a partition that was idle, or from a map that changes times.

    Cost of a step: its rows; for each window that closes its keys, O(log panes) times; a copy of the names of nodes.
    """

    bounded = True
    splits = Splits.BY_KEY

    time: str
    keys: tuple[str, ...]
    length_us: int
    every_us: int
    expressions: tuple[pl.Expr, ...]
    aggregates: tuple[Aggregate, ...]

    def parameters(self) -> Mapping[str, object]:
        """As they were given: the aggregates follow from their expressions."""
        return {
            "time": self.time,
            "keys": self.keys,
            "length": span(self.length_us),
            "every": span(self.every_us),
            "aggregates": self.expressions,
        }

    def combined(self, number: int, rows: pl.DataFrame) -> pl.DataFrame:  # noqa: ARG002
        """The rows by (pane, key), in the order of panes; the types of its columns tell those of the results.

        What is combined already stays as it is.
        """
        if PANE in rows.columns:
            return rows
        empty = no_partials(self, tuple(rows.columns), tuple(rows.dtypes))
        if rows[self.time].null_count():
            rows = rows.drop_nulls(self.time)
        return self.partials(rows, empty.schema) if rows.height else empty

    def step(self, state: State, given: StepInput) -> StepOutput:
        """Let the partial aggregates of the batch in, close what the watermark completes."""
        rows = self.combined(0, given.frames[0])
        nothing = no_results(self, tuple(rows.columns), tuple(rows.dtypes))
        complete = given.watermark_us // self.every_us - 1  # the last pane that ends at the watermark or before
        passage = Passage.of(state, None if given.watermark_us == NO_WATERMARK_US else complete)
        room = WaitingRoom(PENDING, PANE, lambda frames: collected(self.merged(frames)))
        arrived = self.arrived(rows)
        taken = room.take(state, arrived.drop(ROWS), given.batch, passage)
        nodes = {name: frame for name, frame in state.items() if name.startswith("node/")}
        origins = {name: frame for name, frame in state.items() if name.startswith(ORIGIN)}
        results: list[pl.DataFrame] = []
        if passage.moved and passage.now is not None:
            nodes |= self.leaves(taken.leaving)
            self.grow(nodes, passage.before, passage.now)
            ends = closing(nodes, self.panes, passage.before, passage.now)
            results = [self.finished(merged, nothing.schema) for merged in self.closed(nodes, ends)]
            for node in list(outlived(nodes, self.panes, passage.before, passage.now)):
                nodes.pop(name_of(node), None)
            origins = self.origins(origins, passage.now, taken)
        return StepOutput(
            {**taken.segments, **nodes, **origins, **passage.segments()},
            nothing if not results else results[0] if len(results) == 1 else pl.concat(results),
            rows_behind(arrived, passage),
        )

    def oldest(self, state: State, batch: int) -> int:
        """What waits was not there before, nor what the panes that are kept were made of."""
        waiting = oldest_waiting(state, [PENDING], batch)
        return min([waiting, *(origin_of(name)[1] for name in state if name.startswith(ORIGIN))])

    def holds_rows(self, name: str) -> bool:
        """How far windows have closed, and which batches panes have come from, is said of all keys."""
        return not name.startswith((f"{PASSED}/", ORIGIN))

    def unite(self, name: str, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """What waits in the order of panes; a node has one row for each key, wherever it lies."""
        together = pl.concat(frames, rechunk=True)
        if not name.startswith(f"{PENDING}/"):
            return together
        return together[np.argsort(together[PANE].to_numpy(), kind="stable")]

    def origins(self, known: Mapping[str, pl.DataFrame], now: int, taken: Taken) -> dict[str, pl.DataFrame]:
        """Which batches the panes that are kept have come from: by the last of those completed together, the oldest.

        One that tells no more than a newer one is let go of, and so is one of panes that no window to come has.
        """
        needed = now + 2 - self.panes
        kept = {name: frame for name, frame in known.items() if origin_of(name)[0] >= needed}
        last = max((int(frame[PANE][-1]) for frame in taken.leaving), default=needed - 1)
        if last >= needed:
            kept = {name: frame for name, frame in kept.items() if origin_of(name)[1] < taken.oldest}
            kept[f"{ORIGIN}{last}/{taken.oldest}"] = pl.DataFrame({PANE: [last]})
        return kept

    @property
    def panes(self) -> int:
        """How many panes a window has."""
        return self.length_us // self.every_us

    def partials(self, rows: pl.DataFrame, types: pl.Schema) -> pl.DataFrame:
        """Rows that all have a time by (pane, key), in the order of panes."""
        times = event_times(rows, self.time)
        # columns made here, not derived: a sort flag on them would change how Polars sums, and flags do not travel
        starts = times // self.every_us * self.every_us
        begins = pl.Series(PANE, starts).cast(rows[self.time].dtype)
        query = rows.hstack([pl.Series(TIME, times), begins]).lazy()
        by_time = any(aggregate.kind in ORDERED for aggregate in self.aggregates)
        if by_time:
            query = query.sort(TIME, maintain_order=True)
        parts = [part for aggregate in self.aggregates for part in aggregate.partial()]
        query = query.group_by(PANE, *self.keys, maintain_order=True).agg(*parts, pl.len().alias(ROWS))
        if not by_time and disordered(starts):
            query = query.sort(PANE, maintain_order=True)
        types_alone = [pl.lit(None, types[name]).alias(name) for name in self.type_columns if name in types]
        return collected(query.with_columns(types_alone) if types_alone else query)

    @property
    def type_columns(self) -> list[str]:
        """Columns of what is sent whose type is all they say."""
        return [aggregate.part(TYPE) for aggregate in self.aggregates if aggregate.kind in MEANS]

    def arrived(self, rows: pl.DataFrame) -> pl.DataFrame:
        """What producers sent, one after the other, as it waits: in the order of panes, which are numbers now."""
        numbers = rows[PANE].to_numpy().view(np.int64) // self.every_us
        if disordered(numbers):
            order = np.argsort(numbers, kind="stable")
            rows, numbers = rows[order], numbers[order]
        types = self.type_columns
        return of_panes([column for column in rows.get_columns() if column.name not in types], numbers)

    def merged(self, frames: Sequence[pl.DataFrame], panes: Sequence[int] | None = None) -> pl.LazyFrame:
        """Partials by (pane, key), in the order of panes, then of arrival.

        With panes, which ascend, each frame is a node and counts as of the pane given for it.
        """
        together = frames[0] if len(frames) == 1 else pl.concat(frames, rechunk=True)
        if panes is None:
            numbers = together[PANE].to_numpy()
        else:
            numbers = np.repeat(np.array(panes, np.int64), [frame.height for frame in frames])
        query = of_panes(together.get_columns(), numbers).lazy()
        if panes is not None and len(set(panes)) == len(panes):
            return query  # each node is alone in its pane: there is nothing to merge
        parts = [part for aggregate in self.aggregates for part in aggregate.merged()]
        query = query.group_by(PANE, *self.keys, maintain_order=True).agg(parts)
        return query.sort(PANE, maintain_order=True) if disordered(numbers) else query

    def leaves(self, leaving: Sequence[pl.DataFrame]) -> dict[str, pl.DataFrame]:
        """The panes that are complete now."""
        if not leaving:
            return {}
        return {name_of((0, pane)): frame for pane, frame in by_pane(collected(self.merged(leaving)))}

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
                merged = collected(self.merged([frame for _, frame in children], [index for index, _ in children]))
                nodes |= {name_of((level, index)): frame for index, frame in by_pane(merged)}

    def closed(self, nodes: dict[str, pl.DataFrame], ends: Iterable[int]) -> Iterator[pl.LazyFrame]:
        """The merged parts of the windows with these ends, if they have any, many windows at a time."""
        frames: list[pl.DataFrame] = []
        panes: list[int] = []
        total = 0
        for end in ends:
            covering = [nodes[name] for name in map(name_of, cover(end - self.panes, end)) if name in nodes]
            frames += covering
            panes += [end] * len(covering)
            total += sum(frame.height for frame in covering)
            if total > MERGED_ROWS:
                yield self.merged(frames, panes)
                frames, panes, total = [], [], 0
        if frames:
            yield self.merged(frames, panes)

    def finished(self, merged: pl.LazyFrame, types: pl.Schema) -> pl.DataFrame:
        """The results of closed windows, sorted."""
        end = pl.col(PANE) * self.every_us
        query = merged.select(
            *self.keys,
            *(aggregate.final(types[aggregate.name]) for aggregate in self.aggregates),
            (end - self.length_us).cast(types[WINDOW_START]).alias(WINDOW_START),
            end.cast(types[WINDOW_END]).alias(WINDOW_END),
        )
        return collected(query.sort(WINDOW_END, *self.keys))


def windows(time: str, keys: Sequence[str], length: str, every: str | None, aggregates: Sequence[pl.Expr]) -> Windows:
    """Windows of `length` that begin every `every` (tumbling if None), as spans of time such as "10s"."""
    length_us, every_us = check_lengths(length, length if every is None else every)
    check_names(keys, "a key")
    known = split_aggregates(aggregates)
    for aggregate in known:
        if aggregate.name in keys:
            raise InvalidRequest(
                f"an aggregate has another name than the keys: found {aggregate.name!r} among both; "
                "give it an .alias(...)"
            )
    return Windows(time, tuple(keys), length_us, every_us, tuple(aggregates), known)


def rows_behind(arrived: pl.DataFrame, passage: Passage) -> int:
    """How many rows, in the order of panes, come to panes that were complete before."""
    if passage.before is None or not arrived.height:
        return 0
    count = int(np.searchsorted(arrived[PANE].to_numpy(), passage.before, "right"))
    return int(arrived[ROWS][:count].sum()) if count else 0


def check_lengths(length: str, every: str) -> tuple[int, int]:
    """The length of windows and the time between their beginnings in microseconds, if panes can be made of them."""
    length_us, every_us = microseconds(length), microseconds(every)
    if every_us < 1 or length_us < every_us or length_us % every_us:
        raise InvalidRequest(
            f"a window's length is a multiple of its every: found length {length}, every {every}; choose such a pair"
        )
    return length_us, every_us


@lru_cache(maxsize=KNOWN_COLUMNS)
def no_partials(computation: Windows, columns: tuple[str, ...], types: tuple[pl.DataType, ...]) -> pl.DataFrame:
    """What a producer sends for no rows with these columns, if windows can be made of such rows."""
    rows = pl.DataFrame(schema=dict(zip(columns, types, strict=True)))
    check_time(rows, computation.time)
    for key in computation.keys:
        if key not in columns:
            raise missing("a key must be a column", key, rows.columns)
    results = result_types(rows, computation.aggregates, computation.expressions)
    kinds = {
        aggregate.part(TYPE): results[aggregate.name] for aggregate in computation.aggregates if aggregate.kind in MEANS
    }
    return computation.partials(rows, pl.Schema({name: kind for name, kind in kinds.items() if kind != FLOAT}))


@lru_cache(maxsize=KNOWN_COLUMNS)
def no_results(computation: Windows, columns: tuple[str, ...], types: tuple[pl.DataType, ...]) -> pl.DataFrame:
    """No results, with the columns of results, from the columns of what producers send."""
    sent = dict(zip(columns, types, strict=True))
    schema = {key: sent[key] for key in computation.keys}
    schema |= {aggregate.name: aggregate.result_type(sent) for aggregate in computation.aggregates}
    return pl.DataFrame(schema=schema | {WINDOW_START: sent[PANE], WINDOW_END: sent[PANE]})


def origin_of(name: str) -> tuple[int, int]:
    """The last pane and the oldest batch that the name of a segment tells."""
    _, pane, batch = name.split("/")
    return int(pane), int(batch)


def disordered(numbers: npt.NDArray[np.int64]) -> bool:
    """Whether some number is smaller than the one before it."""
    return bool((numbers[1:] < numbers[:-1]).any())


def of_panes(columns: Iterable[pl.Series], numbers: npt.NDArray[np.int64]) -> pl.DataFrame:
    """These columns with the panes given; the column of panes is made anew, see `Windows.partials`."""
    return pl.DataFrame([pl.Series(PANE, numbers), *(column for column in columns if column.name != PANE)])


def by_pane(frame: pl.DataFrame) -> list[tuple[int, pl.DataFrame]]:
    """A frame whose panes lie together, cut into panes."""
    panes = frame[PANE].to_numpy()
    starts = np.flatnonzero(np.diff(panes, prepend=panes[0] - 1)).tolist() if len(panes) else []
    return [(int(panes[start]), frame[start:end]) for start, end in zip(starts, [*starts[1:], len(panes)], strict=True)]
