"""The predicted time of a pass with another shape: levels wait for each other, and nodes of a level for the slowest.

    time of a pass = levels × fixed seconds + Σ over levels of the slowest node's Σ of busy seconds of its tasks there

Tasks of a level are placed longest first on the node that has least to do there (Graham 1969); where several do, on
the one that has least to do in all. Partners of a chain, which need no shuffle between them, are on one node and level,
as a run places them.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from tenax.model.graph import Stream
from tenax.model.tasks import Task
from tenax.model.topology import Partitioning
from tenax.planning.scaling.demand import Demand, Shape
from tenax.planning.scaling.outcomes import Bottleneck, Prediction
from tenax.planning.scaling.shares import shared

Chain = tuple[int, ...]
"""Operators, by number, whose tasks step one after the other without a shuffle."""
Parallelism = tuple[int, ...]
"""The tasks of every operator, by number."""


class PassModel:
    """What a pass takes with any parallelism and number of nodes, for one demand; what was computed once is kept."""

    def __init__(self, demand: Demand) -> None:
        self.demand = demand
        graph = demand.graph
        names = {operator.name: number for number, operator in enumerate(graph.operators)}
        self.present: Parallelism = tuple(operator.parallelism for operator in graph.operators)
        self.groups = [tuple(names[name] for name in group.operators) for group in demand.groups]
        self.group_of = [-1] * len(names)
        for number, group in enumerate(self.groups):
            for operator in group:
                self.group_of[operator] = number
        self._busy: dict[tuple[int, int], tuple[float, ...]] = {}
        self._levels: dict[tuple[bool, ...], tuple[tuple[Chain, ...], ...]] = {}
        self._slowest: dict[tuple[object, ...], float] = {}

    @property
    def group_tasks(self) -> tuple[int, ...]:
        """How many tasks each operator of every group has at present."""
        return tuple(self.present[group[0]] for group in self.groups)

    def with_groups(self, tasks: Sequence[int]) -> Parallelism:
        """The parallelism of all operators, where every group has so many tasks."""
        return tuple(
            present if group < 0 else tasks[group] for present, group in zip(self.present, self.group_of, strict=True)
        )

    def busy_s(self, operator: int, tasks: int) -> tuple[float, ...]:
        """How long each task of an operator is busy in a batch at the wanted rate, if it has so many."""
        known = self._busy.get((operator, tasks))
        if known is None:
            busy_s = self.demand.busy_s[self.demand.graph.span(operator)]
            each_s = min(self.demand.task_s, *busy_s)
            moving_s = shared([seconds - each_s for seconds in busy_s], tasks)
            known = tuple(each_s + self.demand.factor * seconds for seconds in moving_s)
            self._busy[operator, tasks] = known
        return known

    def levels(self, parallelism: Parallelism) -> tuple[tuple[Chain, ...], ...]:
        """The chains of every level. What is fused hangs only on which operators are single tasks."""
        single = tuple(tasks == 1 for tasks in parallelism)
        known = self._levels.get(single)
        if known is None:
            known = self._levels[single] = self._cut(single)
        return known

    def pass_s(self, parallelism: Parallelism, nodes: int) -> float:
        """What a pass takes. O(tasks · log(nodes)), and O(levels) once levels like these are known."""
        levels = self.levels(parallelism)
        return self.whole_s(len(levels), sum(self._slowest_s(level, parallelism, nodes) for level in levels))

    def predicted(self, parallelism: Parallelism, nodes: int) -> Prediction:
        """All of what is predicted of a shape."""
        names = [operator.name for operator in self.demand.graph.operators]
        levels = self.levels(parallelism)
        homes: dict[tuple[int, int], int] = {}
        totals = [0.0] * nodes
        level_s = [self._scaled(max(self._place(level, parallelism, totals, homes))) for level in levels]
        tasks = [(operator, index) for operator, count in enumerate(parallelism) for index in range(count)]
        return Prediction(
            Shape(nodes, dict(zip(names, parallelism, strict=True))),
            len(levels) * self.demand.fixed_s + sum(level_s),
            tuple(level_s),
            tuple(self.busy_s(operator, parallelism[operator])[index] for operator, index in tasks),
            tuple(homes[task] for task in tasks),
            self._bottleneck(parallelism, levels, tasks),
        )

    def _bottleneck(
        self, parallelism: Parallelism, levels: Sequence[Sequence[Chain]], tasks: Sequence[tuple[int, int]]
    ) -> Bottleneck:
        """The busiest task; the first one where several are."""
        demand = self.demand
        level_of = {operator: n for n, level in enumerate(levels) for chain in level for operator in chain}
        operator, index = max(tasks, key=lambda task: self.busy_s(task[0], parallelism[task[0]])[task[1]])
        busy_s = self.busy_s(operator, parallelism[operator])[index]
        rows = demand.factor * shared(demand.rows[demand.graph.span(operator)], parallelism[operator])[index]
        return Bottleneck(
            Task(demand.graph.operators[operator].name, index),
            level_of[operator],
            busy_s / demand.interval_s,
            rows / busy_s if busy_s else 0.0,
        )

    def _scaled(self, seconds: float) -> float:
        return seconds * self.demand.batches * self.demand.correction

    def whole_s(self, levels: int, slowest_s: float) -> float:
        """What a pass takes of so many levels whose slowest nodes are so long busy with a batch, all together."""
        return levels * self.demand.fixed_s + self._scaled(slowest_s)

    def _slowest_s(self, level: Sequence[Chain], parallelism: Parallelism, nodes: int) -> float:
        """How long the slowest node of a level is busy with one batch."""
        key = (nodes, level, *(parallelism[chain[0]] for chain in level))
        known = self._slowest.get(key)
        if known is None:
            load = [0.0] * min(nodes, sum(parallelism[chain[0]] for chain in level))
            for seconds in sorted(
                (each for chain in level for each in self._chain_s(chain, parallelism)), reverse=True
            ):
                heapq.heapreplace(load, load[0] + seconds)
            known = self._slowest[key] = max(load)
        return known

    def _place(
        self, level: Sequence[Chain], parallelism: Parallelism, totals: list[float], homes: dict[tuple[int, int], int]
    ) -> list[float]:
        """Place the tasks of a level as `_slowest_s` does; how long each node is busy there."""
        load = [0.0] * len(totals)
        tasks = [
            (-seconds, chain, index)
            for chain in level
            for index, seconds in enumerate(self._chain_s(chain, parallelism))
        ]
        for seconds, chain, index in sorted(tasks):
            node = min(range(len(load)), key=lambda number: (load[number], totals[number], number))
            load[node] -= seconds
            totals[node] -= seconds
            homes.update({(operator, index): node for operator in chain})
        return load

    def _chain_s(self, chain: Chain, parallelism: Parallelism) -> list[float]:
        """How long each task of a chain is busy, with its partners."""
        parts = [self.busy_s(operator, parallelism[operator]) for operator in chain]
        return [sum(seconds) for seconds in zip(*parts, strict=True)]

    def _cut(self, single: Sequence[bool]) -> tuple[tuple[Chain, ...], ...]:
        """Chains by level: an operator is behind all that it reads, or with it if it continues its chain."""
        graph = self.demand.graph
        level_of: list[int] = []
        chain_of: list[list[int]] = []
        chains: list[list[int]] = []
        for operator, streams in enumerate(graph.streams):
            if len(streams) == 1 and self._continues(streams[0], single):
                chain = chain_of[streams[0].producer]
                level_of.append(level_of[streams[0].producer])
            else:
                chain = []
                chains.append(chain)
                level_of.append(max((level_of[stream.producer] + 1 for stream in streams), default=0))
            chain.append(operator)
            chain_of.append(chain)
        return tuple(
            tuple(tuple(chain) for chain in chains if level_of[chain[0]] == level) for level in range(max(level_of) + 1)
        )

    def _continues(self, stream: Stream, single: Sequence[bool]) -> bool:
        """Whether a stream that is its consumer's only one goes from each task to its partner, and nowhere else."""
        producer, consumer = stream.producer, stream.consumer
        if len(self.demand.graph.consumers[producer]) > 1:
            return False
        if single[producer] and single[consumer]:
            return True
        partners = self.group_of[producer] == self.group_of[consumer]
        return partners and stream.partitioning is Partitioning.ONE_TO_ONE
