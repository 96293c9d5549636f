"""Incremental recovery: nodes arrive one by one and take what brings most queries back (Su, Zhou 2021, section 4.4)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from tenax.errors import InvalidRequest
from tenax.model.graph import Bools, TaskGraph
from tenax.model.plans import Arrival, RecoverySchedule
from tenax.planning.recovery.facade import check_request
from tenax.planning.recovery.outage import Outage
from tenax.planning.recovery.packing import pack
from tenax.planning.ticks import Ticks


def schedule_recovery(
    graph: TaskGraph,
    failed: Bools,
    nodes: Sequence[tuple[str, float]],
    limit: float = 0.8,
    algorithm: str | None = None,
    time_limit_s: float = 10.0,
) -> RecoverySchedule:
    """Place the failed tasks on nodes as these arrive, each filled up to `limit` of its capacity and no further.

    At each arrival the room of all nodes so far is planned as one capacity. What then fits no single node waits, and
    the room is planned again without it; operator-centric, which keeps its order, is planned once. The schedule ends
    when everything is placed. O(arrivals) plans, each up to the time limit.
    """
    check_request(algorithm, time_limit_s)
    _check_nodes(nodes, limit)
    usable = [Fraction(repr(float(limit))) * Fraction(repr(float(capacity))) for _, capacity in nodes]
    largest = float(max(usable, default=Fraction(0)))
    costs = graph.cost[failed]
    possible = costs <= largest
    unit = Ticks.of(costs[possible], np.array([float(capacity) for capacity in usable]))
    room = [math.floor(capacity * Fraction(10) ** unit.decimals) for capacity in usable]
    ticks = np.where(possible, unit.up(np.minimum(costs, largest)), max(room, default=0) + 1)

    outage = Outage.of(graph, failed, ticks)
    arrivals: list[Arrival] = []
    used: list[str] = []
    for count, (name, _) in enumerate(nodes, start=1):
        if not outage.partitions.size:
            break
        arrived = room[:count]
        host, names = pack(graph, outage, arrived, algorithm, time_limit_s)
        room[:count] = arrived
        used += names
        placed = host >= 0
        arrivals.append(
            Arrival(
                name,
                {
                    graph.task(int(partition)): nodes[int(node)][0]
                    for partition, node in zip(outage.partitions[placed], host[placed], strict=True)
                },
                graph.tasks(outage.queries[outage.completed(placed)]),
            )
        )
        outage = outage.after(placed)
    named = ", ".join(sorted(set(used))) or algorithm or "exact"
    return RecoverySchedule(named, tuple(arrivals), graph.tasks(outage.partitions))


def _check_nodes(nodes: Sequence[tuple[str, float]], limit: float) -> None:
    if not 0 < limit <= 1:
        raise InvalidRequest(f"limit is the usable part of a node, above 0 and at most 1, found {limit}: correct it")
    seen: set[str] = set()
    for name, capacity in nodes:
        if name in seen:
            raise InvalidRequest(f"each node arrives once, found {name!r} twice: rename one")
        seen.add(name)
        if not math.isfinite(capacity) or capacity < 0:
            raise InvalidRequest(
                f"node {name!r}: capacity is a finite number of at least 0, found {capacity}: correct it"
            )
