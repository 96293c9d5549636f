"""What is asked of a rescale: what tasks take at a measured rate, which rate is wanted, which shapes are allowed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tenax.errors import InvalidRequest
from tenax.model.graph import TaskGraph
from tenax.model.topology import suggestion
from tenax.planning.scaling.shares import KEY_GROUPS

MARGIN = 0.2
"""A scale-in leaves so much of the bound of a pass free, so that a little more load asks for no scale-out."""


@dataclass(frozen=True, slots=True)
class Group:
    """Operators that split and merge together, because their tasks are partners: they all have as many tasks.

    That is at least `fewest` and at most `most`, which is no more than there are key groups.
    """

    operators: tuple[str, ...]
    fewest: int
    most: int

    def __post_init__(self) -> None:
        if not self.operators:
            raise InvalidRequest("a group of operators names at least one, found none: leave the group out")
        if not 1 <= self.fewest <= self.most <= KEY_GROUPS:
            raise InvalidRequest(
                f"{', '.join(self.operators)}: the fewest tasks are at least 1, the most not below them and not above "
                f"{KEY_GROUPS}, found {self.fewest} and {self.most}: correct them"
            )


@dataclass(frozen=True, slots=True)
class Shape:
    """How many nodes there are, and how many tasks every operator has."""

    nodes: int
    parallelism: Mapping[str, int]

    @property
    def tasks(self) -> int:
        """All tasks together."""
        return sum(self.parallelism.values())

    @property
    def size(self) -> tuple[int, int]:
        """What is kept small: nodes first, then tasks."""
        return self.nodes, self.tasks

    def covers(self, other: Shape) -> bool:
        """Whether it has at least as many nodes, and tasks of every operator, as another shape."""
        return self.nodes >= other.nodes and all(
            tasks >= other.parallelism.get(name, 0) for name, tasks in self.parallelism.items()
        )


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """What a topology takes, and what it is to stand.

    - `graph` has the present parallelism, `nodes` is the present number of nodes.
    - In a batch at the measured rate every task, in task order, is `busy_s` with so many `rows`; `task_s` of that it is
      busy whatever the rows are. What is wanted is `factor` times that rate.
    - A pass of `batches` batches, which are `interval_s` apart, is to take at most `target` of their interval. It takes
      `fixed_s` for each of its levels beside what tasks do, and that takes `correction` times what the tasks say.
    - There may be from `bounds[0]` to `bounds[1]` nodes. Operators in no group keep their tasks.
    - A scale-out leaves `headroom` of the bound free, where that can be had; a scale-in leaves `margin`.
    """

    graph: TaskGraph
    rows: tuple[float, ...]
    busy_s: tuple[float, ...]
    interval_s: float
    nodes: int
    bounds: tuple[int, int]
    groups: tuple[Group, ...] = ()
    factor: float = 1.0
    target: float = 0.7
    fixed_s: float = 0.0
    task_s: float = 0.0
    batches: int = 1
    correction: float = 1.0
    headroom: float = 0.0
    margin: float = MARGIN
    present: Shape = field(init=False)

    def __post_init__(self) -> None:
        self._check_numbers()
        self._check_groups()
        tasks = {operator.name: operator.parallelism for operator in self.graph.operators}
        object.__setattr__(self, "present", Shape(self.nodes, tasks))

    @property
    def bound_s(self) -> float:
        """How long a pass may take."""
        return self.target * self.interval_s * self.batches

    def allows(self, shape: Shape) -> bool:
        """Whether a shape keeps all bounds."""
        return self.bounds[0] <= shape.nodes <= self.bounds[1] and all(
            group.fewest <= shape.parallelism[name] <= group.most for group in self.groups for name in group.operators
        )

    def _check_numbers(self) -> None:
        tasks = len(self.graph)
        if len(self.rows) != tasks or len(self.busy_s) != tasks:
            raise InvalidRequest(
                f"rows and busy seconds are those of all {tasks} tasks, found {len(self.rows)} and {len(self.busy_s)}: "
                "state one of each per task"
            )
        _check("rows and busy seconds", [*self.rows, *self.busy_s], least=0.0)
        _check("seconds beside rows, and a factor of the rate", [self.fixed_s, self.task_s, self.factor], least=0.0)
        if not math.isfinite(self.interval_s) or self.interval_s <= 0:
            raise InvalidRequest(
                f"how many nodes are enough follows from the time between batches, found {self.interval_s:g} s: state "
                "a time above 0"
            )
        if not 0 < self.target <= 1:
            raise InvalidRequest(f"a target is above 0 and at most 1, found {self.target:g}: correct it")
        if not 0 <= self.headroom < 1 or not 0 <= self.margin < 1:
            raise InvalidRequest(
                f"headroom and margin are from 0 to below 1, found {self.headroom:g} and {self.margin:g}: correct them"
            )
        if self.correction <= 0 or self.batches < 1 or self.nodes < 1:
            raise InvalidRequest(
                f"a correction is above 0, batches and nodes are at least 1, found {self.correction:g}, {self.batches} "
                f"and {self.nodes}: correct them"
            )
        if not 1 <= self.bounds[0] <= self.bounds[1]:
            raise InvalidRequest(
                f"the fewest nodes are at least 1 and not above the most, found {self.bounds[0]} and {self.bounds[1]}: "
                "correct them"
            )

    def _check_groups(self) -> None:
        tasks = {operator.name: operator.parallelism for operator in self.graph.operators}
        seen: set[str] = set()
        for group in self.groups:
            for name in group.operators:
                if name not in tasks:
                    raise InvalidRequest(
                        f"a group names operators of its topology, found {name!r}{suggestion(name, tasks)}"
                    )
                if name in seen:
                    raise InvalidRequest(f"an operator is in one group, found {name!r} in two: leave it out of one")
                seen.add(name)
            if tasks[group.operators[0]] > KEY_GROUPS:
                raise InvalidRequest(
                    f"operators of a group have at most {KEY_GROUPS} tasks, found {group.operators[0]!r} with "
                    f"{tasks[group.operators[0]]}: leave it out of the groups"
                )
            if len({tasks[name] for name in group.operators}) > 1:
                raise InvalidRequest(
                    f"operators of a group have as many tasks, found {', '.join(group.operators)} with others: "
                    "group only neighbours whose tasks are partners"
                )


def _check(what: str, numbers: Iterable[float], least: float) -> None:
    for number in numbers:
        if not math.isfinite(number) or number < least:
            raise InvalidRequest(f"{what} are finite numbers of at least {least:g}, found {number}: correct it")
