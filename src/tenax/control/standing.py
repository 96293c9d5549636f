"""How the tasks of a run stand: which are behind, which are affected, which may come back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tenax.control.run import Run
from tenax.control.state import RunState
from tenax.model.graph import Bools, Ints
from tenax.model.tasks import Task
from tenax.planning.fidelity import losses


@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """One entry per task.

    - `level` is the batch of its accurate head; a task below `finished` is behind.
    - `tainted` tasks are behind or without a node, or depend on one that is: they cannot go on accurately.
    - `able` tasks, and all that they depend on, have nodes: those of them that are behind can rise.
    - `missing` tasks have no version after `finished`, neither accurate nor tentative.
    """

    level: Ints
    behind: Bools
    tainted: Bools
    able: Bools
    missing: Bools

    @property
    def whole(self) -> bool:
        """Whether every task is accurate and up to date."""
        return not self.tainted.any()

    @property
    def rising(self) -> Ints:
        """The tasks that are behind and can come back."""
        return np.flatnonzero(self.behind & self.able)


def standing(run: Run, state: RunState) -> Standing:
    """How the tasks stand now. O(tasks)."""
    level = np.array([task.head.batch for task in state.tasks], dtype=np.int64)
    homeless = np.array([task.primary is None for task in state.tasks], dtype=np.bool_)
    behind = level < state.finished
    tainted = run.spread(behind | homeless)
    fronts = (task.primary is not None and task.primary.front(state.finished) is not None for task in state.tasks)
    missing = tainted & ~np.fromiter(fronts, dtype=np.bool_, count=len(state.tasks))
    return Standing(level, behind, tainted, ~run.spread(homeless), missing)


def qualities(run: Run, missing: Bools) -> Mapping[Task, float]:
    """How good the results of every task with results are while tasks are missing: 1 − its loss of information."""
    loss = losses(run.graph, missing)
    return {task: float(1.0 - loss[run.number[task]]) for task in run.publishers}
