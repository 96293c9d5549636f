"""Workers of several nodes in one process, and passes over them as Spark would carry them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl
from pyarrow import parquet

import tenax as tx
from tenax.application.application import Application
from tenax.connectors.formats import as_frame
from tenax.connectors.parquet import ParquetSink, StagedFile
from tenax.connectors.source import Limits, Planned
from tenax.control.versions import NO_PASS, PassId, Version
from tenax.engine.worker.orders import Bundle, Order, Places, Report, StepOrder
from tenax.engine.worker.steps import Worker
from tenax.model.graph import TaskGraph
from tenax.operators.computation import NO_WATERMARK_US
from tenax.planning.levels import layout
from tenax.store.checkpoints import StoredSegment

ROWS = 6_000
NOW_US = 1_800_000_000_000_000  # the driver's clock: 2027
LIMIT = Limits(1_000)


def application(folder: Path) -> Application:
    # elements (2) ─► filter (2) ─► window (3) ─► sums (3, output)
    #                                  └──► top-local (3) ─► top (1) ─► best (1, output)
    topology = tx.Topology("toy")
    source = tx.elements(rate=1_000.0, pace=tx.Pace(rows=ROWS))
    stream = topology.source("rows", source, partitions=2).filter(pl.col("sequence") % 3 > 0)
    keyed = stream.with_columns((pl.col("sequence") % 7).alias("key")).key_by("key")
    sums = keyed.window("2s", every="500ms").aggregate(pl.col("value").sum(), parallelism=3, name="window")
    sums.output("sums", tx.parquet(folder / "sums"))
    sums.top(2, "value").output("best", tx.parquet(folder / "best"))
    return topology.build()


class Cluster:
    """Workers of several nodes in this process, and passes over them as Spark would carry them."""

    def __init__(self, built: Application, folder: Path, nodes: int, limit: Limits = LIMIT) -> None:
        self.application = built
        for sink in built.sinks.values():  # as a driver does that takes an output over
            assert isinstance(sink, ParquetSink)
            sink.staged.mkdir(parents=True, exist_ok=True)
        self.limit = limit
        self.graph = TaskGraph(built.topology)
        self.homes = {task: (task % nodes,) for task in range(len(self.graph))}
        self.names = [f"n{number}" for number in range(nodes)]
        self.layout = layout(self.graph, self.names, self.homes)
        self.places = Places(folder / "nodes", folder)
        self.places.nodes.mkdir(parents=True, exist_ok=True)
        self.workers = [Worker(built, self.places, name) for name in self.names]
        self.heads = tuple(Version(task, 0, NO_PASS) for task in self.graph.tasks(range(len(self.graph))))
        self.restored: dict[int, tuple[StoredSegment, ...]] = {}
        self.highest_us: dict[int, int] = {}
        self.positions: dict[str, object] = {}
        self.batch = 0

    def step(self, task: int) -> StepOrder:
        """The next step of a task, from its head."""
        time_us = self.highest_us.get(task, NO_WATERMARK_US)
        return StepOrder(
            task, self.homes[task][0], self.heads[task], restored=self.restored.get(task), highest_us=time_us
        )

    def order(self, batches: int, number: int) -> Order:
        ranges, ended = {}, False
        for name, source in self.application.sources.items():
            partitions = self.application.topology.operator(name).parallelism
            planned_ranges = []
            for _ in range(batches):
                planned = source.plan(self.positions.get(name), partitions, self.limit, NOW_US)  # type: ignore[arg-type]
                if isinstance(planned, Planned):
                    self.positions[name], ended = planned.position, planned.ended
                    planned_ranges.append(planned.ranges)
            ranges[name] = tuple(planned_ranges)
        count = len(next(iter(ranges.values())))
        first = self.batch + 1
        self.batch += count
        return Order(
            "run",
            PassId(1, number),
            first,
            self.batch,
            self.layout,
            tuple(self.step(task) for task in self.homes),
            ranges=ranges,
            ended_at=self.batch if ended else None,
        )

    def attempt(self, order: Order) -> list[Bundle]:
        """What comes out of the last level."""
        bundles: list[list[Bundle]] = [[] for _ in self.names]
        for level in range(len(order.layout.levels)):
            sent = [worker.run(order, level, node, bundles[node]) for node, worker in enumerate(self.workers)]
            bundles = [[sent[source][node] for source in range(len(self.names))] for node in range(len(self.names))]
        return [bundle for received in bundles for bundle in received]

    def run(self, order: Order) -> list[Report]:
        """A pass that must go well; moves the heads."""
        last = self.attempt(order)
        failures = [failure for bundle in last for failure in bundle.failures]
        assert not failures, failures[0]
        self.heads = tuple(replace(head, batch=order.last, pass_id=order.pass_id) for head in self.heads)
        self.restored = {}
        reports = [report for bundle in last for report in bundle.reports]
        self.highest_us |= {report.task: report.highest_us[-1] for report in reports if report.highest_us}
        return reports


def results(reports: Sequence[Report], folder: Path) -> dict[str, pl.DataFrame]:
    """The rows of all staged files, by output."""
    frames_of: dict[str, list[pl.DataFrame]] = {}
    for staged in itertools.chain.from_iterable(report.staged for report in reports):
        name = StagedFile.of(staged).name
        if name:
            path = next(folder.rglob(name))
            frames_of.setdefault(staged.output, []).append(as_frame(parquet.read_table(path)))
    return {name: pl.concat(frames).sort(pl.all()) for name, frames in frames_of.items()}
