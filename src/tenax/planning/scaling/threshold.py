"""The operator of the busiest task gets as many more tasks as its utilisation asks for (Chang, Li, Xu).

    new tasks = ⌈tasks · utilisation / target⌉ − tasks

where the utilisation is the part of a batch interval in which that task is busy. As in the paper, a task more is a
node more; the nodes come from a pool, here as many as are allowed. It looks at one operator at a time and at no levels:
a pass may take too long although no task is busy for long, and this does not see it.

The paper merges nothing. Ours is the mirror image: the operator whose busiest task is the least busy gets as few tasks
as keep it below the target with a margin, and as many nodes go.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from tenax.planning.scaling.prediction import PassModel
from tenax.planning.scaling.rates import SLACK, Choice


def split(model: PassModel) -> Choice | None:
    """More tasks for the group of the busiest task above the target that may have more; None if there is none."""
    demand = model.demand
    for utilisation, number in reversed(_utilisations(model)):
        group, tasks = demand.groups[number], model.group_tasks[number]
        if utilisation > demand.target * (1 + SLACK) and tasks < group.most:
            more = min(group.most, math.ceil(tasks * utilisation / demand.target - SLACK)) - tasks
            nodes = max(demand.nodes, min(demand.bounds[1], demand.nodes + more))
            return _choice(model, number, tasks + more, nodes)
    return None


def merges(model: PassModel) -> Iterator[Choice]:
    """Fewer tasks for a group, the least busy one first; at last only a node less."""
    demand = model.demand
    for utilisation, number in _utilisations(model):
        group, tasks = demand.groups[number], model.group_tasks[number]
        limit = demand.target * (1 - demand.margin)
        fewer = max(group.fewest, math.ceil(tasks * utilisation / limit - SLACK))
        if fewer < tasks:
            nodes = min(demand.nodes, max(demand.bounds[0], demand.nodes - (tasks - fewer)))
            yield _choice(model, number, fewer, nodes)
    if demand.nodes > demand.bounds[0]:
        nodes = demand.nodes - 1
        yield Choice(model.present, nodes, model.pass_s(model.present, nodes), proven=False)


def _utilisations(model: PassModel) -> list[tuple[float, int]]:
    """The busy part of the busiest task of every group, with its number, the least busy first."""
    busiest_s = (
        max(max(model.busy_s(operator, model.present[operator])) for operator in operators)
        for operators in model.groups
    )
    return sorted((seconds / model.demand.interval_s, number) for number, seconds in enumerate(busiest_s))


def _choice(model: PassModel, group: int, tasks: int, nodes: int) -> Choice:
    before = model.group_tasks
    parallelism = model.with_groups([*before[:group], tasks, *before[group + 1 :]])
    return Choice(parallelism, nodes, model.pass_s(parallelism, nodes), proven=False)
