"""Fault injection: a schedule carried out on the processes of the cluster that this process has started."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Sequence

from tenax.chaos.record import Moment, Recorder, What, names
from tenax.chaos.schedule import ALL, Fault, Kind, Progress, Schedule, Unit
from tenax.control.instructions import Stop
from tenax.engine.driver import Driver
from tenax.engine.processes import ancestors, workers_of
from tenax.engine.session import Session
from tenax.errors import ClusterFailed
from tenax.model.tasks import Task
from tenax.store import topology_versions

POLL_S = 0.01
STUCK_S = 1.0  # so long without a node for some task, and nothing to come by time: nodes return early
NODES_DEADLINE_S = 120.0


class Injector:
    """Makes the faults of a schedule when they are due, as a thread beside the driver.

    - Only executors that this run knows as its nodes are hit, by the process ids in their names.
    - The cluster's limit goes down before nodes die, so that Spark does not replace them, and up when they return; what
      the run asks for beyond it does not come.
    - `earlier` are the moments of drivers before this one: faults that they name do not happen again.
    - Faults of the driver are not made here: a process does not outlive itself to note what it did.
    """

    def __init__(
        self,
        session: Session,
        nodes: int,
        schedule: Schedule,
        recorder: Recorder,
        earlier: Sequence[Moment] = (),
        most: int | None = None,
    ) -> None:
        self._session = session
        self._nodes = nodes
        self._most = self._limit = nodes if most is None else most
        self._recorder = recorder
        made = {moment.detail["number"] for moment in earlier if moment.what is What.FAULT}
        self._pending = [
            (number, fault)
            for number, fault in enumerate(schedule)
            if number not in made and fault.kind is not Kind.DRIVER
        ]
        self._progress = Progress()
        self._progress.learn(earlier)
        self._started = False
        self._seen = 0
        self._hit: set[str] = set()
        self._hung: dict[str, int] = {}
        self._stuck_s: float | None = None
        self._over = threading.Event()
        self._error: Exception | None = None

    def run(self, driver: Driver) -> Stop:
        """Run the driver to its end under faults; afterwards nothing hangs and the cluster is whole again."""
        thread = threading.Thread(target=self._work, args=[driver], name="chaos", daemon=True)
        thread.start()
        try:
            stop = driver.run()
        finally:
            self._over.set()
            thread.join()
            for pid in self._hung.values():
                _send(pid, signal.SIGKILL)
            self._session.request_nodes(self._nodes)  # a scale-in may have given some back
            self._session.limit_nodes(self._nodes)
        if self._error is not None:
            raise self._error
        await_nodes(self._session, self._nodes)
        return stop

    @property
    def unreached(self) -> tuple[Fault, ...]:
        """The faults whose time has not come."""
        return tuple(fault for _, fault in self._pending)

    def _work(self, driver: Driver) -> None:
        try:
            while not self._over.wait(POLL_S):  # until the run is over, however that ends
                self.look(driver)
        except Exception as error:  # raised again by the thread that waits for the run
            self._error = error
            driver.request_stop()

    def look(self, driver: Driver) -> None:
        """Make the faults that are due now."""
        new = self._recorder.moments[self._seen :]
        self._seen += len(new)
        self._progress.learn(new)
        self._end_hung(new)
        self._started = self._started or any(moment.what is What.STARTED for moment in new)
        if not self._started:  # it is not known yet which nodes there are
            return
        now_s = self._recorder.now_s
        for number, fault in self._pending[:]:
            if self._progress.reached(fault.when, now_s):
                self._pending.remove((number, fault))
                self._make(driver, number, fault)
        self._free(driver)

    def _make(self, driver: Driver, number: int, fault: Fault) -> None:
        if fault.kind is Kind.RETURN:
            self._raise(self._most if fault.what == ALL else int(fault.what))
            self._note(number, fault, ())
            return
        if fault.kind is Kind.RESCALE:
            topology_versions.ask(driver.store.folder, fault.target)
            self._note(number, fault, ())
            return
        hit = self._victims(driver, fault)
        there = sum(name not in self._hit for name in driver.nodes.live)
        self._limit = max(0, min(self._limit, there) - len(hit))  # nodes that could be asked for do not come either
        self._session.limit_nodes(self._limit)
        self._note(number, fault, hit)
        self._hit.update(hit)
        for name in hit:
            pid = pid_of(name)
            match fault.kind:
                case Kind.HANG_WORKERS:  # the run itself has to end them
                    hang_workers(pid)
                case Kind.HANG:
                    self._hung[name] = pid
                    _send(pid, signal.SIGSTOP)
                case _:
                    _send(pid, signal.SIGKILL)

    def _note(self, number: int, fault: Fault, hit: Sequence[str]) -> None:
        self._recorder.note(
            What.FAULT, number=number, fault=str(fault), kind=fault.kind.value, nodes=list(hit), limit=self._limit
        )

    def _raise(self, count: int) -> None:
        self._limit = min(self._most, self._limit + count)
        self._session.limit_nodes(self._limit)

    def _victims(self, driver: Driver, fault: Fault) -> tuple[str, ...]:
        """The nodes that a fault means: those with the most tasks first, then the oldest."""
        live = [name for name in driver.nodes.live if name not in self._hit]  # the driver may not know it yet
        homes = self._homes(driver)
        if fault.what == ALL:
            return tuple(live)
        if fault.what.isdigit():
            return tuple(
                sorted(live, key=lambda name: -sum(home == name for home in homes.values()))[: int(fault.what)]
            )
        if "[" in fault.what:
            meant = {homes.get(Task.parse(text)) for text in fault.what.split("+")}
            return tuple(name for name in live if name in meant)
        return tuple(name for name in live if driver.nodes.rack(name) == fault.what)

    def _homes(self, driver: Driver) -> dict[Task, str]:
        """Where the primary of each task is."""
        tasks = () if self._recorder.coordinator is None else self._recorder.coordinator.state.tasks
        primaries = ((driver.graph.task(number), task.primary) for number, task in enumerate(tasks))
        return {task: primary.node for task, primary in primaries if primary is not None}

    def _end_hung(self, new: Sequence[Moment]) -> None:
        """A hung node that the run has given up is ended, so that nothing is left behind."""
        for moment in new:
            for name in names(moment.detail["nodes"]) if moment.what is What.LOST else ():
                if name in self._hung:
                    _send(self._hung.pop(name), signal.SIGKILL)

    def _free(self, driver: Driver) -> None:
        """Let nodes return before their time if the run cannot go on without them, and nothing will change by time."""
        waits = self._limit < self._nodes and not any(fault.when.unit is Unit.SECONDS for _, fault in self._pending)
        coordinator = self._recorder.coordinator
        state = None if coordinator is None else coordinator.state
        stuck = waits and state is not None and any(task.primary is None for task in state.tasks)
        if not stuck or state is None or state.passes.running:
            self._stuck_s = None
            return
        now_s = time.monotonic()
        self._stuck_s = self._stuck_s or now_s
        if now_s - self._stuck_s < STUCK_S + 2 * driver.settings.batches.batch_s:  # not only between two batches
            return
        self._stuck_s = None
        due = next(((number, fault) for number, fault in self._pending if fault.kind is Kind.RETURN), None)
        if due is not None:
            self._recorder.note(What.NOTED, text=f"tasks have no node: {due[1]} happens now")
            self._pending.remove(due)
            self._make(driver, *due)
        else:
            away = self._nodes - self._limit
            self._recorder.note(What.NOTED, text=f"tasks have no node: the {away} that are away return")
            self._raise(away)


def await_nodes(session: Session, count: int) -> None:
    """Wait until the cluster has so many nodes."""
    deadline = time.monotonic() + NODES_DEADLINE_S
    while len(session.live_nodes()) < count:
        if time.monotonic() > deadline:
            live = len(session.live_nodes())
            raise ClusterFailed(f"{count} nodes come back, found {live} after {NODES_DEADLINE_S:g} s: see spark.log")
        time.sleep(POLL_S)


def pid_of(node: str) -> int:
    """The process of a node; refused unless this process has started it."""
    host, _, number = node.rpartition("-")
    pid = int(number)
    if host != socket.gethostname() or os.getpid() not in ancestors(pid):
        raise ClusterFailed(
            f"only nodes that this run has started are hit, found {node}: use the embedded cluster, without --master"
        )
    return pid


def hang_workers(executor: int) -> list[int]:
    """Stop the Python workers of an executor, and the daemons that would fork others; their process ids."""
    hit = [pid for daemon, workers in workers_of(executor).items() for pid in (daemon, *workers)]
    for pid in hit:
        _send(pid, signal.SIGSTOP)
    return hit


def _send(pid: int, what: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, what)
