"""The minimum-backups problem in whole numbers, and the errors of asking for the impossible."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tenax.errors import Infeasible, InvalidRequest
from tenax.model.graph import Bools, Ints, TaskGraph
from tenax.model.plans import BackupPlan
from tenax.model.tasks import Task
from tenax.planning.backups.latency import recovery_latencies
from tenax.planning.ticks import Ticks

LEAST_LATENCY_S = 1e-9  # ticks are no finer than a nanosecond


@dataclass(frozen=True, slots=True, eq=False)
class BackupProblem:
    """A graph and a bound on its recovery latency, in a common unit of time.

    - `reprocess` is T(v) of every task and `limit` is R, both in whole units; no single T exceeds the limit.
    - What holds in units holds in truth: T is rounded up and R down where they have more decimals than a tick.
    """

    graph: TaskGraph
    latency_s: float
    reprocess: Ints
    limit: int

    @classmethod
    def of(cls, graph: TaskGraph, latency_s: float) -> BackupProblem:
        """Check the request and count in units."""
        if not math.isfinite(latency_s) or latency_s < LEAST_LATENCY_S:
            raise InvalidRequest(
                f"a latency bound is a finite number of seconds above 0 (at least {LEAST_LATENCY_S:g}), found "
                f"{seconds(latency_s)}: give --latency a positive number"
            )
        slowest = int(np.argmax(graph.reprocess))
        if graph.reprocess[slowest] > latency_s:
            needed, task = seconds(float(graph.reprocess[slowest])), graph.task(slowest)
            raise Infeasible(
                f"no plan keeps a bound below the time of a single task, found {task} with {needed} s above "
                f"{seconds(latency_s)} s: raise --latency to at least {needed} or checkpoint {task.operator} more often"
            )
        with np.errstate(over="ignore"):
            longest = 2.0 * float(np.ceil(graph.reprocess.sum()))
        bound = min(latency_s, longest)  # a bound that no path reaches must not make the ticks coarse
        ticks = Ticks.of(graph.reprocess, bound)
        limit = int(ticks.down(bound))
        # A T(v) equal to R with too many decimals would round to one tick more than R. Cut back to R it is still
        # safe: whatever else a path then adds is at least one tick more, and is refused.
        reprocess = np.minimum(ticks.up(graph.reprocess), limit)
        unit = max(1, int(np.gcd.reduce(reprocess)))
        return cls(graph, latency_s, reprocess // unit, limit // unit)


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """What an algorithm decided: a boolean per task, and a number of backups that no plan can do without."""

    algorithm: str
    backups: Bools
    bound: int

    @property
    def count(self) -> int:
        """The number of backups."""
        return int(np.count_nonzero(self.backups))


def as_plan(problem: BackupProblem, choice: Choice) -> BackupPlan:
    """The choice with names and with its latency in seconds."""
    latency_s = float(recovery_latencies(problem.graph, choice.backups).max())
    return BackupPlan(
        algorithm=choice.algorithm,
        backups=_names(problem.graph, choice.backups),
        recovery_latency_s=min(latency_s, problem.latency_s),  # floats of many decimals may add up to a hair more
        optimal=choice.count == choice.bound,
        bound=choice.bound,
    )


def seconds(value: float) -> str:
    """A number of seconds as people write it, without losing a digit."""
    return repr(float(value)).removesuffix(".0")


def _names(graph: TaskGraph, mask: Bools) -> tuple[Task, ...]:
    """Task names in task order, operator by operator: a million of them take less than a second."""
    names: list[Task] = []
    for number in np.unique(graph.operator_of[mask]).tolist():
        operator = graph.operators[number].name
        names += [Task(operator, index) for index in np.flatnonzero(mask[graph.span(number)]).tolist()]
    return tuple(names)
