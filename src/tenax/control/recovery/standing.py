"""How the tasks of a run stand: which are behind, which are degraded by that, which can be recovered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from tenax.control.instructions import Step
from tenax.control.run import Run
from tenax.control.state import RunState
from tenax.model.graph import Bools, Ints
from tenax.model.tasks import Task
from tenax.planning.fidelity import losses
from tenax.planning.rates import Rows


@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """One entry per task.

    - `batch` is the one that it has come to accurately; a task below `finished` is behind.
    - `degraded` tasks are behind or unplaced, or depend on one that is: they cannot go on accurately.
    - `placed` tasks, and all that they depend on, have nodes: those of them that are behind can catch up.
    """

    batch: Ints
    behind: Bools
    degraded: Bools
    placed: Bools

    @property
    def healthy(self) -> bool:
        """Whether every task is accurate and up to date."""
        return not self.degraded.any()

    @property
    def catching_up(self) -> Ints:
        """The tasks that are behind and can catch up."""
        return np.flatnonzero(self.behind & self.placed)


def standing(run: Run, state: RunState) -> Standing:
    """How the tasks stand now. O(tasks)."""
    batch = np.array([task.batch for task in state.tasks], dtype=np.int64)
    unplaced = np.array([task.primary is None for task in state.tasks], dtype=np.bool_)
    behind = batch < state.finished
    degraded = run.spread(behind | unplaced)
    return Standing(batch, behind, degraded, ~run.spread(unplaced))


def qualities(run: Run, steps: Iterable[Step], measured: Rows | None) -> Mapping[Task, float]:
    """How good the results of a pass with these steps are, of every task with results: 1 − its loss of information.

    By the rates that were measured; before that, by those that are declared.
    """
    missing = np.ones(len(run.graph), dtype=np.bool_)
    missing[[run.number[step.task] for step in steps]] = False
    loss = losses(run.graph if measured is None else run.graph_with(measured), missing)
    return {task: float(1.0 - loss[run.number[task]]) for task in run.publishers}
