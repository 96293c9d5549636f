"""The best plan, and proof of it: all query sets where they are few, otherwise solvers under a time limit."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tenax.model.graph import Bools, Ints
from tenax.planning.recovery.best_density import one_density
from tenax.planning.recovery.bound import upper_bound
from tenax.planning.recovery.outage import Candidates, Outage, merge
from tenax.planning.recovery.solvers import find, prove

ENUMERATED_QUERIES = 20
"""Up to here all query sets are tried: tens of milliseconds, where loading a solver alone takes longer."""
CLEAR_UNITS = 1_000_000
"""Up to here one unit of priority stands clear of the tolerance of a solver that computes with floats."""
WELL_BELOW_A_UNIT = 0.01
"""Above that tolerance."""


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """Chosen partitions, and the priority in ticks that no plan exceeds: what is worth that much is optimal."""

    partitions: Bools
    bound: int


def exact(outage: Outage, capacity: int, time_limit_s: float) -> Solution:
    """Choose partitions of the highest priority; up to `ENUMERATED_QUERIES`, of those the cheapest.

    Partitions needed by the same queries are one group, queries with the same needs are one query, and queries that
    alone exceed the capacity are left out. SCIP searches for half of the time; its proof counts when priorities are
    far coarser than its tolerance and its plan fits in whole ticks. Otherwise CP-SAT goes on from there in whole
    numbers. Worst case O(2^queries).
    """
    candidates = Candidates.of(outage, capacity)
    first, kind = merge(candidates.needs)
    needs = candidates.needs[first]
    priority = np.zeros(len(first), dtype=np.int64)
    np.add.at(priority, kind, candidates.priority)
    merged = Candidates(candidates.rows[first], needs, candidates.cost, candidates.weight, priority)
    chosen, bound = _solve(merged, capacity, min(int(priority.sum()), upper_bound(outage, capacity)), time_limit_s)
    return Solution(candidates.partitions(outage, chosen[kind]), bound)


def _solve(candidates: Candidates, capacity: int, bound: int, time_limit_s: float) -> tuple[Bools, int]:
    """The chosen candidates, and a bound on what any choice is worth."""
    if int(candidates.cost.sum()) <= capacity:
        return np.ones(len(candidates), dtype=np.bool_), int(candidates.priority.sum())
    if len(candidates) <= ENUMERATED_QUERIES:
        chosen = _best_of_all(candidates, capacity)
        return chosen, int(candidates.priority[chosen].sum())
    unit = int(np.gcd.reduce(candidates.priority))
    best = one_density(candidates, capacity)
    candidate, found_bound = find(candidates, capacity, best, time_limit_s / 2)
    if _cost(candidates, candidate) <= capacity and _worth(candidates, candidate) >= _worth(candidates, best):
        best = candidate
        if math.isfinite(found_bound) and int(candidates.priority.sum()) // unit <= CLEAR_UNITS:
            bound = max(_worth(candidates, best), min(bound, int(found_bound / unit + WELL_BELOW_A_UNIT) * unit))
    if _worth(candidates, best) < bound:
        candidate, found_bound = prove(candidates, capacity, best, time_limit_s / 2)
        if math.isfinite(found_bound):
            bound = max(_worth(candidates, best), min(bound, int(found_bound)))
        if _worth(candidates, candidate) > _worth(candidates, best):
            best = candidate
    return best, bound


def _best_of_all(candidates: Candidates, capacity: int) -> Bools:
    """Highest priority, then lowest cost, then the earliest queries in task order. O(2^queries × queries).

    A set of queries is a number whose highest bit is the first query. What a set leaves out costs the sum over all
    groups that only its complement needs: a sum over subsets, one pass per query (Yates).
    """
    count = len(candidates)
    bit = 1 << np.arange(count - 1, -1, -1, dtype=np.int64)
    unused = np.zeros(1 << count, dtype=np.int64)
    np.add.at(unused, bit @ candidates.needs, candidates.cost)
    worth = np.zeros(1, dtype=np.int64)
    for level, priority in enumerate(candidates.priority[::-1].tolist()):
        halves = unused.reshape(-1, 2, 1 << level)
        halves[:, 1] += halves[:, 0]
        worth = np.concatenate([worth, worth + priority])
    cost = int(candidates.cost.sum()) - unused[::-1]
    worth[cost > capacity] = -1
    best = np.flatnonzero(worth == worth.max())
    best = best[cost[best] == cost[best].min()]
    return np.asarray(bit & best[-1] > 0)


def _worth(candidates: Candidates, chosen: Bools) -> int:
    return int(candidates.priority[chosen].sum())


def _cost(candidates: Candidates, chosen: Bools) -> int:
    groups: Ints = candidates.cost[candidates.needs[chosen].any(axis=0)]
    return int(groups.sum())
