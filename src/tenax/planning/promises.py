"""How soon lost tasks are back, as measured; and the backups that keep that within a bound as tasks change."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from tenax.model.graph import TaskGraph
from tenax.model.tasks import Task
from tenax.planning.backups import plan_backups, recovery_latencies
from tenax.planning.node_losses import NodeLoss, Rounds, node_losses


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


def with_losses(
    promise: Promise,
    graph: TaskGraph,
    backups: Collection[Task],
    homes: Mapping[Task, str],
    covered: Collection[Task],
    rounds: Rounds,
) -> Promise:
    """The same with what it is for the loss of every node. O(nodes × (tasks + edges))."""
    of_numbers = {graph.number(task): home for task, home in homes.items()}
    return replace(promise, losses=node_losses(graph, of_numbers, graph.mask(covered), graph.mask(backups), rounds))


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
