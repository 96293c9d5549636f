"""One protection plan for a topology: backups, replicas, places, checkpoint interval, and what they promise."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from tenax.model.cluster import Cluster, Domain
from tenax.model.graph import Bools, TaskGraph
from tenax.model.plans import (
    BackupPlan,
    DomainPromise,
    Metric,
    Placement,
    ProtectionCost,
    ProtectionPlan,
    ReplicaPlan,
)
from tenax.model.tasks import Task
from tenax.planning.backups import plan_backups, recovery_latencies
from tenax.planning.fidelity import fidelity
from tenax.planning.placement import place
from tenax.planning.replicas import plan_replicas


def plan_protection(
    graph: TaskGraph,
    latency_s: float,
    budget: int,
    cluster: Cluster | None = None,
    *,
    metric: Metric = Metric.FIDELITY,
    time_limit_s: float = 10.0,
) -> ProtectionPlan:
    """Backups for the latency bound, replicas for the budget, and where a cluster is given, places for all of them.

    The two plans are independent: backups bound how long a lost task is away, replicas decide what outputs are worth
    meanwhile. Their promises are computed together, from the places they got.
    """
    backups = plan_backups(graph, latency_s, time_limit_s=time_limit_s)
    replicas = plan_replicas(graph, budget, metric=metric, time_limit_s=time_limit_s)
    retaining = graph.mask(backups.backups)
    interval_s = None if cluster is None else checkpoint_interval_s(cluster)
    placement = None if cluster is None else place(graph, cluster, retaining, replicas.replicas)
    return ProtectionPlan(
        topology=graph.topology.name,
        latency_s=latency_s,
        budget=budget,
        backups=backups,
        replicas=replicas,
        recovery_latency_s=_latency_of_each(graph, retaining, replicas),
        cost=_cost(graph, backups, replicas, cluster, interval_s),
        placement=placement,
        domains=() if cluster is None or placement is None else tuple(promises(graph, cluster, placement, retaining)),
        checkpoint_interval_s=interval_s,
    )


def checkpoint_interval_s(cluster: Cluster) -> float | None:
    """The optimum of Young 1974, √(2 · cost · mean time between failures), where both are known."""
    if cluster.checkpoint_s is None or cluster.failures_per_s == 0:
        return None
    return math.sqrt(2.0 * cluster.checkpoint_s / cluster.failures_per_s)


def promises(graph: TaskGraph, cluster: Cluster, placement: Placement, backups: Bools) -> Iterable[DomainPromise]:
    """What the loss of each single domain means, wide domains first."""
    return (_promise(graph, domain, placement, backups) for domain in cluster.domains)


def _promise(graph: TaskGraph, domain: Domain, placement: Placement, backups: Bools) -> DomainPromise:
    nodes = set(domain.nodes)
    lost = [
        task
        for task, node in placement.primaries.items()
        if node in nodes and placement.replicas.get(task, node) in nodes and not graph.safe[graph.number(task)]
    ]
    failed = graph.mask(lost)
    latency = recovery_latencies(graph, backups, failed)[failed]
    return DomainPromise(
        domain=domain,
        lost=graph.tasks(np.flatnonzero(failed)),
        recovery_latency_s=float(latency.max()) if latency.size else 0.0,
        fidelity=float(fidelity(graph, failed)),
    )


def _latency_of_each(graph: TaskGraph, backups: Bools, replicas: ReplicaPlan) -> dict[Task, float]:
    latency = recovery_latencies(graph, backups)
    latency[graph.mask(replicas.replicas) | graph.safe] = 0.0
    return dict(zip(graph.tasks(range(len(graph))), latency.tolist(), strict=True))


def _cost(
    graph: TaskGraph, backups: BackupPlan, replicas: ReplicaPlan, cluster: Cluster | None, interval_s: float | None
) -> ProtectionCost:
    share = None
    if cluster is not None and cluster.checkpoint_s is not None and interval_s is not None:
        share = cluster.checkpoint_s / (cluster.checkpoint_s + interval_s)
    return ProtectionCost(
        backups=len(backups.backups),
        retained_per_s=float(graph.output_rate[graph.mask(backups.backups)].sum()),
        replicas=len(replicas.replicas),
        replicated_per_s=float(graph.input_rate[graph.mask(replicas.replicas)].sum()),
        checkpoint_share=share,
    )
