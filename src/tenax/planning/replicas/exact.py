"""The best replica plan, proven: dynamic programming over the factored value, then branch and bound."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from tenax.errors import TooLarge
from tenax.model.graph import TaskGraph
from tenax.model.plans import Metric
from tenax.planning.replicas.exhaustive import best_of_all, exhaustive_cells
from tenax.planning.replicas.formula import Term, value_formula
from tenax.planning.replicas.frontier import Frontier, Frontiers, OutOfWork
from tenax.planning.replicas.scoring import exceeds, plan_value

MAX_TASKS = 10_000  # sums hold a bit for every task: memory is quadratic
DEPTH = 3  # tasks told apart inside a bound: deeper bounds are tighter and dearer
WORK_PER_SECOND = 35_000_000.0  # of Frontiers.work, measured: a time limit becomes a count, so that plans repeat
CELLS_PER_SECOND = 20_000_000.0  # of scoring every plan, measured
MAX_NODES_PER_SECOND = 2_000  # open nodes hold memory


@dataclass(frozen=True, slots=True)
class Proof:
    """The best tasks found, and what no plan can exceed."""

    tasks: tuple[int, ...]
    value: float
    bound: float
    optimal: bool


def exact(graph: TaskGraph, budget: int, metric: Metric, time_limit_s: float) -> Proof:
    """The plan of highest value, of those one with the fewest replicas.

    The value is factored until every task appears once, as far as it can be (see formula.py); then dynamic programming
    gives the best value of every number of replicas. Tasks that still appear in several places are branched on, best
    bound first. O(tasks × budget) where every task appears once, exponential in the shared tasks otherwise. If work
    runs out on a small topology, every plan is scored.
    """
    if len(graph) > MAX_TASKS:
        raise TooLarge(f"exact plans at most {MAX_TASKS:,} tasks, found {len(graph):,}: use structure-aware or greedy")
    formula, root = value_formula(graph, metric)
    support = formula.support(root[1])
    budget = min(budget, support.bit_count())
    frontiers = Frontiers(formula, budget, DEPTH, time_limit_s * WORK_PER_SECOND)
    search = _Search(graph, metric, budget, frontiers)
    search.offer(frozenset())
    bound = search.run(root, int(time_limit_s * MAX_NODES_PER_SECOND))
    if exceeds(bound, search.value) and exhaustive_cells(graph, support.bit_count()) <= time_limit_s * CELLS_PER_SECOND:
        tasks = [task for task in range(len(graph)) if support >> task & 1]
        search.offer(best_of_all(graph, budget, metric, tasks))
        bound = search.value
    value = search.value
    optimal = not exceeds(bound, value)
    return Proof(tuple(sorted(search.tasks)), value, value if optimal else min(1.0, bound), optimal)


class _Search:
    """Branch and bound over tasks that appear in several places; remembers the best plan seen."""

    def __init__(self, graph: TaskGraph, metric: Metric, budget: int, frontiers: Frontiers) -> None:
        self.graph = graph
        self.metric = metric
        self.budget = budget
        self.frontiers = frontiers
        self.tasks: frozenset[int] = frozenset()
        self.value = -1.0
        self._visited = 0

    def offer(self, tasks: frozenset[int]) -> None:
        """Keep a plan if it is better, or as good with fewer replicas."""
        value = plan_value(self.graph, self.metric, tasks)
        fewer = len(tasks) < len(self.tasks) and not exceeds(self.value, value)
        if exceeds(value, self.value) or fewer:
            self.tasks, self.value = tasks, max(value, self.value)

    def run(self, root: Term, max_nodes: int) -> float:
        """Search until nothing better is left, or work or nodes are spent; returns what no plan can exceed."""
        bound = root[0]
        waiting: list[tuple[float, int, Term, frozenset[int], Frontier]] = []
        try:
            self._visit(root, frozenset(), waiting)
            bound = self.value
            for _ in range(max_nodes):
                if not waiting:
                    return self.value
                negative, _, term, kept, frontier = heapq.heappop(waiting)
                bound = max(-negative, self.value)
                if not self._may_improve(frontier, len(kept)):
                    continue
                task = frontier.shared
                if task is None:
                    continue
                self._visit(self.frontiers.formula.restrict(term, 1 << task, 0), kept | {task}, waiting)
                self._visit(self.frontiers.formula.restrict(term, 0, 1 << task), kept, waiting)
        except OutOfWork:
            return max(bound, self.value)
        return max([self.value, *(-branch[0] for branch in waiting)])

    def _visit(
        self, term: Term, kept: frozenset[int], waiting: list[tuple[float, int, Term, frozenset[int], Frontier]]
    ) -> None:
        left = self.budget - len(kept)
        if left < 0:
            return
        frontier = self.frontiers.of(term)
        if not self._may_improve(frontier, len(kept)):
            return
        highest = frontier.at(left)
        fewest = next(count for count in range(left + 1) if not exceeds(highest, frontier.at(count)))
        self.offer(kept | frontier.chosen(fewest))
        if frontier.shared is not None and self._may_improve(frontier, len(kept)):
            heapq.heappush(waiting, (-highest, self._next(), term, kept, frontier))

    def _next(self) -> int:
        self._visited += 1
        return self._visited

    def _may_improve(self, frontier: Frontier, used: int) -> bool:
        """Whether below here there may be a better plan, or as good a one with fewer replicas."""
        left = self.budget - used
        if exceeds(frontier.at(left), self.value):
            return True
        fewer = len(self.tasks) - 1 - used
        return fewer >= 0 and not exceeds(self.value, frontier.at(min(fewer, left)))
