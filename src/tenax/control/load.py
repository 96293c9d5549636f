"""The load of a run, learned from what passes and batches report: what tasks cost, what a pass takes, how rows come.

Measures are moving means over some ten batches, so that what is older counts less and less. Passes right after a start
or a loss are left out, for processes warm up and states are read; nothing is measured while tasks are missing, because
those that do without inputs look cheap. How fast rows come is known only of a run that keeps up with its sources: what
a backlog brings is the speed of the run, not theirs.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

from tenax.control.records import Data, plain
from tenax.model.graph import TaskGraph
from tenax.model.tasks import Task

if TYPE_CHECKING:
    from tenax.control.events import BatchesLogged, PassFinished, TaskReport

LOAD = "load"  # what a checkpoint and an event call it
MEMORY = 10  # batches that a moving mean reaches back
LEFT_OUT = 2  # live passes after a start or a loss that are not measured
TRUSTED = 5  # batches that must have been measured before anything is decided by them


@dataclass(frozen=True, slots=True)
class TaskLoad:
    """What one task does in a batch: rows in and out, seconds busy; the bytes of its state, its level."""

    rows: float = 0.0
    rows_out: float = 0.0
    busy_s: float = 0.0
    state_bytes: float = 0.0
    level: int = 0


@dataclass(frozen=True, slots=True)
class Arrival:
    """How fast rows come to the sources.

    - `rows_per_s` is None as long as the run has not kept up with its sources for two batches.
    - `rows` have come since the moment `since_s` at which no source had more.
    """

    rows_per_s: float | None = None
    since_s: float | None = None
    rows: int = 0

    def known_since(self, begun_s: float) -> float | None:
        """How fast rows come, if at any time since then no source had more; None of a run that was behind throughout.

        What was known before it fell behind says nothing of what comes now.
        """
        return None if self.since_s is None or self.since_s < begun_s else self.rows_per_s

    def logged(self, event: BatchesLogged, memory_s: float) -> Arrival:
        """After batches were logged."""
        if event.ended:
            return Arrival()  # nothing comes any more
        came = replace(self, rows=self.rows + event.rows)
        if not event.caught_up:
            return came
        if self.since_s is None:
            return replace(came, since_s=event.at_s, rows=0)
        if event.at_s <= self.since_s:
            return came
        lasted_s = event.at_s - self.since_s
        rate = came.rows / lasted_s
        if self.rows_per_s is not None:
            rate = mixed(self.rows_per_s, rate, _weight(lasted_s, memory_s))
        return Arrival(rate, event.at_s)


@dataclass(frozen=True, slots=True)
class Load:
    """What a run has measured of itself.

    - `tasks` has one entry per task, in task order; none before the first measured pass. `batches` were measured, so
      many of them with the present version of the topology (`of_version`): what was expected of it goes with the first.
    - `rows` are read from the sources in a batch.
    - A pass took `pass_s`: `fixed_s` for each of its `levels` (scheduling), and `moving_s` for each of its batches, in
      which the slowest node of each level was busy.
    - Reading a state from the store takes `restore_s` for a byte.
    - Checkpoints are `interval` batches apart; 0 if that was not noted.
    - The next `left_out` live passes are not measured.
    """

    tasks: tuple[TaskLoad, ...] = ()
    batches: int = 0
    rows: float = 0.0
    pass_s: float = 0.0
    fixed_s: float = 0.0
    moving_s: float = 0.0
    levels: int = 0
    restore_s: float = 0.0
    interval: int = 0
    arrival: Arrival = field(default_factory=Arrival)
    left_out: int = LEFT_OUT
    of_version: int = 0

    @property
    def is_measured(self) -> bool:
        """Whether enough batches were measured to decide by them."""
        return self.batches >= TRUSTED

    @property
    def is_settled(self) -> bool:
        """Whether enough batches were measured with the present version of the topology."""
        return self.of_version >= TRUSTED

    def busy_s(self, interval_s: float) -> tuple[float, ...] | None:
        """How long every task is busy in a batch interval at the rate at which rows come; None if that is not known."""
        rate = self.arrival.rows_per_s
        if rate is None or not self.is_measured or not self.rows or not interval_s:
            return None
        return tuple(task.busy_s * rate * interval_s / self.rows for task in self.tasks)

    def rows_per_s(self) -> float | None:
        """How many rows a second the run can take at most, scheduling aside; None before it is measured."""
        return self.rows / self.moving_s if self.batches and self.rows and self.moving_s else None

    def predicted_s(self, batches: int = 1) -> float:
        """How long a pass of so many batches takes, by the last ones."""
        return self.levels * self.fixed_s + batches * self.moving_s

    def skew(self, graph: TaskGraph) -> Skew | None:
        """The operator whose slowest task is furthest above the median of its tasks; None if none has several."""
        skews: list[Skew] = []
        for number in range(len(graph.operators)):
            span = graph.span(number)
            busy = [self.tasks[task].busy_s for task in range(span.start, span.stop)] if self.tasks else []
            median = statistics.median(busy) if len(busy) > 1 else 0.0
            if median:
                slowest = max(range(len(busy)), key=busy.__getitem__)
                skews.append(Skew(graph.task(span.start + slowest), busy[slowest] / median))
        return max(skews, key=lambda skew: skew.ratio, default=None)

    def to_data(self) -> dict[str, Data]:
        """As plain data, as checkpoints and events keep it."""
        return {each.name: plain(getattr(self, each.name)) for each in fields(self)}

    @classmethod
    def from_data(cls, data: Mapping[str, object]) -> Load:
        """What `to_data` gave; a driver that begins with it has yet to see how fast rows come and warms up."""
        known = {name: data[name] for name in _NUMBERS if name in data}
        tasks, arrival = data["tasks"], data["arrival"]
        assert isinstance(tasks, Sequence)
        assert isinstance(arrival, Mapping)
        loads = tuple(TaskLoad(**{name: each[name] for name in _TASK_NUMBERS}) for each in tasks)
        return cls(tasks=loads, arrival=Arrival(arrival["rows_per_s"]), **known)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Skew:
    """The slowest task of an operator, and how many times the median it is busy."""

    task: Task
    ratio: float


_NUMBERS = ("batches", "of_version", "rows", "pass_s", "fixed_s", "moving_s", "levels", "restore_s", "interval")
_TASK_NUMBERS = tuple(each.name for each in fields(TaskLoad))


def measured(load: Load, graph: TaskGraph, homes: Sequence[str | None], event: PassFinished, batches: int) -> Load:
    """After a live pass of all tasks; `homes` are the nodes of the primaries. O(tasks)."""
    load = restored(load, event.reports)
    if load.left_out:
        return replace(load, left_out=load.left_out - 1)
    primaries = {
        graph.number(report.version.task): report
        for report in sorted(event.reports, key=lambda report: homes[graph.number(report.version.task)] == report.node)
    }
    if len(primaries) < len(graph):
        return load
    weight = max(_weight(batches, MEMORY), batches / (load.of_version + batches))
    before = load.tasks or (TaskLoad(),) * len(graph)
    tasks = tuple(_task(before[number], primaries[number], batches, weight) for number in range(len(graph)))
    sources = [number for number in range(len(graph)) if not graph.streams[graph.operator_of[number]]]
    rows = sum(primaries[number].rows for number in sources) / batches
    levels, moving_s = level_seconds(event.reports)
    fixed_s = max(0.0, event.seconds - moving_s) / levels
    return replace(
        load,
        tasks=tasks,
        batches=load.batches + batches,
        of_version=load.of_version + batches,
        rows=mixed(load.rows, rows, weight),
        pass_s=mixed(load.pass_s, event.seconds, weight),
        fixed_s=mixed(load.fixed_s, fixed_s, weight),
        moving_s=mixed(load.moving_s, moving_s / batches, weight),
        levels=levels,
    )


def restored(load: Load, reports: Sequence[TaskReport]) -> Load:
    """With what reading states from the store took in a pass."""
    read = [report for report in reports if report.restore_s and report.state_bytes]
    if not read:
        return load
    each_s = sum(report.restore_s for report in read) / sum(report.state_bytes for report in read)
    return replace(load, restore_s=mixed(load.restore_s, each_s, 0.5) if load.restore_s else each_s)


def _task(before: TaskLoad, report: TaskReport, batches: int, weight: float) -> TaskLoad:
    return TaskLoad(
        mixed(before.rows, report.rows / batches, weight),
        mixed(before.rows_out, report.rows_out / batches, weight),
        mixed(before.busy_s, report.busy_s / batches, weight),
        mixed(before.state_bytes, report.state_bytes, weight),
        report.level,
    )


def level_seconds(reports: Sequence[TaskReport]) -> tuple[int, float]:
    """How many levels a pass had, and for how long the slowest node of each was busy, all together."""
    busy_s: dict[tuple[int, str], float] = {}
    for report in reports:
        busy_s[report.level, report.node] = busy_s.get((report.level, report.node), 0.0) + report.busy_s
    levels = 1 + max((level for level, _ in busy_s), default=0)
    return levels, sum(max((s for (at, _), s in busy_s.items() if at == level), default=0.0) for level in range(levels))


def mixed(mean: float, value: float, weight: float) -> float:
    """A moving mean after one more value."""
    return mean + weight * (value - mean)


def _weight(length: float, memory: float) -> float:
    """The weight of something new of this length: what is as old as the memory has lost two thirds of its own."""
    return 1.0 - (1.0 - 1.0 / MEMORY) ** (MEMORY * length / memory) if memory else 1.0
