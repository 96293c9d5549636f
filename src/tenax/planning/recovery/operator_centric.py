"""The usual way, to compare with: operator after operator, whatever the queries need."""

from __future__ import annotations

import numpy as np

from tenax.model.graph import Bools, Ints
from tenax.planning.recovery.outage import Outage


def operator_centric(outage: Outage, operator_of: Ints, capacity: int) -> Bools:
    """Operators in topological order, their cheapest partition first, up to the first that does not fit.

    Ties go by index. O(partitions · log partitions).
    """
    partitions = outage.partitions
    chosen = np.zeros(len(partitions), dtype=np.bool_)
    room = capacity
    for partition in np.lexsort((partitions, outage.cost, operator_of[partitions])).tolist():
        room -= int(outage.cost[partition])
        if room < 0:
            break
        chosen[partition] = True
    return chosen
