"""Packing: which failed tasks go to which nodes, by the plan of an order and the room that every node has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tenax.model.graph import Bools, Ints, TaskGraph
from tenax.model.tasks import Task
from tenax.planning.recovery.facade import check_request, choose
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

    In the end a query that fits as a whole into what is left never waits, whatever the order had in mind. Nor does one,
    in orders that look at queries, that would fit in place of another of lower priority.
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
    placed = host >= 0
    homes = zip(graph.tasks(outage.partitions[placed]), (names[int(node)] for node in host[placed]), strict=True)
    return Packing(dict(homes), graph.tasks(outage.queries[outage.completed(placed)]))


def pack(
    graph: TaskGraph, outage: Outage, room: list[int], algorithm: str | None, time_limit_s: float
) -> tuple[Ints, list[str]]:
    """The node of every partition that starts now, -1 for the others, and what planned it; takes from `room`.

    The room of all nodes is planned as one capacity. What then fits no single node waits, and the rest is planned
    again. What no query comes back by takes only the room that is left in the end.
    """
    host = np.full(len(outage.partitions), -1, dtype=np.int64)
    if algorithm == "operator-centric":
        choice = choose(graph, outage, outage.cost > max(room), sum(room), algorithm, time_limit_s)
        _put(outage, np.flatnonzero(choice.partitions), host, room)
        complete(outage, host, room)
        return host, [choice.algorithm]
    stuck = np.zeros(len(host), dtype=np.bool_)
    names: list[str] = []
    for _ in range(PLANNED_ROUNDS):
        placed = host >= 0
        rest, position = outage.after(placed), np.flatnonzero(~placed)
        blocked = stuck[~placed] | (rest.cost > max(room))
        choice = choose(graph, rest, blocked, sum(room), algorithm, time_limit_s)
        names.append(choice.algorithm)
        missed = _put(outage, position[_by_priority(rest, choice.partitions)], host, room)
        stuck[missed] = True
        if not missed:
            break
    complete(outage, host, room)
    exchange(outage, host, room)
    placed = host >= 0
    rest, position = outage.after(placed), np.flatnonzero(~placed)
    _put(outage, position[_fill(rest, room)], host, room)
    return host, names


def _put(outage: Outage, partitions: Iterable[int], host: Ints, room: list[int]) -> list[int]:
    """Put partitions, in this order, each on the node with most room; those that fit none are left over."""
    missed = []
    for partition in map(int, partitions):
        cost = int(outage.cost[partition])
        node = max(range(len(room)), key=lambda index: (room[index], -index))
        if cost <= room[node]:
            room[node] -= cost
            host[partition] = node
        else:
            missed.append(partition)
    return missed


def _by_priority(outage: Outage, chosen: Bools) -> list[int]:
    """The chosen partitions by which queries come back, those of the highest priority first, and of each the costlier.

    Small partitions still fit into the gaps that large ones leave, and not the other way round.
    """
    order: dict[int, None] = {}
    for query in _ranked(outage, np.flatnonzero(outage.completed(chosen))):
        needed = np.flatnonzero(outage.needs[query]).tolist()
        order.update(dict.fromkeys(sorted(needed, key=lambda partition: (-int(outage.cost[partition]), partition))))
    return list(order)


def _ranked(outage: Outage, queries: Iterable[int]) -> list[int]:
    return sorted(map(int, queries), key=lambda query: (-int(outage.priority[query]), query))


def _fill(outage: Outage, room: list[int]) -> list[int]:
    """What is left of the room goes towards the next queries."""
    blocked = outage.cost > max(room)
    rest, position = outage.without(blocked), np.flatnonzero(~blocked)
    filled = fill(rest, np.zeros(len(rest.partitions), dtype=np.bool_), sum(room))
    return [int(partition) for partition in position[filled]]


def complete(outage: Outage, host: Ints, room: list[int]) -> None:
    """Put the rest of every query that still fits as a whole on nodes, the highest priority first."""
    for query in _ranked(outage, np.flatnonzero(~outage.completed(host >= 0))):
        lacking = np.flatnonzero(outage.needs[query] & (host < 0))
        homes = fitting(outage.cost[lacking].tolist(), room)
        if homes is not None:
            _place(outage, lacking, homes, host, room)


def exchange(outage: Outage, host: Ints, room: list[int]) -> None:
    """Let queries that wait take the places of others of lower priority, as long as any can. Each time priority grows.

    What only the lower one needs goes. O(queries²) tries for each exchange, and at most as many exchanges.
    """
    for _ in range(len(outage.queries) ** 2):
        if not _exchanged(outage, host, room):
            return
        complete(outage, host, room)


def _exchanged(outage: Outage, host: Ints, room: list[int]) -> bool:
    back = outage.completed(host >= 0)
    for query in _ranked(outage, np.flatnonzero(~back)):
        lacking = np.flatnonzero(outage.needs[query] & (host < 0))
        lower = np.flatnonzero(back & (outage.priority < outage.priority[query]))
        for other in reversed(_ranked(outage, lower)):
            others = back.copy()
            others[[other, query]] = False, True
            going = np.flatnonzero(outage.needs[other] & ~outage.needs[others].any(axis=0))
            larger = list(room)
            for partition in going:
                larger[host[partition]] += int(outage.cost[partition])
            homes = fitting(outage.cost[lacking].tolist(), larger)
            if homes is not None:
                host[going] = -1
                room[:] = larger
                _place(outage, lacking, homes, host, room)
                return True
    return False


def _place(outage: Outage, partitions: Ints, homes: Sequence[int], host: Ints, room: list[int]) -> None:
    for partition, node in zip(partitions.tolist(), homes, strict=True):
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
