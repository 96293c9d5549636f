"""How soon a single lost task is back, as measured; and the backups that keep it within a bound as tasks change."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from tenax.model.graph import TaskGraph
from tenax.model.tasks import Task
from tenax.planning.backups import plan_backups, recovery_latencies


@dataclass(frozen=True, slots=True)
class Promise:
    """Within what time a single lost task is back whose backups live, by what was measured.

    - `steps_s` is the longest recovery latency L(v) with the backups; `scheduling_s` comes on top: until the loss is
      known, and what rounds take beside their steps.
    - `bound_s` is what was asked for; `broken_by` are the tasks that take longer, none if it is kept.
    """

    bound_s: float
    steps_s: float
    scheduling_s: float
    broken_by: tuple[Task, ...] = ()

    @property
    def total_s(self) -> float:
        """The time that is promised."""
        return self.steps_s + self.scheduling_s

    @property
    def holds(self) -> bool:
        """Whether every task is back within what was asked for."""
        return not self.broken_by


def promised(graph: TaskGraph, backups: Collection[Task], bound_s: float, scheduling_s: float) -> Promise:
    """What backups promise, by the reprocess times of a graph. O(tasks + operators)."""
    latencies = recovery_latencies(graph, graph.mask(backups))
    late = np.flatnonzero(latencies + scheduling_s > bound_s)
    return Promise(bound_s, float(latencies.max()), scheduling_s, graph.tasks(late))


def followed(
    graph: TaskGraph,
    present: Collection[Task],
    bound_s: float,
    scheduling_s: float,
    margin: float,
    time_limit_s: float,
) -> tuple[Task, ...]:
    """The backups for the reprocess times of a graph: the present ones, unless others are needed or fewer are enough.

    - They keep what is left of the bound beside scheduling; where that is less than the time of a single task, they
      keep that, which nothing can be below.
    - New ones are planned with a `margin` to the bound, so that they need not change with every measure.
    """
    least_s = float(graph.reprocess.max())
    goal_s = max(bound_s - scheduling_s, least_s)
    own = graph.tasks(sorted(graph.numbers(present)))
    keeps = promised(graph, own, goal_s, 0.0).holds
    if not least_s or (keeps and not own):
        return ()
    plan = plan_backups(graph, max(goal_s * (1.0 - margin), least_s), time_limit_s=time_limit_s)
    return own if keeps and len(own) <= len(plan.backups) else plan.backups
