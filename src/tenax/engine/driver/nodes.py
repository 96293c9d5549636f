"""The nodes of a run: executors, by the names that their own workers tell."""

from __future__ import annotations

import itertools
import shutil
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from tenax.engine.driver.jobs import JobRunner
from tenax.engine.session import NodeInfo, Session
from tenax.errors import ClusterFailed
from tenax.model.cluster import Node
from tenax.model.settings import ClusterSettings

TOGETHER_S = 0.05  # nodes that are lost so soon after each other are lost together
GONE = ".gone-"  # how the folder of a lost node begins to be called


class Nodes:
    """Which executors are known, lost and new.

    - A node that is gone never comes back; an executor that takes its place is a new node, of the same rack and role.
    - On one machine all folders outlive their executors, so that of a lost node is deleted: its loss is real. It has
      another name at once, and goes beside the run: nobody waits for the end of hundreds of megabytes.
    """

    def __init__(self, session: Session, jobs: JobRunner, folder: Path, cluster: ClusterSettings) -> None:
        self._session = session
        self._jobs = jobs
        self._folder = folder
        self._cluster = cluster
        self._lock = threading.Lock()
        self._known: dict[str, NodeInfo] = {}
        self._places: dict[str, int] = {}
        self._asked: set[str] = set()
        """Executors that are known, or being asked for their name."""
        self._deletions: list[threading.Thread] = []
        self._numbers = itertools.count()

    def info(self, names: Iterable[str]) -> tuple[NodeInfo, ...]:
        """The executors behind these names; a job for one that was lost just now fails, and says so."""
        names = tuple(names)
        with self._lock:
            gone = [name for name in names if name not in self._known]
            if gone:
                raise ClusterFailed(f"a job runs on nodes that live, found {', '.join(gone)} lost: others take over")
            return tuple(self._known[name] for name in names)

    @property
    def live(self) -> dict[str, NodeInfo]:
        """The executors that are known, by name."""
        with self._lock:
            return dict(self._known)

    def lost(self) -> tuple[str, ...]:
        """The names of known nodes that are gone, with those that are seen to go with them; forgets them.

        What kills one often kills others, and passes that are cancelled as soon as they have begun cost a second.
        """
        gone = more = self._gone()
        while more:  # ends: there are only so many nodes
            time.sleep(TOGETHER_S)
            more = self._gone()
            gone += more
        for name in gone:
            self._delete(name)
        return gone

    def _gone(self) -> tuple[str, ...]:
        """The names of known nodes that are gone since the last look."""
        alive = {node.executor for node in self._session.live_nodes()}
        with self._lock:
            gone = tuple(name for name, info in self._known.items() if info.executor not in alive)
            for name in gone:
                del self._known[name]
                del self._places[name]
        return gone

    def unregistered(self) -> tuple[NodeInfo, ...]:
        """Executors that are not registered, and have not been asked for their name yet."""
        executors = self._session.live_nodes()
        with self._lock:
            new = tuple(info for info in executors if info.executor not in self._asked)
            self._asked.update(info.executor for info in new)
        return new

    def register(self, executors: tuple[NodeInfo, ...]) -> tuple[Node, ...]:
        """Ask executors for their names; from then on they are nodes of this run. May take seconds.

        If one of them has died meanwhile, or said the name of a node that is known, another may have answered in its
        place: then no answer counts, and those that live are asked again at the next look.
        """
        names = self._jobs.names_of(executors)
        alive = {node.executor for node in self._session.live_nodes()}
        if not alive.issuperset(info.executor for info in executors) or not self.live.keys().isdisjoint(names):
            with self._lock:
                self._asked -= alive - {info.executor for info in self._known.values()}
            return ()
        made = []
        with self._lock:
            for name, info in zip(names, executors, strict=True):
                place = next(free for free in range(len(self._places) + 1) if free not in self._places.values())
                self._known[name] = info
                self._places[name] = place
                made.append(self._cluster.node(name, place))
        return tuple(made)

    def give_up(self, name: str) -> NodeInfo | None:
        """Let a node be lost whose executor lives, and never ask that for its name again; None if it is gone."""
        with self._lock:
            info = self._known.pop(name, None)
            self._places.pop(name, None)
        if info is not None:
            self._delete(name)
        return info

    def deregister(self, name: str) -> None:
        """Give up a node under whose name another executor answers; its own may say its name again."""
        with self._lock:
            info = self._known.pop(name, None)
            self._places.pop(name, None)
            if info is not None:
                self._asked.discard(info.executor)
        self._delete(name)

    def forget(self, executors: tuple[NodeInfo, ...]) -> None:
        """Let executors that did not say their names be asked again."""
        with self._lock:
            self._asked -= {info.executor for info in executors}

    def close(self) -> None:
        """Wait until the folders of lost nodes are deleted."""
        for deletion in self._deletions:
            deletion.join()

    def _delete(self, name: str) -> None:
        """Let the folder of a node be gone."""
        gone = self._folder / f"{GONE}{next(self._numbers)}-{name}"
        with suppress(OSError):  # it has kept nothing yet
            (self._folder / name).rename(gone)
            self._deletions.append(threading.Thread(target=shutil.rmtree, args=[gone, True], daemon=True))
            self._deletions[-1].start()

    def rack(self, name: str) -> str | None:
        """The rack of a live node."""
        with self._lock:
            return self._cluster.rack(self._places[name])
