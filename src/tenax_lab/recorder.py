"""The one observer of all experiments: what happens in a run, as rows of observations on one clock."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from tenax.application.application import Application
from tenax.chaos.oracle import Verdict
from tenax.chaos.record import Recorder
from tenax.chaos.runs import RESULTS
from tenax.connectors.parquet import ParquetSink
from tenax.control import events, instructions, notices
from tenax.control.coordinator import Coordinator
from tenax.engine.costs import Costs
from tenax.engine.queries import Interval
from tenax.engine.worker.orders import Report
from tenax.model.graph import TaskGraph
from tenax.model.tasks import Task
from tenax.model.topology_versions import TopologyVersion, moved_groups
from tenax.store.checkpoints import RETAINED
from tenax_lab.lab import WHAT, Row

if TYPE_CHECKING:
    from tenax.engine.driver import Driver


class Kind(StrEnum):
    """What a row of a run tells of; beside it, its columns (`at_s` is in all: seconds since the run began)."""

    PASS = "pass"
    """A live pass: `first`, `last`, `seconds`, `steps_s` and `cpu_s` inside steps, `messages`, `sent_bytes`,
    `retained_bytes`, the `rows` that its sources read, the `state_bytes` of its tasks, each counted once, and the
    `read_bytes` of states that came from the store."""
    TASK = "task"
    """A task in a live pass: `task`, `first`, `last`, `seconds`, `rows_in`, `rows_out`."""
    CHECKPOINT = "checkpoint"
    """`number`, `batch`, `tasks`, `state_bytes`, `queue_bytes`, `seconds` from its order to its commit by the clock of
    the driver, `writing_s` as the engine counts it, `cpu_s`."""
    FINAL = "final"
    """All results up to `last` are final."""
    SHOWN = "shown"
    """A task of an output published: `output`, `partition`, `first`, `last`, `tentative`, `quality`."""
    LOST = "lost"
    """Nodes are known to be gone: `nodes`."""
    JOINED = "joined"
    """Nodes have come: `nodes`."""
    BACK = "back"
    """A lost task is where the run was when nodes were lost: `task`, `seconds` since that was known."""
    ROUND = "round"
    """A round of recovery: `number`, `first`, `last`, `seconds`."""
    STEP = "step"
    """A task that a round stepped: `number`, `task`, `node`, `seconds` inside its steps."""
    READ = "read"
    """Retained outputs that a round read: `number`, `task`."""
    QUERY = "query"
    """A query in an interval: `output`, `partition`, `phase` (as `engine/queries.py` has it), `since_loss_s` while that
    lasts, `relative` latency of its final results and `relative_shown` of all, `usual_s`."""
    SWITCHED = "switched"
    """The run has gone over to another version of its topology: `number`, `after` which batch, `tasks` in all, and
    how many key `groups` have another owner, of the operator of which most have."""
    JUDGED = "judged"
    """A period of an elastic run has ended: `outcome`, the `reason`, and of its numbers `pass_s` and `backlog`."""
    NODES = "nodes"
    """How many `nodes` the run has from now on."""


class RunRecorder(Recorder):
    """Watches a run: moments as chaos has them, and rows by kind.

    - `rows` are in the order in which things happened; `of(kind)` are those of a kind as a frame.
    - `costs` are what the engine counts; `lost` are the tasks that were lost, sources left out, and `replayed` how many
      batches they were behind.
    - `queries` is what was known of all queries at last.
    - Where the run goes over to another version of its topology, `graph` and the numbers of tasks are those of that.
    - `after_pass` and `after_publication` are called with the last batch, `after_event` with what happened.
    """

    def __init__(self, graph: TaskGraph, *, by_task: bool = False) -> None:
        self.began_s = time.time()
        super().__init__()
        self.graph = graph
        self.driver: Driver | None = None
        self.folder = Path()
        self.rows: list[Row] = []
        self.costs = Costs()
        self.queries: Interval | None = None
        self.lost: list[int] = []
        self.replayed = 0
        self.exact: bool | None = None
        self.verdict: Verdict | None = None
        self.after_pass: list[Callable[[int], None]] = []
        self.after_publication: list[Callable[[int], None]] = []
        self.after_event: list[Callable[[events.Event], None]] = []
        self._by_task = by_task
        self._is_source = [graph.operators[number].is_source for number in graph.operator_of]
        self._ordered: dict[int, tuple[float, int]] = {}
        self._asked: dict[tuple[str, bool], instructions.Publish] = {}
        self._rounds: dict[str, tuple[float, instructions.RunPass]] = {}
        self._version: TopologyVersion | None = None
        self._nodes = 0
        self._known_parts: dict[Task, set[str]] = {}
        self._homes: Mapping[int, str] = {}
        self._back: set[int] = set()
        self._followed: Sequence[int] = ()
        self._lost_s = 0.0
        self._finished_at_loss = 0

    def results(self, output: str) -> Path:
        """Where the results of an output are."""
        return self.folder / RESULTS / output

    def of(self, kind: Kind) -> pl.DataFrame:
        """The rows of a kind."""
        return pl.DataFrame([row for row in self.rows if row[WHAT] == kind], infer_schema_length=None)

    @property
    def back_s(self) -> float | None:
        """From when a loss was known until all lost tasks were where the run was then; None if that never happened."""
        seconds = {row["task"]: row["seconds"] for row in self.rows if row[WHAT] == Kind.BACK}
        if not self.lost or set(self.lost) - set(seconds):
            return None
        return max(float(each) for each in seconds.values() if isinstance(each, float))

    def add(self, kind: Kind, **columns: str | int | float | bool | None) -> None:
        """One more row."""
        self.rows.append({WHAT: kind.value, "at_s": self.now_s, **columns})

    def begun(self, application: Application, version: TopologyVersion) -> None:
        """The run begins, or goes over to another version: what follows is of its tasks."""
        super().begun(application, version)
        before, self._version = self._version, version
        if before is None:
            return
        self.graph = graph = TaskGraph(application.topology)
        self._is_source = [graph.operators[number].is_source for number in graph.operator_of]
        self._homes, self._followed = {}, ()  # all that was lost is back, or there would be no switch
        tables = ((before.tables[name], table) for name, table in version.tables.items() if name in before.tables)
        self.add(
            Kind.SWITCHED,
            number=version.number,
            after=version.after,
            tasks=len(graph),
            groups=max((moved_groups(*pair) for pair in tables), default=0),
        )

    def passed(self, first: int, last: int, reports: list[Report], seconds: float) -> None:
        """A live pass has finished; the next one begins when this returns."""
        super().passed(first, last, reports, seconds)
        self.costs.passed(reports)
        self.add(
            Kind.PASS,
            first=first,
            last=last,
            seconds=seconds,
            steps_s=sum(report.seconds for report in reports),
            cpu_s=sum(report.cpu_s for report in reports),
            messages=sum(report.sent.messages for report in reports),
            sent_bytes=sum(report.sent.bytes for report in reports),
            retained_bytes=sum(report.retained_bytes for report in reports),
            rows=sum(report.rows_in for report in reports if self._is_source[report.task]),
            state_bytes=sum({report.task: report.state_bytes for report in reports}.values()),
            read_bytes=sum(report.read_bytes for report in reports),
        )
        for report in reports if self._by_task else ():
            self.add(
                Kind.TASK,
                task=report.task,
                first=first,
                last=last,
                seconds=report.seconds,
                rows_in=report.rows_in,
                rows_out=report.rows_out,
            )
        for call in self.after_pass:
            call(last)

    def published(self, last: int, latencies_s: list[float]) -> None:
        """All results up to a batch are final."""
        super().published(last, latencies_s)
        self.add(Kind.FINAL, last=last)
        for call in self.after_publication:
            call(last)

    def queried(self, interval: Interval) -> None:
        """An interval has ended, or nodes were lost."""
        super().queried(interval)
        seen_s = self.now_s
        self.queries = interval
        for query in interval.queries:
            self.add(
                Kind.QUERY,
                at_s=seen_s,
                output=query.task.operator,
                partition=query.task.index,
                phase=interval.phase.value,
                since_loss_s=interval.since_loss_s,
                relative=query.relative,
                relative_shown=query.relative_shown,
                usual_s=query.usual_s,
            )

    def handled(self, coordinator: Coordinator, event: events.Event, then: Sequence[instructions.Decided]) -> None:
        """The coordinator has handled an event."""
        super().handled(coordinator, event, then)
        self.costs.handled(event)
        self._take(coordinator, event)
        self._follow_losses(coordinator)
        for instruction in then:
            match instruction:
                case instructions.StoreCheckpoint():
                    tasks = sum(not self._is_source[self.graph.number(each.task)] for each in instruction.versions)
                    self._ordered[instruction.cut.number] = (self.now_s, tasks)
                case instructions.Publish():
                    self._asked[str(instruction.pass_id), instruction.tentative] = instruction
                case instructions.RunPass() if instruction.kind is instructions.PassKind.ROUND:
                    self._rounds[str(instruction.pass_id)] = (self.now_s, instruction)
                case notices.LoadJudged(outcome=outcome, numbers=numbers):
                    seen = {name: numbers.get(name) for name in ("pass_s", "backlog")}
                    self.add(Kind.JUDGED, outcome=outcome, reason=instruction.reason, **seen)
        for call in self.after_event:
            call(event)

        if coordinator.state.nodes and len(coordinator.state.nodes) != self._nodes:
            self._nodes = len(coordinator.state.nodes)
            self.add(Kind.NODES, nodes=self._nodes)

    def _take(self, coordinator: Coordinator, event: events.Event) -> None:
        match event:
            case events.CheckpointStored():
                ordered_s, tasks = self._ordered.pop(event.number, (self.now_s, 0))
                queued = self._new_queue_bytes()
                self.add(
                    Kind.CHECKPOINT,
                    number=event.number,
                    batch=coordinator.state.finished,
                    tasks=tasks,
                    state_bytes=event.written_bytes - queued,
                    queue_bytes=queued,
                    seconds=self.now_s - ordered_s,
                    writing_s=event.seconds,
                    cpu_s=event.cpu_s,
                )
            case events.Published():
                asked = self._asked.pop((str(event.pass_id), event.tentative), None)
                seen_s = self.now_s  # the parts of a publication are there together
                for part in asked.parts if asked is not None else ():
                    self.add(
                        Kind.SHOWN,
                        at_s=seen_s,
                        output=part.task.operator,
                        partition=part.task.index,
                        first=part.first,
                        last=part.last,
                        tentative=event.tentative,
                        quality=float(part.quality),
                    )
            case events.NodesLost():
                self._take_loss(coordinator, set(event.nodes))
            case events.NodesJoined():
                self.add(Kind.JOINED, nodes=len(event.nodes))
            case events.PassFinished() if str(event.pass_id) in self._rounds:
                self._take_round(event)
            case _:
                pass

    def _take_loss(self, coordinator: Coordinator, gone: set[str]) -> None:
        """Nodes that die together may be missed one after the other."""
        state = coordinator.state
        self._finished_at_loss = self._finished_at_loss if self._followed else state.finished
        lost = {task for task, node in self._homes.items() if node in gone and not self._is_source[task]}
        self.lost = sorted(lost | set(self._followed))
        self._followed = self.lost
        lowest = min((state.tasks[task].head.batch for task in self.lost), default=self._finished_at_loss)
        self.replayed = max(self.replayed, self._finished_at_loss - lowest)
        self._lost_s = self.now_s
        self._back.clear()
        self.rows = [row for row in self.rows if row[WHAT] != Kind.BACK]
        self.add(Kind.LOST, nodes=len(gone))

    def _follow_losses(self, coordinator: Coordinator) -> None:
        tasks = coordinator.state.tasks
        for task in self._followed:
            is_back = tasks[task].primary is not None and tasks[task].head.batch >= self._finished_at_loss
            if is_back and task not in self._back:
                self._back.add(task)
                self.add(Kind.BACK, task=task, seconds=self.now_s - self._lost_s)
        self._homes = {task: copies.primary.node for task, copies in enumerate(tasks) if copies.primary is not None}

    def _take_round(self, event: events.PassFinished) -> None:
        begun_s, instruction = self._rounds.pop(str(event.pass_id))
        number = sum(row[WHAT] == Kind.ROUND for row in self.rows)
        names = sorted({report.node for report in event.reports})
        seconds = self.now_s - begun_s
        self.add(Kind.ROUND, number=number, first=instruction.first, last=instruction.last, seconds=seconds)
        for report in event.reports:
            task = self.graph.number(report.version.task)
            self.add(Kind.STEP, number=number, task=task, node=names.index(report.node), seconds=report.busy_s)
        for reading in instruction.readings:
            self.add(Kind.READ, number=number, task=self.graph.number(reading.task))

    def _new_queue_bytes(self) -> int:
        """The bytes of queues that the checkpoint before this one did not list."""
        assert self.driver is not None
        listed = self.driver.ordering.newest
        new = (
            part
            for task, parts in listed.items()
            for part in parts
            if part.segment not in self._known_parts.get(task, ())
        )
        queued = sum(part.bytes for part in new if part.segment.startswith(RETAINED))
        self._known_parts = {task: {part.segment for part in parts} for task, parts in listed.items()}
        return queued


class ShownFiles:
    """Keeps the files of results that readers saw while tasks were missing, which final results will remove.

    - That is all tentative results, and final ones that come before a node returns, if `final` asks for them.
    - Publications follow each other and an event is handled before the next one begins, so none is missed.
    """

    def __init__(self, recorder: RunRecorder, results: ParquetSink, kept: Path, *, final: bool = False) -> None:
        self.results = results
        self._folders = {False: results.folder, True: results.tentative}
        self._kept = kept
        self._final = final
        self._lost = self._returned = False
        kept.mkdir(parents=True)
        recorder.after_event.append(self.learn)

    def learn(self, event: events.Event) -> None:
        """Keep what was published, if it counts."""
        match event:
            case events.NodesLost():
                self._lost = True
            case events.NodesJoined():
                self._returned = self._lost
            case events.Published() if event.tentative or (self._final and not self._returned):
                for path in self._folders[event.tentative].glob("*.parquet"):
                    if not (self._kept / path.name).exists():
                        os.link(path, self._kept / path.name)
            case _:
                pass

    def rows(self) -> pl.DataFrame:
        """All rows that were shown."""
        frames = [pl.read_parquet(path, use_pyarrow=True) for path in sorted(self._kept.glob("*.parquet"))]
        return pl.concat(frames) if frames else pl.DataFrame()
