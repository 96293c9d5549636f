"""Fewest backups and, among those plans, the smallest overall latency."""

from __future__ import annotations

from tenax.planning.backups.dag import dag
from tenax.planning.backups.network import Network, network_of
from tenax.planning.backups.problem import BackupProblem, Choice
from tenax.planning.backups.shapes import is_tree
from tenax.planning.backups.share import share
from tenax.planning.backups.solver import solve
from tenax.planning.backups.tree import tree_of_least_latency

MAX_MODEL_EDGES = 300_000  # beyond this a model takes longer to write down than the solver is usually given


def exact(problem: BackupProblem, time_limit_s: float) -> Choice:
    """The best plan found in the time, with the bound that was proven; what gave the plan is named.

    Trees take the greedy of `tree`, which is optimal, with the smallest bound that needs no more backups. Any other
    graph starts from the better heuristic and goes to a constraint solver, which proves it or finds a better one.
    """
    if is_tree(problem.graph):
        return tree_of_least_latency(problem)
    network = network_of(problem)
    name, start = _best_heuristic(problem, network)
    count = network.count(start)
    if count == 0:
        return Choice("exact", network.mask(start), 0)
    if network.edge_count > MAX_MODEL_EDGES:
        return Choice(name, network.mask(start), 1)
    answer = solve(network, problem.limit, start, time_limit_s)
    bound = max(1, answer.bound)  # there is a backup, and heuristics have none where none is needed
    if bound == network.count(answer.backups) or _value(network, answer.backups) < _value(network, start):
        name = "exact"
    return Choice(name, network.mask(answer.backups), bound)


def _best_heuristic(problem: BackupProblem, network: Network) -> tuple[str, list[bool]]:
    """The better of the heuristics: fewer backups, then the smaller overall latency, then `dag`."""
    choices = [
        # Where not all of some twins are backups, none needs to be.
        (choice.algorithm, [bool(len(twins)) and bool(choice.backups[twins].all()) for twins in network.members])
        for choice in (dag(problem, network), share(problem, network))
    ]
    return min(choices, key=lambda named: _value(network, named[1]))


def _value(network: Network, backups: list[bool]) -> tuple[int, int]:
    return network.count(backups), max(network.latencies(backups))
