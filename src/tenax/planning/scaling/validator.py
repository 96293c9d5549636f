"""The one judge of scaling plans, written from the definition and not from any planner."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tenax.errors import InvalidPlan
from tenax.model.topology import Partitioning
from tenax.planning.scaling.demand import Demand, Shape
from tenax.planning.scaling.outcomes import Direction, Keep, Prediction, Rescale

TOLERANCE = 1e-6  # of stated figures
GROUPS_OF_KEYS = 128


def check_scaling(demand: Demand, outcome: Keep | Rescale) -> None:
    """Raise `InvalidPlan` unless figures are what their shape means, bounds are kept, and the direction is justified.

    It does not ask whether a smaller shape would do: tests do, with brute force. O(tasks · key groups).
    """
    _check_figure("the bound", outcome.bound_s, demand.target * demand.interval_s * demand.batches)
    if outcome.now.shape != demand.present:
        raise InvalidPlan(f"a plan begins with the present shape, found {outcome.now.shape}: it is {demand.present}")
    _check_prediction(demand, outcome.now)
    after = outcome.after if isinstance(outcome, Rescale) else outcome.now
    _check_prediction(demand, after)
    if outcome.feasible is not _keeps(after.pass_s, outcome.bound_s):
        raise InvalidPlan(
            f"a plan is feasible if a pass keeps {outcome.bound_s} s, found {outcome.feasible}: it takes {after.pass_s}"
        )
    if isinstance(outcome, Rescale):
        _check_shape(demand, after.shape)
        _check_direction(demand, outcome)
        if outcome.optimal and not outcome.feasible:
            raise InvalidPlan("a plan that is not enough is not optimal, found one that says so: correct it")
    if not outcome.reason or "\n" in outcome.reason:
        raise InvalidPlan("every plan has a reason in one line, found none or several: state one")


def _check_shape(demand: Demand, shape: Shape) -> None:
    if not demand.bounds[0] <= shape.nodes <= demand.bounds[1]:
        raise InvalidPlan(f"there are from {demand.bounds[0]} to {demand.bounds[1]} nodes, found {shape.nodes}")
    free = {name: group for group in demand.groups for name in group.operators}
    for name, tasks in shape.parallelism.items():
        if name not in free:
            if tasks != demand.present.parallelism[name]:
                raise InvalidPlan(f"{name} is in no group and keeps its tasks, found {tasks}: correct it")
        elif not free[name].fewest <= tasks <= free[name].most:
            raise InvalidPlan(f"{name} has from {free[name].fewest} to {free[name].most} tasks, found {tasks}")
    for group in demand.groups:
        if len({shape.parallelism[name] for name in group.operators}) > 1:
            raise InvalidPlan(f"{', '.join(group.operators)} have as many tasks each, found others: correct them")


def _check_direction(demand: Demand, plan: Rescale) -> None:
    """Out only if a pass takes too long, in only if it leaves the margin free; either if the present is not allowed."""
    if plan.shape == demand.present:
        raise InvalidPlan("a rescale changes the shape, found the present one: keep it")
    now, asked = plan.now.shape, not demand.allows(demand.present)
    smaller = (plan.shape.nodes, plan.shape.tasks) < (now.nodes, now.tasks)
    if asked:
        return
    if plan.direction is Direction.OUT:
        if _keeps(plan.now.pass_s, plan.bound_s) or not plan.shape.covers(now):
            raise InvalidPlan(
                f"a scale-out is for a pass above {plan.bound_s} s and merges nothing, found {plan.now.pass_s} and "
                f"{plan.shape}: keep the shape"
            )
    else:
        limit_s = plan.bound_s * (1 - demand.margin)
        if not smaller or not now.covers(plan.shape) or not _keeps(plan.after.pass_s, limit_s):
            raise InvalidPlan(
                f"a scale-in has fewer nodes or tasks, and more of nothing, and a pass of at most {limit_s} s, found "
                f"{plan.shape} and {plan.after.pass_s}: keep the shape"
            )


def _check_prediction(demand: Demand, prediction: Prediction) -> None:
    """Every figure from what was measured, key group by key group and node by node."""
    shape = prediction.shape
    names = [operator.name for operator in demand.graph.operators for _ in range(shape.parallelism[operator.name])]
    if len(prediction.busy_s) != len(names) or len(prediction.homes) != len(names):
        raise InvalidPlan(f"a prediction has figures of {len(names)} tasks, found {len(prediction.busy_s)}")
    expected = [
        seconds
        for number, operator in enumerate(demand.graph.operators)
        for seconds in _busy(demand, number, shape.parallelism[operator.name])
    ]
    for name, stated, true in zip(names, prediction.busy_s, expected, strict=True):
        _check_figure(f"busy seconds of a task of {name}", stated, true)
    if not all(0 <= node < shape.nodes for node in prediction.homes):
        raise InvalidPlan(f"tasks are on one of {shape.nodes} nodes, found {max(prediction.homes)}: correct it")
    levels = _levels(demand, shape.parallelism)
    slowest: list[float] = []
    for level in range(max(levels.values()) + 1):
        load = [0.0] * shape.nodes
        for name, node, seconds in zip(names, prediction.homes, expected, strict=True):
            if levels[name] == level:
                load[node] += seconds
        slowest.append(max(load) * demand.batches * demand.correction)
    if len(slowest) != len(prediction.level_s):
        raise InvalidPlan(f"a pass of this shape has {len(slowest)} levels, found {len(prediction.level_s)}")
    for level, (stated, true) in enumerate(zip(prediction.level_s, slowest, strict=True)):
        _check_figure(f"seconds of level {level}", stated, true)
    _check_figure("the time of a pass", prediction.pass_s, len(slowest) * demand.fixed_s + sum(slowest))
    _check_figure("the bottleneck's busy part", prediction.bottleneck.busy_part, max(expected) / demand.interval_s)
    if prediction.bottleneck.level != levels[prediction.bottleneck.operator]:
        raise InvalidPlan(f"{prediction.bottleneck.task} is on level {levels[prediction.bottleneck.operator]}")


def _busy(demand: Demand, number: int, tasks: int) -> list[float]:
    """The busy seconds of an operator's tasks: its key groups are dealt out anew, each with what its task had of it."""
    now = demand.busy_s[demand.graph.span(number)]
    always = min(demand.task_s, *now)
    if tasks == len(now):
        return [always + demand.factor * (each - always) for each in now]
    weights = [[(each - always) / held] * held for each, held in zip(now, _held(len(now)), strict=True)]
    wanted = _held(tasks)
    kept = [part[: wanted[task]] if task < tasks else [] for task, part in enumerate(weights)]
    given = [weight for task, part in enumerate(weights) for weight in part[len(kept[task]) :]]
    kept += [[] for _ in range(tasks - len(kept))]
    mean = sum(given) / len(given) if given else 0.0
    parts = [kept[task] + [mean] * (wanted[task] - len(kept[task])) for task in range(tasks)]
    return [always + demand.factor * sum(part) for part in parts]


def _held(tasks: int) -> list[int]:
    """How many key groups every task has: dealt out one after the other."""
    held = [0] * tasks
    for group in range(GROUPS_OF_KEYS):
        held[group % tasks] += 1
    return held


def _levels(demand: Demand, parallelism: Mapping[str, int]) -> dict[str, int]:
    """The level of every operator: behind its inputs, or with its only one if each task has one partner."""
    group_of: dict[str, Sequence[str] | None] = {
        name: group.operators for group in demand.groups for name in group.operators
    }
    readers = [name for operator in demand.graph.operators for name in (entry.operator for entry in operator.inputs)]
    levels: dict[str, int] = {}
    for number, operator in enumerate(demand.graph.operators):
        fused = False
        if len(operator.inputs) == 1 and readers.count(operator.inputs[0].operator) == 1:
            before, stream = operator.inputs[0].operator, demand.graph.streams[number][0]
            partners = group_of.get(before) == group_of.get(operator.name)
            fused = parallelism[before] == parallelism[operator.name] == 1 or (
                partners and stream.partitioning is Partitioning.ONE_TO_ONE
            )
        behind = [levels[entry.operator] + (0 if fused else 1) for entry in operator.inputs]
        levels[operator.name] = max(behind, default=0)
    return levels


def _keeps(seconds: float, limit_s: float) -> bool:
    return seconds <= limit_s or math.isclose(seconds, limit_s, rel_tol=TOLERANCE)


def _check_figure(what: str, stated: float, true: float) -> None:
    if not math.isclose(stated, true, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
        raise InvalidPlan(f"{what} is what its shape means, found {stated}: it is {true}")
