"""What the planners of single sub-topologies share: the value when only their own tasks fail."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tenax.model.graph import Bools, Floats, TaskGraph
from tenax.model.plans import Metric
from tenax.planning.decomposition import SubTopology
from tenax.planning.replicas.scoring import extended_values, scores

Plan = frozenset[int]


@dataclass(frozen=True, slots=True)
class Step:
    """Tasks to add to the plan of a sub-topology, and what the value of that sub-topology rises to."""

    added: Plan
    value: float


class Part:
    """A sub-topology whose tasks may fail while all others live.

    - `members` marks its tasks that can fail: safe ones live for ever and are in no plan.
    """

    def __init__(self, graph: TaskGraph, metric: Metric, sub_topology: SubTopology) -> None:
        self.graph = graph
        self.metric = metric
        self.operators = sub_topology.operators
        self.full = sub_topology.full
        self.members: Bools = np.zeros(len(graph), dtype=np.bool_)
        for operator in self.operators:
            self.members[graph.span(operator)] = True
        self.members &= ~graph.safe

    def failed(self, plan: Iterable[int]) -> Bools:
        """Every task of this part outside the plan."""
        failed = self.members.copy()
        failed[list(plan)] = False
        return failed

    def value(self, plan: Iterable[int]) -> float:
        """The value when only the tasks of this part outside the plan fail."""
        return float(scores(self.graph, self.metric, self.failed(plan)[np.newaxis])[0])

    def values(self, plan: Iterable[int], additions: Sequence[Iterable[int]]) -> Floats:
        """The values of a plan with each of several additions."""
        return extended_values(self.graph, self.metric, self.failed(plan), additions)
