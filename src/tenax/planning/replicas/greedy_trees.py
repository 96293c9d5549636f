"""Replica plans for small budgets: one MC-tree after the other, none of them listed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tenax.model.graph import Stream, TaskGraph
from tenax.model.plans import Metric
from tenax.model.topology import Partitioning
from tenax.planning.replicas.scoring import exceeds, first_highest, plan_value, plan_values

Label = tuple[int, float]
"""Of a tree: how many new tasks it has, and minus the part of the flow that passes through it."""


def add_trees(graph: TaskGraph, budget: int, metric: Metric, plan: frozenset[int], trees: int) -> frozenset[int]:
    """Add the tree of highest gain per new task while one fits; of each output task, the tree with fewest new tasks.

    Adds at most `trees`. O(tasks) for each tree added, plus scoring one candidate for each output task.
    """
    value = plan_value(graph, metric, plan)
    for _ in range(trees):
        trees_left = dict.fromkeys(tree - plan for tree in _shortest_trees(graph, plan))
        fitting = [tree for tree in trees_left if 0 < len(tree) <= budget - len(plan)]
        if not fitting:
            break
        values = plan_values(graph, metric, [plan | tree for tree in fitting])
        best = first_highest((values - value) / [len(tree) for tree in fitting])
        if not exceeds(float(values[best]), value):
            break
        plan, value = plan | fitting[best], float(values[best])
    return plan


def _shortest_trees(graph: TaskGraph, plan: frozenset[int]) -> list[frozenset[int]]:
    """For every output task a tree with few tasks outside the plan; of several, the one with the largest flow."""
    labels: list[Label] = []
    chosen: list[tuple[int, ...]] = []
    for number, operator in enumerate(graph.operators):
        streams = graph.streams[number]
        inputs = [_best_producers(stream, labels, int(graph.first[stream.producer])) for stream in streams]
        rates = np.array([stream.rate for stream in streams])
        for index in range(operator.parallelism):
            task = int(graph.first[number]) + index
            picks = [best[index] for best in inputs]
            if picks and not operator.correlated:
                total = rates[:, index].sum() or 1.0
                shares = rates[:, index] / total
                picks = [
                    min(
                        (new, flow * share, producer)
                        for (new, flow, producer), share in zip(picks, shares, strict=True)
                    )
                ]
            new = 0 if graph.safe[task] or task in plan else 1
            flow = -float(np.prod([-flow for _, flow, _ in picks]))
            labels.append((new + sum(pick[0] for pick in picks), flow))
            chosen.append(tuple(producer for _, _, producer in picks))
    safe = frozenset(int(task) for task in np.flatnonzero(graph.safe))
    return [_tree(chosen, int(task)) - safe for task in np.flatnonzero(graph.is_output)]


def _best_producers(stream: Stream, labels: Sequence[Label], first: int) -> list[tuple[int, float, int]]:
    """For every consumer of a stream: the label of its best producer, scaled to the stream, and that producer."""

    def best(producers: range) -> tuple[int, float, int]:
        merges = stream.producers > stream.consumers or stream.partitioning is Partitioning.FULL
        weights = stream.weight[producers.start : producers.stop] if merges else np.ones(len(producers))
        shares = weights / weights.sum()
        return min(
            (labels[first + producer][0], labels[first + producer][1] * float(share), first + producer)
            for producer, share in zip(producers, shares, strict=True)
        )

    if stream.partitioning is Partitioning.FULL:
        return [best(range(stream.producers))] * stream.consumers
    return [best(stream.producers_of(index)) for index in range(stream.consumers)]


def _tree(chosen: Sequence[tuple[int, ...]], root: int) -> frozenset[int]:
    tree = {root}
    waiting = [root]
    while waiting:
        new = [task for task in chosen[waiting.pop()] if task not in tree]
        tree.update(new)
        waiting += new
    return frozenset(tree)
