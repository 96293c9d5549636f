"""What candidates add to a plan, scored again only where the plan has changed around them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tenax.model.graph import Bools, Floats, TaskGraph
from tenax.model.queries import membership
from tenax.planning.replicas.parts import Part, Plan

MAX_REMEMBERED_TASKS = 4_000  # relations are a square of booleans; larger topologies score everything again


class Gains:
    """The gains of candidates of a sub-topology, remembered between steps of a growing plan.

    A value is a sum over MC-trees of the product of their tasks. What a task adds depends only on trees through it:
    on its ancestors, its descendants, and the ancestors of joins among these. A gain stays what it was until the plan
    takes one of those.
    """

    def __init__(self, part: Part) -> None:
        self.part = part
        self._related = related(part.graph) if len(part.graph) <= MAX_REMEMBERED_TASKS else None
        self._known: dict[Plan, float] = {}
        self._plan: Plan = frozenset()

    def of(self, plan: Plan, value: float, candidates: Sequence[Plan]) -> Floats:
        """What each candidate adds to the plan, whose own value is given."""
        self._forget(plan)
        unknown = [candidate for candidate in candidates if candidate not in self._known]
        gains = self.part.values(plan, unknown) - value
        self._known.update(zip(unknown, gains.tolist(), strict=True))
        return np.array([self._known[candidate] for candidate in candidates])

    def _forget(self, plan: Plan) -> None:
        changed = list(plan ^ self._plan)
        self._plan = plan
        if changed and self._related is None:
            self._known.clear()
        elif changed and self._related is not None:
            touched = set(np.flatnonzero(self._related[changed].any(axis=0)).tolist())
            self._known = {candidate: gain for candidate, gain in self._known.items() if touched.isdisjoint(candidate)}


def related(graph: TaskGraph) -> Bools:
    """For every pair of tasks, whether an MC-tree may hold both. O(tasks²) numbers."""
    ancestors = membership(graph, np.arange(len(graph)))
    pairs = ancestors | ancestors.T
    joins = [
        number for number, operator in enumerate(graph.operators) if operator.correlated and len(operator.inputs) > 1
    ]
    for operator in joins:
        rows = ancestors[graph.span(operator)].astype(np.float32)
        pairs |= (rows.T @ rows) > 0
    return pairs
