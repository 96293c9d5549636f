"""How soon lost tasks are back, as measured; and the backups that keep that within a bound as tasks change."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np

from tenax.model.graph import TaskGraph
from tenax.model.tasks import Task
from tenax.planning.backups import plan_backups, recovery_latencies
from tenax.planning.node_losses import NodeLoss

TIGHTER = 6  # plans that are tried until the loss of every node is in time
STEP = 0.8  # of the time that single tasks had in the plan before, at most
SLACK_S = 1e-6  # less than the last plan took makes another one


@dataclass(frozen=True, slots=True)
class Promise:
    """Within what time lost tasks are back, by what was measured: a single one whose backups live, and all of a node.

    - `steps_s` is the longest recovery latency L(v) with the backups; `scheduling_s` comes on top: until the loss is
      known, and what rounds take beside their steps.
    - `bound_s` is what was asked for; `broken_by` are the tasks that take longer, none if it is kept.
    - `losses` says the same of every node. Tasks that were lost with it take turns, and may need each other.
    """

    bound_s: float
    steps_s: float
    scheduling_s: float
    broken_by: tuple[Task, ...] = ()
    losses: tuple[NodeLoss, ...] = ()

    @property
    def total_s(self) -> float:
        """The time that is promised for a single task."""
        return self.steps_s + self.scheduling_s

    @property
    def late_nodes(self) -> tuple[str, ...]:
        """The nodes whose tasks, lost together, take longer than what was asked for."""
        return tuple(loss.node for loss in self.losses if loss.total_s > self.bound_s)

    @property
    def holds(self) -> bool:
        """Whether every task is back within what was asked for, alone and with its node."""
        return not self.broken_by and not self.late_nodes

    @property
    def slowest(self) -> NodeLoss | None:
        """The node whose loss takes longest; None if that of no node was reckoned."""
        return max(self.losses, key=lambda loss: loss.total_s, default=None)


def promised(graph: TaskGraph, backups: Collection[Task], bound_s: float, scheduling_s: float) -> Promise:
    """What backups promise for single tasks, by the reprocess times of a graph. O(tasks + operators)."""
    latencies = recovery_latencies(graph, graph.mask(backups))
    late = np.flatnonzero(latencies + scheduling_s > bound_s)
    return Promise(bound_s, float(latencies.max()), scheduling_s, graph.tasks(late))


Losses = Callable[[Collection[Task]], tuple[NodeLoss, ...]]
"""What the loss of every node takes, with these backups."""


def followed(
    graph: TaskGraph,
    present: Collection[Task],
    bound_s: float,
    scheduling_s: float,
    margin: float,
    time_limit_s: float,
    losses: Losses = lambda _: (),
) -> tuple[Task, ...]:
    """The backups for the reprocess times of a graph: the present ones, unless others are needed or fewer are enough.

    - They keep what is left of the bound beside scheduling; where that is less than the time of a single task, they
      keep that, which nothing can be below.
    - New ones are planned with a `margin` to the bound, so that they need not change with every measure.
    - Nodes are what is lost, and their tasks take turns: single tasks get less time until the loss of every node is in
      time as well. Where nothing helps, as few stay as single tasks need.
    """
    least_s = float(graph.reprocess.max())
    goal_s = max(bound_s - scheduling_s, least_s)
    own = graph.tasks(sorted(graph.numbers(present)))
    keeps = promised(graph, own, goal_s, 0.0).holds
    slowest_s = _slowest_s(losses(own))
    in_time = keeps and slowest_s <= bound_s
    if not least_s or (in_time and not own):
        return ()
    goal_s = max(goal_s * (1.0 - margin), least_s)
    plans = [_planned(graph, goal_s, time_limit_s, losses)]
    while plans[-1].slowest_s > bound_s * (1.0 - margin) and goal_s > least_s and len(plans) < TIGHTER:
        goal_s = max(least_s, min(goal_s * STEP, plans[-1].latency_s - SLACK_S))
        plans.append(_planned(graph, goal_s, time_limit_s, losses))
    best = min(plans, key=lambda plan: max(plan.slowest_s, bound_s * (1.0 - margin)))  # the first of those in time
    if best.slowest_s > bound_s:
        if best.slowest_s > plans[0].slowest_s * (1.0 - margin):  # more backups hardly help
            best = plans[0]
        return own if keeps and slowest_s * (1.0 - margin) <= best.slowest_s else best.backups
    return own if in_time and len(own) <= len(best.backups) else best.backups


@dataclass(frozen=True, slots=True)
class _Plan:
    backups: tuple[Task, ...]
    latency_s: float
    slowest_s: float


def _planned(graph: TaskGraph, goal_s: float, time_limit_s: float, losses: Losses) -> _Plan:
    plan = plan_backups(graph, goal_s, time_limit_s=time_limit_s / TIGHTER)
    return _Plan(plan.backups, plan.recovery_latency_s, _slowest_s(losses(plan.backups)))


def _slowest_s(losses: Collection[NodeLoss]) -> float:
    return max((loss.total_s for loss in losses), default=0.0)
