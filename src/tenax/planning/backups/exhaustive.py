"""Fewest backups by trying every set of tasks, smallest sets first."""

from __future__ import annotations

import math
from itertools import combinations, islice

import numpy as np

from tenax.errors import TooLarge
from tenax.model.graph import Bools
from tenax.planning.backups.latency import propagate
from tenax.planning.backups.problem import BackupProblem, Choice

MAX_SUBSETS = 2_000_000  # all sets of 20 tasks, or of up to 4 among 80
BATCH_CELLS = 1_000_000  # sets scored together × tasks: a few megabytes


def exhaustive(problem: BackupProblem) -> Choice:
    """Of the smallest sets that keep the bound the one of least overall latency, the first in task order on ties.

    The exhaustive search of Li et al. 2017. O(sets × (tasks + operators)); the number of sets is bounded.
    """
    graph = problem.graph
    candidates = np.flatnonzero(np.repeat([bool(streams) for streams in graph.consumers], np.diff(graph.first)))
    tried = 0
    for count in range(len(candidates) + 1):
        tried += math.comb(len(candidates), count)
        if tried > MAX_SUBSETS:
            raise TooLarge(
                f"algorithm 'exhaustive' tries at most {MAX_SUBSETS:,} sets, found {tried:,} of up to {count} backups "
                f"among {len(candidates)} tasks: use 'exact'"
            )
        best = _best_of_size(problem, candidates.tolist(), count)
        if best is not None:
            return Choice("exhaustive", best, count)
    raise AssertionError("with every consumed task a backup, no latency exceeds a single task's time")


def _best_of_size(problem: BackupProblem, candidates: list[int], count: int) -> Bools | None:
    """The best set of that size, or none that keeps the bound."""
    size = len(problem.graph)
    sets = combinations(candidates, count)
    best: Bools | None = None
    least = problem.limit + 1
    while batch := list(islice(sets, max(1, BATCH_CELLS // size))):  # ends with the combinations
        backups = np.zeros((len(batch), size), dtype=np.bool_)
        if count:
            np.put_along_axis(backups, np.array(batch, dtype=np.int64), True, axis=1)
        overall = propagate(problem.graph, problem.reprocess, ~backups).max(axis=-1)
        first = int(np.argmin(overall))
        if overall[first] < least:
            best, least = backups[first], int(overall[first])
    return best
