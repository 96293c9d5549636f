"""Dynamic programming over the costs that plans can reach (Su, Zhou 2021, Algorithm 3)."""

from __future__ import annotations

import heapq

import numpy as np

from tenax.errors import TooLarge
from tenax.model.graph import Bools
from tenax.planning.recovery.outage import Candidates, Outage

MAX_PLANS = 300_000  # any 18 queries fit, the most that the paper tried (2^18 plans)


def dynamic(outage: Outage, capacity: int) -> Bools:
    """Choose partitions of the highest priority; among those, of the lowest cost.

    Algorithm 3, mended: it starts from the empty plan, goes up through the costs that plans reach instead of every
    unit, and keeps the best plan apart. O(2^queries × queries), refused above `MAX_PLANS`.
    """
    candidates = Candidates.of(outage, capacity)
    # A plan is the set of its groups, as bits of an integer.
    needs = [sum(1 << int(group) for group in np.flatnonzero(row)) for row in candidates.needs]
    cost_of = candidates.cost.tolist()
    priority = candidates.priority.tolist()
    best_key, best = (-1, 0), 0
    known = {0}
    reached = [(0, 0)]
    while reached:  # each plan once, and at most MAX_PLANS of them
        if len(known) > MAX_PLANS:
            raise TooLarge(
                f"dp keeps at most {MAX_PLANS:,} plans, found more for {len(needs)} queries: use the algorithm exact"
            )
        cost, plan = heapq.heappop(reached)
        worth = 0
        for query, need in enumerate(needs):
            missing = need & ~plan
            if not missing:
                worth += priority[query]
                continue
            larger = plan | need
            if larger not in known:
                larger_cost = cost + _cost(missing, cost_of)
                if larger_cost <= capacity:
                    known.add(larger)
                    heapq.heappush(reached, (larger_cost, larger))
        if (worth, -cost) > best_key:
            best_key, best = (worth, -cost), plan
    chosen = np.array([not need & ~best for need in needs], dtype=np.bool_)
    return candidates.partitions(outage, chosen)


def _cost(groups: int, cost_of: list[int]) -> int:
    total = 0
    while groups:  # one round per bit
        lowest = groups & -groups
        total += cost_of[lowest.bit_length() - 1]
        groups ^= lowest
    return total
