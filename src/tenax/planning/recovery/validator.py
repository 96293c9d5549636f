"""The one judge of recovery plans and schedules, written from the definition and not from any planner."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import pairwise

from tenax.errors import InvalidPlan, UnknownTask
from tenax.model.graph import Bools, TaskGraph
from tenax.model.plans import RecoveryPlan, RecoverySchedule
from tenax.model.tasks import Task

TOLERANCE = 1e-9  # of stated figures; a capacity or limit is kept exactly


def check_recovery(graph: TaskGraph, failed: Bools, plan: RecoveryPlan, capacity: float) -> None:
    """Raise `InvalidPlan` unless the plan keeps the capacity and is what it says. O(output tasks × substreams)."""
    recover = _numbers(graph, plan.recover, "recover")
    for number in recover:
        if not failed[number]:
            raise InvalidPlan(f"only failed tasks are recovered, found {graph.task(number)}: leave it out")
    cost = _total(graph.cost[number] for number in recover)
    if cost > _fraction(capacity):
        raise InvalidPlan(f"a plan costs at most its capacity {capacity}, found {float(cost)}: recover less")
    _check_figure("cost", plan.cost, cost)
    back = _back(graph, {int(number) for number in failed.nonzero()[0]}, set(recover))
    if _numbers(graph, plan.queries, "queries") != back:
        raise InvalidPlan(
            f"queries are the cut-off ones that are complete, found {_text(plan.queries)}: "
            f"expected {_text(graph.tasks(back))}"
        )
    _check_figure("priority", plan.priority, _total(graph.priority[number] for number in back))
    if not plan.priority <= plan.bound:
        raise InvalidPlan(f"no plan is worth more than its bound {plan.bound}, found {plan.priority}: raise the bound")
    if plan.optimal and plan.priority != plan.bound:
        raise InvalidPlan(
            f"an optimal plan reaches its bound {plan.bound}, found {plan.priority}: it is not proven optimal"
        )


def check_schedule(
    graph: TaskGraph, failed: Bools, schedule: RecoverySchedule, nodes: Sequence[tuple[str, float]], limit: float
) -> None:
    """Raise `InvalidPlan` unless nodes stay within their limit and everything is placed once or waits."""
    lost = {int(number) for number in failed.nonzero()[0]}
    names = [name for name, _ in nodes]
    arrived = [arrival.node for arrival in schedule.arrivals]
    if arrived != names[: len(arrived)]:
        raise InvalidPlan(f"nodes arrive in the order given, found {', '.join(arrived)}: keep the order")
    room = {name: _fraction(limit) * _fraction(capacity) for name, capacity in nodes}
    placed: set[int] = set()
    back: list[int] = []
    for count, arrival in enumerate(schedule.arrivals, start=1):
        if placed == lost:
            raise InvalidPlan(f"a schedule ends when all is placed, found another arrival {arrival.node}: remove it")
        for number in _numbers(graph, arrival.placed, f"placed at {arrival.node}"):
            task = graph.task(number)
            node = arrival.placed[task]
            if number not in lost:
                raise InvalidPlan(f"only failed tasks are placed, found {task} at {arrival.node}: leave it out")
            if number in placed:
                raise InvalidPlan(f"a task starts once, found {task} again at {arrival.node}: leave it out")
            if node not in names[:count]:
                raise InvalidPlan(f"a task starts on a node that has arrived, found {task} on {node}: choose another")
            placed.add(number)
            room[node] -= _fraction(graph.cost[number])
            if room[node] < 0:
                raise InvalidPlan(f"a node stays within its limit, found {task} too much on {node}: choose another")
        now = _back(graph, lost, placed)
        expected = [number for number in now if number not in back]
        if _numbers(graph, arrival.completed, f"completed at {arrival.node}") != expected:
            raise InvalidPlan(
                f"completed are the queries that are back from now on, found {_text(arrival.completed)} at "
                f"{arrival.node}: expected {_text(graph.tasks(expected))}"
            )
        back = now
    if len(arrived) < len(names) and placed != lost:
        raise InvalidPlan(f"a schedule ends when all is placed, found no arrival {names[len(arrived)]}: continue")
    if set(_numbers(graph, schedule.waiting, "waiting")) != lost - placed:
        raise InvalidPlan(f"what is not placed waits, found waiting {_text(schedule.waiting)}: list exactly the rest")


def _back(graph: TaskGraph, lost: set[int], recovered: set[int]) -> list[int]:
    """The output tasks that had a lost task among themselves and their ancestors, and now have none, in task order."""
    return [
        int(output)
        for output in graph.is_output.nonzero()[0]
        if (needed := lost & _ancestors(graph, int(output))) and needed <= recovered
    ]


def _ancestors(graph: TaskGraph, output: int) -> set[int]:
    reached = {output}
    to_visit = [output]
    while to_visit:  # each task once
        for producer in graph.producers_of(to_visit.pop()):
            if producer not in reached:
                reached.add(producer)
                to_visit.append(producer)
    return reached


def _numbers(graph: TaskGraph, tasks: Iterable[Task], what: str) -> list[int]:
    numbers: list[int] = []
    for task in tasks:
        try:
            numbers.append(graph.number(task))
        except UnknownTask as error:
            raise InvalidPlan(f"{what}: {error}") from None
    for before, after in pairwise(numbers):
        if before >= after:
            raise InvalidPlan(
                f"{what}: tasks are in task order, each once, found {graph.task(after)} after {graph.task(before)}: "
                "sort them"
            )
    return numbers


def _check_figure(what: str, stated: float, true: Fraction) -> None:
    if not math.isclose(stated, float(true), rel_tol=TOLERANCE):
        raise InvalidPlan(f"{what} is that of the tasks listed, found {stated}: it is {float(true)}")


def _total(numbers: Iterable[float]) -> Fraction:
    return sum((_fraction(number) for number in numbers), start=Fraction(0))


def _fraction(number: float) -> Fraction:
    """The decimal number that a person sees, so that three times 0.1 is 0.3."""
    return Fraction(repr(float(number)))


def _text(tasks: Iterable[Task]) -> str:
    return ", ".join(str(task) for task in tasks) or "none"
