"""Incremental recovery: nodes arrive one by one and take what brings most queries back (Su, Zhou 2021, section 4.4)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from tenax.errors import InvalidRequest
from tenax.model.graph import Bools, Ints, TaskGraph
from tenax.model.plans import Arrival, RecoverySchedule
from tenax.planning.recovery.facade import Choice, check_request, choose
from tenax.planning.recovery.fill import fill
from tenax.planning.recovery.outage import Outage
from tenax.planning.ticks import Ticks

PLANNED_ROUNDS = 3
"""How often an arrival is planned anew because something fitted no single node; afterwards gaps are just filled."""


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
        host, names = _arrive(graph, outage, room, count, algorithm, time_limit_s)
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


def _arrive(
    graph: TaskGraph, outage: Outage, room: list[int], count: int, algorithm: str | None, time_limit_s: float
) -> tuple[Ints, list[str]]:
    """The node of every partition that starts now, -1 for the others; takes their cost from `room`."""
    host = np.full(len(outage.partitions), -1, dtype=np.int64)
    stuck = np.zeros(len(host), dtype=np.bool_)
    names: list[str] = []
    operator_centric = algorithm == "operator-centric"
    for attempt in range(len(host)):  # each round but the last finds another that fits no node
        placed = host >= 0
        rest = outage.after(placed)
        blocked = (stuck[~placed]) | (rest.cost > max(room[:count]))
        if attempt < PLANNED_ROUNDS:
            choice = choose(graph, rest, blocked, sum(room[:count]), algorithm, time_limit_s)
            names.append(choice.algorithm)
        else:
            choice = _fill_only(rest, blocked, sum(room[:count]))
        missed = False
        position = np.flatnonzero(~placed)
        for partition in _packing_order(graph, rest, choice.partitions).tolist():
            cost = int(rest.cost[partition])
            node = max(range(count), key=lambda index: (room[index], -index))
            if cost <= room[node]:
                room[node] -= cost
                host[position[partition]] = node
            else:
                stuck[position[partition]] = missed = True
        if operator_centric or not missed:
            break
    return host, names


def _fill_only(outage: Outage, blocked: Bools, room: int) -> Choice:
    rest = outage.without(blocked)
    partitions = np.zeros(len(outage.partitions), dtype=np.bool_)
    partitions[~blocked] = fill(rest, np.zeros(len(rest.partitions), dtype=np.bool_), room)
    return Choice("fill", partitions, 0)


def _packing_order(graph: TaskGraph, outage: Outage, chosen: Bools) -> Ints:
    """What brings queries back before what only fills; then by operator, the costlier first, then by index.

    Small partitions still fit into the gaps that large ones leave, and not the other way round.
    """
    completes = outage.needs[outage.completed(chosen)].any(axis=0)
    numbers = outage.partitions
    order = np.lexsort((numbers, -outage.cost, graph.operator_of[numbers], ~completes))
    return np.asarray(order[chosen[order]])


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
