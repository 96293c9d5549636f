"""Membership: executors become nodes of a run, and those that are gone, hang or are overdue are reported as lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from tenax.control import events
from tenax.engine.driver.jobs import JobRunner
from tenax.engine.driver.nodes import Nodes
from tenax.engine.driver.proofs import Proofs
from tenax.engine.gateway import one_line
from tenax.engine.observer import Observer
from tenax.engine.session import NodeInfo, Session
from tenax.model.cluster import Node

LOOK_EVERY_S = 0.1  # at the nodes
NOTICED_S = 0.3  # after an executor has died it is usually known: Spark needs a moment, and it must be looked at
MAX_REGISTRATIONS = 100  # at the start, should nodes die while they say their names


class Membership:
    """Keeps the nodes of a run up to date.

    - New executors are registered and reported to have joined; nodes whose executors are gone are reported as lost.
    - A node whose Python workers hang, or whose job does not end within its deadline, is given up: it is reported as
      lost, and its executor ended.
    - Every job on nodes runs within `bounded`, so that it has a deadline and its nodes owe proofs.
    """

    def __init__(
        self,
        session: Session,
        jobs: JobRunner,
        nodes: Nodes,
        observer: Observer,
        report: Callable[[events.Event], None],
    ) -> None:
        self._session = session
        self._jobs = jobs
        self._nodes = nodes
        self._observer = observer
        self._report = report
        self._proofs = Proofs(jobs.ask, session.cluster)
        self._looking = threading.Lock()

    def first_nodes(self, stop_asked: Callable[[], bool]) -> tuple[Node, ...]:
        """The nodes that a run begins with; none if it is asked to stop before they have said their names."""
        for _ in range(MAX_REGISTRATIONS):
            executors = self._nodes.unregistered()
            nodes: tuple[Node, ...] = ()
            try:
                nodes = self._nodes.register(executors) if executors else ()
            except Exception as error:  # a node died or was too slow while it said its name: ask those that live
                self._observer.said(f"nodes are asked again for their names: {one_line(error)}")
                self._nodes.forget(executors)
            if nodes or stop_asked():
                return nodes
            time.sleep(LOOK_EVERY_S)
        return ()

    def report_lost(self) -> None:
        """Report nodes that are gone; other threads that ask meanwhile go on when it is reported."""
        with self._looking:
            gone = self._nodes.lost()
            if gone:
                self._report(events.NodesLost(gone))

    def look(self, pool: ThreadPoolExecutor) -> None:
        """Report nodes that are gone or hang, and let the pool register those that are new."""
        self.report_lost()
        hung = self._proofs.hung(self._nodes.live)
        if hung:
            self._give_up(hung, "its Python workers do not answer")
            self._report(events.NodesLost(hung))
        executors = self._nodes.unregistered()
        if executors:
            pool.submit(self._register, executors)

    def request(self, total: int) -> None:
        """Ask the cluster for so many nodes in all; one that cannot answer does not end the run."""
        try:
            self._session.request_nodes(total)
        except Exception as error:
            self._observer.said(f"{total} nodes were asked for, and the cluster answered {one_line(error)}")

    def release(self, names: Iterable[str], total: int) -> None:
        """Give nodes back that hold nothing of the run any more, so that there are so many."""
        infos = [info for info in map(self._nodes.give_up, names) if info is not None]
        try:
            self._session.release_nodes([info.executor for info in infos], total)
        except Exception as error:
            self._observer.said(f"{len(infos)} nodes were given back, and the cluster answered {one_line(error)}")

    @contextmanager
    def bounded(self, group: str, names: Iterable[str], deadline_s: float) -> Iterator[threading.Event]:
        """While this lasts, a job runs on these nodes; after its deadline it is ended, and those it waits for are lost.

        Gives an event that tells whether the deadline has passed.
        """
        passed = threading.Event()
        timer = threading.Timer(deadline_s, self._end_overdue, [group, names, deadline_s, passed])
        timer.start()
        try:
            with self._proofs.owed(names):
                yield passed
        finally:
            timer.cancel()

    def _end_overdue(self, group: str, names: Iterable[str], deadline_s: float, passed: threading.Event) -> None:
        passed.set()
        try:
            late = self._jobs.at_work(group)
            stuck = tuple(name for name, info in self._nodes.live.items() if name in names and info.executor in late)
            self._give_up(stuck, f"what it was to do did not end within {deadline_s:g} s")
            if stuck:
                self._report(events.NodesLost(stuck, overdue=True))
        finally:
            self._jobs.cancel(group)

    def _give_up(self, names: Iterable[str], cause: str) -> None:
        """Let nodes be lost whose executors live, and end these with all that hangs below them."""
        for name in names:
            info = self._nodes.give_up(name)
            if info is not None:
                self._observer.said(f"node {name} is given up: {cause}")
                threading.Thread(target=self._end_node, args=[info.executor], daemon=True).start()

    def _end_node(self, executor: str) -> None:
        """End an executor; its cluster may take its time to answer, and the run does not wait for that."""
        try:
            self._session.end_node(executor)
        except Exception as error:
            self._observer.said(f"executor {executor} was given up and could not be ended: {one_line(error)}")

    def _register(self, executors: tuple[NodeInfo, ...]) -> None:
        try:
            joined = self._nodes.register(executors)
            if joined:
                self._report(events.NodesJoined(joined))
        except Exception as error:
            # it may have died before it said its name; if not, it is asked again
            self._observer.said(f"a new node did not say its name: {one_line(error)}")
            self._nodes.forget(executors)
