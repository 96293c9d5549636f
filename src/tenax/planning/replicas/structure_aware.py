"""Replica plans that follow the topology: an algorithm for each sub-topology, the best gain first (Su, Zhou 2016)."""

from __future__ import annotations

from collections.abc import Sequence

from tenax.model.graph import TaskGraph
from tenax.model.plans import Metric
from tenax.planning.decomposition import sub_topologies
from tenax.planning.replicas.full import FullPlanner
from tenax.planning.replicas.greedy_trees import add_trees
from tenax.planning.replicas.parts import Part, Plan
from tenax.planning.replicas.scoring import TIE, exceeds, first_highest, plan_values
from tenax.planning.replicas.structured import StructuredPlanner

Planner = FullPlanner | StructuredPlanner


def structure_aware(graph: TaskGraph, budget: int, metric: Metric) -> tuple[int, ...]:
    """A plan by algorithms 3 to 5: O(budget × segments × tasks) for structured parts, less for full ones.

    Ours, where the paper's plan can be far from the best one:

    - It starts with a task of every operator, or a tree of every structured part, and gives up if that passes the
      budget. A single MC-tree may need fewer operators: then that is a second start, and the better plan counts.
    - Steps of different sub-topologies are compared by what they add to the whole plan. By what they add to their own
      sub-topology, one that keeps little would starve, although what is kept multiplies.
    - What is left in the end goes to whole MC-trees, if one fits and helps.
    """
    parts = [Part(graph, metric, sub_topology) for sub_topology in sub_topologies(graph)]
    parts = [part for part in parts if part.members.any() and part.value(()) < 1.0 - TIE]  # the others need nothing
    planners: list[Planner] = [FullPlanner(part) if part.full else StructuredPlanner(part) for part in parts]
    plans: list[Plan] = [frozenset()]
    for start in _starts(graph, budget, metric, planners):
        plan = _extended(graph, budget, metric, planners, start)
        plans.append(add_trees(graph, budget, metric, plan, trees=budget))
    best = first_highest(plan_values(graph, metric, plans))
    return tuple(sorted(plans[best]))


def _starts(graph: TaskGraph, budget: int, metric: Metric, planners: Sequence[Planner]) -> list[Plan]:
    steps = [planner.first(budget) for planner in planners]
    every = frozenset[int]().union(*(step.added for step in steps if step is not None))
    tree = add_trees(graph, budget, metric, frozenset(), trees=1)
    starts: list[Plan] = []
    if None not in steps and 0 < len(every) <= budget:
        starts.append(every)
    operators = [{int(graph.operator_of[task]) for task in plan} for plan in (every, tree)]
    if tree and (not starts or operators[0] != operators[1]):
        starts.append(tree)
    return starts


def _extended(graph: TaskGraph, budget: int, metric: Metric, planners: Sequence[Planner], start: Plan) -> Plan:
    """The plan after taking, again and again, the sub-topology's step that adds most to it per new task."""
    plan = start
    own = [frozenset(task for task in start if planner.part.members[task]) for planner in planners]
    left = budget - len(plan)
    steps = [planner.next(part, left) for planner, part in zip(planners, own, strict=True)]
    for _ in range(left):  # every round adds at least one task
        for number, step in enumerate(steps):
            if step is not None and len(step.added) > left:
                steps[number] = planners[number].next(own[number], left)
        fitting = [(number, step.added) for number, step in enumerate(steps) if step is not None]
        if not fitting:
            break
        values = plan_values(graph, metric, [plan, *(plan | added for _, added in fitting)])
        best = first_highest((values[1:] - values[0]) / [len(added) for _, added in fitting])
        if not exceeds(float(values[best + 1]), float(values[0])):
            break
        number, added = fitting[best]
        plan |= added
        own[number] |= added
        left -= len(added)
        steps[number] = planners[number].next(own[number], left)
    return plan
