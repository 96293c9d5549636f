"""Packing: which failed tasks go to which nodes, by the plan of an order and the room that every node has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from tenax.model.graph import Bools, Ints, TaskGraph
from tenax.model.tasks import Task
from tenax.planning.recovery.facade import Choice, check_request, choose
from tenax.planning.recovery.fill import fill
from tenax.planning.recovery.outage import Outage
from tenax.planning.ticks import Ticks

PLANNED_ROUNDS = 3
"""How often it is planned anew because something fitted no single node; afterwards gaps are just filled."""
MAX_TRIES = 10_000  # places that are tried for the tasks of one query


@dataclass(frozen=True, slots=True)
class Packing:
    """Where failed tasks go, in task order, and the queries that are back with them."""

    homes: Mapping[Task, str]
    queries: tuple[Task, ...]


def pack_recovery(
    graph: TaskGraph, failed: Bools, rooms: Mapping[str, float], algorithm: str | None, time_limit_s: float
) -> Packing:
    """Put failed tasks on nodes with so much room, the best queries first.

    The room of all nodes is planned as one capacity. What then fits no single node waits, and the rest is planned
    again. In the end a query that fits as a whole into what is left never waits, whatever the order had in mind.
    """
    check_request(algorithm, time_limit_s)
    costs, names = graph.cost[failed], list(rooms)
    free = np.array([rooms[name] for name in names], dtype=np.float64)
    possible = costs <= free.max(initial=0.0)
    unit = Ticks.of(costs[possible], free)
    room = [int(ticks) for ticks in unit.down(free)]
    ticks = np.where(possible, unit.up(np.where(possible, costs, 0.0)), max(room, default=0) + 1)
    outage = Outage.of(graph, failed, ticks)
    host = pack(graph, outage, room, algorithm, time_limit_s)[0] if names else np.full(len(ticks), -1)
    complete(outage, host, room)
    placed = host >= 0
    homes = zip(graph.tasks(outage.partitions[placed]), (names[int(node)] for node in host[placed]), strict=True)
    return Packing(dict(homes), graph.tasks(outage.queries[outage.completed(placed)]))


def pack(
    graph: TaskGraph, outage: Outage, room: list[int], algorithm: str | None, time_limit_s: float
) -> tuple[Ints, list[str]]:
    """The node of every partition that starts now, -1 for the others, and what planned it; takes from `room`."""
    host = np.full(len(outage.partitions), -1, dtype=np.int64)
    stuck = np.zeros(len(host), dtype=np.bool_)
    names: list[str] = []
    operator_centric = algorithm == "operator-centric"
    for attempt in range(len(host)):  # each round but the last finds another that fits no node
        placed = host >= 0
        rest = outage.after(placed)
        blocked = (stuck[~placed]) | (rest.cost > max(room))
        if attempt < PLANNED_ROUNDS:
            choice = choose(graph, rest, blocked, sum(room), algorithm, time_limit_s)
            names.append(choice.algorithm)
        else:
            choice = _fill_only(rest, blocked, sum(room))
        missed = False
        position = np.flatnonzero(~placed)
        for partition in _packing_order(graph, rest, choice.partitions).tolist():
            cost = int(rest.cost[partition])
            node = max(range(len(room)), key=lambda index: (room[index], -index))
            if cost <= room[node]:
                room[node] -= cost
                host[position[partition]] = node
            else:
                stuck[position[partition]] = missed = True
        if operator_centric or not missed:
            break
    return host, names


def complete(outage: Outage, host: Ints, room: list[int]) -> None:
    """Put the rest of every query that still fits as a whole on nodes, the highest priority first."""
    order = sorted(range(len(outage.queries)), key=lambda query: (-int(outage.priority[query]), query))
    for query in order:
        lacking = np.flatnonzero(outage.needs[query] & (host < 0))
        homes = fitting([int(outage.cost[partition]) for partition in lacking], room)
        for partition, node in zip(lacking.tolist(), homes or (), strict=False):
            host[partition] = node
            room[node] -= int(outage.cost[partition])


def fitting(costs: Iterable[int], rooms: Iterable[int]) -> list[int] | None:
    """A node for each cost, so that no node gets more than its room; None if there is none, within `MAX_TRIES`.

    The largest first, to the fullest node that takes it, and back where that leads nowhere.
    """
    wanted, room = list(costs), list(rooms)
    order = sorted(range(len(wanted)), key=lambda index: -wanted[index])
    homes, tries = [-1] * len(wanted), 0

    def place(depth: int) -> bool:
        nonlocal tries
        if depth == len(order):
            return True
        seen: set[int] = set()
        for node in sorted(range(len(room)), key=lambda index: room[index]):
            cost = wanted[order[depth]]
            if room[node] < cost or room[node] in seen or tries >= MAX_TRIES:
                continue
            seen.add(room[node])  # another node with as much room would fare the same
            tries += 1
            room[node] -= cost
            homes[order[depth]] = node
            if place(depth + 1):
                return True
            room[node] += cost
        return False

    if sum(wanted) > sum(room):
        return None
    return homes if place(0) else None


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
