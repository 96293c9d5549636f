"""Fewest backups where every task has at most one consumer: lines, trees and forests."""

from __future__ import annotations

import numpy as np

from tenax.model.graph import Bools
from tenax.planning.backups.problem import BackupProblem, Choice
from tenax.planning.backups.shapes import require_lines, require_tree

MAX_PROBES = 64  # a binary search over 64-bit integers takes no more


def line(problem: BackupProblem) -> Choice:
    """Fewest backups of parallel lines that may join in a sink: the tree greedy. O(tasks)."""
    require_lines(problem.graph)
    backups, _ = fewest(problem, problem.limit)
    return Choice("line", backups, int(backups.sum()))


def tree(problem: BackupProblem) -> Choice:
    """Fewest backups of a tree, from the sources down (Li et al. 2017, its Algorithm 3 mended). O(tasks)."""
    require_tree(problem.graph)
    backups, _ = fewest(problem, problem.limit)
    return Choice("tree", backups, int(backups.sum()))


def tree_of_least_latency(problem: BackupProblem) -> Choice:
    """Of the plans with the fewest backups for a tree, one with the smallest overall latency. O(tasks × log R).

    The fewest backups for a bound never rise with the bound, so the smallest bound that needs no more backups than R
    does is the smallest latency that so many backups can reach.
    """
    backups, high = fewest(problem, problem.limit)
    count = int(backups.sum())
    low = int(problem.reprocess.max())
    for _ in range(MAX_PROBES):
        if low >= high:
            break
        middle = (low + high) // 2
        trial, overall = fewest(problem, middle)
        if int(trial.sum()) == count:
            backups, high = trial, overall
        else:
            low = middle + 1
    return Choice("exact", backups, count)


def fewest(problem: BackupProblem, limit: int) -> tuple[Bools, int]:
    """Fewest backups of a tree for a bound, and the overall latency they give. O(tasks), an operator at a time.

    From the sources down, a task becomes a backup only when its consumer would exceed the bound. That is optimal: some
    task between there and the sources must be a backup, and as every task has one consumer, the one nearest to the
    violated consumer shortens all that any other would.
    """
    graph, reprocess = problem.graph, problem.reprocess
    backups = np.zeros(len(graph), dtype=np.bool_)
    latency = reprocess.copy()
    for operator, streams in enumerate(graph.streams):
        wait = np.zeros(graph.operators[operator].parallelism, dtype=np.int64)
        for stream in streams:
            producers = graph.span(stream.producer)
            after = np.asarray(
                stream.highest_back(reprocess[graph.span(operator)]), dtype=np.int64
            )  # the only consumer
            backups[producers] = latency[producers] + after > limit
            sent = np.where(backups[producers], 0, latency[producers])
            np.maximum(wait, stream.highest(sent), out=wait)
        latency[graph.span(operator)] += wait
    return backups, int(latency.max())
