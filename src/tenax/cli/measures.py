"""Measures of a run while it goes on: the lag of its outputs, what windows wait for, the bytes that it keeps."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tenax.application.application import Application
from tenax.engine.worker.orders import Report
from tenax.model.graph import TaskGraph
from tenax.model.tasks import Task
from tenax.model.topology import Topology
from tenax.operators.computation import END_WATERMARK_US, NO_WATERMARK_US

MEASURE_EVERY_S = 1.0
MICROSECONDS = 1_000_000
NOTICEABLE_US = 5 * MICROSECONDS  # that a partition is behind another
MAX_FILES = 100_000  # that one measurement looks at; beyond them sizes are only known to be larger


class Lags:
    """How far each output is behind, in event time.

    The newest event time that a source above the output has read, less the watermark that the output's published
    results reach: windows that end later are not published. Once all sources have ended and all is published it is 0.
    """

    def __init__(self, application: Application) -> None:
        self.graph = TaskGraph(application.topology)
        self._lateness_us = {name: source.lateness_us for name, source in application.sources.items()}
        above = sources_above(application.topology)
        self._above = {name: above[name] for name in above if name in application.sinks}
        self._newest_us: dict[str, int] = {}
        self._waiting: deque[tuple[int, Mapping[str, int]]] = deque()
        self._published: Mapping[str, int] = dict.fromkeys(self._above, NO_WATERMARK_US)

    def passed(self, last: int, reports: list[Report]) -> None:
        """A pass has read up to some event time, and its results wait to be published."""
        reached = dict.fromkeys(self._above, END_WATERMARK_US)
        for report in reports:
            name, watermark_us = self.graph.task(report.task).operator, report.watermark_us
            if name in self._lateness_us and NO_WATERMARK_US < watermark_us < END_WATERMARK_US:
                newest_us = watermark_us + self._lateness_us[name]
                self._newest_us[name] = max(self._newest_us.get(name, newest_us), newest_us)
            if name in reached:
                reached[name] = min(reached[name], watermark_us)
        self._waiting.append((last, reached))

    def published(self, last: int) -> None:
        """Results up to a batch are committed."""
        while self._waiting and self._waiting[0][0] <= last:
            self._published = self._waiting.popleft()[1]

    def seconds(self) -> dict[str, float | None]:
        """By output; None as long as nothing is known."""
        return {name: self._behind(name, watermark_us) for name, watermark_us in self._published.items()}

    def _behind(self, output: str, watermark_us: int) -> float | None:
        read = [self._newest_us[name] for name in self._above[output] if name in self._newest_us]
        if watermark_us == NO_WATERMARK_US or not (read or watermark_us == END_WATERMARK_US):
            return None
        return max(0, max(read, default=watermark_us) - watermark_us) / MICROSECONDS


class Holds:
    """Who holds whom: which operators wait with their windows for which source partitions.

    An operator waits for a partition that is noticeably behind another one whose rows it gets as well. It is named
    where these rows meet first, not again at every operator behind that.
    """

    def __init__(self, application: Application) -> None:
        self.graph = TaskGraph(application.topology)
        self._above = sources_above(application.topology)
        self._sources = frozenset(application.sources)
        self._waiting = [operator.name for operator in self.graph.operators if application.has_state(operator.name)]
        self._reached: dict[Task, int] = {}

    def passed(self, reports: list[Report]) -> None:
        """A pass has brought partitions forward."""
        for report in reports:
            task = self.graph.task(report.task)
            if task.operator in self._sources:
                self._reached[task] = report.watermark_us

    def lines(self) -> list[str]:
        """Such as "w waits for s[1], 35 s behind s[0]"."""
        reached = dict(self._reached)  # drawn in one thread, told in another
        lines, named = [], set[tuple[Task, frozenset[str]]]()
        for name in self._waiting:
            above = self._above[name]
            tasks = [task for task, at in reached.items() if task.operator in above and at != END_WATERMARK_US]
            if not tasks:
                continue
            first = max(tasks, key=lambda task: (reached[task], task))
            slowest = min(tasks, key=lambda task: (reached[task], task))
            behind_us = reached[first] - reached[slowest]
            if behind_us <= NOTICEABLE_US or (slowest, above) in named:
                continue
            named.add((slowest, above))
            how = (
                "which has no rows yet"
                if reached[slowest] == NO_WATERMARK_US
                else f"{behind_us / MICROSECONDS:,.0f} s behind {first}"
            )
            lines.append(f"{name} waits for {slowest}, {how}")
        return lines


def sources_above(topology: Topology) -> dict[str, frozenset[str]]:
    """The sources whose rows reach each operator."""
    sources_of: dict[str, frozenset[str]] = {}
    for operator in TaskGraph(topology).operators:  # producers come before consumers
        above = (sources_of[stream.operator] for stream in operator.inputs)
        sources_of[operator.name] = frozenset({operator.name} if operator.is_source else ()).union(*above)
    return sources_of


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of the states on the nodes, and of what the store keeps; None where this machine cannot see them."""

    state_bytes: int | None
    store_bytes: int


class SizeMeter:
    """Adds up the files of a store, at most once a second.

    States are seen where the nodes share the store's file system, as those of an embedded cluster do.
    """

    def __init__(self, store: Path) -> None:
        self._store = store
        self._sizes = Sizes(None, 0)
        self._due_s = 0.0

    def sizes(self, *, now: bool = False) -> Sizes:
        """What was found last, or is found now."""
        if now or time.monotonic() >= self._due_s:
            self._sizes = Sizes(self._state_bytes(), folder_bytes(self._store, without="run"))
            self._due_s = time.monotonic() + MEASURE_EVERY_S
        return self._sizes

    def _state_bytes(self) -> int | None:
        runs = sorted(self._store.glob("run/*/nodes"))
        return folder_bytes(runs[-1]) if runs else self._sizes.state_bytes  # at its end a run leaves none


def folder_bytes(folder: Path, without: str = "") -> int:
    """The bytes of all files below a folder; a folder of that name directly in it is left out."""
    total, seen = 0, 0
    folders = [str(folder)]
    while folders and seen < MAX_FILES:
        at = folders.pop()
        try:
            with os.scandir(at) as entries:
                for entry in entries:
                    seen += 1
                    if entry.is_dir(follow_symlinks=False):
                        if at != str(folder) or entry.name != without:
                            folders.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
        except OSError:  # deleted meanwhile
            continue
    return total
