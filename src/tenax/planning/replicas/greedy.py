"""Greedy replica plans: the tasks whose single failure hurts most (Su, Zhou 2016, algorithm 2)."""

from __future__ import annotations

import numpy as np

from tenax.model.graph import TaskGraph
from tenax.model.plans import Metric
from tenax.planning.replicas.scoring import CELLS_PER_BATCH, scores


def greedy(graph: TaskGraph, budget: int, metric: Metric) -> tuple[int, ...]:
    """The first `budget` tasks by the value when only that task fails, lowest first. O(tasks²), vectorised.

    It looks at one task at a time, so what it takes need not make up a single MC-tree.
    """
    candidates = np.flatnonzero(~graph.safe)
    rows = max(1, CELLS_PER_BATCH // len(graph))
    values = [np.zeros(0)]
    for start in range(0, len(candidates), rows):
        part = candidates[start : start + rows]
        failed = np.zeros((len(part), len(graph)), dtype=np.bool_)
        failed[np.arange(len(part)), part] = True
        values.append(scores(graph, metric, failed))
    order = np.argsort(np.round(np.concatenate(values), 12), kind="stable")  # equal values in task order
    return tuple(sorted(int(task) for task in candidates[order[:budget]]))
