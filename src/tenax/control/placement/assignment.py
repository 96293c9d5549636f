"""Assignment: which nodes lost tasks and new replicas get, within the capacity of the nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tenax.control.copies import Copy
from tenax.control.instructions import RequestNodes
from tenax.control.notices import RecoveryBegun
from tenax.control.placement.capacity import Capacity, in_use
from tenax.control.run import Run
from tenax.control.state import RunState
from tenax.control.versions import Cut
from tenax.model.cluster import DomainKind, Node
from tenax.planning.recovery.packing import Packing, pack_recovery

EXACT_LIMIT_S = 1.0  # how long the best order of recovery may be sought while outputs wait
LESS = 0.9  # of the rate at which rows came when tasks found no room: then they may find some


def place_lost(run: Run, state: RunState) -> tuple[RunState, RecoveryBegun | None]:
    """Nodes for tasks that have none: sources at once, the others as the capacity allows, the best queries first.

    A task that has a node keeps it: a new failure changes the plan without starting over. Only replicas give way to
    tasks that would find no room else, those that lag most first: a second copy is worth less than a first.
    """
    tasks = list(state.tasks)
    unplaced = np.array([task.primary is None for task in tasks], dtype=np.bool_)
    if not unplaced.any() or not state.nodes:
        return replace(state, placement=replace(state.placement, waiting=())), None
    capacity = Capacity(run, state)
    homes = {}
    for number in map(int, np.flatnonzero(unplaced & run.is_source)):
        # a source has nothing but a place in its log: it runs anywhere, also where there is no room
        home = capacity.take(number, state.nodes) or capacity.crowd(number, state.nodes)
        tasks[number] = replace(tasks[number], primary=Copy(home, tasks[number].restore_point))
        homes[run.tasks[number]] = home
    lost = unplaced & ~run.is_source
    packing, going = _packed(run, state, capacity, lost)
    if lost.any() and (lost | run.is_source).all() and not packing.homes:  # nothing would run but sources
        packing, going = _packed(run, state, Capacity(run, state, binds=False), lost)
    for number in going:
        tasks[number] = replace(tasks[number], replica=None)
    for task, node in packing.homes.items():
        number = run.number[task]
        tasks[number] = replace(tasks[number], primary=Copy(node, tasks[number].restore_point, stored=True))
        homes[task] = node
    waiting = tuple(run.tasks[number] for number in np.flatnonzero(unplaced) if tasks[number].primary is None)
    known = set(state.placement.waiting)
    placement = replace(state.placement, waiting=waiting, rate=state.load.arrival.rows_per_s)
    state = replace(state, tasks=tuple(tasks), placement=placement)
    if not homes and known.issuperset(waiting):
        return state, None
    return state, RecoveryBegun(homes, packing.queries, waiting, _reason(run, state, waiting))


def _packed(run: Run, state: RunState, capacity: Capacity, lost: np.ndarray) -> tuple[Packing, list[int]]:
    """Where lost tasks go, and the replicas that give way to them."""
    nodes = sorted(for_primaries(state.nodes), key=lambda node: node.name)
    graph, order = capacity.graph(nodes), run.protection.order
    wanted = float(graph.cost[lost].sum())
    rooms = capacity.rooms(nodes, wanted, {})
    packing = pack_recovery(graph, lost, rooms, order, EXACT_LIMIT_S)
    replicas = _dispensable(run, state)
    if len(packing.homes) == lost.sum() or not replicas:
        return packing, []
    given_back: dict[str, float] = {}
    for number, copy in replicas:
        given_back[copy.node] = given_back.get(copy.node, 0.0) + capacity.cost(number, copy.node)
    packing = pack_recovery(graph, lost, capacity.rooms(nodes, wanted, given_back), order, EXACT_LIMIT_S)
    going = []
    for task, node in packing.homes.items():
        capacity.used[node] += capacity.cost(run.number[task], node)
    for number, copy in replicas:
        if copy.node in packing.homes.values() and capacity.is_over(copy.node):
            capacity.used[copy.node] -= capacity.cost(number, copy.node)
            going.append(number)
    return packing, going


def _reason(run: Run, state: RunState, waiting: Sequence[object]) -> str:
    """Why tasks wait, in numbers."""
    if not waiting:
        return ""
    capacity, nodes = Capacity(run, state), for_primaries(state.nodes)
    costs = capacity.costs(nodes[0])
    wanted = sum(float(costs[run.number[task]]) for task in state.placement.waiting)
    left, count = sum(map(capacity.left, nodes)), len(nodes)
    where = "1 node has" if count == 1 else f"{count} nodes have"
    if nodes[0].slots is not None:
        return f"they need {wanted:g} slots, and {where} {left:g} left"
    cluster, batches = run.settings.cluster, run.settings.batches
    return (
        f"they are busy for {wanted:.2g} s in a batch of {batches.batch}, and {where} {left:.2g} s left up to "
        f"{cluster.node_limit:.0%}"
    )


def request_nodes(run: Run, state: RunState) -> tuple[RunState, RequestNodes | None]:
    """As many nodes more as the tasks that wait need, within what the run may have."""
    if not state.placement.waiting or not state.nodes:
        return state, None
    capacity, node = Capacity(run, state), for_primaries(state.nodes)[0]
    if not capacity.bounds([node]):
        return state, None
    wanted = sum(float(capacity.costs(node)[run.number[task]]) for task in state.placement.waiting)
    return requested(run, state, math.ceil(wanted / capacity.limit(node) - 1e-9))


def requested(run: Run, state: RunState, count: int) -> tuple[RunState, RequestNodes | None]:
    """Ask for so many nodes more, unless they were asked for before or the run may not have more."""
    total = min(len(state.nodes) + count, run.settings.cluster.most_nodes)
    if total <= max(len(state.nodes), state.placement.requested):
        return state, None
    order = RequestNodes(total - len(state.nodes), total)
    return replace(state, placement=replace(state.placement, requested=total)), order


def _dispensable(run: Run, state: RunState) -> list[tuple[int, Copy]]:
    """The replicas that may go now, those that lag most first; none that steps in a running pass."""
    if state.passes.running:
        return []
    replicas = [(number, task.replica) for number, task in enumerate(state.tasks) if task.replica is not None]

    def order(replica: tuple[int, Copy]) -> tuple[int, float, int]:
        number, copy = replica
        return copy.batch, -float(run.graph.cost[number]), number

    return sorted(replicas, key=order)


def for_primaries(nodes: Sequence[Node]) -> list[Node]:
    """The nodes that run primaries: standby ones only if there are no others."""
    return [node for node in nodes if not node.standby] or list(nodes)


def place_replicas(run: Run, state: RunState, checkpoint: Cut) -> RunState:
    """A replica for every task that lacks one it should have, at a checkpoint; where there is no room it stays away."""
    tasks = list(state.tasks)
    capacity = Capacity(run, state)
    nodes = in_use(run, state)
    by_name = {node.name: node for node in state.nodes}
    for task in sorted(state.placement.replicated, key=run.number.__getitem__):
        number = run.number[task]
        known = tasks[number]
        if known.primary is None or known.replica is not None or run.is_source[number]:
            continue
        above = run.graph.producers_of(number)
        beside = tasks[above[0]].replica if len(above) == 1 else None  # a chain stays together: no shuffle in between
        node = None
        home = by_name[known.primary.node]
        if beside is not None and by_name[beside.node].domain(DomainKind.RACK) != home.domain(DomainKind.RACK):
            node = capacity.take(number, [by_name[beside.node]])
        node = node or _apart(capacity, number, home, nodes)
        if node is not None:
            point = known.rebuild_point(checkpoint.points[number], known.head.batch)
            tasks[number] = replace(known, replica=Copy(node, point, stored=True))
    return replace(state, tasks=tuple(tasks))


def _apart(capacity: Capacity, number: int, primary: Node, nodes: Sequence[Node]) -> str | None:
    """A node in another domain than the primary's, the wider the better; standby nodes first."""
    for kind in DomainKind:
        apart = [node for node in nodes if node.domain(kind) != primary.domain(kind)]
        name = capacity.take(number, [node for node in apart if node.standby]) or capacity.take(number, apart)
        if name is not None:
            return name
    return None
