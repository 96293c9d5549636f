"""Assignment: which nodes lost tasks and new replicas get, within the capacity of the nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from tenax.control.copies import Copy
from tenax.control.notices import RecoveryBegun
from tenax.control.run import Run
from tenax.control.state import RunState
from tenax.control.versions import Cut
from tenax.model.cluster import DomainKind, Node
from tenax.planning.recovery.facade import plan_recovery

EXACT_LIMIT_S = 1.0  # how long the best order of recovery may be sought while outputs wait


class Capacity:
    """How much room the nodes have, in units of cost; a node without slots has room for everything."""

    def __init__(self, run: Run, state: RunState) -> None:
        self.nodes = state.nodes
        self.cost = run.graph.cost
        self.used = dict.fromkeys((node.name for node in state.nodes), 0.0)
        for number, task in enumerate(state.tasks):
            for copy in (task.primary, task.replica):
                if copy is not None and copy.node in self.used:
                    self.used[copy.node] += float(self.cost[number])

    def left(self, node: Node) -> float:
        """The room of one node."""
        return float("inf") if node.slots is None else max(0.0, node.slots - self.used[node.name])

    def take(self, number: int, nodes: Iterable[Node]) -> str | None:
        """Put a task on the emptiest of these nodes that has room for it."""
        fitting = [node for node in nodes if self.left(node) >= self.cost[number]]
        if not fitting:
            return None
        name = min(fitting, key=lambda node: (self.used[node.name], node.name)).name
        self.used[name] += float(self.cost[number])
        return name

    def free(self, number: int, replicas: Sequence[tuple[int, Copy]], nodes: Iterable[Node]) -> list[int]:
        """The replicas, the first ones given, that make room for a task on one of these nodes if they go."""
        for node in nodes:
            going, left = [], self.left(node)
            for replica, copy in replicas:
                if copy.node == node.name and left < self.cost[number]:
                    going.append(replica)
                    left += float(self.cost[replica])
            if left >= self.cost[number]:
                for replica in going:
                    self.used[node.name] -= float(self.cost[replica])
                return going
        return []


def place_lost(run: Run, state: RunState) -> tuple[RunState, RecoveryBegun | None]:
    """Nodes for tasks that have none: sources at once, the others as the capacity allows, the best queries first.

    A task that has a node keeps it: a new failure changes the plan without starting over. Only replicas give way to
    tasks that would find no room else, those that lag most first: a second copy is worth less than a first.
    """
    capacity = Capacity(run, state)
    tasks = list(state.tasks)
    unplaced = np.array([task.primary is None for task in tasks], dtype=np.bool_)
    if not unplaced.any() or not state.nodes:
        return state, None
    homes = {}
    for number in map(int, np.flatnonzero(unplaced & run.is_source)):
        # a source has nothing but a place in its log: it runs anywhere, also where there is no room
        home = capacity.take(number, state.nodes) or min(capacity.used, key=lambda name: (capacity.used[name], name))
        tasks[number] = replace(tasks[number], primary=Copy(home, tasks[number].restore_point))
        homes[run.tasks[number]] = home
    lost = unplaced & ~run.is_source
    primaries = for_primaries(state.nodes)
    replicas = _dispensable(run, state)
    names = {node.name for node in primaries}
    held = sum(float(run.graph.cost[number]) for number, copy in replicas if copy.node in names)
    bound = min(sum(capacity.left(node) for node in primaries) + held, float(run.graph.cost[lost].sum()))
    plan = plan_recovery(run.graph, lost, bound, run.protection.order, EXACT_LIMIT_S)
    for task in plan.recover:
        number = run.number[task]
        node = capacity.take(number, primaries)
        if node is None:
            going = capacity.free(number, replicas, primaries)
            replicas = [(replica, copy) for replica, copy in replicas if replica not in going]
            for replica in going:
                tasks[replica] = replace(tasks[replica], replica=None)
            node = capacity.take(number, primaries)
        if node is not None:
            tasks[number] = replace(tasks[number], primary=Copy(node, tasks[number].restore_point, stored=True))
            homes[task] = node
    waiting = tuple(run.tasks[number] for number in np.flatnonzero(unplaced) if tasks[number].primary is None)
    if not homes:
        return state, None
    return replace(state, tasks=tuple(tasks)), RecoveryBegun(homes, plan.queries, waiting)


def _dispensable(run: Run, state: RunState) -> list[tuple[int, Copy]]:
    """The replicas that may go now, those that lag most first; none that steps in a running pass."""
    if state.passes.running:
        return []
    replicas = [(number, task.replica) for number, task in enumerate(state.tasks) if task.replica is not None]

    def order(replica: tuple[int, Copy]) -> tuple[int, float, int]:
        number, copy = replica
        return copy.batch, -float(run.graph.cost[number]), number

    return sorted(replicas, key=order)


def for_primaries(nodes: Sequence[Node]) -> list[Node]:
    """The nodes that run primaries: standby ones only if there are no others."""
    return [node for node in nodes if not node.standby] or list(nodes)


def place_replicas(run: Run, state: RunState, checkpoint: Cut) -> RunState:
    """A replica for every task that lacks one it should have, at a checkpoint; where there is no room it stays away."""
    tasks = list(state.tasks)
    capacity = Capacity(run, state)
    by_name = {node.name: node for node in state.nodes}
    for task in sorted(state.placement.replicated, key=run.number.__getitem__):
        number = run.number[task]
        known = tasks[number]
        if known.primary is None or known.replica is not None or run.is_source[number]:
            continue
        above = run.graph.producers_of(number)
        beside = tasks[above[0]].replica if len(above) == 1 else None  # a chain stays together: no shuffle in between
        node = None
        home = by_name[known.primary.node]
        if beside is not None and by_name[beside.node].domain(DomainKind.RACK) != home.domain(DomainKind.RACK):
            node = capacity.take(number, [by_name[beside.node]])
        node = node or _apart(capacity, number, home, state.nodes)
        if node is not None:
            point = known.rebuild_point(checkpoint.points[number], known.head.batch)
            tasks[number] = replace(known, replica=Copy(node, point, stored=True))
    return replace(state, tasks=tuple(tasks))


def _apart(capacity: Capacity, number: int, primary: Node, nodes: Sequence[Node]) -> str | None:
    """A node in another domain than the primary's, the wider the better; standby nodes first."""
    for kind in DomainKind:
        apart = [node for node in nodes if node.domain(kind) != primary.domain(kind)]
        name = capacity.take(number, [node for node in apart if node.standby]) or capacity.take(number, apart)
        if name is not None:
            return name
    return None
