"""Replica plans as unions of MC-trees, all of them, by growing size (Su, Zhou 2016, algorithm 1)."""

from __future__ import annotations

from collections.abc import Iterable

from tenax.errors import TooLarge
from tenax.model.graph import TaskGraph
from tenax.model.plans import Metric
from tenax.planning.replicas.scoring import exceeds, plan_values
from tenax.planning.trees import enumerate_trees

MAX_TREES = 2_000
MAX_PLANS = 50_000
MAX_UNIONS = 5_000_000


def best_union(graph: TaskGraph, budget: int, metric: Metric) -> tuple[int, ...]:
    """The best union of MC-trees within the budget, of equal ones the smallest; optimal for fidelity.

    Starts from the empty plan. A plan is extended by every tree when its own size is reached: that visits the same
    plans as scanning, at each usage, for trees that need exactly the missing number of tasks. O(plans × trees), and
    there can be 2^trees plans: bounded by MAX_TREES, MAX_PLANS and MAX_UNIONS.
    """
    safe = frozenset(task for task in range(len(graph)) if graph.safe[task])
    sets = dict.fromkeys(tree - safe for tree in enumerate_trees(graph, MAX_TREES))
    trees = [sum(1 << task for task in tree) for tree in sets if len(tree) <= budget]
    by_size: list[dict[int, None]] = [{} for _ in range(min(budget, len(graph)) + 1)]
    by_size[0][0] = None
    plans, unions = 1, 0
    best, best_value = 0, -1.0
    for plans_of_size in by_size:
        if not plans_of_size:
            continue
        unions += len(plans_of_size) * len(trees)
        values = plan_values(graph, metric, [_tasks(plan) for plan in plans_of_size])
        for plan, value in zip(plans_of_size, values, strict=True):
            if exceeds(float(value), best_value):
                best, best_value = plan, float(value)
            if unions > MAX_UNIONS:
                continue
            for tree in trees:
                union = plan | tree
                size = union.bit_count()
                if size < len(by_size) and union not in by_size[size]:
                    by_size[size][union] = None
                    plans += 1
            if plans > MAX_PLANS:
                break
        if plans > MAX_PLANS or unions > MAX_UNIONS:
            raise TooLarge(
                f"dp keeps at most {MAX_PLANS:,} plans and tries {MAX_UNIONS:,} unions, found more for "
                f"{len(trees):,} MC-trees and budget {budget}: use the algorithm exact or structure-aware"
            )
    return tuple(_tasks(best))


def _tasks(plan: int) -> Iterable[int]:
    tasks: list[int] = []
    while plan:
        low = plan & -plan
        tasks.append(low.bit_length() - 1)
        plan ^= low
    return tasks
