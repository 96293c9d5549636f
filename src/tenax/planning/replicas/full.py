"""Replica plans for sub-topologies of full streams: the best task of every operator (Su, Zhou 2016, algorithm 4)."""

from __future__ import annotations

import numpy as np

from tenax.model.graph import Floats
from tenax.planning.replicas.parts import Part, Plan, Step
from tenax.planning.replicas.scoring import TIE, first_highest, scores


class FullPlanner:
    """Extends plans of a full sub-topology. O(tasks²) once, then O(operators × tasks) a step."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self._ranked = [self._rank(operator) for operator in part.operators]

    def first(self, budget: int) -> Step | None:
        """The best task of every operator that matters; None if the budget is too small."""
        added = frozenset(tasks[0] for tasks in self._ranked if tasks)
        if not added or len(added) > budget:
            return None
        return Step(added, self.part.value(added))

    def next(self, plan: Plan, budget: int) -> Step | None:
        """The best of each operator's next tasks; None if none helps."""
        heads = [next((task for task in tasks if task not in plan), None) for tasks in self._ranked]
        candidates = [task for task in heads if task is not None]
        if not candidates or budget < 1:
            return None
        values = self.part.values(plan, [[task] for task in candidates])
        best = first_highest(values)
        return Step(frozenset({candidates[best]}), float(values[best]))

    def _rank(self, operator: int) -> list[int]:
        """Its tasks by what each alone keeps when the others of its operator fail, best first."""
        graph = self.part.graph
        span = graph.span(operator)
        tasks = [task for task in range(span.start, span.stop) if not graph.safe[task]]
        if not tasks:
            return []
        failed = np.zeros((len(tasks) + 1, len(graph)), dtype=np.bool_)
        failed[:, tasks] = True
        failed[np.arange(len(tasks)), tasks] = False
        values: Floats = scores(graph, self.part.metric, failed)
        if values[-1] >= 1.0 - TIE:  # no output needs this operator
            return []
        gains = values[:-1] - values[-1]
        gains = np.round(gains / max(gains.max(), np.finfo(np.float64).tiny), 12)  # equal ones stay in task order
        return [tasks[index] for index in np.argsort(-gains, kind="stable")]
