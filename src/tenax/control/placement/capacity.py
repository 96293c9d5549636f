"""Capacity: how much room nodes have for tasks, by what tasks cost where rows come by the clock; and the pool."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from tenax.control.run import Run
from tenax.control.state import RunState
from tenax.model.cluster import Node
from tenax.model.graph import Floats, TaskGraph
from tenax.model.protection import Recovery

MICROSECONDS = 1e6  # costs are counted in whole ones, so that sums of them are exact enough
SLACK = 1e-9  # what sums of floats may be off


class Capacity:
    """How much room the nodes have; copies of tasks take from it.

    - A node with `slots` counts the costs that operators declare, up to so many.
    - Any other node counts the seconds in which tasks are busy within a batch interval at the rate at which rows come,
      up to `node_limit` of that interval. A task that alone needs more counts as all of that: it has a node for itself.
    - As long as that is not measured, and where rows do not come by the clock, a node has room for everything; declared
      costs tell which is the emptiest. So it has where live passes would pause for tasks that wait: better slow than
      not at all.
    """

    def __init__(self, run: Run, state: RunState, *, binds: bool = True) -> None:
        self._run = run
        interval_s = run.settings.batches.batch_s
        busy_s = state.load.busy_s(interval_s) if binds and not yields(run, state) else None
        self._measured: Floats | None = None
        self._limit_s = math.inf
        if busy_s is not None:
            self._limit_s = _up(interval_s * run.settings.cluster.node_limit)
            self._measured = np.array([min(_up(each_s), self._limit_s) for each_s in busy_s])
        self.nodes = {node.name: node for node in state.nodes}
        self.used = dict.fromkeys(self.nodes, 0.0)
        for number, task in enumerate(state.tasks):
            for copy in (task.primary, task.replica):
                if copy is not None and copy.node in self.used:
                    self.used[copy.node] += self.cost(number, copy.node)

    @property
    def is_measured(self) -> bool:
        """Whether nodes without slots are bounded by what was measured."""
        return self._measured is not None

    def bounds(self, nodes: Iterable[Node]) -> bool:
        """Whether any of these nodes has room for so much only."""
        return any(self.limit(node) < math.inf for node in nodes)

    def limit(self, node: Node) -> float:
        """How much a node takes at most, in its own unit."""
        return self._limit_s if node.slots is None else float(node.slots)

    def costs(self, node: Node) -> Floats:
        """What all tasks cost on a node, in its own unit."""
        return self._run.graph.cost if self._measured is None or node.slots is not None else self._measured

    def cost(self, number: int, name: str) -> float:
        """What a task costs on a node."""
        return float(self.costs(self.nodes[name])[number])

    def left(self, node: Node) -> float:
        """The room of one node."""
        return max(0.0, self.limit(node) - self.used[node.name])

    def is_over(self, name: str) -> bool:
        """Whether a node holds more than it may."""
        return self.used[name] > self.limit(self.nodes[name]) + SLACK

    def fits(self, number: int, node: Node) -> bool:
        """Whether a node has room for a task."""
        return self.left(node) + SLACK >= self.cost(number, node.name)

    def take(self, number: int, nodes: Iterable[Node]) -> str | None:
        """Put a task on the emptiest of these nodes that has room for it."""
        fitting = [node for node in nodes if self.fits(number, node)]
        return self.crowd(number, fitting) if fitting else None

    def crowd(self, number: int, nodes: Iterable[Node]) -> str:
        """Put a task on the emptiest of these nodes, whether it has room or not."""
        name = min(nodes, key=lambda node: (self.used[node.name], node.name)).name
        self.used[name] += self.cost(number, name)
        return name

    def graph(self, nodes: Sequence[Node]) -> TaskGraph:
        """The topology with what its tasks cost on these nodes, which all count in the same unit."""
        return self._run.graph_with_costs(tuple(self.costs(nodes[0]).tolist())) if nodes else self._run.graph

    def rooms(self, nodes: Sequence[Node], wanted: float, given_back: Mapping[str, float]) -> dict[str, float]:
        """The room of every node, with what is `given_back` there.

        Where a node has room for everything, the emptiest of these nodes has most; all have room for what is `wanted`.
        """
        most = max((self.used[node.name] for node in nodes), default=0.0) + wanted
        return {
            node.name: most - self.used[node.name]
            if self.limit(node) == math.inf
            else _down(max(0.0, self.limit(node) - self.used[node.name] + given_back.get(node.name, 0.0)))
            for node in nodes
        }


def busy_parts(run: Run, state: RunState) -> dict[str, float]:
    """The part of the time in which the tasks and replicas of every node are busy; nothing before it is measured.

    Of a batch interval, at the rate at which rows come; where they do not come by the clock, of the time that a batch
    takes.
    """
    interval_s = run.settings.batches.batch_s
    busy_s = state.load.busy_s(interval_s)
    if busy_s is None:
        busy_s, interval_s = tuple(task.busy_s for task in state.load.tasks), state.checkpoints.batch_s
    if not busy_s or not interval_s:
        return {}
    parts = dict.fromkeys((node.name for node in state.nodes), 0.0)
    for task, seconds in zip(state.tasks, busy_s, strict=True):
        for copy in (task.primary, task.replica):
            if copy is not None and copy.node in parts:
                parts[copy.node] += seconds / interval_s
    return parts


def yields(run: Run, state: RunState) -> bool:
    """Whether measured capacity binds nothing, because live passes pause until all tasks are back."""
    kept = 0 if state.outage is None else state.outage.bytes
    return run.protection.recovery is Recovery.BLOCKING or kept > run.protection.max_outage_bytes


def pool_of(run: Run, state: RunState) -> frozenset[str]:
    """The nodes of the pool: of those that hold nothing, as many as there are beyond what the run asks for.

    They take over lost tasks, because the emptiest nodes do; until then they hold neither tasks nor replicas.
    """
    cluster = run.settings.cluster
    if not cluster.pool:
        return frozenset()
    copies = (copy for task in state.tasks for copy in (task.primary, task.replica) if copy is not None)
    holding = {copy.node for copy in copies} | set(state.placement.moving.values())
    nodes = [node for node in state.nodes if not node.standby]
    beyond = len(nodes) - (cluster.nodes - cluster.standby_nodes)
    empty = [node.name for node in nodes if node.name not in holding]
    return frozenset(empty[-beyond:]) if beyond > 0 else frozenset()


def in_use(run: Run, state: RunState) -> tuple[Node, ...]:
    """The nodes that are not in the pool."""
    pool = pool_of(run, state)
    return tuple(node for node in state.nodes if node.name not in pool)


def _up(seconds: float) -> float:
    return math.ceil(seconds * MICROSECONDS - SLACK) / MICROSECONDS


def _down(amount: float) -> float:
    return math.floor(amount * MICROSECONDS + SLACK * MICROSECONDS) / MICROSECONDS
