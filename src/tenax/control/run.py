"""What stays the same from the start of a run to its stop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from tenax.control.state import Settings
from tenax.model.cluster import Node
from tenax.model.graph import Bools, TaskGraph
from tenax.model.plans import Placement
from tenax.model.tasks import Task

Place = Callable[[TaskGraph, Sequence[Node]], Placement]


@dataclass(frozen=True)
class Run:
    """The topology and its protection.

    - `retain` names the tasks that always keep their outputs, `replicas` those that run twice.
    - `publishers` are the tasks that have results.
    """

    graph: TaskGraph
    settings: Settings
    place: Place
    retain: frozenset[Task] = frozenset()
    replicas: frozenset[Task] = frozenset()
    publishers: frozenset[Task] = field(default_factory=frozenset)

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

    def spread(self, marked: Bools) -> Bools:
        """The marked tasks and all that depend on them. O(tasks)."""
        found = marked.copy()
        for operator, streams in enumerate(self.graph.streams):
            span = self.graph.span(operator)
            for stream in streams:
                found[span] |= stream.highest(found[self.graph.span(stream.producer)]).astype(np.bool_)
        return found
