"""Switching: a run goes over to the next version of its topology within the same driver.

What does not hang on the batch at which that happens is made ready while the run still goes on: the application, its
tasks, what is shipped to the workers, the plan of protection. The record in the store is the point of no return.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from tenax.application.application import Application
from tenax.application.scaling import next_version, rescaled, scaling_groups
from tenax.control import events
from tenax.control.coordinator import Coordinator
from tenax.control.instructions import Rescale
from tenax.control.load import TaskLoad
from tenax.control.rescaling import handed_over
from tenax.control.state import RunState
from tenax.control.versions import PassId
from tenax.engine.driver.ordering import Ordering
from tenax.engine.driver.resuming import TakenOver
from tenax.engine.protection import Protected, planned
from tenax.engine.shipping import pack
from tenax.engine.worker.orders import VERSION_SIGN, Places, Shipped
from tenax.errors import InvalidRequest, StoreFailed
from tenax.model.cluster import Node
from tenax.model.graph import TaskGraph
from tenax.model.settings import Settings
from tenax.model.tasks import Task
from tenax.model.topology_versions import Target, TopologyVersion, moved_groups
from tenax.operators.keys import KEY_GROUPS
from tenax.planning.scaling import Group
from tenax.store import topology_versions
from tenax.store.records import Json
from tenax.takeover.recut import recut
from tenax.takeover.shared_load import shared_load


@dataclass(frozen=True, slots=True)
class Prepared:
    """A version that a run may go over to, but for the batch behind which it begins."""

    target: Target
    version: TopologyVersion
    application: Application
    plan: Protected
    packed: bytes


@dataclass(frozen=True, slots=True)
class Switched:
    """The next version is recorded: what the coordinator that asked for it has to be replaced by."""

    order: Rescale
    prepared: Prepared


def prepare(taken: TakenOver, target: Target, settings: Settings, places: Places) -> Prepared:
    """Make ready what a version needs; refuses, in one line, one that cannot be."""
    if target.version is None:
        version = next_version(
            taken.application, taken.version, target.parallelism, after=0, nodes=target.nodes, cause=target.cause
        )
        version = replace(version, request=target.request, nodes=target.nodes or taken.version.nodes)
    else:
        version = target.version
    application = rescaled(taken.declared, version)
    _check_room(application, for_version(settings, version))
    plan = planned(application.topology, settings.protection)
    return Prepared(target, version, application, plan, pack(Shipped(application, places)))


def _check_room(application: Application, settings: Settings) -> None:
    """Refuse tasks that no cluster of these settings has room for: they would wait for ever."""
    cluster = settings.cluster
    if cluster.slots is None:
        return
    graph = TaskGraph(application.topology)
    wanted = sum(float(graph.cost[number]) for number in range(len(graph)) if graph.producers_of(number))
    room = cluster.slots * (cluster.most_nodes - cluster.standby_nodes)
    if wanted > room:
        raise InvalidRequest(
            f"a rescale leaves room for all tasks, found {wanted:g} slots wanted and {room:g} on "
            f"{cluster.most_nodes - cluster.standby_nodes} nodes: ask for fewer tasks or more nodes"
        )


def changes_anything(present: TopologyVersion, version: TopologyVersion) -> bool:
    """Whether a version differs from the present one in more than its number."""
    return (present.parallelism, present.nodes) != (version.parallelism, version.nodes)


def record(taken: TakenOver, order: Rescale, prepared: Prepared) -> Switched:
    """Make the version count: from here on every driver goes on with it."""
    version = prepared.version
    if order.target.version is None:
        version = replace(version, after=order.cut.newest_batch)
        topology_versions.record_version(taken.store, version)
    with suppress(StoreFailed):  # it counts from here on, whether the answer can be written or not
        words = f"from batch {version.after + 1} on: {order.target.words}"
        topology_versions.answer(taken.store.folder, version.request, done=True, words=words)
    return Switched(order, replace(prepared, version=version))


def begun(taken: TakenOver, switched: Switched) -> TakenOver:
    """The same store, from the checkpoint that has all tasks, with the tasks of the next version."""
    order, prepared = switched.order, switched.prepared
    made_by = PassId(taken.store.epoch, order.passes + 1)
    cut, segments = recut(order.cut, taken.ordering.newest, taken.application, prepared.application, made_by)
    graph, run_id = TaskGraph(prepared.application.topology), _run_id(taken, prepared.version)
    ordering = Ordering(prepared.application, graph, taken.planner, run_id)
    ordering.follow(taken.ordering)
    ordering.keep(cut, segments)
    taken.planner.follow(ordering.newest_event_times)
    taken.publisher.begin(graph, prepared.version.after)
    known = taken.known if order.target.version is not None else (*taken.known, prepared.version)
    return replace(
        taken,
        application=prepared.application,
        version=prepared.version,
        known=known,
        ordering=ordering,
        checkpoint=cut,
        run_id=run_id,
        begun=order.passes + 1,
    )


def as_recorded(before: TakenOver, now: TakenOver) -> dict[str, Json]:
    """What a version changes, for the record: numbers of tasks, key groups that moved, bytes of those states."""
    old, new = before.version, now.version
    changed = {name: [old.parallelism[name], tasks] for name, tasks in new.parallelism.items()}
    tables = {name: table for name, table in old.tables.items() if name in new.tables}
    moved = {name: moved_groups(table, new.tables[name]) for name, table in tables.items()}
    held = dict.fromkeys(moved, 0)
    for task, parts in before.ordering.newest.items():
        if task.operator in held:
            held[task.operator] += sum(part.bytes for part in parts)
    return {
        "number": new.number,
        "after": new.after,
        "tasks": {name: counts for name, counts in changed.items() if counts[0] != counts[1]},
        "moved_groups": {name: groups for name, groups in moved.items() if groups},
        "state_bytes": {name: size for name, size in held.items() if moved[name]},
        "nodes": new.nodes,
        "cause": new.cause,
    }


def started(
    coordinator: Coordinator, before: TakenOver, now: TakenOver, order: Rescale, nodes: tuple[Node, ...]
) -> events.Started:
    """What the next coordinator begins with: all that the one before it knew of logs and load."""
    state, cut = coordinator.state, now.checkpoint
    assert cut is not None, "a version begins from a cut"
    load = shared_load(state.load, before.application, now.application) if state.load.batches else None
    begins = handed_over(state, order, cut, nodes, dict(now.publisher.published), now.next_version)
    return replace(begins, load=load, watch=state.period.watch)


def homes(state: RunState, graph: TaskGraph) -> dict[Task, tuple[str, float]]:
    """Where the tasks are, and the bytes of their states, as far as measured."""
    load = state.load.tasks if len(state.load.tasks) == len(graph) else (TaskLoad(),) * len(graph)
    return {
        graph.task(number): (task.primary.node, load[number].state_bytes)
        for number, task in enumerate(state.tasks)
        if task.primary is not None
    }


def staying(nodes: tuple[Node, ...], count: int | None) -> tuple[Node, ...]:
    """The nodes that a version keeps, as many of each rack as can be; all if it does not say how many."""
    if count is None or count >= len(nodes):
        return nodes
    by_rack: dict[str | None, list[Node]] = {}
    for node in nodes:
        by_rack.setdefault(node.rack, []).append(node)
    turns = [(turn, place, node) for place, rack in enumerate(by_rack.values()) for turn, node in enumerate(rack)]
    kept = {node.name for _, _, node in sorted(turns, key=lambda each: each[:2])[:count]}
    return tuple(node for node in nodes if node.name in kept)


def for_version(settings: Settings, version: TopologyVersion) -> Settings:
    """The settings with the number of nodes that a version is to have; where it says none, what elasticity allows."""
    cluster, elastic = settings.cluster, settings.elastic
    nodes = version.nodes or elastic.nearest(cluster.nodes)
    most = max(cluster.most_nodes, nodes + cluster.pool)
    if elastic.elastic and cluster.max_nodes is None:
        most = max(most, elastic.elastic_nodes[1] + cluster.pool)
    if (nodes, most) == (cluster.nodes, cluster.most_nodes):
        return settings
    return settings.but(nodes=nodes, max_nodes=most)


def groups_of(application: Application) -> tuple[Group, ...]:
    """The operators that split and merge together, with how many tasks they may have."""
    groups = []
    for group in scaling_groups(application):
        if not group.reason:
            bounds = [application.bounds.get(name, (1, KEY_GROUPS)) for name in group.operators]
            fewest, most = max(low for low, _ in bounds), min(high for _, high in bounds)
            groups.append(Group(group.operators, min(fewest, most), most))
    return tuple(groups)


def _run_id(taken: TakenOver, version: TopologyVersion) -> str:
    """A name of its own, so that workers begin anew with what is shipped to them."""
    return f"{taken.store.identity}-{taken.store.epoch}{VERSION_SIGN}{version.number}"
