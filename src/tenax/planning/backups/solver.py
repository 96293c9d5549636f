"""The minimum-backups problem as a constraint model: fewest backups first, then the smallest overall latency."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tenax.planning.backups.network import Network
from tenax.planning.backups.paths import long_paths

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

SEED = 1
LINEARIZATION = 2  # paths as linear constraints: what bounds the number of backups is their relaxation
WORKERS = 1  # with several, the one that finishes first decides which of equal plans is returned


@dataclass(frozen=True, slots=True)
class Answer:
    """The best backups known, and a number of backups that no plan can do without."""

    backups: list[bool]
    bound: int


def solve(network: Network, limit: int, start: list[bool], time_limit_s: float) -> Answer:
    """Improve a plan until it is proven best, or the time is over. CP-SAT: exponential at worst, often milliseconds.

    Two solves share the time: fewest backups, then least latency with so many. Both have a variable or two per node,
    so full streams and twins cost nothing. The first is told the paths that must be cut: where these are all, it is a
    covering problem and needs no latencies; where not, they still give the solver a bound that latencies do not.
    """
    paths, complete = long_paths(network, limit)
    first = _Model(network, limit, limit, start, latencies=not complete)
    first.cut(paths)
    first.model.add(first.count() <= network.count(start))
    first.model.minimize(first.count())
    backups, proven, spent_s = first.solve(time_limit_s)
    bound = math.ceil(proven - 1e-6) if math.isfinite(proven) else 0
    count = network.count(backups)
    overall, least = max(network.latencies(backups)), max(network.reprocess)
    if bound < count or overall == least:
        return Answer(backups, min(bound, count))
    second = _Model(network, limit, least, backups)
    second.cut(paths)
    second.model.add(second.count() == count)
    highest = second.model.new_int_var(least, overall, "overall")
    second.model.add_hint(highest, overall)
    for latency in second.latency.values():
        second.model.add(latency <= highest)
    second.model.minimize(highest)
    backups, _, _ = second.solve(max(0.0, time_limit_s - spent_s))
    return Answer(backups, bound)


class _Model:
    """Variables and constraints of one solve.

    - Only a task on some path longer than the bound is worth a backup: without any other one, no path is longer than
      the bound. That holds for the second solve too, as a plan with the fewest backups has none to spare.
    - Edges on no path longer than `floor` are left out: what they carry never decides.
    """

    def __init__(self, network: Network, limit: int, floor: int, hint: list[bool], *, latencies: bool = True) -> None:
        from ortools.sat.python import cp_model

        self.network = network
        self.hint = hint
        self.model = cp_model.CpModel()
        none = [False] * len(network)
        longest, below = network.latencies(none), network.latencies_below(none)
        known = network.latencies(hint)
        self.backup: dict[int, cp_model.IntVar] = {}
        self.latency: dict[int, cp_model.IntVar] = {}
        for node, own in enumerate(network.reprocess):
            if longest[node] + below[node] <= floor:
                continue
            if latencies:
                self.latency[node] = self.model.new_int_var(own, min(limit, longest[node]), f"latency {node}")
                self.model.add_hint(self.latency[node], known[node])
            if network.weight[node] and network.consumers[node] and longest[node] + below[node] > limit:
                self.backup[node] = self.model.new_bool_var(f"backup {node}")
                self.model.add_hint(self.backup[node], hint[node])
        for node, latency in self.latency.items():
            for producer in network.producers[node]:
                if longest[producer] + network.reprocess[node] + below[node] <= floor:
                    continue
                waits = self.model.add(latency >= self.latency[producer] + network.reprocess[node])
                if producer in self.backup:
                    waits.only_enforce_if(~self.backup[producer])

    def cut(self, paths: list[list[int]]) -> None:
        """At least one of the nodes of each path is a backup."""
        for path in paths:
            self.model.add(sum(self.backup[node] for node in path) >= 1)

    def count(self) -> cp_model.LinearExprT:
        """The number of tasks that are backups."""
        return sum(self.network.weight[node] * variable for node, variable in self.backup.items())

    def solve(self, time_limit_s: float) -> tuple[list[bool], float, float]:
        """The best backups known, the proven bound of the objective, and the seconds it took."""
        from ortools.sat.python import cp_model

        solver = cp_model.CpSolver()
        solver.parameters.num_workers = WORKERS
        solver.parameters.random_seed = SEED
        solver.parameters.linearization_level = LINEARIZATION
        solver.parameters.max_time_in_seconds = time_limit_s
        status = solver.solve(self.model)
        backups = self.hint
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            backups = [
                node in self.backup and solver.boolean_value(self.backup[node]) for node in range(len(self.network))
            ]
        return backups, solver.best_objective_bound, solver.wall_time
