"""The driver: carries out the coordinator's instructions on Spark and the store, and reports what happened."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from tenax.application.application import Application, check_rebuilt
from tenax.application.handover import with_handover
from tenax.application.rehearsal import has_batches, rehearse
from tenax.application.traces import trace_of, with_sources
from tenax.control import events, instructions
from tenax.control.coordinator import Coordinator
from tenax.control.narrator import Happening, sentence
from tenax.control.notices import Notice, RescalePlanned
from tenax.control.placement.balancing import keeping
from tenax.control.placement.spreading import place_tasks
from tenax.control.records import plain
from tenax.control.run import Place
from tenax.engine.driver.answers import failed
from tenax.engine.driver.checkpoints import Checkpoints
from tenax.engine.driver.jobs import JobRunner, group_of
from tenax.engine.driver.latecomers import Latecomers
from tenax.engine.driver.membership import LOOK_EVERY_S, NOTICED_S, Membership
from tenax.engine.driver.nodes import Nodes
from tenax.engine.driver.ordering import Ordering
from tenax.engine.driver.passes import Passes
from tenax.engine.driver.query_watch import QueryWatch
from tenax.engine.driver.rescales import Rescales
from tenax.engine.driver.resuming import take_over
from tenax.engine.driver.storage_waits import StorageWaits
from tenax.engine.driver.switching import (
    Prepared,
    Switched,
    as_recorded,
    begun,
    changes_anything,
    for_version,
    groups_of,
    homes,
    prepare,
    record,
    started,
    staying,
)
from tenax.engine.driver.uploads import Uploads
from tenax.engine.driver.work_folders import NODES, make_work_folder, tidy
from tenax.engine.masters import check_master
from tenax.engine.observer import Observer
from tenax.engine.protection import Protected, planned
from tenax.engine.session import Session
from tenax.engine.shipping import check_shippable, pack
from tenax.engine.worker.orders import Places, Shipped
from tenax.errors import EpochLost, StartStopped, StoreFailed, TenaxError
from tenax.model.graph import TaskGraph
from tenax.model.protection import Strategy
from tenax.model.settings import Settings
from tenax.model.tasks import Task
from tenax.model.topology_versions import Target

POLL_S = 0.05
CHECK_EVERY_S = 0.5  # whether the store is still ours
THREADS = 8  # a live pass, a round, a checkpoint, a publication, logging, new nodes, and some to spare


class Driver:
    """Runs one application from its store to its end.

    - The coordinator decides; the driver only does. Everything it does is answered by an event, in order.
    - What must survive is in the store before it takes effect: ranges before a pass, a manifest after its segments,
      an entry in the commit log before results count.
    - At any moment it may die; the next driver on the same store goes on.
    - `place` says where tasks begin, for those who measure; without it they are spread.
    """

    def __init__(
        self,
        application: Application,
        folder: Path,
        settings: Settings,
        observer: Observer,
        session: Session | None = None,
        plan: Protected | None = None,
        place: Place | None = None,
    ) -> None:
        settings = with_handover(application, settings)
        check_shippable(application)  # before the store is claimed and Spark started
        check_rebuilt(application, settings.protection)
        if session is None and settings.cluster.master is not None:
            check_master(settings.cluster.master)
        if not settings.start.replay:
            for note in rehearse(application, resumed=has_batches(folder)):
                observer.said(note)
        self._session = session
        self.settings = settings
        self.plan = planned(application.topology, settings.protection) if plan is None else plan
        self._place = place
        self.observer = observer
        self._taken = taken = take_over(application, folder.resolve(), settings, observer)
        self.store, self.publisher, self.planner = taken.store, taken.publisher, taken.planner
        if taken.application.topology != application.topology:
            self.plan = planned(taken.application.topology, settings.protection)
        self.store.record_event({"settings": settings.resolved().to_data()})
        self.latecomers = Latecomers(taken.application, self.graph)
        self._queries = self._watch_queries()
        self._rescales = Rescales(taken.store, observer.said)
        self._events: queue.SimpleQueue[events.Event | Switched] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._stop_asked = False
        self._look_s = self._check_s = 0.0
        self._began_s = time.monotonic()
        self._trace = ""
        self._reported = self.publisher.final
        self._waits = StorageWaits(observer.said, settings.protection.storage_patience_s)

    @property
    def application(self) -> Application:
        """What runs, with the tasks of the version of its topology that the run is in."""
        return self._taken.application

    @property
    def graph(self) -> TaskGraph:
        """The tasks of that version."""
        return self._taken.graph

    @property
    def ordering(self) -> Ordering:
        """What is carried from pass to pass."""
        return self._taken.ordering

    def run(self) -> instructions.Stop:
        """Run until the coordinator says stop."""
        work = make_work_folder(self.store)
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
            tidy(work, keep_logs=stop is None or stop.outcome is instructions.Outcome.FAILED)
        return stop

    def request_stop(self) -> None:
        """Ask for an end in good order: the running batches finish and a last checkpoint is stored.

        May be called by the handler of a signal, at any moment: that queue takes no lock which its reader may hold.
        """
        self._stop_asked = True
        self._events.put(events.StopRequested("asked to"))

    def _own_session(self, work: Path) -> Session:
        cluster = for_version(self.settings, self._taken.version).cluster
        return Session(work, cluster, stop_asked=lambda: self._stop_asked)

    def _run_on(self, session: Session, work: Path) -> instructions.Stop:
        session.scratch.also.append(work / NODES)  # goes with it, should this process be ended at once
        pool = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="tenax")
        afterwards = ExitStack()
        try:
            self._prepare(session, work)
            afterwards.callback(self.nodes.close)
            return self._loop(self._coordinator(), pool)
        finally:
            self._stopping.set()
            pool.shutdown(wait=True, cancel_futures=True)  # nothing may write to what is closed next
            afterwards.close()
            session.scratch.also.remove(work / NODES)

    def _prepare(self, session: Session, work: Path) -> None:
        """Make what carries out instructions on this cluster."""
        self._places = Places(work / NODES, self.store.folder)
        shipped = pack(Shipped(self.application, self._places))
        self._jobs = jobs = JobRunner(session.context, session.context.broadcast(shipped))
        self.nodes = nodes = Nodes(session, jobs, work / NODES, self.settings.cluster)
        self._membership = Membership(session, jobs, nodes, self.observer, self._events.put)
        self._equip()

    def _equip(self) -> None:
        """Make what carries out instructions in the version of the topology that the run is in."""
        given, uploads = self.settings, Uploads()
        self._passes = Passes(
            application=self.application,
            graph=self.graph,
            run=self._taken,
            jobs=self._jobs,
            nodes=self.nodes,
            membership=self._membership,
            uploads=uploads,
            latecomers=self.latecomers,
            observer=self.observer,
            began_s=self._began_s,
            strict_lateness=given.batches.strict_lateness,
        )
        self._checkpoints = Checkpoints(
            self.application,
            self._taken,
            self._jobs,
            self.nodes,
            self._membership,
            uploads,
            deadline_s=given.bounds.pass_deadline_s,
            suspends=Strategy.SYNCHRONOUS in given.protection.all_strategies,
        )
        self.observer.begun(self.application, self._taken.version)

    def _coordinator(self, held: Mapping[Task, tuple[str, float]] | None = None) -> Coordinator:
        """The coordinator of the version that the run is in; tasks stay where they are `held`, as far as can be."""
        plan, settings = self.plan, for_version(self.settings, self._taken.version)
        groups = groups_of(self.application) if settings.elastic.elastic else ()
        published, place = self.publisher.published, self._place
        if held:
            place = keeping(place or partial(place_tasks, retain=frozenset(plan.retain)), held)
        return Coordinator(self.graph, settings, plan.retain, plan.replicas, published, place, groups)

    def _watch_queries(self) -> QueryWatch:
        interval_s = self.settings.batches.batch_s
        return QueryWatch(self.graph, self.planner, self.publisher, self.store, self.observer, interval_s)

    def _loop(self, coordinator: Coordinator, pool: ThreadPoolExecutor) -> instructions.Stop:
        started = pool.submit(self._started)
        while not (started.done() or self._stop_asked):  # asking nodes for their names has a deadline
            wait([started], POLL_S)
        if started.done():
            self._events.put(started.result())
        else:  # what is asked for comes first, and before the start it is the end
            self._look_s = math.inf
            self._jobs.cancel_registration()
        while True:
            event = self._next_event(pool)
            self._queries.look()
            if event is None:
                continue
            if isinstance(event, Switched):
                coordinator, event = self._switched(event, coordinator, pool)
            self._record("event", event)
            decided = coordinator.handle(event)
            self._rescales.handled(event, decided)
            self._queries.handled(coordinator, event)
            self.observer.handled(coordinator, event, decided)
            self._waits.handled(event, decided)
            for each in decided:
                if isinstance(each, Notice):
                    self._record("notice", each)
                    if isinstance(each, RescalePlanned) and self._ready(each.target) is None:
                        pool.submit(self._prepare_version, each.target)  # before anything pauses for it
                    continue
                self._record("instruction", each)
                if isinstance(each, instructions.Stop):
                    self._queries.close()
                    return each
                pool.submit(self._carry_out, each)

    def _switched(
        self, switched: Switched, coordinator: Coordinator, pool: ThreadPoolExecutor
    ) -> tuple[Coordinator, events.Started]:
        """Let the coordinator of the next version take over; nodes that it does not need are given back."""
        before, state = self._taken, coordinator.state
        plan, self.plan = self.plan, switched.prepared.plan
        self._taken = begun(before, switched)
        if self.plan.fidelity < plan.fidelity:
            self.observer.said(
                f"after this rescale outputs keep {self.plan.fidelity:.2f} instead of {plan.fidelity:.2f} if all tasks "
                "without a replica are lost: raise replicas"
            )
        self.store.record_event({"version": as_recorded(before, self._taken)})
        self._jobs.ship(self._jobs.context.broadcast(switched.prepared.packed))
        self.latecomers.graph = self.graph
        self._queries.close()
        self._queries = self._watch_queries()
        self._equip()
        version, pool_size = self._taken.version, self.settings.cluster.pool
        nodes = staying(state.nodes, None if version.nodes is None else version.nodes + pool_size)
        leaving = tuple(node.name for node in state.nodes if node not in nodes)
        if leaving:
            pool.submit(self._membership.release, leaving, len(nodes))
        if state.wrap_up is not None:
            self._events.put(events.StopRequested(state.wrap_up.reason))
        return self._coordinator(homes(state, before.graph)), started(
            coordinator, before, self._taken, switched.order, nodes
        )

    def _record(self, kind: str, happening: Happening) -> None:
        """Write down what happens, with the narrator's words where it has some."""
        text = sentence(happening)
        self.store.record_event({kind: plain(happening)} if text is None else {kind: plain(happening), "text": text})

    def _next_event(self, pool: ThreadPoolExecutor) -> events.Event | Switched | None:
        """What was reported; now and then, whether the nodes still live and the store is still ours."""
        now = time.monotonic()
        if now > self._look_s:
            self._look_s = now + LOOK_EVERY_S
            self._membership.look(pool)
        if now > self._check_s:
            self._check_s = now + CHECK_EVERY_S
            self._waits.look()
            try:
                self.store.check_epoch()
                self._look_for_requests(pool)
            except EpochLost:
                return events.EpochLost(self.store.epoch + 1)
            except StoreFailed:
                pass  # it is away: whatever needs it waits and says so
        try:
            return self._events.get(timeout=POLL_S)
        except queue.Empty:
            return None

    def _look_for_requests(self, pool: ThreadPoolExecutor) -> None:
        """Whether somebody wants other numbers of tasks or nodes; what that needs is made ready beside the run."""
        target = None if self.settings.start.replay else self._rescales.next_request()
        if target is not None:
            pool.submit(self._prepare_version, target, asked=True)

    def _ready(self, target: Target) -> Prepared | None:
        return self._rescales.ready(target, self._taken.version.number)

    def _prepare_version(self, target: Target, *, asked: bool = False) -> None:
        try:
            ready = prepare(self._taken, target, self.settings, self._places)
        except TenaxError as error:
            self._rescales.refused(target, str(error))
            return
        if not changes_anything(self._taken.version, ready.version):
            self._rescales.needless(target)
            return
        self._rescales.prepared(ready)
        if asked:
            self._events.put(events.RescaleAsked(target))

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
            self._membership.report_lost()  # it may have failed because a node is gone: that is to be known first
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
            case instructions.LogBatches() if self.settings.start.replay:
                return events.BatchesLogged(instruction.first, instruction.first - 1, ended=True)
            case instructions.LogBatches():
                logged = self.planner.log(instruction.first, instruction.count, self._stopping, instruction.rows)
                if logged is None:
                    return None
                self._queries.logged(logged)
                return replace(logged, at_s=time.monotonic() - self._began_s)
            case instructions.RunPass():
                return self._passes.carry_out(instruction)
            case instructions.Publish():
                return self._publish(instruction)
            case instructions.StoreCheckpoint():
                return self._checkpoints.carry_out(instruction)
            case instructions.PlanReplicas():
                return self._plan(instruction)
            case instructions.PlanBackups():
                order = instruction
                followed = self.plan.followed(
                    order.measures, order.backups, order.homes, order.covered, detection_s=NOTICED_S
                )
                return events.BackupsPlanned(instruction.batch, followed.backups, followed.promise)
            case instructions.Trim():
                self.ordering.trim(instruction)
                keep = self.settings.batches.keep_batches
                batches_before = 0 if keep else instruction.source_log_before
                self.store.trim(instruction.checkpoints_before, batches_before)
                self.planner.forget_before(instruction.source_log_before, release=not keep)
            case instructions.CancelPass():
                self._jobs.cancel(group_of(self._taken.run_id, str(instruction.pass_id)))
            case instructions.CancelCheckpoint():
                self._checkpoints.cancel()
            case instructions.Wake():
                if not self._stopping.wait(instruction.after_s):
                    return events.Woken(instruction.outage)
            case instructions.RequestNodes():
                self._membership.request(instruction.total)
            case instructions.Rescale():
                ready = self._ready(instruction.target)
                if ready is None:
                    ready = prepare(self._taken, instruction.target, self.settings, self._places)
                self._events.put(record(self._taken, instruction, ready))
        return None

    def _publish(self, instruction: instructions.Publish) -> events.Event:
        self.publisher.publish(instruction)
        self._queries.published(instruction)
        now, final = time.monotonic(), self.publisher.final
        if final > self._reported:
            known = (self.planner.known_at(batch) for batch in range(self._reported + 1, final + 1))
            latencies = [now - at_s for at_s in known if at_s is not None]
            self._reported = final
            self.observer.published(final, latencies)
        return events.Published(instruction.pass_id, instruction.tentative)

    def _plan(self, instruction: instructions.PlanReplicas) -> events.Event:
        better = self.plan.replanned(instruction.rows, instruction.replicas)
        return events.ReplicasPlanned(instruction.batch, better.replicas, better.before, better.after)

    def _started(self) -> events.Started:
        nodes = self._membership.first_nodes(lambda: self._stop_asked)
        taken, logged, published = self._taken, self.planner.logged, dict(self.publisher.published)
        return events.Started(
            *(self.store.epoch, nodes, taken.checkpoint, logged, published, taken.load),
            passes=taken.begun,
            shown=self.publisher.highest,
            next_version=taken.next_version,
        )
