"""The facade of the recovery planners: one request, several algorithms, one kind of plan."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tenax.errors import InvalidRequest
from tenax.model.graph import Bools, TaskGraph
from tenax.model.plans import RecoveryPlan
from tenax.model.topology import suggestion
from tenax.planning.recovery.best_density import best_density
from tenax.planning.recovery.bound import upper_bound
from tenax.planning.recovery.dynamic import dynamic
from tenax.planning.recovery.exact import exact
from tenax.planning.recovery.fill import fill
from tenax.planning.recovery.operator_centric import operator_centric
from tenax.planning.recovery.outage import Outage, exact_sum, fits, priority_ticks
from tenax.planning.ticks import Ticks

ALGORITHMS = ("exact", "best-density", "dp", "operator-centric")


def plan_recovery(
    graph: TaskGraph, failed: Bools, capacity: float, algorithm: str | None = None, time_limit_s: float = 10.0
) -> RecoveryPlan:
    """The failed tasks to recover so that the queries of the highest total priority come back within the capacity.

    Without an algorithm: exact; where the time limit passes before its proof, the better of what it found and
    best-density. What is left of the capacity goes towards the next queries, except for operator-centric.
    """
    check_request(algorithm, time_limit_s)
    capacity = float(capacity)  # numpy's floats print differently, and decimals are taken from what is printed
    if not math.isfinite(capacity) or capacity < 0:
        raise InvalidRequest(f"capacity is a finite number of at least 0, found {capacity}: state what nodes can take")
    costs = graph.cost[failed]
    if fits(costs, capacity):
        unit = Ticks.of(costs)
        ticks = unit.up(costs)
        room = int(ticks.sum())
    else:
        possible = costs <= capacity
        unit = Ticks.of(costs[possible], capacity)
        room = int(unit.down(capacity))
        ticks = np.where(possible, unit.up(np.minimum(costs, capacity)), room + 1)
    outage = Outage.of(graph, failed, ticks)
    choice = choose(graph, outage, outage.cost > room, room, algorithm, time_limit_s)
    queries = outage.queries[outage.completed(choice.partitions)]
    priority = exact_sum(graph.priority[queries])
    optimal = choice.bound <= outage.worth(choice.partitions)
    return RecoveryPlan(
        algorithm=choice.algorithm,
        recover=graph.tasks(outage.partitions[choice.partitions]),
        queries=graph.tasks(queries),
        priority=priority,
        cost=exact_sum(graph.cost[outage.partitions[choice.partitions]]),
        optimal=optimal,
        bound=priority if optimal else max(priority, priority_ticks(graph).number(choice.bound)),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """The partitions to recover, one boolean each, what chose them, and the priority in ticks that none exceeds."""

    algorithm: str
    partitions: Bools
    bound: int


def choose(
    graph: TaskGraph, outage: Outage, blocked: Bools, room: int, algorithm: str | None, time_limit_s: float
) -> Choice:
    """Choose among the partitions that are not blocked. Operator-centric knows no such thing: it stops there."""
    if algorithm == "operator-centric":
        return Choice(
            algorithm, operator_centric(outage, graph.operator_of, room), upper_bound(outage.without(blocked), room)
        )
    rest = outage.without(blocked)
    name, chosen, bound = _query_centric(rest, room, algorithm, time_limit_s)
    partitions = np.zeros(len(outage.partitions), dtype=np.bool_)
    partitions[~blocked] = fill(rest, chosen, room)
    return Choice(name, partitions, bound)


def _query_centric(outage: Outage, room: int, algorithm: str | None, time_limit_s: float) -> tuple[str, Bools, int]:
    if algorithm == "best-density":
        return algorithm, best_density(outage, room), upper_bound(outage, room)
    if algorithm == "dp":
        chosen = dynamic(outage, room)
        return algorithm, chosen, outage.worth(chosen)
    solution = exact(outage, room, time_limit_s)
    worth = outage.worth(solution.partitions)
    if algorithm is None and worth < solution.bound:
        chosen = best_density(outage, room)
        if outage.worth(chosen) > worth:
            return "best-density", chosen, solution.bound
    return "exact", solution.partitions, solution.bound


def check_request(algorithm: str | None, time_limit_s: float) -> None:
    """Refuse an unknown algorithm or a time limit that is none."""
    if algorithm is not None and algorithm not in ALGORITHMS:
        raise InvalidRequest(f"unknown algorithm {algorithm!r}{suggestion(algorithm, ALGORITHMS)}")
    if not math.isfinite(time_limit_s) or time_limit_s <= 0:
        raise InvalidRequest(f"a time limit is a finite number of seconds above 0, found {time_limit_s}: raise it")
