"""How much priority no plan can exceed, without looking for one."""

from __future__ import annotations

import numpy as np

from tenax.planning.recovery.outage import Candidates, Outage

ROUNDING = 1e-9  # above what the floats below can be wrong by, as a part of the bound


def upper_bound(outage: Outage, capacity: int) -> int:
    """The priority, in ticks, of the best plan that may take a part of its last query. O(queries · log queries).

    Dividing each partition's cost among all queries that need it makes queries independent, and never costs a plan
    more than it pays: what remains is a knapsack, relaxed.
    """
    candidates = Candidates.of(outage, capacity)
    if not len(candidates):
        return 0
    weight = candidates.needs @ candidates.weight
    order = np.argsort(weight / candidates.priority, kind="stable")
    weight, priority = weight[order], candidates.priority[order]
    before = np.cumsum(weight) - weight
    part = np.clip((capacity - before) / np.where(weight > 0, weight, 1.0), 0.0, 1.0)
    part[weight == 0] = 1.0
    return min(int(priority.sum()), int((part @ priority) * (1 + ROUNDING)))
