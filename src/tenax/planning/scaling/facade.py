"""The facade of the scaling planners: one demand, several algorithms, one kind of outcome."""

from __future__ import annotations

from tenax.errors import InvalidRequest
from tenax.model.elasticity import POLICIES
from tenax.model.topology import suggestion
from tenax.planning.scaling import threshold
from tenax.planning.scaling.demand import Demand, Shape
from tenax.planning.scaling.outcomes import Direction, Keep, Prediction, Rescale
from tenax.planning.scaling.prediction import PassModel
from tenax.planning.scaling.rates import Choice, Room, smallest, within

ALGORITHMS = POLICIES
DEFAULT = ALGORITHMS[0]
WORTH = 0.05  # by so much a pass must become shorter, where that is not enough, for a rescale to be worth its pause
MERGED = 0.5  # of the tasks that may be merged are, for a scale-in that frees no node to be worth its pause


def plan_scaling(demand: Demand, algorithm: str | None = None) -> Keep | Rescale:
    """The shape for a demand: the present one, a larger one if a pass takes too long, or a smaller one that is enough.

    - A scale-out is planned only if a pass is predicted to take longer than its bound, or for a shape that is not
      allowed; a scale-in only if afterwards a pass stays below the bound by a margin, and if it frees nodes or merges
      half of the tasks that may be merged.
    - A scale-out splits and never merges, a scale-in merges and never splits. A shape that is not allowed is put right
      in either way.
    - Without an algorithm: rates.
    - Where no shape that is allowed is enough, the one of the shortest pass is taken, if it is worth it; the outcome
      says so.
    """
    name = DEFAULT if algorithm is None else algorithm
    if name not in ALGORITHMS:
        raise InvalidRequest(f"unknown algorithm {name!r}{suggestion(name, ALGORITHMS)}")
    model = PassModel(demand)
    now = model.predicted(model.present, demand.nodes)
    fits, allowed = within(now.pass_s, demand.bound_s), demand.allows(now.shape)
    scheduling_s = len(now.level_s) * demand.fixed_s
    if not within(scheduling_s, demand.bound_s):
        return _kept(name, demand, now, f"{_scheduling(demand, now, scheduling_s)}: no shape helps, longer batches do")
    if allowed and fits:
        choice = _smaller(model, name, now.shape)
        if choice is None:
            return _kept(name, demand, now, _enough(demand, now), optimal=name == DEFAULT)
        return _rescaled(name, model, now, choice, Direction.IN)
    if name != DEFAULT and allowed:
        wanted = threshold.split(model)
    else:
        wanted = _enough_choice(model, Room.larger(model) if allowed else Room.allowed(model), fits=fits)
    if wanted is None:
        return _kept(name, demand, now, _helpless(demand, now, "no task that may be split is above the threshold"))
    after = _shape(model, wanted)
    worth = wanted.keeps(demand.bound_s) or wanted.pass_s < now.pass_s * (1 - WORTH)
    if allowed and (not worth or after == now.shape):
        return _kept(name, demand, now, _helpless(demand, now, _in_the_way(name, demand, now, after)))
    return _rescaled(name, model, now, wanted, Direction.IN if after.size < now.shape.size else Direction.OUT)


def _smaller(model: PassModel, name: str, present: Shape) -> Choice | None:
    """A smaller shape with which a pass stays below the bound with a margin; None if there is none."""
    demand = model.demand
    limit_s = demand.bound_s * (1 - demand.margin)
    choices = [smallest(model, limit_s, Room.smaller(model))] if name == DEFAULT else threshold.merges(model)
    shapes = ((choice, _shape(model, choice)) for choice in choices if choice.keeps(limit_s))
    return next((choice for choice, shape in shapes if _is_worth(demand, present, shape)), None)


def _is_worth(demand: Demand, present: Shape, shape: Shape) -> bool:
    """Whether a scale-in frees a node, or merges so many tasks that it is worth its pause."""
    before, after = (
        sum(each.parallelism[name] for group in demand.groups for name in group.operators) for each in (present, shape)
    )
    fewer = shape.nodes < present.nodes
    return fewer or (shape.nodes == present.nodes and shape != present and after <= before * (1 - MERGED))


def _enough_choice(model: PassModel, room: Room, *, fits: bool) -> Choice:
    """The smallest shape that is enough, with something free if that can be had."""
    demand = model.demand
    free = demand.margin if fits else demand.headroom
    choice = smallest(model, demand.bound_s * (1 - free), room)
    return choice if not free or choice.keeps(demand.bound_s * (1 - free)) else smallest(model, demand.bound_s, room)


def _rescaled(name: str, model: PassModel, now: Prediction, choice: Choice, direction: Direction) -> Rescale:
    demand = model.demand
    after = model.predicted(choice.parallelism, choice.nodes)
    feasible = choice.keeps(demand.bound_s)
    said = _out(demand, now) if direction is Direction.OUT else _in(demand, now)
    short = (
        "" if feasible else f"; that is still above {_bound(demand)}: {_in_the_way(name, demand, after, after.shape)}"
    )
    reason = f"{said}: {_changes(now.shape, after.shape)}, then a pass takes {_seconds(after.pass_s)}{short}"
    return Rescale(name, direction, reason, now, after, demand.bound_s, feasible, feasible and choice.proven)


def _kept(name: str, demand: Demand, now: Prediction, reason: str, *, optimal: bool = False) -> Keep:
    return Keep(name, reason, now, demand.bound_s, within(now.pass_s, demand.bound_s), optimal)


def _shape(model: PassModel, choice: Choice) -> Shape:
    names = (operator.name for operator in model.demand.graph.operators)
    return Shape(choice.nodes, dict(zip(names, choice.parallelism, strict=True)))


def _out(demand: Demand, now: Prediction) -> str:
    if demand.allows(now.shape):
        return (
            f"{_pass(demand, now)}, above {_bound(demand)}, and {now.bottleneck.task} is the bottleneck, busy "
            f"{now.bottleneck.busy_part:.0%} of the interval"
        )
    return f"{now.shape.nodes} nodes and their tasks are not what is allowed"


def _in(demand: Demand, now: Prediction) -> str:
    if demand.allows(now.shape):
        return f"{_pass(demand, now)}, well below {_bound(demand)}"
    return f"{now.shape.nodes} nodes and their tasks are not what is allowed"


def _enough(demand: Demand, now: Prediction) -> str:
    return f"{_pass(demand, now)}, below {_bound(demand)}, and fewer nodes would not stay {demand.margin:.0%} below it"


def _helpless(demand: Demand, now: Prediction, cause: str) -> str:
    return f"{_pass(demand, now)}, above {_bound(demand)}, and another shape does not help: {cause}"


def _scheduling(demand: Demand, now: Prediction, scheduling_s: float) -> str:
    return (
        f"scheduling alone takes {_seconds(scheduling_s)} of a pass of {len(now.level_s)} levels, above "
        f"{_bound(demand)}"
    )


def _in_the_way(name: str, demand: Demand, now: Prediction, shape: Shape) -> str:
    """Why nothing more can be done: the busiest task, if it cannot be split any more; else the nodes."""
    bottleneck = now.bottleneck
    group = next((group for group in demand.groups if bottleneck.operator in group.operators), None)
    busy = f"{bottleneck.task} is busy {bottleneck.busy_part:.0%} of the interval"
    if bottleneck.busy_part > demand.target:
        if group is None:
            return f"{busy} and {bottleneck.operator} cannot be split"
        if shape.parallelism[bottleneck.operator] >= group.most:
            return f"{busy} and {bottleneck.operator} has the most tasks it may have ({group.most})"
    if shape.nodes >= demand.bounds[1]:
        return f"the most nodes are reached ({demand.bounds[1]})"
    if name != DEFAULT:
        return "no task is above the threshold alone, and it looks at no levels"
    return f"more nodes than {shape.nodes} make no pass shorter"


def _changes(before: Shape, after: Shape) -> str:
    """What becomes of what, operators that change alike together."""
    alike: dict[tuple[int, int], list[str]] = {}
    for name, tasks in after.parallelism.items():
        if tasks != before.parallelism[name]:
            alike.setdefault((before.parallelism[name], tasks), []).append(name)
    changes = [f"{', '.join(names)} {old} → {new}" for (old, new), names in alike.items()]
    if before.nodes != after.nodes:
        changes.append(f"nodes {before.nodes} → {after.nodes}")
    return ", ".join(changes)


def _pass(demand: Demand, now: Prediction) -> str:
    rate = "" if demand.factor == 1 else f" at {demand.factor:.3g} × the measured rate"
    return f"a pass takes {_seconds(now.pass_s)}{rate}"


def _bound(demand: Demand) -> str:
    return f"{_seconds(demand.bound_s)} ({demand.target:.0%} of the batch interval)"


def _seconds(value: float) -> str:
    return f"{value:.3g} s"
