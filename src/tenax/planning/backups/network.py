"""The task graph made small for search: twins become one node, full streams pass through a hub."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tenax.model.graph import Bools, Ints, Stream, TaskGraph
from tenax.model.topology import Partitioning
from tenax.planning.backups.problem import BackupProblem

Key = tuple[tuple[int, int, int], ...]
"""The ranges of tasks on one side of a task: operator, first, last + 1 of each stream."""


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """Nodes in topological order, as plain lists: the searches walk it edge by edge.

    - A node stands for twins: tasks with the same producers, the same consumers and the same T. In a plan with the
      fewest backups all twins are backups or none is: twins always have the same latency, so as long as one of them
      is not a backup their consumers wait as long as if none was, and the other backups among them are for nothing.
    - A hub stands for a full stream: it has no tasks and takes no time, so n × m substreams become n + m edges.
    - `shares[u]` goes along with `consumers[u]`: the part of all that node u sends on that reaches one consumer task,
      if every task of u divides what it has equally among its consumers.
    """

    reprocess: list[int]
    members: list[Ints]
    weight: list[int]
    """The number of tasks of a node; 0 is a hub."""
    producers: list[list[int]]
    consumers: list[list[int]]
    shares: list[list[float]]

    def __len__(self) -> int:
        return len(self.reprocess)

    @property
    def edge_count(self) -> int:
        """The number of edges between nodes."""
        return sum(len(consumers) for consumers in self.consumers)

    def latencies(self, backups: list[bool]) -> list[int]:
        """L of every node. O(nodes + edges)."""
        latency: list[int] = []
        for own, producers in zip(self.reprocess, self.producers, strict=True):
            latency.append(own + max((latency[producer] for producer in producers if not backups[producer]), default=0))
        return latency

    def latencies_below(self, backups: list[bool]) -> list[int]:
        """For every node the longest time that its output, once late, adds further down. O(nodes + edges)."""
        below = [0] * len(self)
        for node in reversed(range(len(self))):
            longest = 0
            for consumer in self.consumers[node]:
                reach = self.reprocess[consumer] + (0 if backups[consumer] else below[consumer])
                longest = max(longest, reach)
            below[node] = longest
        return below

    def pruned(self, limit: int, backups: list[bool]) -> list[bool]:
        """Drop, upstream first, each backup that the bound holds without. O(nodes + edges).

        Without backup b the new paths are those through b. The longest takes L(b), by what is kept upstream, plus the
        longest way below b, where nothing has been dropped yet: one pass forward decides every backup.
        """
        kept = list(backups)
        below = self.latencies_below(backups)
        latency: list[int] = []
        for node, producers in enumerate(self.producers):
            own = self.reprocess[node] + max(
                (latency[producer] for producer in producers if not kept[producer]), default=0
            )
            latency.append(own)
            if kept[node] and own + below[node] <= limit:
                kept[node] = False
        return kept

    def count(self, backups: list[bool]) -> int:
        """The number of tasks that are backups."""
        return sum(weight for weight, backup in zip(self.weight, backups, strict=True) if backup)

    def mask(self, backups: list[bool]) -> Bools:
        """The backups as a boolean per task."""
        mask = np.zeros(sum(self.weight), dtype=np.bool_)
        for members, backup in zip(self.members, backups, strict=True):
            if backup:
                mask[members] = True
        return mask


def network_of(problem: BackupProblem) -> Network:
    """Collapse twins and full streams. O(tasks + substreams of the streams that are not full)."""
    return _Builder(problem).build()


class _Builder:
    """Numbers the nodes, operator by operator, then joins them."""

    def __init__(self, problem: BackupProblem) -> None:
        self.graph = problem.graph
        self.reprocess = problem.reprocess
        self.group = _twins(problem.graph, problem.reprocess)
        self.node_of = np.zeros(len(self.graph), dtype=np.int64)
        self.network = Network([], [], [], [], [], [])
        self.hubs: dict[int, int] = {}
        self.nodes_in: list[tuple[Ints, Ints]] = []
        """Per operator: its nodes, and how many of its tasks each has."""
        self.fan_out: list[int] = []
        """Per node: the consumer tasks of each of its tasks."""

    def build(self) -> Network:
        """Nodes first, because a hub lies between the nodes of its producer and those of its consumers."""
        graph = self.graph
        _, sizes = np.unique(self.group, return_counts=True)
        twins = iter(np.split(np.argsort(self.group, kind="stable"), np.cumsum(sizes)[:-1]))
        groups_in = [np.unique(self.group[graph.span(operator)]).size for operator in range(len(graph.operators))]
        for operator in range(len(graph.operators)):
            span = graph.span(operator)
            own = np.unique(self.group[span])
            for _ in range(np.count_nonzero(own >= span.start)):  # groups are named by their first task
                members = next(twins)
                self.node_of[members] = self._node(int(self.reprocess[members[0]]), members)
            self.nodes_in.append(np.unique(self.node_of[span], return_counts=True))
            if groups_in[operator] > 1 and any(
                stream.partitioning is Partitioning.FULL and groups_in[stream.consumer] > 1
                for stream in graph.consumers[operator]
            ):
                self.hubs[operator] = self._node(0, np.zeros(0, dtype=np.int64))
        for operator, hub in self.hubs.items():
            for node, tasks in zip(*_lists(self.nodes_in[operator]), strict=True):
                self._join(node, hub, tasks)
        for node, members in enumerate(self.network.members):
            if len(members):
                self._join_producers(node, int(members[0]))
        return self.network

    def _node(self, reprocess: int, members: Ints) -> int:
        network = self.network
        network.reprocess.append(reprocess)
        network.members.append(members)
        network.weight.append(len(members))
        network.producers.append([])
        network.consumers.append([])
        network.shares.append([])
        self.fan_out.append(self._consumer_count(int(members[0])) if len(members) else 1)
        return len(network) - 1

    def _consumer_count(self, task: int) -> int:
        operator = int(self.graph.operator_of[task])
        index = task - int(self.graph.first[operator])
        return sum(len(stream.consumers_of(index)) for stream in self.graph.consumers[operator])

    def _join_producers(self, node: int, task: int) -> None:
        operator = int(self.graph.operator_of[task])
        index = task - int(self.graph.first[operator])
        senders: dict[int, int] = {}
        for stream in self.graph.streams[operator]:
            if stream.partitioning is Partitioning.FULL:
                hub = self.hubs.get(stream.producer)
                feeding: Iterable[tuple[int, int]] = (
                    zip(*_lists(self.nodes_in[stream.producer]), strict=True) if hub is None else ((hub, 1),)
                )
            else:
                feeding = self._senders(stream, index)
            for sender, tasks in feeding:
                senders[sender] = senders.get(sender, 0) + tasks
        for sender, tasks in sorted(senders.items()):
            self._join(sender, node, tasks)

    def _senders(self, stream: Stream, index: int) -> Iterable[tuple[int, int]]:
        producers = stream.producers_of(index)
        start = int(self.graph.first[stream.producer])
        if len(producers) == 1:
            return ((int(self.node_of[start + producers.start]), 1),)
        nodes = self.node_of[start + producers.start : start + producers.stop]
        return zip(*_lists(np.unique(nodes, return_counts=True)), strict=True)

    def _join(self, producer: int, consumer: int, tasks: int) -> None:
        network = self.network
        network.producers[consumer].append(producer)
        network.consumers[producer].append(consumer)
        network.shares[producer].append(tasks / self.fan_out[producer])


def _lists(pair: tuple[Ints, Ints]) -> tuple[list[int], list[int]]:
    return pair[0].tolist(), pair[1].tolist()


def _twins(graph: TaskGraph, reprocess: Ints) -> Ints:
    """A group per task; twins share one. Groups are numbered by their first task."""
    group = np.arange(len(graph), dtype=np.int64)
    for operator, described in enumerate(graph.operators):
        if described.parallelism > 1:
            span = graph.span(operator)
            group[span] = span.start + _twins_within(graph, operator, reprocess[span])
    for alike in _operators_alike(graph):
        known: dict[tuple[int, Key, Key], int] = {}
        for operator in alike:
            span = graph.span(operator)
            local = group[span]
            leaders = np.unique(local)
            names = [
                known.setdefault(_neighbourhood(graph, operator, task, int(reprocess[task])), task)
                for task in leaders.tolist()
            ]
            group[span] = np.array(names, dtype=np.int64)[np.searchsorted(leaders, local)]
    return group


def _twins_within(graph: TaskGraph, operator: int, reprocess: Ints) -> Ints:
    """For each task of an operator the first task that is its twin; streams are compared, not substreams."""
    columns = [reprocess]
    for stream in graph.streams[operator]:
        if stream.partitioning is Partitioning.SPLIT:
            columns.append(stream.parents)
        elif stream.partitioning is not Partitioning.FULL:
            return np.arange(len(reprocess))  # every task has producers of its own
    for stream in graph.consumers[operator]:
        if stream.partitioning is Partitioning.MERGE:
            columns.append(stream.parents)
        elif stream.partitioning is not Partitioning.FULL:
            return np.arange(len(reprocess))  # every task has consumers of its own
    _, first, inverse = np.unique(np.stack(columns), axis=1, return_index=True, return_inverse=True)
    return np.asarray(first[inverse.reshape(-1)], dtype=np.int64)


def _operators_alike(graph: TaskGraph) -> list[list[int]]:
    """Operators with the same producing and the same consuming operators: only those can have twins in common."""
    alike: dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]] = {}
    for operator in range(len(graph.operators)):
        before = tuple(sorted(stream.producer for stream in graph.streams[operator]))
        after = tuple(sorted(stream.consumer for stream in graph.consumers[operator]))
        alike.setdefault((before, after), []).append(operator)
    return [operators for operators in alike.values() if len(operators) > 1]


def _neighbourhood(graph: TaskGraph, operator: int, task: int, reprocess: int) -> tuple[int, Key, Key]:
    index = task - int(graph.first[operator])
    before = sorted(_range(stream.producer, stream.producers_of(index)) for stream in graph.streams[operator])
    after = sorted(_range(stream.consumer, stream.consumers_of(index)) for stream in graph.consumers[operator])
    return reprocess, tuple(before), tuple(after)


def _range(operator: int, tasks: range) -> tuple[int, int, int]:
    return operator, tasks.start, tasks.stop
