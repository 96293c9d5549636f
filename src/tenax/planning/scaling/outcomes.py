"""What comes of planning a rescale: a prediction of a shape, and whether to keep the present one or to take another."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tenax.model.tasks import Task
from tenax.planning.scaling.demand import Shape


class Direction(StrEnum):
    """Where a rescale goes."""

    OUT = "scale-out"
    IN = "scale-in"


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """The task that is busy longest, on its level, and its busy part of the batch interval at the wanted rate.

    It would take `rows_per_s` if it were busy all the time: its true processing rate.
    """

    task: Task
    level: int
    busy_part: float
    rows_per_s: float

    @property
    def operator(self) -> str:
        """Its operator."""
        return self.task.operator


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a pass is predicted to take with a shape, at the wanted rate.

    - `level_s` is how long the slowest node of each level is busy; `pass_s` is all of that, and scheduling.
    - Every task, in task order of the shape, is `busy_s` in a batch; it is on the node of the number in `homes`, where
      it has to be placed for that.
    """

    shape: Shape
    pass_s: float
    level_s: tuple[float, ...]
    busy_s: tuple[float, ...]
    homes: tuple[int, ...]
    bottleneck: Bottleneck


@dataclass(frozen=True, slots=True)
class Keep:
    """The present shape stays.

    It is `feasible` if a pass keeps its bound with it; where it is not, nothing that is allowed helps enough, and the
    reason says what is in the way.
    """

    algorithm: str
    reason: str
    now: Prediction
    bound_s: float
    feasible: bool
    optimal: bool

    def to_data(self) -> dict[str, object]:
        """The plan for programs."""
        return {"outcome": "keep", **_data(self, self.now, self.now)}


@dataclass(frozen=True, slots=True)
class Rescale:
    """Another shape, in one decision.

    - It is `feasible` if a pass is predicted to keep its bound afterwards; else the reason says what is in the way.
    - It is `optimal` if it is proven that no smaller shape is enough, nodes first, then tasks, and leaves as much free;
      of those that splitting alone leads to, or merging alone.
    """

    algorithm: str
    direction: Direction
    reason: str
    now: Prediction
    after: Prediction
    bound_s: float
    feasible: bool
    optimal: bool

    @property
    def shape(self) -> Shape:
        """What it is rescaled to."""
        return self.after.shape

    @property
    def changed(self) -> dict[str, int]:
        """The operators whose parallelism changes, with the new one."""
        before = self.now.shape.parallelism
        return {name: tasks for name, tasks in self.shape.parallelism.items() if tasks != before[name]}

    def to_data(self) -> dict[str, object]:
        """The plan for programs."""
        return {"outcome": str(self.direction), **_data(self, self.now, self.after)}


def _data(outcome: Keep | Rescale, now: Prediction, after: Prediction) -> dict[str, object]:
    return {
        "algorithm": outcome.algorithm,
        "reason": outcome.reason,
        "nodes": {"before": now.shape.nodes, "after": after.shape.nodes},
        "parallelism": {"before": dict(now.shape.parallelism), "after": dict(after.shape.parallelism)},
        "pass_s": {"before": now.pass_s, "after": after.pass_s, "bound": outcome.bound_s},
        "bottleneck": {
            "task": str(now.bottleneck.task),
            "level": now.bottleneck.level,
            "busy_part": now.bottleneck.busy_part,
            "rows_per_s": now.bottleneck.rows_per_s,
        },
        "feasible": outcome.feasible,
        "optimal": outcome.optimal,
    }
