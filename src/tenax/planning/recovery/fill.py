"""What is left of a capacity goes towards the queries that come next."""

from __future__ import annotations

import numpy as np

from tenax.model.graph import Bools, Floats, Ints
from tenax.planning.recovery.outage import Outage


def fill(outage: Outage, chosen: Bools, capacity: int) -> Bools:
    """Add partitions to a choice until no other fits, as Figure 2 does when nodes N1 and N3 arrive.

    The densest open query comes first (profit density as in BestDensity, ties in task order), its partitions in task
    order, skipping those that do not fit; then the next query; last the partitions that no query needs. Each query
    is looked at once: O(queries × (queries + partitions)).
    """
    filled = chosen.copy()
    room = capacity - int(outage.cost[chosen].sum())
    needs = outage.needs
    weight: Floats = needs.astype(np.float64) @ np.where(filled, 0.0, outage.shared_cost)
    waiting = ~outage.completed(filled)
    for _ in range(len(outage.queries)):
        if not waiting.any() or room < outage.cost[~filled].min(initial=room + 1):
            break
        query = _densest(outage.priority, weight, waiting)
        waiting[query] = False
        added = _that_fit(outage.cost, np.flatnonzero(needs[query] & ~filled), room)
        if added.size:
            filled[added] = True
            room -= int(outage.cost[added].sum())
            weight -= needs[:, added] @ outage.shared_cost[added]
    rest = np.flatnonzero(~filled)
    filled[_that_fit(outage.cost, rest, room)] = True
    return filled


def _densest(priority: Ints, weight: Floats, waiting: Bools) -> int:
    """The waiting query with most priority per shared cost; one that costs nothing any more goes first."""
    free = weight <= np.finfo(np.float64).eps * priority.size
    density = np.where(free, np.inf, priority / np.where(free, 1.0, weight)).astype(np.float32)
    density[~waiting] = -1.0
    return int(density.argmax())


def _that_fit(cost: Ints, partitions: Ints, room: int) -> Ints:
    """Those that fit one after the other, skipping any that does not."""
    if int(cost[partitions].sum()) <= room:
        return partitions
    taken: list[int] = []
    for partition in partitions.tolist():
        if cost[partition] <= room:
            taken.append(partition)
            room -= int(cost[partition])
    return np.array(taken, dtype=np.int64)
