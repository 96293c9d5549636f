"""The failure of Su and Zhou 2016 on real executors: all primaries are killed, replicas go on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from tenax.application.application import Application
from tenax.chaos.record import Moment, What, finished_through
from tenax.chaos.schedule import ALL, Fault, Kind, Unit, When
from tenax.connectors.generators import START_US
from tenax.connectors.parquet import ParquetSink, read_committed
from tenax.engine.driver import Driver
from tenax.model.graph import TaskGraph
from tenax.model.settings import Settings
from tenax.model.tasks import Task
from tenax_lab import recorder as recording
from tenax_lab.lab import Bench, Row
from tenax_lab.loads.judged_queries import Query
from tenax_lab.runs import run

NODES = 3
STANDBY = 1  # holds the replicas; the other nodes hold all primaries, and are killed
KILL_AT = 4  # batches finished: windows are full by then
CHECKPOINT_EVERY = 2  # batches, and a pass has no more: so it is known between which of them the failure comes
MAX_ROWS = 1 << 30  # a batch is a span of time, however many rows it has
RETURN_S = 600.0  # nodes return at the latest then; until then they do not return by themselves
PLAN, WINDOW = "plan", "window"
"""What rows tell of: a plan under a failure, and a window of its results."""


def run_failure(
    bench: Bench, query: Query, app: Application, replicas: tuple[Task, ...], batches: int
) -> Iterator[Row]:
    """Kill every node with a primary; when all batches are through, let nodes return, and judge final results.

    A row for the run, with the quality that it stated of the batches after the failure, and one for every window that
    lies wholly after it: `accuracy` is the part of its final rows that was shown before nodes returned.
    """
    kept: list[recording.ShownFiles] = []

    def keep(recorder: recording.RunRecorder, _: Driver, folder: Path) -> None:
        sink = ParquetSink(recorder.results(query.output))
        kept.append(recording.ShownFiles(recorder, sink, folder / "kept", final=True))

    graph = TaskGraph(app.topology)
    every_task = "+".join(str(task) for task in graph.tasks(range(len(graph))))
    faults = (
        Fault(Kind.KILL, every_task, When(KILL_AT, Unit.BATCHES)),
        Fault(Kind.RETURN, ALL, When(batches, Unit.BATCHES)),
        Fault(Kind.RETURN, ALL, When(RETURN_S, Unit.SECONDS)),
    )
    settings = Settings.of(
        nodes=NODES,
        batch="0s",
        max_rows=MAX_ROWS,
        checkpoint_every=CHECKPOINT_EVERY,
        replicas=tuple(map(str, replicas)),
        standby_nodes=STANDBY,
        standby_slots=-(-len(replicas) // STANDBY),  # so there is no room for other tasks until nodes return
    )
    recorder = run(bench, app, settings, faults=faults, judged=True, prepare=keep)
    verdict = recorder.verdict
    assert verdict is not None
    killed_after = accurate_until(recorder.moments)
    until = min(batches, missing_until(recorder.moments))
    partitions = app.topology.operator(query.output).parallelism
    qualities = stated(while_missing(recorder), query.output, range(killed_after + 1, until + 1), partitions)
    yield {
        "what": PLAN,
        "quality": float(np.mean(qualities)),
        "killed_after": killed_after,
        "final": verdict.final,
        "corrected": verdict.corrected,
        "exact": verdict.held,
    }
    between_us = (START_US + killed_after * query.batch_us, START_US + until * query.batch_us)
    final = read_committed(recorder.results(query.output))
    for accuracy in window_accuracies(final, kept[0].rows(), query.identity, between_us):
        yield {"what": WINDOW, "accuracy": accuracy}


def accurate_until(moments: Sequence[Moment]) -> int:
    """The last batch that was finished when the last of the killed nodes was known to be gone."""
    lost = max(position for position, moment in enumerate(moments) if moment.what is What.LOST)
    return finished_through(moments[:lost])


def missing_until(moments: Sequence[Moment]) -> int:
    """The last batch that was finished before a node returned."""
    joined = next(position for position, moment in enumerate(moments) if moment.what is What.JOINED)
    return finished_through(moments[:joined])


def while_missing(recorder: recording.RunRecorder) -> pl.DataFrame:
    """What was shown before a node returned: all that is tentative, and what is final of outputs that miss nothing."""
    lost_s = recorder.of(recording.Kind.LOST).select(pl.col("at_s").min()).item()
    returned = recorder.of(recording.Kind.JOINED).filter(pl.col("at_s") > lost_s).select(pl.col("at_s").min()).item()
    shown = recorder.of(recording.Kind.SHOWN)
    return shown.filter(pl.col("tentative") | (pl.col("at_s") < returned))


def stated(shown: pl.DataFrame, output: str, batches: range, partitions: int) -> list[float]:
    """The mean quality that a run stated first of the partitions of each batch; one that showed nothing counts as 0."""
    of_batch: dict[tuple[int, int], float] = {}
    columns = shown.filter(output=output).select("partition", "first", "last", "quality")
    for partition, first, last, quality in columns.iter_rows():
        for batch in range(first, last + 1):
            of_batch.setdefault((batch, partition), quality)
    return [sum(of_batch.get((batch, each), 0.0) for each in range(partitions)) / partitions for batch in batches]


def window_accuracies(
    final: pl.DataFrame, shown: pl.DataFrame, identity: Sequence[str], between_us: tuple[int, int]
) -> list[float]:
    """For every window between two times, in order, the part of its final rows that was shown before."""
    names = ["window_end", *identity]
    since, until = (pl.lit(time_us).cast(pl.Datetime("us")) for time_us in between_us)
    wanted = final.filter(pl.col("window_start") >= since, pl.col("window_end") <= until).select(names).unique()
    if shown.is_empty():
        return [0.0] * wanted["window_end"].n_unique()
    marked = shown.select(names).unique().with_columns(shown=pl.lit(1.0))
    parts = wanted.join(marked, on=names, how="left").group_by("window_end").agg(pl.col("shown").fill_null(0.0).mean())
    return parts.sort("window_end")["shown"].to_list()
