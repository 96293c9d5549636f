"""A topology run on frames: its tasks step in this process, without Spark, clock or disk, as they would on nodes."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from tenax.api.results import in_order
from tenax.api.streams import Topology
from tenax.application.application import Application
from tenax.application.schemas import with_schemas
from tenax.connectors.delivery import CallbackSink
from tenax.connectors.lifecycle import opened
from tenax.connectors.sink import Plain
from tenax.connectors.source import Limits, NothingNew, Planned, Source
from tenax.connectors.times import EventTimes
from tenax.control.versions import NO_PASS, PassId, Version
from tenax.engine.worker.orders import Order, Places, StepOrder
from tenax.engine.worker.steps import Worker
from tenax.errors import InvalidRequest, RunFailed
from tenax.model.graph import TaskGraph
from tenax.model.topology import suggestion
from tenax.operators.computation import NO_WATERMARK_US
from tenax.planning.levels import Layout
from tenax.store.records import Json

NODE = "here"
MAX_BATCHES = 100_000  # of a source; more is taken for one that does not end

Cut = tuple[pl.DataFrame, ...]
"""What one batch reads of a source: a frame for each partition."""


def run(
    topology: Topology | Application,
    frames: Mapping[str, pl.DataFrame] | None = None,
    *,
    batch_rows: int | Sequence[int] | None = None,
) -> dict[str, pl.DataFrame]:
    """The final results of a topology whose sources read these frames, by output; within milliseconds.

        results = tx.testing.run(topology, {"cars": pl.DataFrame({"ts": [...], "speed": [...]})})
        assert results["jams"].height == 1

    - A frame has the columns of its source; others are not read. Its rows are dealt to the partitions in turn, in
      their order. Lateness is that of the source. A bounded source without a frame is read as it is.
    - When all rows are read, every window closes.
    - `batch_rows` cuts the input: so many rows of each source a batch, or several numbers that take turns. Results do
      not depend on it unless an operator of yours does, so a test may compare several cuts.
    - Rows come in the order that `tx.collect` documents. Late rows that a topology keeps are `SOURCE-late`.
    - The steps are those of a real run, on one node; sinks are not touched.
    """
    application = topology.build() if isinstance(topology, Topology) else topology
    sizes = _sizes(batch_rows)
    cuts = _cuts(application, frames or {}, sizes)
    kept = _Kept()
    sources = {name: _Frames(source, cuts[name]) for name, source in application.sources.items()}
    application = with_schemas(application, {name: batches[0][0].schema for name, batches in cuts.items()})
    _step(replace(application, sources=sources, sinks=dict.fromkeys(application.sinks, kept)), cuts)
    return {name: in_order(kept.rows(name)) for name in application.sinks}


def _step(application: Application, cuts: Mapping[str, Sequence[Cut]]) -> None:
    """One pass over all batches, all tasks on one node and in one stage."""
    graph = TaskGraph(application.topology)
    last = max(len(batches) for batches in cuts.values())
    steps = tuple(
        StepOrder(task, 0, Version(graph.task(task), 0, NO_PASS), highest_us=NO_WATERMARK_US)
        for task in range(len(graph))
    )
    layout = Layout((NODE,), dict.fromkeys(range(len(graph)), (0,)), (tuple(range(len(graph.operators))),))
    ranges = {
        name: tuple((number,) * application.topology.operator(name).parallelism for number in range(1, last + 1))
        for name in application.sources
    }
    ends = {name: len(batches) for name, batches in cuts.items()}
    with tempfile.TemporaryDirectory(prefix="tenax-testing-") as folder:
        worker = Worker(application, Places(Path(folder), Path(folder)), NODE)
        order = Order("testing", PassId(1, 1), 1, last, layout, steps, ranges=ranges, ended_at=last, ends=ends)
        [answer] = worker.run(order, 0, 0, [])
    for failure in answer.failures:
        made = application.places.get(failure.operator, "")
        where = failure.place or (f"made in {made}" if made else "")
        raise RunFailed(
            f"operator {failure.operator!r} raised in task {failure.task}, batch {failure.batch}: {failure.cause}"
            f"{f' ({where})' if where else ''}",
            failure.trace,
        )


class _Frames(Source):
    """The rows of a source that are known already, batch by batch; a range is the number of a batch."""

    bounded = True

    def __init__(self, source: Source, cuts: Sequence[Cut]) -> None:
        self.time = source.time
        self.lateness_us = source.lateness_us
        self._cuts = cuts

    def schema(self) -> pl.Schema:
        """The columns of the frame."""
        return self._cuts[0][0].schema

    def plan(self, position: Json, partitions: int, limits: Limits, now_us: int) -> Planned | NothingNew:  # noqa: ARG002
        """All ranges are known."""
        return NothingNew(ended=True)

    def read(self, partition: int, planned: Json) -> pl.DataFrame:
        """The rows of a batch; none after the last."""
        assert isinstance(planned, int)
        cut = self._cuts[min(planned, len(self._cuts)) - 1][partition]
        return cut if planned <= len(self._cuts) else cut.clear()


class _Kept(CallbackSink):
    """Results of all outputs, kept where they are made."""

    def __init__(self) -> None:
        super().__init__(None)
        self._results: dict[str, list[tuple[int, int, pl.DataFrame]]] = {}

    def write(self, output: str, partition: int, batch: int, pass_id: str, rows: pl.DataFrame) -> Plain:  # noqa: ARG002
        """Keep it."""
        self._results.setdefault(output, []).append((batch, partition, rows))
        return b""

    def rows(self, output: str) -> pl.DataFrame:
        """All rows of an output, by batch and partition."""
        parts = [rows for _, _, rows in sorted(self._results[output], key=lambda result: result[:2])]
        return pl.concat([part for part in parts if part.height] or parts[:1])


def _cuts(application: Application, frames: Mapping[str, pl.DataFrame], sizes: Sequence[int]) -> dict[str, list[Cut]]:
    for name in frames:
        if name not in application.sources:
            hint = suggestion(name, application.sources)
            raise InvalidRequest(f"frames are for sources, found one for {name!r}{hint}; name a source of the topology")
    cuts = {}
    for name, source in application.sources.items():
        partitions = application.topology.operator(name).parallelism
        if name in frames:
            rows = _conformed(name, _timed(name, source, frames[name]), application.schemas.get(name))
            cuts[name] = _dealt(rows, partitions, sizes)
        elif source.bounded:
            with opened(source) as reading:
                cuts[name] = _read(name, reading, partitions, sizes)
        else:
            raise InvalidRequest(f"source {name!r} never ends, found no frame for it: pass {{{name!r}: frame}}")
    return cuts


def _dealt(rows: pl.DataFrame, partitions: int, sizes: Sequence[int]) -> list[Cut]:
    """Rows dealt to the partitions in turn, as generators deal theirs."""
    cuts: list[Cut] = []
    first = 0
    for size in itertools.cycle(sizes):  # ends: every size is at least 1
        batch = rows.slice(first, size)
        cuts.append(tuple(batch.gather_every(partitions, (index - first) % partitions) for index in range(partitions)))
        first += size
        if first >= rows.height:
            return cuts
    raise AssertionError("sizes are never empty")


def _read(name: str, source: Source, partitions: int, sizes: Sequence[int]) -> list[Cut]:
    """What a bounded source has, by its own plans."""
    cuts: list[Cut] = []
    position: Json = None
    columns: pl.DataFrame | None = None
    for size in itertools.islice(itertools.cycle(sizes), MAX_BATCHES):
        planned = source.plan(position, partitions, Limits(size), int(time.time() * 1e6))
        if isinstance(planned, Planned):
            read = [None if part is None else source.read(at, part) for at, part in enumerate(planned.ranges)]
            columns = next((rows.clear() for rows in read if rows is not None), columns)
            assert columns is not None, "a plan has a range"
            cuts.append(tuple(columns if rows is None else rows for rows in read))
            position = planned.position
        if planned.ended or isinstance(planned, NothingNew):
            break
    else:
        raise InvalidRequest(f"source {name!r} ends, found more than {MAX_BATCHES:,} batches: raise batch_rows")
    if not cuts:
        raise InvalidRequest(f"source {name!r} has rows, found none: pass {{{name!r}: frame}}")
    return cuts


def _timed(name: str, source: Source, rows: object) -> pl.DataFrame:
    """The frame with its event times in microseconds, UTC, as the source would read them."""
    if not isinstance(rows, pl.DataFrame):
        raise InvalidRequest(f"the frame of source {name!r} is a pl.DataFrame, found {type(rows).__name__}: pass one")
    if source.time not in rows.columns:
        raise InvalidRequest(
            f"the frame of source {name!r} has the column of event times {source.time!r}, found {rows.columns}: add it"
        )
    if rows.schema[source.time] == pl.Datetime("us"):
        return rows
    times = getattr(source, "times", None)
    unit = times.unit if isinstance(times, EventTimes) else None
    return EventTimes(source.time, unit, anytime=True).apply(rows, f"the frame of source {name!r}", 0, None)


def _conformed(name: str, rows: pl.DataFrame, known: pl.Schema | None) -> pl.DataFrame:
    """The columns that the source has, in its order and types, if it tells them."""
    if known is None or rows.schema == known:
        return rows
    missing = [column for column in known if column not in rows.columns]
    if missing:
        raise InvalidRequest(
            f"the frame of source {name!r} has the columns of the source, found none of {missing}: add them"
        )
    try:
        return rows.select(pl.col(column).cast(kind) for column, kind in known.items())
    except pl.exceptions.PolarsError as error:
        cause = str(error).splitlines()[0]
        raise InvalidRequest(
            f"the frame of source {name!r} has the types of the source, found {cause}: cast its columns"
        ) from error


def _sizes(batch_rows: object) -> tuple[int, ...]:
    sizes = tuple(batch_rows) if isinstance(batch_rows, list | tuple) else (batch_rows,)
    if sizes == (None,):
        return (1 << 62,)
    if not sizes or any(not isinstance(size, int) or isinstance(size, bool) or size < 1 for size in sizes):
        raise InvalidRequest(f"batch_rows are whole numbers of at least 1, found {batch_rows!r}: write 100 or [1, 7]")
    return sizes
