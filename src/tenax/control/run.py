"""The fixed part of a run: topology, settings and protection, and what follows from them for every task."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np

from tenax.model.cluster import Node
from tenax.model.graph import Bools, TaskGraph
from tenax.model.plans import Placement
from tenax.model.protection import Protection, Standby, Strategy
from tenax.model.settings import Settings
from tenax.model.tasks import Task
from tenax.planning.rates import Rows, with_costs, with_rates
from tenax.planning.scaling import Group

Place = Callable[[TaskGraph, Sequence[Node], Mapping[str, float]], Placement]
"""Where tasks run at first: the costs of the graph, on these nodes, each of which takes at most so much."""


def need_outputs(strategies: Collection[Strategy]) -> bool:
    """Whether a task may be stored at a newer batch than a consumer, where they are stored in these ways."""
    return len(set(strategies)) > 1 or not {Strategy.SYNCHRONOUS, Strategy.INDIVIDUAL}.isdisjoint(strategies)


@dataclass(frozen=True)
class Run:
    """The topology and its protection.

    - `retain` names the tasks that keep their outputs at the start, `replicas` those that run twice then.
    - `publishers` are the tasks that have results; `groups` the operators that split and merge together.
    """

    graph: TaskGraph
    settings: Settings
    place: Place
    retain: frozenset[Task] = frozenset()
    replicas: frozenset[Task] = frozenset()
    publishers: frozenset[Task] = field(default_factory=frozenset)
    groups: tuple[Group, ...] = ()

    @property
    def protection(self) -> Protection:
        """How the loss of nodes is met."""
        return self.settings.protection

    @cached_property
    def tasks(self) -> tuple[Task, ...]:
        """All tasks, in task order."""
        return self.graph.tasks(range(len(self.graph)))

    @cached_property
    def is_source(self) -> Bools:
        """Which tasks read logged ranges: their state is known for every batch, so they are never behind."""
        return np.array([not self.graph.streams[operator] for operator in self.graph.operator_of], dtype=np.bool_)

    @cached_property
    def number(self) -> dict[Task, int]:
        """The numbers of the tasks."""
        return {task: number for number, task in enumerate(self.tasks)}

    @cached_property
    def strategy_of(self) -> tuple[Strategy, ...]:
        """How the state of every task is stored."""
        names = (self.graph.operators[operator].name for operator in self.graph.operator_of)
        return tuple(self.protection.strategy_of(name) for name in names)

    @cached_property
    def active_active(self) -> frozenset[Task]:
        """The tasks whose replicas send as well."""
        standby = self.protection.standby
        return frozenset(task for task in self.tasks if standby.get(task.operator) == Standby.ACTIVE_ACTIVE)

    @cached_property
    def by_strategy(self) -> Mapping[Strategy, tuple[int, ...]]:
        """The tasks that are stored in the same way; sources are not: they have their log."""
        tasks: dict[Strategy, list[int]] = {}
        for number, strategy in enumerate(self.strategy_of):
            if not self.is_source[number]:
                tasks.setdefault(strategy, []).append(number)
        return {strategy: tuple(numbers) for strategy, numbers in tasks.items()}

    @cached_property
    def sweeps(self) -> tuple[bool, ...]:
        """Which tasks are stored by sweeping."""
        swept = set(self.by_strategy.get(Strategy.SWEEPING, ()))
        return tuple(number in swept for number in range(len(self.graph)))

    @cached_property
    def all_aligned(self) -> bool:
        """Whether all tasks are stored together."""
        return set(self.by_strategy) <= {Strategy.ALIGNED}

    @cached_property
    def rebuilt(self) -> tuple[int, ...]:
        """The tasks that are never stored, the last ones first."""
        return self.by_strategy.get(Strategy.NONE, ())[::-1]

    @cached_property
    def trimmed_apart(self) -> tuple[Task, ...]:
        """The tasks whose consumers may be stored at other batches than they: what these are through is let go of."""
        tasks = []
        for number, task in enumerate(self.tasks if not self.all_aligned else ()):
            if self.is_source[number] or self.strategy_of[number] is Strategy.NONE:
                continue  # a task that is never stored begins where its consumers do
            if self.graph.consumers_of(number) and self._around(number) != {Strategy.ALIGNED}:
                tasks.append(task)
        return tuple(tasks)

    @cached_property
    def ahead(self) -> tuple[Task, ...]:
        """Those of them that may be stored at a newer batch than a consumer: only they retain its inputs.

        A sweep stores consumers first. So its tasks can make again whatever is asked for, and need not keep it.
        """
        return tuple(task for task in self.trimmed_apart if need_outputs(self._around(self.number[task])))

    def _around(self, number: int) -> set[Strategy]:
        """How a task and its consumers are stored."""
        return {self.strategy_of[task] for task in (number, *self.graph.consumers_of(number))}

    @cached_property
    def graph_with(self) -> Callable[[Rows], TaskGraph]:
        """The graph with measured rates; that of the last ones is kept."""
        return lru_cache(maxsize=1)(lambda rows: TaskGraph(with_rates(self.graph.topology, rows)))

    @cached_property
    def graph_with_costs(self) -> Callable[[tuple[float, ...]], TaskGraph]:
        """The graph with these costs; that of the last ones is kept."""
        return lru_cache(maxsize=1)(lambda costs: TaskGraph(with_costs(self.graph.topology, costs)))

    def spread(self, marked: Bools) -> Bools:
        """The marked tasks and all that depend on them. O(tasks)."""
        reached = marked.copy()
        for operator, streams in enumerate(self.graph.streams):
            span = self.graph.span(operator)
            for stream in streams:
                reached[span] |= stream.highest(reached[self.graph.span(stream.producer)]).astype(np.bool_)
        return reached
