"""Where tasks and replicas run: spread evenly, apart from what must not fail together with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from tenax.errors import Infeasible, InvalidCluster, InvalidPlan
from tenax.model.cluster import Cluster, DomainKind, Node
from tenax.model.graph import Bools, TaskGraph
from tenax.model.plans import Placement
from tenax.model.tasks import Task
from tenax.model.topology import Partitioning


def place(graph: TaskGraph, cluster: Cluster, backups: Bools, replicas: Iterable[Task]) -> Placement:
    """Primaries where the cluster says, or spread; every replica in another domain than its primary.

    O((tasks + replicas) × nodes). Greedy, in task order: the least loaded node that fits, first declared on ties.
    """
    load = dict.fromkeys((node.name for node in cluster.nodes), 0)
    if cluster.placement:
        primaries = _given(graph, cluster)
        for node in primaries.values():
            load[node] += 1
    else:
        primaries = _spread(graph, cluster, backups, load)
    return Placement(primaries, _place_replicas(cluster, primaries, replicas, load))


def separation(cluster: Cluster) -> DomainKind:
    """The widest kind of domain of which the cluster has more than one."""
    for kind in DomainKind:
        if len({node.domain(kind) for node in cluster.nodes}) > 1:
            return kind
    return DomainKind.NODE


def check_placement(graph: TaskGraph, cluster: Cluster, placement: Placement, replicas: Iterable[Task]) -> None:
    """The one validator: every task on a known node, no replica beside its primary, no node above its slots."""
    names = {node.name for node in cluster.nodes}
    if set(placement.primaries) != set(graph.tasks(range(len(graph)))):
        raise InvalidPlan("a placement names every task of its topology once, found others")
    if set(placement.replicas) != set(replicas):
        raise InvalidPlan("a placement names every replica of its plan once, found others")
    held = [*placement.primaries.values(), *placement.replicas.values()]
    unknown = sorted(set(held) - names)
    if unknown:
        raise InvalidPlan(f"a placement names nodes of its cluster, found {unknown[0]!r}")
    for task, node in placement.replicas.items():
        if placement.primaries[task] == node:
            raise InvalidPlan(f"a replica runs apart from its primary, found both of {task} on {node}")
    for place in cluster.nodes:
        if place.slots is not None and held.count(place.name) > place.slots:
            raise InvalidPlan(f"node {place.name} has {place.slots} slots, found {held.count(place.name)} tasks on it")


def _given(graph: TaskGraph, cluster: Cluster) -> dict[Task, str]:
    """The placement of the cluster file, which must be complete."""
    for task in cluster.placement:
        graph.number(task)
    tasks = graph.tasks(range(len(graph)))
    missing = [task for task in tasks if task not in cluster.placement]
    if missing:
        raise InvalidCluster(f"a placement names every task or none, {missing[0]} is missing: add it")
    return {task: cluster.placement[task] for task in tasks}


def _spread(graph: TaskGraph, cluster: Cluster, backups: Bools, load: dict[str, int]) -> dict[Task, str]:
    """Evenly, and a task away from the domains of the backups that feed it, so that both are not lost together.

    No node takes more than its fair share for that: where every domain holds a backup, evenness decides alone.
    """
    kind = separation(cluster)
    fair = -(-len(graph) // len(cluster.nodes))
    domain = np.empty(len(graph), dtype=object)
    primaries: dict[Task, str] = {}
    for operator in range(len(graph.operators)):
        span = graph.span(operator)
        everywhere = _backup_domains(graph, operator, None, backups, domain)
        for number in range(span.start, span.stop):
            avoid = everywhere | _backup_domains(graph, operator, number - span.start, backups, domain)
            apart = [n for n in cluster.nodes if n.domain(kind) not in avoid and load[n.name] < fair]
            node = _least_loaded(apart, load) or _least_loaded(cluster.nodes, load)
            if node is None:
                raise Infeasible(f"{len(graph)} tasks need as many slots: add nodes or slots to the cluster")
            domain[number] = node.domain(kind)
            load[node.name] += 1
            primaries[graph.task(number)] = node.name
    return primaries


def _backup_domains(
    graph: TaskGraph, operator: int, index: int | None, backups: Bools, domain: np.typing.NDArray[np.object_]
) -> set[object]:
    """The domains of the backups that feed a task; those of full streams are the same for all tasks: index None."""
    domains: set[object] = set()
    for stream in graph.streams[operator]:
        if (stream.partitioning is Partitioning.FULL) is not (index is None):
            continue
        span = graph.span(stream.producer)
        producers = range(stream.producers) if index is None else stream.producers_of(index)
        part = slice(span.start + producers.start, span.start + producers.stop)
        domains.update(domain[part][backups[part]])
    return domains


def _place_replicas(
    cluster: Cluster, primaries: Mapping[Task, str], replicas: Iterable[Task], load: dict[str, int]
) -> dict[Task, str]:
    placed: dict[Task, str] = {}
    by_name = {node.name: node for node in cluster.nodes}
    for task in replicas:
        primary = by_name[primaries[task]]
        candidates = (
            _least_loaded([node for node in cluster.nodes if node.domain(kind) != primary.domain(kind)], load)
            for kind in DomainKind
        )
        node = next((candidate for candidate in candidates if candidate is not None), None)
        if node is None:
            raise Infeasible(
                f"a replica needs a free slot on another node than its primary, found none for {task} "
                f"({primary.name}): add nodes or slots, or lower the budget"
            )
        load[node.name] += 1
        placed[task] = node.name
    return placed


def _least_loaded(nodes: Iterable[Node], load: Mapping[str, int]) -> Node | None:
    """The node with the fewest tasks among those with a free slot."""
    free = [node for node in nodes if node.slots is None or load[node.name] < node.slots]
    return min(free, key=lambda node: load[node.name], default=None)
