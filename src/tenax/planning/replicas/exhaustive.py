"""The best replica plan of a few tasks by scoring every plan: for tangles that no bound gets a hold of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tenax.model.graph import TaskGraph
from tenax.model.plans import Metric
from tenax.planning.replicas.scoring import CELLS_PER_BATCH, exceeds, first_highest, scores

MAX_TASKS = 22


def exhaustive_cells(graph: TaskGraph, tasks: int) -> float:
    """How many cells, plans × tasks of the graph, are to be scored to try all plans of so many tasks."""
    return float(2**tasks * len(graph)) if tasks <= MAX_TASKS else float("inf")


def best_of_all(graph: TaskGraph, budget: int, metric: Metric, tasks: Sequence[int]) -> frozenset[int]:
    """The plan of highest value with at most `budget` of these tasks, of equal ones the smallest. O(2^tasks)."""
    plans = np.arange(2 ** len(tasks), dtype=np.int64)
    sizes = np.bitwise_count(plans)
    plans = plans[np.argsort(sizes, kind="stable")][: int((sizes <= budget).sum())]  # small ones first
    rows = max(1, CELLS_PER_BATCH // len(graph))
    best, best_value = 0, -1.0
    for start in range(0, len(plans), rows):
        part = plans[start : start + rows]
        failed = np.tile(~graph.safe, (len(part), 1))
        for bit, task in enumerate(tasks):
            failed[:, task] = (part >> bit) & 1 == 0
        values = scores(graph, metric, failed)
        first = first_highest(values)
        if exceeds(float(values[first]), best_value):
            best, best_value = int(part[first]), float(values[first])
    return frozenset(task for bit, task in enumerate(tasks) if best >> bit & 1)
