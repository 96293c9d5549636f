"""The one judge of backup plans: recomputes everything from the definition, with no planner's code."""

from __future__ import annotations

import math
from fractions import Fraction

from tenax.errors import InvalidPlan, UnknownTask
from tenax.model.graph import TaskGraph
from tenax.model.plans import BackupPlan
from tenax.model.topology import Partitioning

LATENCY_TOLERANCE = Fraction(1, 10**9)  # relative; floats of many decimals do not add up exactly


def check_backups(graph: TaskGraph, plan: BackupPlan, latency_s: float) -> None:
    """Raise InvalidPlan unless the plan keeps the bound and says the truth about itself.

    Seconds are taken as the decimal numbers that people wrote, and added as fractions. That no plan has fewer
    backups is the one claim that is not checked here. O(tasks + substreams of the streams that are not full).
    """
    backups = _checked_tasks(graph, plan)
    longest = _checked_latencies(graph, backups, latency_s)
    reported = plan.recovery_latency_s
    if not math.isfinite(reported) or (
        reported != float(longest) and abs(_decimal(reported) - longest) > longest * LATENCY_TOLERANCE
    ):
        raise InvalidPlan(
            f"recovery_latency_s is the longest of all tasks, {float(longest)!r}, found {reported!r}: plan again"
        )
    count = len(plan.backups)
    if not 0 <= plan.bound <= count:
        raise InvalidPlan(f"the bound is between 0 and the number of backups, {count}, found {plan.bound}: plan again")
    if plan.optimal and plan.bound != count:
        raise InvalidPlan(
            f"an optimal plan has as many backups as its bound, found {count} and {plan.bound}: plan again"
        )


def _checked_tasks(graph: TaskGraph, plan: BackupPlan) -> set[int]:
    previous = -1
    numbers: set[int] = set()
    for task in plan.backups:
        try:
            number = graph.number(task)
        except UnknownTask as error:
            raise InvalidPlan(f"backups are tasks of the topology, found {error}") from None
        if number in numbers:
            raise InvalidPlan(f"each backup is named once, found {task} twice: plan again")
        if number < previous:
            raise InvalidPlan(f"backups are in task order, found {task} after {graph.task(previous)}: plan again")
        numbers.add(number)
        previous = number
    return numbers


def _checked_latencies(graph: TaskGraph, backups: set[int], latency_s: float) -> Fraction:
    """The longest latency, after comparing each task's with the bound."""
    known = {value: _decimal(value) for value in set(graph.reprocess.tolist())}
    unit = math.lcm(*(value.denominator for value in known.values()))
    whole = {value: int(exact * unit) for value, exact in known.items()}  # integers add faster than fractions
    bound = _decimal(latency_s) * unit
    latency: list[int] = []
    sent: list[int] = []
    for operator, streams in enumerate(graph.streams):
        of_all = {
            stream.producer: max(sent[graph.span(stream.producer)])
            for stream in streams
            if stream.partitioning is Partitioning.FULL
        }
        for index, own in enumerate(graph.reprocess[graph.span(operator)].tolist()):
            wait = 0
            for stream in streams:
                if stream.partitioning is Partitioning.FULL:
                    wait = max(wait, of_all[stream.producer])
                else:
                    start = int(graph.first[stream.producer])
                    wait = max(wait, *(sent[start + producer] for producer in stream.producers_of(index)))
            latency.append(whole[own] + wait)
            sent.append(0 if len(latency) - 1 in backups else latency[-1])
            if latency[-1] > bound:
                raise InvalidPlan(
                    f"every task recovers within {latency_s!r} s, found {graph.task(len(latency) - 1)} with "
                    f"{float(Fraction(latency[-1], unit))!r} s: plan again"
                )
    return Fraction(max(latency), unit)


def _decimal(value: float) -> Fraction:
    return Fraction(repr(float(value)))
