"""Replica plans for structured sub-topologies: segments, grown to complete trees (Su, Zhou 2016, algorithm 3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tenax.model.graph import Bools, Stream
from tenax.planning.decomposition import SubTopology, units
from tenax.planning.replicas.gains import Gains
from tenax.planning.replicas.parts import Part, Plan, Step
from tenax.planning.replicas.scoring import exceeds, first_highest, kept


class StructuredPlanner:
    """Extends plans of a structured sub-topology by the candidate of highest gain per new task.

    - A candidate is a segment, or a segment grown by others until its tasks are fed and have a way out.
    - A grown segment stays complete, so it is grown anew only after the plan took a task that it had looked at.
    - O(segments × tasks) a step.
    """

    def __init__(self, part: Part) -> None:
        self.part = part
        parts = units(part.graph, SubTopology(False, part.operators))
        self.segments = [segment for unit in parts for segment in unit.segments]
        self.at_risk = [frozenset(task for task in segment if part.members[task]) for segment in self.segments]
        self.needs = _Needs(part)
        self.gains = Gains(part)
        self._grown: dict[int, _Grown] = {}
        self._plan: Plan = frozenset()

    def first(self, budget: int) -> Step | None:
        """The first step of an empty plan."""
        return self.next(frozenset(), budget)

    def next(self, plan: Plan, budget: int) -> Step | None:
        """The best candidate that fits; None if none helps."""
        new = [segment - plan for segment in self.at_risk]
        fitting = list(dict.fromkeys(tasks for tasks in new if 0 < len(tasks) <= budget))
        value = self.part.value(plan)
        gains = self.gains.of(plan, value, fitting)
        idle = {tasks for tasks, gain in zip(fitting, gains, strict=True) if not exceeds(value + gain, value)}
        self._forget(plan)
        growth = _Growth(self, plan, [len(tasks) for tasks in new])
        wider: dict[Plan, None] = {}
        for number, tasks in enumerate(new):
            if tasks in idle:
                if number not in self._grown:
                    self._grown[number] = growth.grow(number, budget)
                grown = self._grown[number]
                if grown.complete and 0 < len(grown.tasks - plan) <= budget:
                    wider[grown.tasks - plan] = None
        pool = fitting + [tasks for tasks in wider if tasks not in idle]
        gains = np.concatenate([gains, self.gains.of(plan, value, pool[len(fitting) :])])
        if not pool or not exceeds(value + gains.max(), value):
            return None
        best = first_highest(gains / [len(tasks) for tasks in pool])
        return Step(pool[best], value + float(gains[best]))

    def _forget(self, plan: Plan) -> None:
        """Drop what was grown where the plan has changed since."""
        changed = plan ^ self._plan
        self._grown = {number: grown for number, grown in self._grown.items() if not changed & grown.seen}
        self._plan = plan


@dataclass(frozen=True, slots=True)
class _Grown:
    """Tasks that a segment needs with it, if they can be had within the budget, and the tasks looked at for that."""

    complete: bool
    tasks: Plan
    seen: Plan


class _Growth:
    """Grows segments by breadth-first search over what their tasks need, for one plan."""

    def __init__(self, planner: StructuredPlanner, plan: Plan, missing: Sequence[int]) -> None:
        self.planner = planner
        self.plan = plan
        self.missing = missing
        self.rate = planner.part.graph.output_rate
        failed = planner.part.failed(plan)
        self.fed = (kept(planner.part.graph, failed) > 0).tolist()
        self.leads_out = planner.needs.leads_out(~failed).tolist()
        self.shortest: dict[int, int] = {}
        for number in sorted(range(len(missing)), key=lambda segment: (missing[segment], segment), reverse=True):
            self.shortest.update(dict.fromkeys(planner.segments[number], number))

    def grow(self, number: int, budget: int) -> _Grown:
        """A segment with all that it needs."""
        segments, at_risk = self.planner.segments, self.planner.at_risk
        held = set(segments[number])
        new = set(at_risk[number] - self.plan)
        seen = set(held)
        queue = sorted(held)
        for task in queue:  # the queue grows while it is read, by each task of the part at most once
            producers, consumers = self.planner.needs.of(task)
            wanted = [(some, self.fed) for some in producers] + [(some, self.leads_out) for some in consumers]
            for some, good in wanted:
                seen.update(some)
                if any(good[candidate] or candidate in held for candidate in some):
                    continue
                segment = self._cheapest(some)
                if segment is not None:
                    queue += sorted(segments[segment] - held)
                    held |= segments[segment]
                    new |= at_risk[segment] - self.plan
                if segment is None or len(new) > budget:
                    return _Grown(False, frozenset(), frozenset(seen))
        return _Grown(True, frozenset(new), frozenset(seen | held))

    def _cheapest(self, tasks: Sequence[int]) -> int | None:
        """The segment with fewest new tasks through one of these, then with the highest rate there."""
        reachable = [task for task in tasks if task in self.shortest]
        if not reachable:
            return None
        best = min(reachable, key=lambda task: (self.missing[self.shortest[task]], -self.rate[task], task))
        return self.shortest[best]


class _Needs:
    """What each task needs from its sub-topology: producers, and a way out."""

    def __init__(self, part: Part) -> None:
        self.graph = part.graph
        self.operators = part.operators
        inside = set(part.operators)
        self._inputs = {operator: _within(self.graph.streams[operator], inside) for operator in inside}
        self._outputs = {operator: _within(self.graph.consumers[operator], inside) for operator in inside}
        self._known: dict[int, tuple[list[list[int]], list[list[int]]]] = {}

    def of(self, task: int) -> tuple[list[list[int]], list[list[int]]]:
        """Lists of producers, and lists of consumers: of each list the task needs at least one."""
        if task not in self._known:
            operator = int(self.graph.operator_of[task])
            index = task - int(self.graph.first[operator])
            streams = self._inputs[operator]
            producers = [self._tasks(stream.producer, stream.producers_of(index)) for stream in streams]
            if producers and not self.graph.operators[operator].correlated:
                outer = len(self.graph.streams[operator]) > len(streams)  # lives, so it feeds the task
                producers = [] if outer else [[producer for some in producers for producer in some]]
            consumers: list[list[int]] = []
            if not self._is_exit(operator):
                ahead = (self._tasks(stream.consumer, stream.consumers_of(index)) for stream in self._outputs[operator])
                consumers = [[consumer for some in ahead for consumer in some]]
            self._known[task] = producers, consumers
        return self._known[task]

    def leads_out(self, alive: Bools) -> Bools:
        """The live tasks of the part from which live tasks lead out of it."""
        leads = np.zeros(len(self.graph), dtype=np.bool_)
        for operator in reversed(self.operators):
            span = self.graph.span(operator)
            if self._is_exit(operator):
                leads[span] = alive[span]
            for stream in self._outputs[operator]:
                ahead = stream.highest_back(leads[self.graph.span(stream.consumer)]).astype(np.bool_)
                leads[span] |= alive[span] & ahead
        return leads

    def _tasks(self, operator: int, indices: range) -> list[int]:
        first = int(self.graph.first[operator])
        return [first + index for index in indices]

    def _is_exit(self, operator: int) -> bool:
        outer = len(self.graph.consumers[operator]) > len(self._outputs[operator])
        return outer or bool(self.graph.is_output[self.graph.first[operator]])


def _within(streams: Iterable[Stream], operators: set[int]) -> list[Stream]:
    return [stream for stream in streams if stream.producer in operators and stream.consumer in operators]
