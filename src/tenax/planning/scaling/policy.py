"""When a run is rescaled: what single periods ask for, made into few decisions that last.

    asks for          a scale-out if a pass is predicted to take longer than its bound at the rate at which rows come;
                      a scale-in if a smaller shape would leave `MARGIN` of the bound free
    decides           when `cycles` periods in a row ask for the same direction, for the highest rate among them
    a scale-out       leaves `HEADROOM` of the bound free, so that it need not be followed by another
    a scale-in        waits while batches wait, for `cooldown` after every rescale, and keeps away from as few nodes as
                      were too few before at a rate like this one; and what was decided for a rate holds as long as no
                      fewer rows come
    after a rescale   nothing is decided before it is there and was measured

How fast rows come is not known of a run that is behind: what it takes is its own speed. As long as what waits does not
become less, `GROWTH` times that is asked for; so a rate that is three times as high takes two decisions at most. While
it becomes less, the run catches up and nothing is decided.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tenax.model.elasticity import Elasticity
from tenax.model.graph import TaskGraph
from tenax.planning.scaling.demand import MARGIN, Demand, Group, Shape
from tenax.planning.scaling.facade import plan_scaling
from tenax.planning.scaling.outcomes import Direction, Keep, Rescale
from tenax.planning.scaling.prediction import PassModel

HEADROOM = 0.1  # of the bound of a pass
GROWTH = 2.0  # times what a run takes that is behind, as long as it is not known what comes
CAUGHT_UP = 1.0  # batches: a run for which no more wait is not behind
MOST_CORRECTION = 3.0  # times what busy tasks say: a pass that took longer still was held up by something else
PATIENCE = 6  # periods that a rescale may take, before it is decided anew
REMEMBERED = 16  # shapes that were too small
LOWER = 0.05  # by so much fewer rows come, before less is enough than what was decided
MEMORY = 10  # times the cooldown: for so long all that is remembered, because what rows cost may change


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """What a run says of itself at the end of a period.

    - `graph` and `nodes` are its present shape. It is `steady` if no task is missing or moves, and `measured` if enough
      batches were measured with this shape.
    - In a batch of `batch_rows` rows from the sources every task, in task order, is `busy_s` with its `rows`; the
      slowest nodes of all levels together are busy for `moving_s`, and each level takes `fixed_s` beside that.
    - The run took `taken_per_s` rows a second. `arrival_per_s` came; None if that is not known because it is behind.
    - So many batches wait (`backlog`).
    """

    at_s: float
    graph: TaskGraph
    nodes: int
    rows: tuple[float, ...]
    busy_s: tuple[float, ...]
    batch_rows: float
    taken_per_s: float
    arrival_per_s: float | None
    backlog: float = 0.0
    fixed_s: float = 0.0
    moving_s: float = 0.0
    steady: bool = True
    measured: bool = True


@dataclass(frozen=True, slots=True)
class Scope:
    """What decisions are made by and what they may change: settings, groups, and what a pass has to keep to."""

    settings: Elasticity
    groups: tuple[Group, ...]
    interval_s: float
    batches: int = 1


@dataclass(frozen=True, slots=True)
class Ask:
    """What a period has asked for, at which rate; `certain` if that was known and not guessed."""

    direction: Direction
    rate: float
    certain: bool


@dataclass(frozen=True, slots=True)
class TooSmall:
    """A shape with which a pass took too long at a rate, and when."""

    shape: Shape
    rate: float
    at_s: float


@dataclass(frozen=True, slots=True)
class Watch:
    """What is remembered from one period to the next, and across rescales; a run begins with `Watch()`.

    - `asks` are those of the last periods, all of one direction.
    - `decided` is a shape that is not there yet; the last rescale was decided, or there, at `changed_s`, and was for
      `decided_for` rows a second; None if that was a guess.
    - So many batches waited at the end of the last period (`backlog`).
    """

    asks: tuple[Ask, ...] = ()
    decided: Shape | None = None
    changed_s: float | None = None
    decided_for: float | None = None
    too_small: tuple[TooSmall, ...] = field(default=())
    backlog: float = 0.0


@dataclass(frozen=True, slots=True)
class Waits:
    """Nothing is decided in this period, whatever the load would ask for; the reason says what is waited for."""

    reason: str


Decision = Keep | Waits | Rescale


def decide(watch: Watch, scope: Scope, seen: Observation) -> tuple[Watch, Decision]:
    """What a period decides, and what is remembered of it. Pure: the same periods give the same decisions."""
    if not scope.interval_s:
        return watch, Waits("batches follow each other at once: no interval says how long a pass may take")
    now = replace(watch, backlog=seen.backlog)
    now, under_way = _arrived(now, scope, seen)
    if under_way is not None:
        return now, under_way
    if not seen.steady:
        return replace(now, asks=()), Waits("tasks are missing or move")
    if not seen.measured:
        return replace(now, asks=()), Waits("the tasks are not measured yet")
    behind = seen.backlog > CAUGHT_UP
    if behind and seen.arrival_per_s is None and seen.backlog < watch.backlog:
        return replace(now, asks=()), Waits(f"the run catches up: {_batches(seen)}, and fewer than before")
    rate, certain = _rate(seen, behind=behind)
    plan = plan_scaling(_demand(scope, seen, rate), scope.settings.policy)
    if isinstance(plan, Keep):
        return replace(now, asks=()), plan
    if plan.direction is Direction.IN and behind:
        return replace(now, asks=()), Waits(f"no scale-in while {_batches(seen)}")
    asks = (*(ask for ask in now.asks if ask.direction is plan.direction), Ask(plan.direction, rate, certain))
    asks = asks[-scope.settings.cycles :]
    now = replace(now, asks=asks)
    held = _held_back(now, scope, seen, plan)
    return (now, held) if held is not None else _decided(now, scope, seen)


def _arrived(watch: Watch, scope: Scope, seen: Observation) -> tuple[Watch, Waits | None]:
    """Whether a rescale that was decided is there; one that does not come is decided anew."""
    if watch.decided is None:
        return watch, None
    assert watch.changed_s is not None
    if _present(seen) == watch.decided:
        return replace(watch, decided=None, changed_s=seen.at_s, asks=()), None
    if seen.at_s - watch.changed_s < PATIENCE * scope.settings.period_s:
        return watch, Waits("a rescale is under way")
    return replace(watch, decided=None, asks=()), None


def _rate(seen: Observation, *, behind: bool) -> tuple[float, bool]:
    """The rows a second that are to be stood, and whether that is what comes."""
    if seen.arrival_per_s is not None:
        return seen.arrival_per_s, True
    return (GROWTH * seen.taken_per_s, False) if behind else (seen.taken_per_s, True)


def _held_back(watch: Watch, scope: Scope, seen: Observation, plan: Rescale) -> Waits | None:
    """Why what this period asks for is not decided now; None if nothing is in the way."""
    cycles, cooldown_s = scope.settings.cycles, scope.settings.cooldown_s
    if len(watch.asks) < cycles:
        return Waits(f"{len(watch.asks)} of {cycles} periods ask for a {plan.direction}: {plan.reason}")
    if plan.direction is Direction.OUT:
        return None
    if watch.changed_s is not None and seen.at_s - watch.changed_s < cooldown_s:
        return Waits(f"no scale-in within {cooldown_s:g} s after a rescale: {plan.reason}")
    return None


def _decided(watch: Watch, scope: Scope, seen: Observation) -> tuple[Watch, Decision]:
    """The rescale for the highest rate of the periods that ask for it, unless it was found to be too small before."""
    highest = max(watch.asks, key=lambda ask: ask.rate)
    plan = plan_scaling(_demand(scope, seen, highest.rate), scope.settings.policy)
    if isinstance(plan, Keep):  # at the highest rate nothing is to be gained
        return watch, plan
    remembered = [each for each in watch.too_small if seen.at_s - each.at_s <= MEMORY * scope.settings.cooldown_s]
    if plan.direction is Direction.IN:
        if _holds(watch, scope, seen, highest.rate):
            return watch, Waits(
                f"what was decided for {watch.decided_for:,.0f} rows/s holds for as many: {plan.reason}"
            )
        for each in remembered:
            if each.shape.nodes >= plan.shape.nodes and highest.rate > each.rate * (1 - MARGIN):
                return watch, Waits(
                    f"{plan.shape.nodes} nodes were too small at {each.rate:,.0f} rows/s: {plan.reason}"
                )
    elif highest.certain:
        remembered.append(TooSmall(_present(seen), highest.rate, seen.at_s))
    later = replace(
        watch,
        asks=(),
        decided=plan.shape,
        changed_s=seen.at_s,
        decided_for=highest.rate if highest.certain else None,
        too_small=tuple(remembered[-REMEMBERED:]),
    )
    return later, plan


def _holds(watch: Watch, scope: Scope, seen: Observation, rate: float) -> bool:
    """Whether a rate is like the one that the last rescale was decided for."""
    if watch.decided_for is None or watch.changed_s is None:
        return False
    recent = seen.at_s - watch.changed_s <= MEMORY * scope.settings.cooldown_s
    return recent and rate > watch.decided_for * (1 - LOWER)


def _demand(scope: Scope, seen: Observation, rate: float) -> Demand:
    """What is asked for at a rate, by what was measured."""
    settings = scope.settings
    measured = Demand(
        seen.graph,
        seen.rows,
        seen.busy_s,
        scope.interval_s,
        seen.nodes,
        settings.elastic_nodes,
        scope.groups,
        target=settings.target,
        headroom=HEADROOM,
    )
    said_s = PassModel(measured).pass_s(tuple(each.parallelism for each in seen.graph.operators), seen.nodes)
    correction = min(max(seen.moving_s / said_s, 1.0), MOST_CORRECTION) if said_s else 1.0
    factor = rate * scope.interval_s / seen.batch_rows if seen.batch_rows else 0.0
    return replace(measured, factor=factor, fixed_s=seen.fixed_s, batches=scope.batches, correction=correction)


def _present(seen: Observation) -> Shape:
    return Shape(seen.nodes, {operator.name: operator.parallelism for operator in seen.graph.operators})


def _batches(seen: Observation) -> str:
    return f"{seen.backlog:.3g} batches wait"
