"""The failure of paper 1 on real executors: all primaries are killed, replicas go on, tentative results are kept."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from tenax.application.application import Application
from tenax.chaos.injector import Injector
from tenax.chaos.oracle import judge, with_results_in
from tenax.chaos.record import Moment, Recorder, What, finished_through
from tenax.chaos.schedule import ALL, Fault, Kind, Unit, When
from tenax.connectors.generators import START_US
from tenax.connectors.parquet import ParquetSink, read_committed
from tenax.control import events
from tenax.control.coordinator import Coordinator
from tenax.control.instructions import Decided, Outcome, Publish
from tenax.control.versions import PassId
from tenax.engine.driver import Driver
from tenax.engine.observer import Observer
from tenax.engine.session import Session
from tenax.engine.worker.orders import Report
from tenax.errors import ClusterFailed
from tenax.model.graph import Floats, TaskGraph
from tenax.model.settings import Settings
from tenax.model.tasks import Task
from tenax.planning.rates import Rows
from tenax_lab.tentative_quality_queries import Query

NODES = 3
STANDBY = 1  # holds the replicas; the other nodes hold all primaries, and are killed
KILL_AT = 4  # batches finished: windows are full by then
CHECKPOINT_EVERY = 2  # batches, and a pass has no more: so it is known between which of them the failure comes
MAX_ROWS = 1 << 30  # a batch is a span of time, however many rows it has
RETURN_S = 600.0  # nodes return at the latest then; until then they do not return by themselves


class WrongResults(AssertionError):
    """Final results after a failure are not those of a run without one, so their tentative ones prove nothing."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What a failure did to results.

    - `accuracy` is per window that lies wholly after the failure: the part of its final rows that was shown before
      nodes returned.
    - `quality` is per batch after the failure: what the run itself stated.
    - `killed_after` is the last batch that was accurate; `final` results were judged, `corrected` tentative first.
    """

    accuracy: tuple[float, ...]
    quality: tuple[float, ...]
    killed_after: int
    final: int
    corrected: int


class RowCounter(Observer):
    """Counts the rows of every task, as an observer of a run."""

    def __init__(self, tasks: int) -> None:
        self.taken: Floats = np.zeros(tasks)
        self.given: Floats = np.zeros(tasks)

    def passed(self, first: int, last: int, reports: list[Report], seconds: float) -> None:  # noqa: ARG002
        """A live pass has finished."""
        for one in reports:
            self.taken[one.task] += one.rows_in
            self.given[one.task] += one.rows_out


class Shown(Observer):
    """Keeps what a run shows while tasks are missing, as an observer of it: files, and the quality that it states.

    - That is all tentative results, whose files final ones will remove, and final results of outputs that do not depend
      on missing tasks: those that come before a node returns.
    - Publications follow each other and an event is handled before the next one begins, so none is missed.
    """

    def __init__(self, results: ParquetSink, output: str, kept: Path) -> None:
        self._folders = {False: results.folder, True: results.tentative}
        self._output = output
        self._kept = kept
        self._asked: dict[tuple[PassId, bool], Publish] = {}
        self._lost = self._returned = False
        self._quality: dict[tuple[int, int], float] = {}
        kept.mkdir(parents=True)

    def handled(self, coordinator: Coordinator, event: events.Event, then: Sequence[Decided]) -> None:  # noqa: ARG002
        """Take in what happened, and what will."""
        self.learn(event, then)

    def learn(self, event: events.Event, then: Sequence[Decided]) -> None:
        """Keep what was published, if it counts."""
        match event:
            case events.NodesLost():
                self._lost = True
            case events.NodesJoined():
                self._returned = self._lost
            case events.Published() if event.tentative or not self._returned:
                self._keep(event)
            case _:
                pass
        asked = (one for one in then if isinstance(one, Publish))
        self._asked |= {(one.pass_id, one.tentative): one for one in asked}

    def _keep(self, event: events.Published) -> None:
        for path in self._folders[event.tentative].glob("*.parquet"):
            if not (self._kept / path.name).exists():
                os.link(path, self._kept / path.name)
        for part in self._asked[event.pass_id, event.tentative].parts:
            if part.task.operator == self._output:
                for batch in range(part.first, part.last + 1):
                    self._quality[batch, part.task.index] = part.quality

    def rows(self) -> pl.DataFrame:
        """All rows that were shown."""
        frames = [pl.read_parquet(path, use_pyarrow=True) for path in sorted(self._kept.glob("*.parquet"))]
        return pl.concat(frames) if frames else pl.DataFrame()

    def quality(self, batches: range, partitions: int) -> list[float]:
        """The mean stated quality over the partitions of each batch; one that showed nothing counts as 0."""
        return [
            sum(self._quality.get((batch, one), 0.0) for one in range(partitions)) / partitions for batch in batches
        ]


def count_rows(session: Session, application: Application, folder: Path) -> Rows:
    """Run an application without failures, and count the rows of its tasks."""
    counter = RowCounter(len(TaskGraph(application.topology)))
    settings = Settings.of(nodes=NODES, batch="0s", max_rows=MAX_ROWS)
    driver = Driver(with_results_in(application, folder / "results"), folder / "store", settings, counter, session)
    _finish(driver.run().outcome)
    return Rows(tuple(counter.taken.tolist()), tuple(counter.given.tolist()))


def run_trial(
    session: Session, query: Query, application: Application, replicas: tuple[Task, ...], folder: Path, batches: int
) -> Trial:
    """Kill every node with a primary; when all batches are through, let nodes return, and judge final results."""
    results = ParquetSink(folder / "results" / query.output)
    shown = Shown(results, query.output, folder / "kept")
    recorder = Recorder(also=(shown,))
    settings = Settings.of(
        nodes=NODES,
        batch="0s",
        max_rows=MAX_ROWS,
        checkpoint_every=CHECKPOINT_EVERY,
        replicas=tuple(map(str, replicas)),
        standby_nodes=STANDBY,
        standby_slots=-(-len(replicas) // STANDBY),  # so there is no room for anybody else until nodes return
        keep_batches=True,
    )
    driver = Driver(with_results_in(application, folder / "results"), folder / "store", settings, recorder, session)
    every_task = "+".join(str(task) for task in driver.graph.tasks(range(len(driver.graph))))
    schedule = (
        Fault(Kind.KILL, every_task, When(KILL_AT, Unit.BATCHES)),
        Fault(Kind.RETURN, ALL, When(batches, Unit.BATCHES)),
        Fault(Kind.RETURN, ALL, When(RETURN_S, Unit.SECONDS)),
    )
    _finish(Injector(session, NODES, schedule, recorder).run(driver).outcome)
    verdict = judge(application, folder / "store", folder / "results", session, NODES)
    if not verdict.held:
        raise WrongResults(f"final results are those of a run without failures, found {verdict}")
    killed_after = accurate_until(recorder.moments)
    until = min(batches, missing_until(recorder.moments))
    accuracy = window_accuracies(
        read_committed(results.folder),
        shown.rows(),
        query.identity,
        (START_US + killed_after * query.batch_us, START_US + until * query.batch_us),
    )
    partitions = application.topology.operator(query.output).parallelism
    quality = shown.quality(range(killed_after + 1, until + 1), partitions)
    return Trial(tuple(accuracy), tuple(quality), killed_after, verdict.final, verdict.corrected)


def _finish(outcome: Outcome) -> None:
    if outcome is not Outcome.FINISHED:
        raise ClusterFailed(f"a measured run finishes, found {outcome}: see the events in its store")


def accurate_until(moments: Sequence[Moment]) -> int:
    """The last batch that was finished when the last of the killed nodes was known to be gone."""
    lost = max(position for position, one in enumerate(moments) if one.what is What.LOST)
    return finished_through(moments[:lost])


def missing_until(moments: Sequence[Moment]) -> int:
    """The last batch that was finished before a node returned."""
    joined = next(position for position, one in enumerate(moments) if one.what is What.JOINED)
    return finished_through(moments[:joined])


def window_accuracies(
    final: pl.DataFrame, shown: pl.DataFrame, identity: Sequence[str], between_us: tuple[int, int]
) -> list[float]:
    """For every window between two times, in order, the part of its final rows that was shown before."""
    names = ["window_end", *identity]
    since, until = (pl.lit(one).cast(pl.Datetime("us")) for one in between_us)
    wanted = final.filter(pl.col("window_start") >= since, pl.col("window_end") <= until).select(names).unique()
    if shown.is_empty():
        return [0.0] * wanted["window_end"].n_unique()
    marked = shown.select(names).unique().with_columns(shown=pl.lit(1.0))
    parts = wanted.join(marked, on=names, how="left").group_by("window_end").agg(pl.col("shown").fill_null(0.0).mean())
    return parts.sort("window_end")["shown"].to_list()
