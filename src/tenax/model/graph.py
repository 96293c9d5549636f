"""A topology compiled to arrays: numbered tasks, their rates, and the streams between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from tenax.errors import InvalidRequest, InvalidTopology, UnknownTask
from tenax.model.tasks import Task
from tenax.model.topology import Input, Operator, Partitioning, PerTask, Topology, suggestion

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
_ONE = np.ones(1)


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """One input of an operator, as its tasks see it.

    - `producer` and `consumer` are numbers of operators; tasks are counted from 0 within their operator here.
    - The producers of a task are neighbours, and so are its consumers: both are ranges.
    - A full stream is never stored substream by substream, so every method costs O(producers + consumers).
    - A stream to or from a single task has one meaning whatever its name in the file: it is kept as merge, split or
      one-to-one, so `partitioning` is full only where both sides have several tasks.
    """

    producer: int
    consumer: int
    producers: int
    consumers: int
    partitioning: Partitioning
    share: Floats
    """Full: per consumer, otherwise per substream: the fraction of the producer's output that takes this way."""
    weight: Floats
    """Full: per producer, otherwise per substream: its rate, or 1 where a consumer's whole stream has rate 0."""
    rate: Floats
    """Per consumer: the rate of the whole stream."""
    parents: Ints
    """Not full: for each task of the larger side, its only neighbour on the smaller side."""
    starts: Ints
    """Not full: for each task of the smaller side, its first neighbour on the larger side."""

    def producers_of(self, task: int) -> range:
        """The producer tasks that feed a consumer task."""
        before, after = self.producers, self.consumers
        if self.partitioning is Partitioning.FULL:
            return range(before)
        if before < after:
            return range(task * before // after, task * before // after + 1)
        return range(-(-task * before // after), -(-(task + 1) * before // after))

    def consumers_of(self, task: int) -> range:
        """The consumer tasks that a producer task feeds."""
        before, after = self.producers, self.consumers
        if self.partitioning is Partitioning.FULL:
            return range(after)
        if before > after:
            return range(task * after // before, task * after // before + 1)
        return range(-(-task * after // before), -(-(task + 1) * after // before))

    def consumer_counts(self) -> Ints:
        """How many consumer tasks each producer task feeds."""
        return self._counts(self.producers, self.consumers)

    def producer_counts(self) -> Ints:
        """How many producer tasks feed each consumer task."""
        return self._counts(self.consumers, self.producers)

    def mean(self, values: Floats) -> Floats:
        """The rate-weighted mean of the producers' values, for every consumer; the last axis counts tasks."""
        match self.partitioning:
            case Partitioning.ONE_TO_ONE:
                return values
            case Partitioning.SPLIT:
                return values[..., self.parents]
            case Partitioning.MERGE:
                total = np.add.reduceat(self.weight, self.starts)
                return np.asarray(np.add.reduceat(values * self.weight, self.starts, axis=-1) / total)
            case Partitioning.FULL:
                mean = (values * self.weight).sum(axis=-1, keepdims=True) / self.weight.sum()
                result = np.repeat(mean, self.consumers, axis=-1)
                idle = self.share == 0
                if idle.any():  # no rate at all: every producer counts alike
                    result[..., idle] = values.mean(axis=-1, keepdims=True)
                return result

    def highest(self, values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        """The largest of the producers' values, for every consumer; `any` for booleans."""
        return self._highest(values, self.producers, self.consumers)

    def highest_back(self, values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        """The largest of the consumers' values, for every producer; `any` for booleans."""
        return self._highest(values, self.consumers, self.producers)

    def substreams(self) -> tuple[Ints, Ints, Floats]:
        """Every substream: its producer, its consumer and its share of the producer's output."""
        if self.partitioning is Partitioning.FULL:
            producer = np.repeat(np.arange(self.producers), self.consumers)
            consumer = np.tile(np.arange(self.consumers), self.producers)
            return producer, consumer, np.tile(self.share, self.producers)
        if self.producers < self.consumers:
            return self.parents, np.arange(self.consumers), self.share
        return np.arange(self.producers), self.parents, self.share

    def _counts(self, own: int, other: int) -> Ints:
        if self.partitioning is Partitioning.FULL:
            return np.full(own, other, dtype=np.int64)
        return np.bincount(self.parents, minlength=own) if own < other else np.ones(own, dtype=np.int64)

    def _highest(self, values: npt.NDArray[np.generic], before: int, after: int) -> npt.NDArray[np.generic]:
        if self.partitioning is Partitioning.FULL:
            return np.asarray(np.repeat(values.max(axis=-1, keepdims=True), after, axis=-1))
        if before == after:
            return values
        if before < after:
            return np.asarray(values[..., self.parents])
        return np.asarray(np.maximum.reduceat(values, self.starts, axis=-1))


class TaskGraph:
    """All tasks of a topology, numbered, with what the planners need to know of each.

    - Task numbers follow the topological order of the operators, then the index: that is "task order" everywhere.
    - Arrays have one entry per task; `span(o)` is the part of operator `o`.
    - `streams[o]` are the inputs of operator `o` as declared, `consumers[o]` the streams that read its output.
    - Arrays are shared and must not be changed.
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        named = {operator.name: operator for operator in topology.operators}
        self.operators = tuple(named[name] for name in topology.in_order)
        self._number = {operator.name: number for number, operator in enumerate(self.operators)}
        counts = np.array([operator.parallelism for operator in self.operators], dtype=np.int64)
        self.first = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
        self.operator_of = np.repeat(np.arange(len(self.operators)), counts)
        self.reprocess = self._per_task([operator.reprocess for operator in self.operators])
        self.cost = self._per_task([operator.cost for operator in self.operators])
        self.safe = np.repeat(np.array([operator.safe for operator in self.operators]), counts)
        outputs = topology.outputs
        self.is_output = np.repeat(np.array([operator.name in outputs for operator in self.operators]), counts)
        self.priority = self._per_task(
            [outputs[operator.name].priority if operator.name in outputs else 0.0 for operator in self.operators]
        )
        self.input_rate = np.zeros(len(self))
        self.output_rate = np.zeros(len(self))
        self.streams: tuple[tuple[Stream, ...], ...] = self._propagate()
        self.consumers = self._by_producer()

    def __len__(self) -> int:
        return int(self.first[-1])

    def span(self, operator: int) -> slice:
        """Where the tasks of an operator stand in the arrays."""
        return slice(int(self.first[operator]), int(self.first[operator + 1]))

    def task(self, number: int) -> Task:
        """The name of a numbered task."""
        operator = int(self.operator_of[number])
        return Task(self.operators[operator].name, int(number - self.first[operator]))

    def tasks(self, numbers: Iterable[int]) -> tuple[Task, ...]:
        """The names of numbered tasks, in task order."""
        return tuple(self.task(number) for number in sorted(int(number) for number in numbers))

    def number(self, task: Task) -> int:
        """The number of a task by its name."""
        if task.operator not in self._number:
            raise UnknownTask(f"unknown operator in task {task}{suggestion(task.operator, self._number)}")
        operator = self._number[task.operator]
        parallelism = self.operators[operator].parallelism
        if not 0 <= task.index < parallelism:
            raise UnknownTask(
                f"unknown task {task}: {task.operator} has {parallelism} tasks, use {task.operator}[0] to "
                f"{task.operator}[{parallelism - 1}]"
            )
        return int(self.first[operator]) + task.index

    def numbers(self, tasks: Iterable[Task]) -> Ints:
        """The numbers of tasks by their names, sorted, each once."""
        return np.array(sorted({self.number(task) for task in tasks}), dtype=np.int64)

    def mask(self, tasks: Iterable[Task]) -> Bools:
        """A boolean per task: whether it is one of these."""
        mask = np.zeros(len(self), dtype=np.bool_)
        mask[self.numbers(tasks)] = True
        return mask

    def failed(self, tasks: Iterable[Task]) -> Bools:
        """A boolean per task for a set of failed tasks; safe tasks never fail."""
        mask = self.mask(tasks)
        wrong = np.flatnonzero(mask & self.safe)
        if wrong.size:
            raise InvalidRequest(
                f"safe tasks never fail, found {self.task(int(wrong[0]))} among the failed: leave it out"
            )
        return mask

    def parse(self, text: str) -> tuple[Task, ...]:
        """Read `a[0],b[1]`; `a[*]` stands for all tasks of `a`. Blank text names no task."""
        tasks: list[Task] = []
        for part in (part.strip() for part in text.split(",") if part.strip()):
            if part.endswith("[*]"):
                name = part[:-3]
                last = Task(name, 0)
                self.number(last)
                tasks += [Task(name, index) for index in range(self.operators[self._number[name]].parallelism)]
            else:
                task = Task.parse(part)
                self.number(task)
                tasks.append(task)
        return tuple(tasks)

    def producers_of(self, number: int) -> list[int]:
        """The numbers of the tasks that feed a task, in task order per stream."""
        operator = int(self.operator_of[number])
        index = number - int(self.first[operator])
        tasks: list[int] = []
        for stream in self.streams[operator]:
            start = int(self.first[stream.producer])
            tasks += [start + producer for producer in stream.producers_of(index)]
        return tasks

    def consumers_of(self, number: int) -> list[int]:
        """The numbers of the tasks that a task feeds."""
        operator = int(self.operator_of[number])
        index = number - int(self.first[operator])
        tasks: list[int] = []
        for stream in self.consumers[operator]:
            start = int(self.first[stream.consumer])
            tasks += [start + consumer for consumer in stream.consumers_of(index)]
        return tasks

    def neighbour_counts(self) -> tuple[Ints, Ints]:
        """How many producers and how many consumers each task has. O(tasks + streams)."""
        producers, consumers = np.zeros(len(self), dtype=np.int64), np.zeros(len(self), dtype=np.int64)
        for inputs in self.streams:
            for stream in inputs:
                producers[self.span(stream.consumer)] += stream.producer_counts()
                consumers[self.span(stream.producer)] += stream.consumer_counts()
        return producers, consumers

    @cached_property
    def edges(self) -> tuple[Ints, Ints]:
        """Every substream of the graph as (producer, consumer) task numbers. Full streams make this large."""
        producers, consumers = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
        for inputs in self.streams:
            for stream in inputs:
                producer, consumer, _ = stream.substreams()
                producers.append(producer + self.first[stream.producer])
                consumers.append(consumer + self.first[stream.consumer])
        return np.concatenate(producers), np.concatenate(consumers)

    @property
    def edge_count(self) -> int:
        """The number of substreams, without listing them."""
        return sum(
            stream.producers * stream.consumers
            if stream.partitioning is Partitioning.FULL
            else max(stream.producers, stream.consumers)
            for inputs in self.streams
            for stream in inputs
        )

    def _per_task(self, values: Sequence[PerTask]) -> Floats:
        parts = [
            np.asarray(value, dtype=np.float64)
            if isinstance(value, tuple)
            else np.full(operator.parallelism, float(value))
            for operator, value in zip(self.operators, values, strict=True)
        ]
        return np.concatenate(parts)

    def _propagate(self) -> tuple[tuple[Stream, ...], ...]:
        """Rates from the sources down: a producer's output is shared by the weights of each consuming operator."""
        streams: list[tuple[Stream, ...]] = []
        for number, operator in enumerate(self.operators):
            span = self.span(number)
            weights = np.ones(operator.parallelism) if operator.weights is None else np.asarray(operator.weights)
            if operator.is_source:
                rate = (
                    np.asarray(operator.rate)
                    if isinstance(operator.rate, tuple)
                    else operator.rate * weights / weights.sum()
                )
                self.input_rate[span] = self.output_rate[span] = rate
                streams.append(())
                continue
            inputs = tuple(self._stream(number, operator, entry, weights) for entry in operator.inputs)
            self.input_rate[span] = sum(stream.rate for stream in inputs)
            streams.append(inputs)
            with np.errstate(over="ignore"):
                self.output_rate[span] = operator.selectivity * self.input_rate[span]
            if not np.isfinite(self.output_rate[span].sum()):
                raise InvalidTopology(
                    f"operator {operator.name!r}: its rate is beyond all numbers: lower a selectivity"
                )
        return tuple(streams)

    def _stream(self, consumer: int, operator: Operator, entry: Input, weights: Floats) -> Stream:
        producer = self._number[entry.operator]
        before, after = self.operators[producer].parallelism, operator.parallelism
        output = self.output_rate[self.span(producer)]
        parents, starts = _neighbours(before, after)
        if before == after == 1:  # the only kind in a topology of single tasks, which may have very many
            return Stream(producer, consumer, 1, 1, Partitioning.ONE_TO_ONE, _ONE, _ONE, output, parents, starts)
        kind = entry.partitioning
        if 1 in (before, after):
            kind = Partitioning.MERGE if before > after else Partitioning.SPLIT
        match kind:
            case Partitioning.FULL:
                parents = starts = np.zeros(0, dtype=np.int64)
                share = weights / weights.sum()
                rate = share * output.sum()
                weight = output if output.sum() > 0 else np.ones(before)
            case Partitioning.SPLIT:
                totals = np.add.reduceat(weights, starts)[parents]
                siblings = np.bincount(parents, minlength=before)[parents]
                share = np.where(totals > 0, weights / np.where(totals > 0, totals, 1.0), 1.0 / siblings)
                rate = share * output[parents]
                weight = np.ones(after)  # the only substream of its consumer
            case _:
                share = np.ones(before)
                rate = np.add.reduceat(output, starts)
                weight = np.where(rate[parents] > 0, output, 1.0)
        return Stream(producer, consumer, before, after, kind, share, weight, rate, parents, starts)

    def _by_producer(self) -> tuple[tuple[Stream, ...], ...]:
        consumers: list[list[Stream]] = [[] for _ in self.operators]
        for inputs in self.streams:
            for stream in inputs:
                consumers[stream.producer].append(stream)
        return tuple(tuple(streams) for streams in consumers)


@lru_cache(maxsize=1024)
def _neighbours(before: int, after: int) -> tuple[Ints, Ints]:
    """The parents and starts of a stream that is not full: contiguous ranges of as equal a length as possible."""
    few, many = sorted((before, after))
    return (
        np.arange(many, dtype=np.int64) * few // many,
        -(-np.arange(few, dtype=np.int64) * many // few),
    )
