"""Fidelity, completeness and MC-trees straight from their definitions, knowing only the topology."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product

from tenax.model.graph import TaskGraph
from tenax.model.plans import Metric
from tenax.model.topology import Operator, Partitioning, PerTask, Topology

Name = tuple[str, int]
Alive = frozenset[Name]


class Definition:
    """A topology as tasks and substreams, one by one."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.order = [topology.operator(name) for name in topology.in_order]
        self.tasks = [(operator.name, index) for operator in self.order for index in range(operator.parallelism)]
        self.safe = frozenset(task for task in self.tasks if topology.operator(task[0]).safe)
        self.output_rate: dict[Name, float] = {}
        self.input_rate: dict[Name, float] = {}
        self.streams: dict[Name, list[list[tuple[Name, float]]]] = {}
        """Per task and input stream: the producers, each with the rate of its substream."""
        for operator in self.order:
            for index in range(operator.parallelism):
                self._add(operator, index)

    def _add(self, operator: Operator, index: int) -> None:
        task = (operator.name, index)
        weights = operator.weights or (1.0,) * operator.parallelism
        if operator.is_source:
            rate = operator.rate[index] if isinstance(operator.rate, tuple) else None
            shared = operator.rate if not isinstance(operator.rate, tuple) else 0.0
            self.input_rate[task] = shared * weights[index] / sum(weights) if rate is None else rate
            self.output_rate[task] = self.input_rate[task]
            self.streams[task] = []
            return
        streams = []
        for stream_in in operator.inputs:
            before = self.topology.operator(stream_in.operator).parallelism
            stream = []
            for producer in range(before):
                consumers = [
                    consumer
                    for consumer in range(operator.parallelism)
                    if connected(stream_in.partitioning, before, operator.parallelism, producer, consumer)
                ]
                if index in consumers:
                    total = sum(weights[consumer] for consumer in consumers)
                    share = weights[index] / total if total else 1 / len(consumers)
                    name = (stream_in.operator, producer)
                    stream.append((name, share * self.output_rate[name]))
            streams.append(stream)
        self.streams[task] = streams
        self.input_rate[task] = sum(rate for stream in streams for _, rate in stream)
        self.output_rate[task] = operator.selectivity * self.input_rate[task]

    def kept(self, alive: Alive, *, joins: bool) -> dict[Name, float]:
        kept: dict[Name, float] = {}
        for task in self.tasks:
            streams = self.streams[task]
            parts = [
                mean([kept[producer] for producer, _ in stream], [rate for _, rate in stream]) for stream in streams
            ]
            if task not in alive:
                kept[task] = 0.0
            elif not streams:
                kept[task] = 1.0
            elif joins and self.topology.operator(task[0]).correlated:
                kept[task] = 1.0
                for part in parts:
                    kept[task] *= part
            else:
                kept[task] = mean(parts, [sum(rate for _, rate in stream) for stream in streams])
        return kept

    def value(self, metric: Metric, alive: Alive) -> float:
        if metric is Metric.COMPLETENESS:
            kept = self.kept(alive, joins=False)
            return mean([kept[task] for task in self.tasks], [self.input_rate[task] for task in self.tasks])
        kept = self.kept(alive, joins=True)
        outputs = self.topology.outputs
        tasks = [task for task in self.tasks if task[0] in outputs]
        weights = [self.output_rate[task] * at(outputs[task[0]].priority, task[1]) for task in tasks]
        return mean([kept[task] for task in tasks], weights)

    def trees(self) -> list[Alive]:
        """The task set of every unfolding, one entry for each."""
        trees: dict[Name, list[Alive]] = {}
        for task in self.tasks:
            streams = [[tree for producer, _ in stream for tree in trees[producer]] for stream in self.streams[task]]
            if not streams:
                below = [frozenset[Name]()]
            elif self.topology.operator(task[0]).correlated:
                below = [frozenset[Name]().union(*ways) for ways in product(*streams)]
            else:
                below = [tree for stream in streams for tree in stream]
            trees[task] = [tree | {task} for tree in below]
        return [tree for task in self.tasks if task[0] in self.topology.outputs for tree in trees[task]]

    def best(self, metric: Metric, budget: int) -> tuple[float, int]:
        """The highest value of any plan, and the fewest replicas that reach it."""
        value, count = -1.0, 0
        for plan in plans(self, budget):
            reached = self.value(metric, self.safe | plan)
            if reached > value + 1e-11:
                value, count = reached, len(plan)
        return value, count


def plans(definition: Definition, budget: int) -> Iterator[Alive]:
    """Every plan within a budget, small ones first."""
    free = [task for task in definition.tasks if task not in definition.safe]
    for size in range(min(budget, len(free)) + 1):
        for chosen in combinations(free, size):
            yield frozenset(chosen)


def connected(kind: Partitioning, before: int, after: int, producer: int, consumer: int) -> bool:
    if kind is Partitioning.FULL or 1 in (before, after):
        return True
    if kind is Partitioning.ONE_TO_ONE:
        return producer == consumer
    if kind is Partitioning.MERGE:
        return consumer == producer * after // before
    return producer == consumer * before // after


def mean(values: list[float], weights: list[float]) -> float:
    total = sum(weights)
    if total == 0:
        return sum(values) / len(values)
    return sum(value * weight for value, weight in zip(values, weights, strict=True)) / total


def at(value: PerTask, index: int) -> float:
    return value[index] if isinstance(value, tuple) else value


def names(graph: TaskGraph, numbers: frozenset[int] | tuple[int, ...]) -> Alive:
    return frozenset((task.operator, task.index) for task in graph.tasks(numbers))
