"""Rebalancing: tasks spread again over nodes that have come, as they would be at a start, and without a pause.

A task that moves gets a second copy on its new node, from a checkpoint. When all that move have caught up beside the
live passes, they change places between two passes. Sources have nothing but a place in their log, and need no copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

from tenax.control.copies import Copy, TaskState
from tenax.control.notices import TasksMoved
from tenax.control.placement.assignment import for_primaries
from tenax.control.placement.capacity import Capacity, in_use
from tenax.control.run import Place, Run
from tenax.control.state import RunState
from tenax.control.versions import Cut
from tenax.errors import TenaxError
from tenax.model.cluster import Node
from tenax.model.graph import TaskGraph
from tenax.model.plans import Placement
from tenax.model.tasks import Task

WORTH_MOVING = 0.96  # of what the fullest node holds: measured costs differ a little from one time to the next


def begin_moves(run: Run, state: RunState, cut: Cut) -> RunState:
    """Copies on the nodes where tasks should be, if nodes have come since the last time; all tasks are up to date."""
    if not state.placement.rebalancing_due or state.placement.moving or state.wrap_up is not None:
        return state
    if state.rescaling is not None:
        return state  # all tasks are placed anew then
    capacity = Capacity(run, state)
    nodes = {node.name: node for node in state.nodes}
    tasks, moving = list(state.tasks), dict[int, str]()
    for number, name in _moves(run, state, capacity).items():
        task = tasks[number]
        if run.is_source[number]:
            moving[number] = name
        elif capacity.take(number, [nodes[name]]) is not None:
            point = task.rebuild_point(cut.points[number], task.head.batch)
            tasks[number] = replace(task, replica=Copy(name, point, stored=True))
            moving[number] = name
    return replace(state, tasks=tuple(tasks), placement=replace(state.placement, rebalancing_due=False, moving=moving))


def _moves(run: Run, state: RunState, capacity: Capacity) -> dict[int, str]:
    """New homes, if they take load off the fullest node. A task with a replica stays: it is spread already."""
    nodes = in_use(run, state)
    try:
        placement = first_places(run, capacity, nodes)
    except TenaxError:
        return {}
    here = [task.primary.node for task in state.tasks if task.primary is not None]
    there = _renamed(nodes, here, [placement.primaries[task] for task in run.tasks])
    moves = {
        number: name
        for number, (task, name) in enumerate(zip(state.tasks, there, strict=True))
        if task.replica is None and name != here[number]
    }
    after = dict(capacity.used)
    for number, name in moves.items():
        after[name] += capacity.cost(number, name)
        after[here[number]] -= capacity.cost(number, here[number])
    return moves if max(after.values()) < WORTH_MOVING * max(capacity.used.values()) else {}


def first_places(run: Run, capacity: Capacity, nodes: Sequence[Node]) -> Placement:
    """Where tasks run if nothing holds them anywhere yet; Infeasible if there is not room for all."""
    limits = {node.name: capacity.limit(node) for node in nodes}
    return run.place(capacity.graph(for_primaries(nodes)), nodes, limits)


def keeping(place: Place, held: Mapping[Task, tuple[str, float]]) -> Place:
    """The same placement with nodes of the same kind exchanged, so that tasks stay where most of their states lies.

    `held` says on which node a task was before the topology had another version, and what it weighs.
    """

    def placed(graph: TaskGraph, nodes: Sequence[Node], limits: Mapping[str, float]) -> Placement:
        placement = place(graph, nodes, limits)
        common: Counter[tuple[str, str]] = Counter()
        for task, node in placement.primaries.items():
            if task in held:
                common[node, held[task][0]] += 1 + round(held[task][1])
        names = _names(nodes, common)
        return Placement(
            {task: names[node] for task, node in placement.primaries.items()},
            {task: names[node] for task, node in placement.replicas.items()},
        )

    return placed


def _renamed(nodes: Sequence[Node], here: list[str], there: list[str]) -> list[str]:
    """A placement with nodes of the same kind exchanged, so that many tasks stay where they are."""
    names = _names(nodes, Counter(zip(there, here, strict=True)))
    return [names[name] for name in there]


def _names(nodes: Sequence[Node], common: Mapping[tuple[str, str], int]) -> dict[str, str]:
    """Which node of a placement is which, so that they have much in common with those of another one. O(nodes²)."""
    kinds = {node.name: (node.slots, node.standby) for node in nodes}
    names: dict[str, str] = {}
    for old, new in sorted(product(kinds, kinds), key=lambda pair: (-common.get(pair, 0), pair[0] != pair[1], pair)):
        if old not in names and new not in names.values() and kinds[old] == kinds[new]:
            names[old] = new
    return names


def change_places(run: Run, state: RunState) -> tuple[RunState, TasksMoved | None]:
    """Let tasks go on where they move to, when nothing runs and the last of them has caught up."""
    if not state.placement.moving or state.passes.running:
        return state, None
    if not all(run.is_source[number] or state.tasks[number].in_step for number in state.placement.moving):
        return state, None
    tasks = list(state.tasks)
    for number, name in state.placement.moving.items():
        tasks[number] = _moved(tasks[number], name)
    homes = {run.tasks[number]: name for number, name in state.placement.moving.items()}
    return replace(
        state,
        tasks=tuple(tasks),
        placement=replace(state.placement, moving={}),
        checkpoints=replace(state.checkpoints, sweeps=()),
    ), TasksMoved(homes)


def _moved(task: TaskState, node: str) -> TaskState:
    """A task at its new node; its copy is there, unless it is a source."""
    assert task.primary is not None
    primary = task.in_step or replace(task.primary, node=node)
    return replace(task, primary=primary, replica=None, replay=None)
