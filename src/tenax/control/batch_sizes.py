"""How many rows of a source a batch may take: as many as let a full pass of a backlog last about the batch interval.

The last pass decides, for a backlog may be over before a mean over many passes has settled:

    time of a pass       = fixed part (scheduling: the least so far) + moving part (whatever comes with rows)
    rows of a next batch = rows of a batch in the last pass × time that rows get ÷ moving part of a full pass

The rows of a batch are those of its largest source: the limit holds for each source, and one that has fewer has no
backlog. Sizes grow by a factor at most, so that it is noticed in time if later rows cost more than the first. What is
logged already stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tenax.control.load import level_seconds
from tenax.model.graph import TaskGraph
from tenax.model.settings import FIRST_ROWS, Settings

if TYPE_CHECKING:
    from tenax.control.events import BatchesLogged, PassFinished, TaskReport

GROWTH = 8  # times the rows of the last pass at most
LEVEL_S = 0.1  # is scheduling of a level at most: whatever else passes beside steps grows with rows, which travel
IN_STEPS = 4  # times what steps took is the most that rows are said to take: else busy machines make batches vanish
WORTH = 9  # times the fixed part is what rows should get, so that scheduling is a tenth of a pass
LONGER = 2  # times the interval is the most that rows get for that
WITHOUT_INTERVAL_S = 1.0  # for rows, where batches follow each other at once; shorter intervals may come to that
LEAST = 1_000  # rows: of few, a batch takes as long as of none, and smaller ones would make it look ever slower
OF_DEADLINE = 8  # the part of its deadline that a pass is planned for at most: rounds have to meet it on fewer nodes


@dataclass(frozen=True, slots=True)
class BatchSizes:
    """What is known of the sizes of batches.

    - A batch takes at most `rows` of a source; None as long as that is what it is at the start.
    - The least that a pass took beside its rows is `fixed_s`; None before the first pass.
    - The run is `behind` if sources had more when batches were logged last.
    """

    rows: int | None = None
    fixed_s: float | None = None
    behind: bool = False

    def limit(self, settings: Settings) -> int | None:
        """The most rows of a source in the next batches; None if that is as the settings say."""
        return self.rows if settings.batches.max_rows is None else None

    def count(self, settings: Settings, unfinished: int) -> int:
        """How many batches to log next, if so many are logged and not finished.

        Those of one pass at a time, so that they have the newest size; one in all before it is known what a pass takes.
        """
        ahead, per_pass = settings.max_batches_ahead - unfinished, settings.max_batches_per_pass
        if settings.batches.max_rows is not None:
            return ahead
        return per_pass - unfinished if self.fixed_s is None else min(ahead, per_pass)

    def logged(self, event: BatchesLogged) -> BatchSizes:
        """After batches were logged."""
        return replace(self, behind=not event.caught_up)

    def passed(
        self,
        settings: Settings,
        graph: TaskGraph,
        event: PassFinished,
        batches: int,
        *,
        degraded: bool,
        rows_per_s: float | None = None,
    ) -> BatchSizes:
        """After a live pass of so many batches; while tasks are missing a pass looks cheap, and sizes only fall.

        A batch may always have the rows that come in an interval, at so many a second: else the run would fall behind.
        """
        levels, busy_s = level_seconds(event.reports)
        beside_s = min(max(0.0, event.seconds - busy_s), levels * LEVEL_S)
        fixed_s = beside_s if self.fixed_s is None else min(self.fixed_s, beside_s)
        sizes = replace(self, fixed_s=fixed_s)
        rows = largest_source(graph, event.reports) / batches
        took_s, wanted_s = min(event.seconds - fixed_s, IN_STEPS * busy_s), for_rows_s(settings, fixed_s)
        if not rows or took_s <= 0.0:
            return sizes
        each = rows / took_s * batches / settings.max_batches_per_pass  # rows of a batch for a second of a full pass
        in_time = each * settings.bounds.pass_deadline_s / OF_DEADLINE
        least = max(1, round(min(max(LEAST, (rows_per_s or 0.0) * settings.batches.batch_s), in_time)))
        known, measured = self.rows or FIRST_ROWS, max(least, round(min(each * wanted_s, rows * GROWTH)))
        if took_s > wanted_s:
            return replace(sizes, rows=max(least, min(known, measured)))
        # How fast small batches are says nothing against large ones.
        return replace(sizes, rows=max(known, measured)) if self.behind and not degraded else sizes


def for_rows_s(settings: Settings, fixed_s: float) -> float:
    """How long the rows of a full pass may take: the batch interval, or longer if scheduling is a large part."""
    interval_s = settings.batches.batch_s or WITHOUT_INTERVAL_S
    longest_s = max(LONGER * interval_s, WITHOUT_INTERVAL_S)
    return min(max(interval_s, WORTH * fixed_s), longest_s, settings.bounds.pass_deadline_s / OF_DEADLINE)


def largest_source(graph: TaskGraph, reports: Sequence[TaskReport]) -> int:
    """The rows of the source that had most in a pass; a source task that was stepped twice counts once. O(tasks)."""
    of_task = {graph.number(report.version.task): report.rows for report in reports}
    of_source: dict[int, int] = {}
    for task, rows in of_task.items():
        operator = int(graph.operator_of[task])
        if not graph.streams[operator]:
            of_source[operator] = of_source.get(operator, 0) + rows
    return max(of_source.values(), default=0)
