"""The driver: carries out the coordinator's instructions on Spark and the store, and reports what happened."""

from __future__ import annotations

import itertools
import math
import queue
import shutil
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from tenax.application.application import Application, check_rebuilt
from tenax.application.rehearsal import has_batches, rehearse
from tenax.application.traces import trace_of, with_sources
from tenax.control import events, instructions
from tenax.control.coordinator import Coordinator
from tenax.control.notices import Notice
from tenax.control.records import plain
from tenax.control.recovery.failures import DeadlinePassed
from tenax.control.state import Strategy
from tenax.control.versions import RebuildPoint, Version
from tenax.engine.driver.answers import failed, one_line, pass_failure
from tenax.engine.driver.latecomers import Latecomers
from tenax.engine.driver.nodes import Nodes, Roles
from tenax.engine.driver.passes import BACKGROUND, LIVE, Outcome, PassRunner, Uploaded, group_of
from tenax.engine.driver.proofs import Proofs
from tenax.engine.driver.resuming import take_over
from tenax.engine.driver.storage_waits import StorageWaits
from tenax.engine.driver.uploads import Uploads
from tenax.engine.masters import check_master
from tenax.engine.observer import Observer
from tenax.engine.scratch import sweep
from tenax.engine.session import LOG, SCRATCH, SPARK_HOME, NodeInfo, Session
from tenax.engine.settings import RunSettings
from tenax.engine.shipping import check_shippable, pack
from tenax.engine.worker.orders import NODE, Failure, Order, Places, Report, Shipped, UploadOrder
from tenax.errors import EpochLost, StartStopped, StoreFailed
from tenax.model.cluster import Node
from tenax.model.graph import TaskGraph
from tenax.store import cuts
from tenax.store.checkpoints import Checkpoint
from tenax.takeover.changes import NOTED

NODES = "nodes"  # in the folder of a run: where nodes keep states
POLL_S = 0.05
LOOK_EVERY_S = 0.1  # at the nodes
CHECK_EVERY_S = 0.5  # whether the store is still ours
THREADS = 8  # a live pass, a round, a checkpoint, a publication, logging, new nodes, and some to spare
MAX_MEETINGS = 100  # at the start, should nodes die while they say their names


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
        check_rebuilt(application, settings.control.strategy, settings.strategies)
        if session is None and settings.master is not None:
            check_master(settings.master)
        if not settings.replay:
            for note in rehearse(application, resumed=has_batches(folder)):
                observer.said(note)
        self._session = session
        self.settings = settings
        self.observer = observer
        self.graph = TaskGraph(application.topology)
        taken = take_over(application, self.graph, folder.resolve(), settings, observer)
        self.store, self.publisher, self.planner = taken.store, taken.publisher, taken.planner
        self.ordering, self.checkpoint = taken.ordering, taken.checkpoint
        self.application = application = taken.application
        self.run_id = taken.run_id
        self.latecomers = Latecomers(application, self.graph)
        self._events: queue.SimpleQueue[events.Event] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._stop_asked = False
        self._look_s = self._check_s = 0.0
        self._began_s = time.monotonic()
        self._uploads = Uploads()
        self._suspends = Strategy.SYNCHRONOUS in {settings.control.strategy, *settings.strategies.values()}
        self._looking = threading.Lock()
        self._checkpoint_job = self._trace = ""
        self._jobs = itertools.count(1)
        self._reported = self.publisher.final
        self._waits = StorageWaits(observer.said, settings.control.storage_patience_s)

    def run(self) -> instructions.Stop:
        """Run until the coordinator says stop."""
        work = self._work_folder()
        stop: instructions.Stop | None = None
        try:
            session = self._session or self._own_session(work)
            try:
                stop = self._run_on(session, work)
            finally:
                if self._session is None:
                    session.stop()
        except StartStopped as stopped:
            stop = instructions.Stop(instructions.Outcome.STOPPED, str(stopped), resumable=True)
        finally:
            self.store.close()
            self.publisher.close()
            self.planner.close()
            _tidy(work, keep_logs=stop is None or stop.outcome is instructions.Outcome.FAILED)
        return stop

    def request_stop(self) -> None:
        """Ask for an end in good order: the running batches finish and a last checkpoint is stored.

        May be called by the handler of a signal, at any moment: that queue takes no lock which its reader may hold.
        """
        self._stop_asked = True
        self._events.put(events.StopRequested("asked to"))

    def _own_session(self, work: Path) -> Session:
        given = self.settings
        return Session(work, given.nodes, given.master, heartbeat=given.heartbeat, stop_asked=lambda: self._stop_asked)

    def _run_on(self, session: Session, work: Path) -> instructions.Stop:
        session.scratch.also.append(work / NODES)  # goes with it, should this process be ended at once
        self._spark = session
        pool = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="tenax")
        try:
            shipped = Shipped(self.application, Places(work / NODES, self.store.folder))
            self.broadcast = session.context.broadcast(pack(shipped))
            self.runner = PassRunner(session.context, self.broadcast)
            self.proofs = Proofs(self.runner.ask, session.heartbeat)
            given = self.settings
            roles = Roles(given.racks, given.slots, given.standby_nodes, given.standby_slots)
            self.nodes = Nodes(session, self.runner, work / NODES, roles)
            coordinator = Coordinator(
                self.graph,
                self.settings.control,
                self.settings.retain,
                self.settings.replicas,
                self.publisher.published,
                strategies=self.settings.strategies,
                active_active=self.settings.active_active,
            )
            return self._loop(coordinator, pool)
        finally:
            self._stopping.set()
            pool.shutdown(wait=True, cancel_futures=True)  # nothing may write to what is closed next
            session.scratch.also.remove(work / NODES)

    def _work_folder(self) -> Path:
        """Where nodes keep states while this driver runs; what earlier drivers left is of no use to anybody."""
        runs = self.store.folder / "run"
        for link in runs.glob(f"*/{SCRATCH}"):
            sweep(link.readlink())
        for old in runs.glob("*"):
            shutil.rmtree(old, ignore_errors=True)
        work = runs / f"{self.store.epoch:08d}"
        (work / NODES).mkdir(parents=True)  # no node makes it: it may be away for a moment
        return work

    def _loop(self, coordinator: Coordinator, pool: ThreadPoolExecutor) -> instructions.Stop:
        started = pool.submit(self._started)
        while not (started.done() or self._stop_asked):  # asking nodes for their names has a deadline
            wait([started], POLL_S)
        if started.done():
            self._events.put(started.result())
        else:  # what is asked for comes first, and before the start it is the end
            self._look_s = math.inf
            self.runner.cancel_meeting()
        while True:
            event = self._next_event(pool)
            if event is None:
                continue
            self.store.record_event({"event": plain(event)})
            decided = coordinator.handle(event)
            self.observer.handled(coordinator, event, decided)
            self._waits.handled(event, decided)
            for each in decided:
                if isinstance(each, Notice):
                    self.store.record_event({"notice": plain(each)})
                    continue
                self.store.record_event({"instruction": plain(each)})
                if isinstance(each, instructions.Stop):
                    return each
                pool.submit(self._carry_out, each)

    def _next_event(self, pool: ThreadPoolExecutor) -> events.Event | None:
        """What was reported; now and then, whether the nodes still live and the store is still ours."""
        now = time.monotonic()
        if now > self._look_s:
            self._look_s = now + LOOK_EVERY_S
            self._look(pool)
        if now > self._check_s:
            self._check_s = now + CHECK_EVERY_S
            self._waits.look()
            try:
                self.store.check_epoch()
            except EpochLost:
                return events.EpochLost(self.store.epoch + 1)
            except StoreFailed:
                pass  # it is away: whatever needs it waits and says so
        try:
            return self._events.get(timeout=POLL_S)
        except queue.Empty:
            return None

    def _look(self, pool: ThreadPoolExecutor | None = None) -> None:
        """Report nodes that are gone, and meet those that are new."""
        with self._looking:  # whoever asks meanwhile reports what failed after this is reported
            gone = self.nodes.lost()
            if gone:
                self._events.put(events.NodesLost(gone))
        if pool is None:
            return
        hung = self.proofs.hung(self.nodes.live)
        if hung:
            self._give_up(hung, "its Python workers do not answer")
            self._events.put(events.NodesLost(hung))
        new = self.nodes.strangers()
        if new:
            pool.submit(self._meet, new)

    def _give_up(self, names: Iterable[str], cause: str) -> None:
        """Let nodes be lost whose executors live, and end these with all that hangs below them."""
        for name in names:
            info = self.nodes.give_up(name)
            if info is not None:
                self.observer.said(f"node {name} is given up: {cause}")
                threading.Thread(target=self._end_node, args=[info.executor], daemon=True).start()

    def _end_node(self, executor: str) -> None:
        """End an executor; its cluster may take its time to answer, and the run does not wait for that."""
        try:
            self._spark.end_node(executor)
        except Exception as error:
            self.observer.said(f"executor {executor} was given up and could not be ended: {one_line(error)}")

    def _meet(self, new: tuple[NodeInfo, ...]) -> None:
        try:
            met = self.nodes.introduce(new)
            if met:
                self._events.put(events.NodesJoined(met))
        except Exception as error:
            # it may have died before it said its name; if not, it is asked again
            self.observer.said(f"a new node did not say its name: {one_line(error)}")
            self.nodes.forget(new)

    def _carry_out(self, instruction: instructions.Instruction) -> None:
        """Do it, and report; a store that belongs to a newer driver ends this one."""
        pause_s = getattr(instruction, "pause_s", 0.0)
        if pause_s and self._stopping.wait(pause_s):
            return
        self._waits.begun(instruction)
        try:
            answer = self._done(instruction)
        except EpochLost:
            answer = events.EpochLost(self.store.epoch + 1)
        except Exception as error:
            self._look()  # what failed may have failed because a node is gone: that is to be known first
            answer = failed(instruction, error)
            self._tell_trace(error)
        finally:
            self._waits.ended(instruction)
        if answer is not None:
            self._events.put(answer)

    def _tell_trace(self, error: Exception) -> None:
        """Show where code of the user's raised that runs in the driver, such as a sink's function."""
        trace = with_sources(trace_of(error))
        if trace and trace != self._trace:
            self._trace = trace
            self.store.record_event({"trace": trace})
            self.observer.said(trace)

    def _done(self, instruction: instructions.Instruction) -> events.Event | None:
        match instruction:
            case instructions.LogBatches() if self.settings.replay:
                return events.BatchesLogged(instruction.first, instruction.first - 1, ended=True)
            case instructions.LogBatches():
                return self.planner.log(instruction.first, instruction.count, self._stopping)
            case instructions.RunPass():
                return self._pass(instruction)
            case instructions.Publish():
                return self._publish(instruction)
            case instructions.StoreCheckpoint():
                return self._checkpoint(instruction)
            case instructions.PlanReplicas():
                return self._plan(instruction)
            case instructions.Trim():
                self.ordering.trim(instruction)
                self.store.trim(batches=not self.settings.keep_batches)
                self.planner.forget_before(instruction.source_log_before, release=not self.settings.keep_batches)
            case instructions.CancelPass():
                self.runner.cancel(self._group(str(instruction.pass_id)))
            case instructions.CancelCheckpoint():
                self._uploads.cancel()
                self.runner.cancel(self._checkpoint_job)
            case instructions.Wake():
                if not self._stopping.wait(instruction.after_s):
                    return events.Woken(instruction.outage)
            case instructions.RequestNodes():
                pass  # Spark gives what it has by itself
        return None

    def _pass(self, instruction: instructions.RunPass) -> events.Event:
        started = time.perf_counter()
        order = self.ordering.order(instruction, self.publisher.published)
        with self._bounded(
            self._group(str(instruction.pass_id)), order.layout.nodes, instruction.deadline_s
        ) as deadline:
            try:
                outcome = self._run_order(order, live=instruction.kind is instructions.PassKind.LIVE)
            except Exception:
                if deadline.is_set():
                    return events.PassFailed(instruction.pass_id, DeadlinePassed(instruction.deadline_s))
                raise
        if isinstance(outcome, Failure):
            if outcome.kind == NODE:
                self.observer.said(f"node {outcome.task} is given up: {outcome.cause}")
                self.nodes.disown(outcome.task)
            return events.PassFailed(instruction.pass_id, pass_failure(outcome, self.application.places))
        if self.settings.strict_lateness:
            late = self.latecomers.refused(instruction, outcome.reports, self.publisher.final)
            if late is not None:
                return events.PassFailed(instruction.pass_id, late)
        for message in self.latecomers.add(instruction, outcome.reports):
            self.observer.said(message)
        self.ordering.learn(instruction, outcome.reports)
        self.publisher.keep(instruction.pass_id, outcome.reports)
        asked = {(step.task, step.node) for step in instruction.steps}
        reports = [
            (self._report(instruction, order.layout.nodes[report.node], report), report) for report in outcome.reports
        ]
        reports = [(report, one) for report, one in reports if (report.version.task, report.node) in asked]
        if instruction.kind is instructions.PassKind.LIVE:
            seconds = time.perf_counter() - started
            self.observer.passed(instruction.first, instruction.last, [report for _, report in reports], seconds)
        at_s = time.monotonic() - self._began_s
        return events.PassFinished(instruction.pass_id, tuple(report for report, _ in reports), at_s)

    @contextmanager
    def _bounded(self, group: str, names: Iterable[str], deadline_s: float) -> Iterator[threading.Event]:
        """While this lasts, a job runs on these nodes; after its deadline it is ended, and those it waits for are lost.

        Gives an event that tells whether the deadline has passed.
        """
        passed = threading.Event()

        def end() -> None:
            passed.set()
            try:
                late = self.runner.at_work(group)
                stuck = tuple(name for name, info in self.nodes.live.items() if name in names and info.executor in late)
                self._give_up(stuck, f"what it was to do did not end within {deadline_s:g} s")
                if stuck:
                    self._events.put(events.NodesLost(stuck, overdue=True))
            finally:
                self.runner.cancel(group)

        timer = threading.Timer(deadline_s, end)
        timer.start()
        try:
            with self.proofs.owed(names):
                yield passed
        finally:
            timer.cancel()

    def _run_order(self, order: Order, *, live: bool) -> Outcome | Failure:
        nodes = self.nodes.info(order.layout.nodes)
        if not live:
            return self.runner.run(order, nodes, BACKGROUND)
        passenger = self._uploads.board(order.layout.nodes)
        outcome: Outcome | Failure | None = None
        try:
            upload = None if passenger is None else passenger.order
            outcome = self.runner.run(replace(order, upload=upload), nodes, LIVE)
        finally:
            self._uploads.alight(passenger, outcome if isinstance(outcome, Outcome) else None)
        return outcome

    def _report(self, instruction: instructions.RunPass, node: str, report: Report) -> events.TaskReport:
        version = Version(self.graph.task(report.task), instruction.last, instruction.pass_id)
        return events.TaskReport(
            version,
            node,
            rows=report.rows_in,
            written_bytes=report.bytes_out,
            watermark_us=report.watermark_us,
            busy_s=report.seconds,
            rows_out=report.rows_out,
            rebuild_from=report.rebuild_from,
        )

    def _publish(self, instruction: instructions.Publish) -> events.Event:
        self.publisher.publish(instruction)
        now, final = time.monotonic(), self.publisher.final
        if final > self._reported:
            known = (self.planner.known_at(one) for one in range(self._reported + 1, final + 1))
            latencies = [now - at_s for at_s in known if at_s is not None]
            self._reported = final
            self.observer.published(final, latencies)
        return events.Published(instruction.pass_id, instruction.tentative)

    def _checkpoint(self, instruction: instructions.StoreCheckpoint) -> events.Event:
        cut, before = instruction.cut, self.ordering.newest
        known = {task: {part.segment: part for part in parts} for task, parts in before.items()}
        outputs = {point.task: cut.outputs_of(number) for number, point in enumerate(cut.points)}
        uploaded = Uploaded({}, 0.0, 0.0)
        if any(
            outputs[version.task] or self.application.has_state(version.task.operator)
            for version in instruction.versions
        ):
            order = UploadOrder(instruction.versions, instruction.nodes, outputs, known)
            uploaded = (None if self._suspends else self._uploads.ride(order)) or self._upload(cut.number, order)
        started, started_cpu, files = time.perf_counter(), time.thread_time(), uploaded.files
        segments = {
            point.task: () if isinstance(point, RebuildPoint) else files.get(point.task, before.get(point.task, ()))
            for point in cut.points
        }
        positions = self.planner.batch(cut.newest_batch).positions
        notes = {**cuts.to_record(cut), **self.ordering.notes(cut), NOTED: len(self.store.changes)}
        checkpoint = Checkpoint(cut.number, self.store.epoch, segments, positions, notes, cut.oldest_batch)
        self.store.commit_checkpoint(checkpoint)
        self.ordering.keep(cut, segments)
        new = (part for task, parts in files.items() for part in parts if part.segment not in known.get(task, {}))
        held = sum(part.bytes for parts in files.values() for part in parts)
        written = sum(part.bytes for part in new)
        seconds = uploaded.seconds + time.perf_counter() - started
        cpu_s = uploaded.cpu_s + time.thread_time() - started_cpu
        return events.CheckpointStored(cut.number, instruction.attempt, written, seconds, held, cpu_s)

    def _plan(self, instruction: instructions.PlanReplicas) -> events.Event:
        assert self.settings.replan is not None, "replicas that are to follow the load have somebody who plans"
        found = self.settings.replan(instruction.rows, instruction.replicas)
        return events.ReplicasPlanned(instruction.batch, found.replicas, found.before, found.after)

    def _upload(self, number: int, order: UploadOrder) -> Uploaded:
        """Store a checkpoint in a job of its own."""
        # one that was cancelled may be asked for again as its first attempt
        self._checkpoint_job = group = self._group(f"checkpoint {number} upload {next(self._jobs)}")
        names = tuple(sorted(set(order.nodes)))
        with self._bounded(group, names, self.settings.control.pass_deadline_s):
            return self.runner.upload(self.run_id, group, order, dict(zip(names, self.nodes.info(names), strict=True)))

    def _group(self, what: str) -> str:
        return group_of(self.run_id, what)

    def _started(self) -> events.Started:
        nodes: tuple[Node, ...] = ()
        for _ in range(MAX_MEETINGS):
            strangers = self.nodes.strangers()
            try:
                nodes = self.nodes.introduce(strangers) if strangers else ()
            except Exception as error:  # a node died or was too slow while it said its name: ask those that live
                self.observer.said(f"nodes are asked again for their names: {one_line(error)}")
                self.nodes.forget(strangers)
            if nodes or self._stop_asked:
                break
            time.sleep(LOOK_EVERY_S)
        return events.Started(
            self.store.epoch, nodes, self.checkpoint, self.planner.logged, dict(self.publisher.published)
        )


def _tidy(work: Path, *, keep_logs: bool) -> None:
    """Leave nothing of a run but what Spark's processes wrote for developers; executors' logs if something failed."""
    for entry in work.iterdir() if work.exists() else ():  # a newer driver may have swept it
        if entry.name == LOG or (keep_logs and entry.name == SPARK_HOME):
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)
    with suppress(OSError):  # it is gone, or a log is there
        work.rmdir()
