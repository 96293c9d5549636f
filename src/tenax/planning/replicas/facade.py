"""The facade of the replica planners: one request, several algorithms, one kind of plan."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from tenax.errors import InvalidRequest, TooLarge
from tenax.model.graph import TaskGraph
from tenax.model.plans import Metric, ReplicaPlan
from tenax.model.topology import suggestion
from tenax.planning.replicas.exact import MAX_TASKS, exact
from tenax.planning.replicas.greedy import greedy
from tenax.planning.replicas.scoring import exceeds, plan_value
from tenax.planning.replicas.structure_aware import structure_aware
from tenax.planning.replicas.tree_unions import best_union

ALGORITHMS = ("exact", "structure-aware", "greedy", "dp")
MAX_PLANNED_TASKS = 30_000  # the heuristics score every single task against all others
HIGHEST = 1.0  # what no plan exceeds, whatever the topology


def plan_replicas(
    graph: TaskGraph,
    budget: int,
    algorithm: str | None = None,
    metric: Metric = Metric.FIDELITY,
    time_limit_s: float = 10.0,
) -> ReplicaPlan:
    """Choose at most `budget` tasks to run a second time, so that as much as possible is kept when all others fail.

    Without an algorithm: exact, and where it cannot prove its plan within the limit, the best of it and the
    heuristics, with its name; asked for exact, likewise, with the name exact. The limit is a count of steps, about
    that many seconds on a slow machine: the same request always gives the same plan.
    """
    if isinstance(budget, bool) or not isinstance(budget, int) or budget < 0:
        raise InvalidRequest(f"a budget is a whole number of at least 0, found {budget!r}: give the number of replicas")
    if len(graph) > MAX_PLANNED_TASKS:
        raise TooLarge(
            f"replica plans are for at most {MAX_PLANNED_TASKS:,} tasks, found {len(graph):,}: divide the "
            "parallelism of all operators, and let a replica stand for several tasks"
        )
    if not (math.isfinite(time_limit_s) and time_limit_s > 0):
        raise InvalidRequest(f"a time limit is a number of seconds above 0, found {time_limit_s}: give one")
    match algorithm:
        case None:
            return _best(graph, budget, metric, time_limit_s)
        case "exact":
            return replace(_best(graph, budget, metric, time_limit_s), algorithm="exact")
        case "structure-aware":
            return _plan(graph, algorithm, metric, structure_aware(graph, budget, metric), HIGHEST)
        case "greedy":
            return _plan(graph, algorithm, metric, greedy(graph, budget, metric), HIGHEST)
        case "dp":
            tasks = best_union(graph, budget, metric)
            optimal = metric is Metric.FIDELITY  # for completeness, tasks outside complete trees count too
            return _plan(graph, algorithm, metric, tasks, plan_value(graph, metric, tasks) if optimal else HIGHEST)
        case _:
            raise InvalidRequest(f"unknown algorithm {algorithm!r}{suggestion(algorithm, ALGORITHMS)}")


def _best(graph: TaskGraph, budget: int, metric: Metric, time_limit_s: float) -> ReplicaPlan:
    plans: list[ReplicaPlan] = []
    bound = HIGHEST
    if len(graph) <= MAX_TASKS:
        proof = exact(graph, budget, metric, time_limit_s)
        plans.append(_plan(graph, "exact", metric, proof.tasks, proof.bound))
        bound = proof.bound
    if not plans or not plans[0].optimal:
        plans.append(_plan(graph, "structure-aware", metric, structure_aware(graph, budget, metric), bound))
        plans.append(_plan(graph, "greedy", metric, greedy(graph, budget, metric), bound))
    best = plans[0]
    for plan in plans[1:]:
        if exceeds(plan.value, best.value):
            best = plan
    return best


def _plan(graph: TaskGraph, algorithm: str, metric: Metric, tasks: Iterable[int], bound: float) -> ReplicaPlan:
    """A plan with its values; it is optimal if it reaches what no plan exceeds."""
    chosen = tuple(tasks)
    fidelity = min(1.0, max(0.0, plan_value(graph, Metric.FIDELITY, chosen)))
    completeness = min(1.0, max(0.0, plan_value(graph, Metric.COMPLETENESS, chosen)))
    value = fidelity if metric is Metric.FIDELITY else completeness
    bound = min(1.0, max(value, bound))
    optimal = not exceeds(bound, value)
    return ReplicaPlan(algorithm, metric, graph.tasks(chosen), fidelity, completeness, optimal, bound)
