"""The driver: carries out the coordinator's instructions on Spark and the store, and reports what happened."""

from __future__ import annotations

import queue
import shutil
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tenax.control import events, instructions
from tenax.control.coordinator import Coordinator
from tenax.control.failures import DeadlinePassed, JobFailed, OperatorRaised, PassFailure, Refused, SourceUnreadable
from tenax.control.records import plain
from tenax.control.state import Settings
from tenax.control.versions import PassId, StoredCheckpoint, Version
from tenax.engine.application import Application
from tenax.engine.batches import BatchPlanner
from tenax.engine.errors import EpochLost
from tenax.engine.layout import Layout, layout
from tenax.engine.passes import PassRunner
from tenax.engine.session import Session
from tenax.engine.shipping import check_shippable, pack
from tenax.engine.sinks.sink import Committer, StagedFile
from tenax.engine.sources.source import Limits
from tenax.engine.store.checkpoints import Checkpoint, ValidCheckpoint
from tenax.engine.store.store import Store
from tenax.engine.worker.orders import Failure, Order, Places, Report, Restored
from tenax.engine.worker.process import Shipped
from tenax.model.cluster import Node
from tenax.model.graph import TaskGraph
from tenax.model.plans import Placement
from tenax.model.tasks import Task

POLL_S = 0.2
LOOK_EVERY_S = 0.5
MAX_ROWS = 100_000
MAX_BATCHES_PER_PASS = 8
MAX_BYTES = 64 * 1024 * 1024


def control_settings(checkpoint_every: int = 10) -> Settings:
    """The coordinator's bounds for a run; a pass never spans more than a checkpoint's interval."""
    per_pass = min(MAX_BATCHES_PER_PASS, checkpoint_every)
    return Settings(checkpoint_every, per_pass, 2 * per_pass + 1, 2 * per_pass + 1)


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How an application runs."""

    nodes: int = 2
    master: str | None = None
    batch_s: float = 1.0
    limits: Limits = field(default_factory=lambda: Limits(MAX_ROWS, MAX_BYTES))
    control: Settings = field(default_factory=control_settings)
    retain: tuple[Task, ...] = ()


class Observer(Protocol):
    """Who watches a run."""

    def passed(self, first: int, last: int, reports: list[Report], seconds: float) -> None:
        """A pass has finished."""

    def told(self, message: str) -> None:
        """Something happened that a user should know."""

    def published(self, last: int, latencies_s: list[float]) -> None:
        """Results up to a batch are committed, each batch so long after its ranges were known."""


class Driver:
    """Runs one application from its store to its end.

    - The coordinator decides; the driver only does. Everything it does is answered by an event, in order.
    - What must survive is in the store before it takes effect: ranges before a pass, a manifest after its segments,
      an entry in the commit log before results count.
    - At any moment it may die; the next driver on the same store goes on.
    """

    def __init__(
        self,
        application: Application,
        folder: Path,
        settings: RunSettings,
        observer: Observer,
        session: Session | None = None,
    ) -> None:
        check_shippable(application)  # before the store is claimed and Spark started
        self.application = application
        self._session = session
        self.settings = settings
        self.observer = observer
        self.graph = TaskGraph(application.topology)
        folder = folder.resolve()  # workers have another working folder
        self.store = Store.open(folder, application.fingerprint())
        self.committers: dict[str, Committer] = {
            name: sink.committer(name, folder, self.store.identity, self.store.epoch)
            for name, sink in application.sinks.items()
        }
        self.restored = self._restored()
        self.planner = BatchPlanner(application, self.store, settings.limits, settings.batch_s)
        self._renew_batches()
        self._events: queue.Queue[events.Event] = queue.Queue()
        self._results: dict[PassId, dict[tuple[str, int], list[StagedFile]]] = {}
        self._stored = dict(self.restored.segments) if self.restored else {}
        self._storing: int | None = None
        self._published = min((one.last_batch for one in self.committers.values()), default=0)
        self._stopping = threading.Event()
        self._look_s = 0.0
        self._retained_before = 0

    def run(self) -> instructions.Stop:
        """Run until the coordinator says stop."""
        folder = self.store.folder
        work = self._work_folder()
        session = self._session or Session(work, self.settings.nodes, self.settings.master)
        pool = ThreadPoolExecutor(max_workers=4, thread_name_prefix="tenax")
        try:
            shipped = Shipped(self.application, Places(work / "nodes", folder), self.restored)
            broadcast = session.context.broadcast(pack(shipped))
            self.runner = PassRunner(session.context, broadcast, session.nodes)
            self.names = self.runner.identify()
            return self._loop(Coordinator(self.graph, self.settings.control, self.settings.retain), pool, session)
        finally:
            self._stopping.set()
            pool.shutdown(wait=True, cancel_futures=True)  # nothing may write to what is closed next
            if self._session is None:
                session.stop()
            self.store.close()
            for committer in self.committers.values():
                committer.close()

    def _work_folder(self) -> Path:
        """Where nodes keep states while this driver runs; what earlier drivers left is of no use to anybody."""
        runs = self.store.folder / "run"
        for old in runs.glob("*"):
            shutil.rmtree(old, ignore_errors=True)
        work = runs / f"{self.store.epoch:08d}"
        work.mkdir(parents=True)
        return work

    def request_stop(self) -> None:
        """Ask for an end in good order: the running batches finish and a last checkpoint is stored."""
        self._events.put(events.StopRequested("asked to"))

    def _loop(self, coordinator: Coordinator, pool: ThreadPoolExecutor, session: Session) -> instructions.Stop:
        self._events.put(self._started())
        while True:
            event = self._next_event(session)
            if event is None:
                continue
            self.store.record_event({"event": plain(event)})
            for instruction in coordinator.handle(event):
                self.store.record_event({"instruction": plain(instruction)})
                if isinstance(instruction, instructions.Stop):
                    return instruction
                pool.submit(self._carry_out, instruction)

    def _next_event(self, session: Session) -> events.Event | None:
        """What was reported; now and then, whether the nodes still live and the store is still ours."""
        now = time.monotonic()
        if now > self._look_s:
            self._look_s = now + LOOK_EVERY_S
            live = {one.executor for one in session.live_nodes()}
            gone = [name for name, node in zip(self.names, session.nodes, strict=True) if node.executor not in live]
            if gone:
                return events.NodesLost(tuple(gone))
            try:
                self.store.check_epoch()
            except EpochLost:
                return events.EpochLost(self.store.epoch + 1)
        try:
            return self._events.get(timeout=POLL_S)
        except queue.Empty:
            return None

    def _carry_out(self, instruction: instructions.Instruction) -> None:
        """Do it, and report; a store that belongs to a newer driver ends this one."""
        try:
            answer = self._done(instruction)
        except EpochLost:
            answer = events.EpochLost(self.store.epoch + 1)
        except Exception as error:
            answer = _failed(instruction, f"{type(error).__name__}: {' '.join(str(error).split())}")
        if answer is not None:
            self._events.put(answer)

    def _done(self, instruction: instructions.Instruction) -> events.Event | None:
        match instruction:
            case instructions.Restore():
                return events.Restored(instruction.batch, instruction.attempt)
            case instructions.LogBatches():
                return self.planner.log(instruction.first, instruction.count, self._stopping)
            case instructions.RunPass():
                return self._pass(instruction)
            case instructions.Publish():
                return self._publish(instruction)
            case instructions.StoreCheckpoint():
                return self._checkpoint(instruction)
            case instructions.Trim():
                self._retained_before = instruction.retained_before
                self.store.trim()
                self.planner.forget_before(instruction.source_log_before)
            case instructions.CancelPass():
                self.runner.cancel(str(instruction.pass_id))
        return None

    def _pass(self, told: instructions.RunPass) -> events.Event:
        started = time.perf_counter()
        batches = [self.planner.batch(number) for number in range(told.first, told.last + 1)]
        order = Order(
            run=f"{self.store.identity}-{self.store.epoch}",
            pass_id=told.pass_id,
            first=told.first,
            last=told.last,
            layout=self._layout(told.placement),
            starts=told.starts,
            ranges={name: tuple(batch.ranges[name] for batch in batches) for name in self.application.sources},
            ended=batches[-1].ended,
            keep=min(told.first - 1, told.first - 1 if self._storing is None else self._storing),
            published=self._published,
            retain=frozenset(self.graph.number(task) for task in told.retain),
            retained_before=self._retained_before,
        )
        overdue = threading.Timer(told.deadline_s, self.runner.cancel, [str(told.pass_id)])
        overdue.start()
        try:
            outcome = self.runner.run(order)
        except Exception:
            if overdue.finished.is_set():
                return events.PassFailed(told.pass_id, DeadlinePassed(told.deadline_s))
            raise
        finally:
            overdue.cancel()
        if isinstance(outcome, Failure):
            return events.PassFailed(told.pass_id, _failure(outcome))
        staged: dict[tuple[str, int], list[StagedFile]] = {}
        for report in outcome:
            for one in report.staged:
                staged.setdefault((one.output, one.file.batch), []).append(one.file)
        self._results[told.pass_id] = staged
        self.observer.passed(told.first, told.last, outcome, time.perf_counter() - started)
        return events.PassFinished(told.pass_id, tuple(self._report(told, report) for report in outcome))

    def _report(self, told: instructions.RunPass, report: Report) -> events.TaskReport:
        version = Version(self.graph.task(report.task), told.last, told.pass_id)
        return events.TaskReport(version, report.rows_in, report.bytes_out, report.watermark_us, report.seconds)

    def _publish(self, told: instructions.Publish) -> events.Event:
        staged = self._results[told.pass_id]
        for batch in range(told.first, told.last + 1):
            for name, committer in self.committers.items():
                committer.commit(batch, staged.get((name, batch), []))
        now = time.monotonic()
        self.observer.published(
            told.last, [now - self.planner.known_at(one) for one in range(told.first, told.last + 1)]
        )
        self._published = told.last
        for done in [one for one in self._results if one < told.pass_id]:
            del self._results[done]
        return events.Published(told.first, told.last)

    def _checkpoint(self, told: instructions.StoreCheckpoint) -> events.Event:
        self._storing = told.batch
        try:
            homes = self._homes
            known = {task: {part.segment: part for part in parts} for task, parts in self._stored.items()}
            run = f"{self.store.identity}-{self.store.epoch}"
            segments = self.runner.upload(run, self.names, homes, told.versions, known)
            notes = {"versions": [str(version) for version in told.versions]}
            positions = self.planner.batch(told.batch).positions
            self.store.commit_checkpoint(Checkpoint(told.batch, self.store.epoch, segments, positions, notes))
            self._stored = segments
        finally:
            self._storing = None
        new = (part for task, parts in segments.items() for part in parts if part.segment not in known.get(task, {}))
        written = sum(part.bytes for part in new)
        return events.CheckpointStored(told.batch, told.attempt, written)

    def _layout(self, placement: Placement) -> Layout:
        number = {name: position for position, name in enumerate(self.names)}
        self._homes = tuple(number[node] for node in placement.primaries.values())
        return layout(self.graph, self.names, self._homes)

    def _started(self) -> events.Started:
        checkpoint = None
        if self.restored is not None:
            checkpoint = StoredCheckpoint(self.restored.batch, self._restored_versions)
        nodes = tuple(Node(name) for name in self.names)
        return events.Started(self.store.epoch, nodes, checkpoint, self.planner.logged, self._published)

    def _renew_batches(self) -> None:
        """Let a file be corrected after it stopped a run: what no result depends on is planned anew."""
        # The logs of all outputs are taken over by now: whatever an older driver still does, it commits nothing more.
        checkpoint = 0 if self.restored is None else self.restored.batch
        committed = max((one.last_batch for one in self.committers.values()), default=0)
        forgotten = self.planner.renew(checkpoint, max(checkpoint, committed))
        if forgotten is not None:
            self.store.record_event({"forgotten": {"from": forgotten.first, "changed": forgotten.what}})
            self.observer.told(f"{forgotten.what} has changed: batches from {forgotten.first} on are planned anew")

    def _restored(self) -> Restored | None:
        found = self.store.newest_valid()
        for damage in found.damage:
            self.store.record_event({"damage": damage})
            self.observer.told(f"a newer checkpoint is damaged and passed over: {damage}")
        if not isinstance(found, ValidCheckpoint):
            return None
        notes = found.checkpoint.notes
        listed = notes["versions"] if isinstance(notes, Mapping) else []
        assert isinstance(listed, list)
        self._restored_versions = tuple(Version.parse(str(text)) for text in listed)
        return Restored(found.checkpoint.batch, found.checkpoint.segments)


def _failure(failure: Failure) -> PassFailure:
    match failure.kind:
        case "source":
            return SourceUnreadable(failure.operator, failure.batch, failure.cause)
        case "chunk":
            return Refused(Task.parse(failure.task), failure.cause)
        case _:
            return OperatorRaised(failure.operator, Task.parse(failure.task), failure.batch, failure.cause)


def _failed(instruction: instructions.Instruction, cause: str) -> events.Event | None:
    """The event that says an instruction could not be carried out."""
    match instruction:
        case instructions.RunPass():
            return events.PassFailed(instruction.pass_id, JobFailed(cause))
        case instructions.Publish():
            return events.PublishFailed(instruction.first, instruction.last, instruction.attempt, cause)
        case instructions.StoreCheckpoint():
            return events.CheckpointFailed(instruction.batch, instruction.attempt, cause)
        case instructions.LogBatches():
            return events.LoggingFailed(instruction.first, instruction.attempt, cause)
        case instructions.Restore():
            return events.RestoreFailed(instruction.batch, instruction.attempt, cause)
    return None
