"""Late rows: how many came behind the watermark, from where, how late, and which lateness would have kept them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tenax.application.application import Application, late_output
from tenax.control.copies import Role
from tenax.control.instructions import PassKind, RunPass
from tenax.control.recovery.failures import RowsLate
from tenax.engine.worker.orders import LateRows, Report
from tenax.model.graph import TaskGraph
from tenax.model.tasks import Task
from tenax.operators.lateness import KEPT_SHARE, Overdue, readable

SAID_AGAIN = 10  # times as many late rows as when a user heard of them last
SHOWN_PARTITIONS = 4  # of a source, those with the largest shares


@dataclass(slots=True)
class _Count:
    """The rows of a task so far, and the late ones."""

    rows: int = 0
    late: int = 0
    through: int = 0


@dataclass(slots=True)
class _Source:
    """The late rows of a source: `kept` if they have a sink of their own, else dropped."""

    kept: bool
    partitions: dict[int, _Count] = field(default_factory=dict)
    overdue: Overdue = field(default_factory=Overdue)

    @property
    def rows(self) -> int:
        return sum(partition.rows for partition in self.partitions.values())

    @property
    def late(self) -> int:
        return sum(partition.late for partition in self.partitions.values())


@dataclass(frozen=True, slots=True)
class LateNotice:
    """What is said of the late rows of a source or of an operator; `lost` if they are in no result at all."""

    name: str
    text: str
    short: str
    lost: bool


class Latecomers:
    """Counts rows that came too late, once each, whatever passes are repeated.

    - Sources decide by the lateness that they allow. Operators leave rows out whose windows were complete: those of a
      partition that was idle and came back, or of a map that changes times.
    - What a tentative step, a replica or a state that is being rebuilt leaves out does not count.
    """

    def __init__(self, application: Application, graph: TaskGraph) -> None:
        self.graph = graph
        self._lateness_us = {name: source.lateness_us for name, source in application.sources.items()}
        self._sources = {name: _Source(late_output(name) in application.sinks) for name in application.sources}
        self._operators: dict[str, _Count] = {}
        self._through: dict[Task, int] = {}
        self._last_said: dict[str, int] = {}
        self._lock = threading.RLock()  # passes report in threads of their own, and another one draws

    def add(self, instruction: RunPass, reports: Sequence[Report]) -> list[str]:
        """Count what a pass has reported; what a user should know now."""
        with self._lock:
            return self._added(instruction, reports)

    def _added(self, instruction: RunPass, reports: Sequence[Report]) -> list[str]:
        for task, report in self._counting(instruction, reports):
            if task.operator in self._sources:
                self._add_source(instruction, task, report)
            else:
                self._add_operator(instruction, task, report)
        said = []
        for name, late in self._totals().items():
            if late and late >= SAID_AGAIN * self._last_said.get(name, 0):
                self._last_said[name] = late
                said += [notice.text for notice in self.said() if notice.name == name]
        return said

    def said(self) -> list[LateNotice]:
        """What is known of late rows, of each source and operator that has any."""
        with self._lock:
            return self._said()

    def _said(self) -> list[LateNotice]:
        notices = [self._of_source(name, source) for name, source in self._sources.items() if source.late]
        for name, count in self._operators.items():
            text = (
                f"LATE {name}: {_rows(count.late)} dropped, because windows were complete: of a source partition that "
                "was idle, or by a map that changes times; a longer idle_after waits for such rows"
            )
            notices.append(LateNotice(name, text, f"{name} {_rows(count.late)}", lost=True))
        return notices

    def refused(self, instruction: RunPass, reports: Sequence[Report], published: int) -> RowsLate | None:
        """The first batch with late rows whose results are not all published; None if there is none."""
        lates = [
            (late.batch, task, late)
            for task, report in self._counting(instruction, reports)
            for late in report.late_rows
            if late.batch > published
        ]
        if not lates:
            return None
        batch, task, late = min(lates, key=lambda late_batch: (late_batch[0], late_batch[1]))
        return RowsLate(task, batch, self._refusal(task, late))

    def _refusal(self, task: Task, late: LateRows) -> str:
        rule = "with strict lateness no row comes late, found"
        if task.operator not in self._sources:
            return (
                f"operator {task.operator!r}: {rule} {_rows(late.rows)} in batch {late.batch} at task {task}, of "
                "windows that were complete: write a longer idle_after for the source whose partition was idle, or "
                "leave strict lateness out"
            )
        most_us = late.overdue.most_us
        return (
            f"source {task.operator!r}: {rule} {_rows(late.rows)} of partition {task} in batch {late.batch}, up to "
            f"{_seconds(most_us)} behind: write lateness={readable(most_us)!r}, or leave strict lateness out"
        )

    def _counting(self, instruction: RunPass, reports: Sequence[Report]) -> Iterator[tuple[Task, Report]]:
        """The reports of steps that count, by task."""
        count = {
            step.task
            for step in instruction.steps
            if step.role is Role.PRIMARY and not step.tentative and step.rebuilding is None
        }
        for report in reports:
            task = self.graph.task(report.task)
            if task in count and report.role is Role.PRIMARY:
                yield task, report

    def _add_source(self, instruction: RunPass, task: Task, report: Report) -> None:
        source = self._sources[task.operator]
        count = source.partitions.setdefault(task.index, _Count())
        if instruction.kind is not PassKind.LIVE or instruction.first <= count.through:
            return  # a repetition
        count.through = instruction.last
        count.rows += report.rows_in
        for late in report.late_rows:
            count.late += late.rows
            source.overdue = source.overdue.and_also(late.overdue)

    def _add_operator(self, instruction: RunPass, task: Task, report: Report) -> None:
        through = self._through.get(task, 0)
        new = sum(late.rows for late in report.late_rows if late.batch > through)
        self._through[task] = max(through, instruction.last)
        if new:
            self._operators.setdefault(task.operator, _Count()).late += new

    def _totals(self) -> dict[str, int]:
        totals = {name: source.late for name, source in self._sources.items()}
        return totals | {name: operator.late for name, operator in self._operators.items()}

    def _of_source(self, name: str, source: _Source) -> LateNotice:
        share = _percent(source.late / max(1, source.rows))
        by_share = sorted(
            (partition for partition in source.partitions.items() if partition[1].late),
            key=lambda partition: (-partition[1].late / max(1, partition[1].rows), partition[0]),
        )
        shown = [f"{name}[{number}] {_percent(count.late / max(1, count.rows))}" for number, count in by_share]
        where = ", ".join(shown[:SHOWN_PARTITIONS]) + (", ..." if len(shown) > SHOWN_PARTITIONS else "")
        text = f"{share} of its rows came late ({source.late:,} of {source.rows:,}; {where})"
        text += f", up to {_seconds(source.overdue.most_us)}"
        lateness_us, kept = source.overdue.would_keep(source.rows)
        advice = f"lateness={readable(lateness_us)!r} would have kept {'all' if kept > KEPT_SHARE else '99.9 %'}"
        if source.kept:
            return LateNotice(name, f"{name}: {text}; they are kept apart, {advice}", f"{name} {share}", lost=False)
        return LateNotice(name, f"LATE {name}: {text}, and were dropped; {advice}", f"{name} {share}", lost=True)


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %" if share < 0.995 else f"{100 * share:.1f} %"


def _seconds(span_us: int) -> str:
    return f"{span_us / 1e6:.3g} s" if span_us >= 1_000 else f"{span_us} µs"
