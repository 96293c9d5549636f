"""Backups by their share of the work, a simple rule to compare with."""

from __future__ import annotations

import numpy as np

from tenax.planning.backups.network import Network, network_of
from tenax.planning.backups.problem import BackupProblem, Choice


def share(problem: BackupProblem, network: Network | None = None) -> Choice:
    """The tasks with the largest share, as many as it takes to keep the bound, less those it holds without.

    This stands in for the balanced share of reference [9] in Li et al. 2017, which is not described there: a task's
    share is T(v) times the part of the sources' flow that passes it, by the rates of the topology; tasks that nobody
    consumes are no candidates. More backups never make recovery slower, so the number of tasks is found by
    binary search. O(tasks × log tasks + substreams × log tasks).
    """
    graph = problem.graph
    network = network_of(problem) if network is None else network
    consumed = np.repeat([bool(streams) for streams in graph.consumers], np.diff(graph.first))
    candidates = np.flatnonzero(consumed)
    flow = graph.input_rate / max(1.0, float(graph.input_rate.max()))
    order = candidates[np.argsort(-(graph.reprocess * flow)[candidates], kind="stable")]
    rank = np.full(len(graph), len(graph))
    rank[order] = np.arange(len(order))
    # Twins help only together: a node is a backup once the last of its tasks is.
    complete = [int(rank[members].max()) if len(members) else len(graph) for members in network.members]
    low, high = 0, len(order)
    while low < high:  # halves each time
        middle = (low + high) // 2
        if max(network.latencies([last < middle for last in complete])) <= problem.limit:
            high = middle
        else:
            low = middle + 1
    backups = network.mask(network.pruned(problem.limit, [last < low for last in complete]))
    return Choice("share", backups, min(1, int(backups.sum())))
