"""The one judge of replica plans: recomputes everything from the definitions, shares nothing with the planners."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tenax.errors import InvalidPlan, UnknownTask
from tenax.model.graph import Stream, TaskGraph
from tenax.model.plans import ReplicaPlan
from tenax.model.topology import Partitioning

TOLERANCE = 1e-9


def check_replicas(graph: TaskGraph, plan: ReplicaPlan, budget: int) -> None:
    """Raise InvalidPlan unless the plan keeps the budget and is worth what it says. O(tasks), full streams implicit."""
    numbers = _task_numbers(graph, plan)
    if len(numbers) > budget:
        raise InvalidPlan(f"a plan has at most {budget} replicas, found {len(numbers)}: plan again")
    alive = [bool(safe) for safe in graph.safe]
    for number in numbers:
        alive[number] = True
    _check_number("fidelity", plan.fidelity, _fidelity(graph, alive))
    _check_number("completeness", plan.completeness, _completeness(graph, alive))
    if not plan.value <= plan.bound + TOLERANCE:
        raise InvalidPlan(f"no plan is worth more than its bound, found {plan.value} above {plan.bound}: plan again")
    if plan.optimal and not plan.bound <= plan.value + TOLERANCE:
        raise InvalidPlan(f"an optimal plan reaches its bound, found {plan.value} below {plan.bound}: plan again")


def _task_numbers(graph: TaskGraph, plan: ReplicaPlan) -> list[int]:
    numbers: list[int] = []
    for task in plan.replicas:
        try:
            number = graph.number(task)
        except UnknownTask as error:
            raise InvalidPlan(f"replicas are tasks of the topology, found {task}: {error}") from None
        if numbers and number <= numbers[-1]:
            raise InvalidPlan(f"replicas are unique and in task order, found {task} out of place: plan again")
        if graph.safe[number]:
            raise InvalidPlan(f"safe tasks need no replica, found {task}: leave it out")
        numbers.append(number)
    return numbers


def _check_number(name: str, stated: float, computed: float) -> None:
    if not math.isclose(stated, computed, rel_tol=0.0, abs_tol=TOLERANCE):
        raise InvalidPlan(f"the plan's {name} is {computed}, found {stated} stated: plan again")


def _fidelity(graph: TaskGraph, alive: Sequence[bool]) -> float:
    """Equation 4: what outputs keep, weighted by rate × priority, or alike where all of that is 0."""
    kept = _kept(graph, alive, joins=True)
    outputs = [number for number in range(len(graph)) if graph.is_output[number]]
    weights = [float(graph.output_rate[number] * graph.priority[number]) for number in outputs]
    return _weighted_mean([kept[number] for number in outputs], weights)


def _completeness(graph: TaskGraph, alive: Sequence[bool]) -> float:
    """What live tasks process of all that tasks would process, joins not told apart."""
    return _weighted_mean(_kept(graph, alive, joins=False), [float(rate) for rate in graph.input_rate])


def _kept(graph: TaskGraph, alive: Sequence[bool], *, joins: bool) -> list[float]:
    """Per task: the part of its output that is left (1 − loss), from the sources down."""
    kept: list[float] = []
    for number, operator in enumerate(graph.operators):
        first = int(graph.first[number])
        streams = graph.streams[number]
        inputs = [_received(graph, stream, kept) for stream in streams]
        for index in range(operator.parallelism):
            parts = [received[index] for received in inputs]
            if not alive[first + index]:
                kept.append(0.0)
            elif not streams:
                kept.append(1.0)
            elif joins and operator.correlated:
                kept.append(math.prod(parts))
            else:
                kept.append(_weighted_mean(parts, [float(stream.rate[index]) for stream in streams]))
    return kept


def _received(graph: TaskGraph, stream: Stream, kept: Sequence[float]) -> list[float]:
    """Per consumer: the part of its input stream that is left (equation 1), weighted by the rates of its substreams."""
    first = int(graph.first[stream.producer])
    rates = [float(rate) for rate in graph.output_rate[graph.span(stream.producer)]]
    values = kept[first : first + stream.producers]
    if stream.partitioning is Partitioning.FULL:
        weighted, plain = _weighted_mean(values, rates), _weighted_mean(values, [0.0] * len(values))
        return [plain if share == 0 else weighted for share in stream.share]
    ranges = [stream.producers_of(index) for index in range(stream.consumers)]
    return [
        _weighted_mean(values[producers.start : producers.stop], rates[producers.start : producers.stop])
        for producers in ranges
    ]


def _weighted_mean(values: Sequence[float], weights: Sequence[float]) -> float:
    total = math.fsum(weights)
    if total <= 0:
        return math.fsum(values) / len(values)
    return math.fsum(value * weight for value, weight in zip(values, weights, strict=True)) / total
