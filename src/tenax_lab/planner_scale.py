"""Time and size that the planners reach, in one run: each measurement beside its goal."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import polars as pl

from tenax.examples import example_path
from tenax.model.files import read_topology
from tenax.model.generators import (
    LayeredSpec,
    QuerySpec,
    Style,
    TopologySpec,
    merge_tree,
    random_layered,
    random_queries,
    random_topology,
)
from tenax.model.graph import TaskGraph
from tenax.model.topology import Input, Operator, Topology
from tenax.pictures.figures import Curve, Panel, Reference
from tenax.planning.backups import check_backups, plan_backups
from tenax.planning.fidelity import fidelity
from tenax.planning.recovery import check_recovery, plan_recovery
from tenax.planning.replicas import check_replicas, plan_replicas
from tenax_lab.findings import Claim, Findings
from tenax_lab.lab import Bench, Experiment, Plan, Row, Trial
from tenax_lab.report import curves, table, value, values

PAPER_DAG_MS = 501.0  # Li et al. 2017, Table III, Senti-1050: what exact is to beat
LINEAR = 1.1  # the largest fitted exponent that passes for O(N)
QUADRATIC = 2.1  # and for O(N²)
EXACT_GOAL_S = 10.0  # the time limit that a user gets without asking for one
AT_ONCE_MS = 100.0  # what feels like no wait at all
STRUCTURE_AWARE_GOAL_S = 2.0
SCORING_GOAL_S = 0.5
TREE_TASKS = (1_000, 10_000, 100_000, 1_000_000)
DAG_TASKS = (1_250, 2_500, 5_000, 10_000)
DAG_EDGES_PER_TASK = 10
TREE_BOUND_S, SMALL_BOUND_S = 5.0, 3.0
REPLICA_EXAMPLES = ("window-tree", "top-pages", "traffic-incidents")
REPLICA_RATIO = 0.3
CAPACITY_RATIOS = (0.1, 0.5, 0.9)
SHARES = (3, 6)  # the most queries that share a partition, as in Su, Zhou 2021, Figure 15
SCORED_TASKS = 100_000
TREE, DAG, TWITTER = "tree", "dag", "exact backups, TwitterSentiment (30, 30, 30)"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of what is measured, by name."""

    part: str


@dataclass(frozen=True, slots=True)
class ScalePlan(Plan[Part]):
    """How much smaller the large sizes are, and of how many runs a time is the median where plans take milliseconds."""

    shrink: int = 1
    repeats: int = 5

    @property
    def quick(self) -> bool:
        """Whether sizes are a fraction of the full ones."""
        return self.shrink > 1


def measure(bench: Bench, plan: ScalePlan, trial: Trial[Part]) -> Iterator[Row]:
    """Rows of `goal` beside what was `measured`, of times over sizes (`tasks`), of times over bounds (`bound_s`)."""
    return PARTS[trial.case.part](bench.seed, plan)


def goal(what: str, size: str, measured: float, unit: str, at_most: float, source: str, *, proven: bool = True) -> Row:
    """A measurement beside its goal; exact plans that are not proven best miss it, whatever their time."""
    return {
        "what": what,
        "size": size,
        "measured": measured,
        "unit": unit,
        "goal": at_most,
        "source": source,
        "met": proven and measured <= at_most,
    }


def _timed(repeats: int, action: Callable[[], object]) -> float:
    """The median seconds of an action."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _exact_backups(_: int, plan: ScalePlan) -> Iterator[Row]:
    graph = TaskGraph(read_topology(example_path("twitter-sentiment-30-30-30")))
    plan_backups(graph, 2.0, "exact")  # the first plan also imports the solver
    spent_ms = []
    for bound_s in (2.0, 3.0, 4.0, 5.0):
        check_backups(graph, plan_backups(graph, bound_s, "exact"), bound_s)
        spent_ms.append(1000 * _timed(plan.repeats, partial(plan_backups, graph, bound_s, "exact")))
        yield {"what": "bound", "bound_s": bound_s, "ms": spent_ms[-1]}
    size = "93 tasks, 1,050 edges, R = 2..5, the slowest"
    yield goal(TWITTER, size, max(spent_ms), "ms", PAPER_DAG_MS, "Li et al. 2017")


def _lines_and_trees(_: int, plan: ScalePlan) -> Iterator[Row]:
    """The paper's own algorithm, and exact."""
    for name, algorithm in (("line", "line"), ("lines", "line"), ("tree", "tree")):
        graph = TaskGraph(read_topology(example_path(name)))
        size = f"{len(graph)} tasks, R = {SMALL_BOUND_S:g}"
        for chosen in (algorithm, "exact"):
            check_backups(graph, plan_backups(graph, SMALL_BOUND_S, chosen), SMALL_BOUND_S)
            spent = 1000 * _timed(4 * plan.repeats, partial(plan_backups, graph, SMALL_BOUND_S, chosen))
            yield goal(f"{chosen} backups, {name}", size, spent, "ms", AT_ONCE_MS, "at once")


def _trees(_: int, plan: ScalePlan) -> Iterator[Row]:
    graphs = (TaskGraph(merge_tree(max(2, tasks // plan.shrink // 2), 2)) for tasks in TREE_TASKS)
    return _growth(TREE, graphs, TREE_BOUND_S, plan.repeats, LINEAR)


def _dags(seed: int, plan: ScalePlan) -> Iterator[Row]:
    layers, bound_s = (5, 2.0) if plan.quick else (25, 8.0)
    return _growth(DAG, (_dag(tasks // plan.shrink, layers, seed) for tasks in DAG_TASKS), bound_s, 3, QUADRATIC)


def _dag(tasks: int, layers: int, seed: int) -> TaskGraph:
    width = tasks // layers
    edges = min(DAG_EDGES_PER_TASK, width) * layers * width * (layers - 1) // layers
    return TaskGraph(random_layered(LayeredSpec(layers=layers, width=width, edges=edges, reprocess=(1, 1)), seed))


def _growth(name: str, graphs: Iterator[TaskGraph], bound_s: float, repeats: int, at_most: float) -> Iterator[Row]:
    """Times over sizes, and the exponent of the power of the size that fits them best."""
    sizes, seconds = [], []
    for graph in graphs:
        check_backups(graph, plan_backups(graph, bound_s, name), bound_s)
        sizes.append(len(graph))
        seconds.append(_timed(repeats, partial(plan_backups, graph, bound_s, name)))
        yield {"what": "growth", "algorithm": name, "tasks": sizes[-1], "ms": 1000 * seconds[-1]}
    slope, _ = np.polyfit(np.log(sizes), np.log(seconds), 1)
    size = f"{sizes[0]:,} to {sizes[-1]:,} tasks, {seconds[-1]:.2f} s at the largest"
    yield goal(f"{name} backups: exponent", size, float(slope), "exponent", at_most, "Li et al. 2017")


def _exact_replicas(_: int, plan: ScalePlan) -> Iterator[Row]:
    """The slowest budget of each example."""
    for name in REPLICA_EXAMPLES[-1:] if plan.quick else REPLICA_EXAMPLES:
        graph = TaskGraph(read_topology(example_path(name)))
        slowest, proven = 0.0, 0
        budgets = range(len(graph) + 1)
        for budget in budgets:
            start = time.perf_counter()
            replicas = plan_replicas(graph, budget, "exact", time_limit_s=EXACT_GOAL_S)
            slowest = max(slowest, time.perf_counter() - start)
            check_replicas(graph, replicas, budget)
            proven += replicas.optimal
        size = f"{len(graph)} tasks, {proven} of {len(budgets)} budgets proven, the slowest"
        every = proven == len(budgets)
        yield goal(f"exact replicas, {name}", size, slowest, "s", EXACT_GOAL_S, "default limit", proven=every)


def _structure_aware(seed: int, plan: ScalePlan) -> Iterator[Row]:
    for style in Style:
        parallelism = (5, 15) if plan.quick else (50, 150)
        spec = TopologySpec(operators=(10, 10), parallelism=parallelism, style=style)
        graph = TaskGraph(random_topology(spec, seed))
        budget = round(REPLICA_RATIO * len(graph))
        start = time.perf_counter()
        replicas = plan_replicas(graph, budget, "structure-aware")
        spent = time.perf_counter() - start
        check_replicas(graph, replicas, budget)
        size = f"10 operators, {len(graph):,} tasks, budget {budget}"
        yield goal(f"structure-aware replicas, {style}", size, spent, "s", STRUCTURE_AWARE_GOAL_S, "ours")


def _exact_recovery(seed: int, plan: ScalePlan) -> Iterator[Row]:
    large = QuerySpec(queries=20, partitions=100) if plan.quick else QuerySpec(queries=200, partitions=2000)
    for spec, at_most in ((QuerySpec(queries=18), AT_ONCE_MS / 1000), (large, EXACT_GOAL_S)):
        for share in SHARES:
            graph = TaskGraph(random_queries(replace(spec, max_share=share), seed))
            failed = np.ones(len(graph), dtype=np.bool_)
            times, proven, gap = [], 0, 0.0
            for ratio in CAPACITY_RATIOS:
                capacity = ratio * float(graph.cost.sum())
                start = time.perf_counter()
                order = plan_recovery(graph, failed, capacity, "exact", EXACT_GOAL_S)
                times.append(time.perf_counter() - start)
                check_recovery(graph, failed, order, capacity)
                proven += order.optimal
                gap = max(gap, order.gap)
            every = proven == len(CAPACITY_RATIOS)
            proof = "all proven" if every else f"{proven} of {len(times)} proven, gap at most {100 * gap:.2g} %"
            size = f"{spec.queries} queries, {len(graph):,} partitions shared by at most {share}, {proof}, the slowest"
            yield goal("exact recovery", size, max(times), "s", at_most, "default limit", proven=every)


def _scoring(seed: int, plan: ScalePlan) -> Iterator[Row]:
    parallelism = SCORED_TASKS // plan.shrink // 10
    operators = [Operator("o0", parallelism)]
    operators += [Operator(f"o{number}", parallelism, (Input(f"o{number - 1}"),)) for number in range(1, 10)]
    graph = TaskGraph(Topology("full-line", tuple(operators)))
    failed = np.random.default_rng(seed).random(len(graph)) < 0.1
    size = f"{len(graph):,} tasks, {graph.edge_count:,} substreams"
    spent = _timed(plan.repeats, partial(fidelity, graph, failed))
    yield goal("fidelity of one failure", size, spent, "s", SCORING_GOAL_S, "ours")


PARTS: dict[str, Callable[[int, ScalePlan], Iterator[Row]]] = {
    "exact backups": _exact_backups,
    "backups on lines and trees": _lines_and_trees,
    "tree backups": _trees,
    "dag backups": _dags,
    "exact replicas": _exact_replicas,
    "structure-aware replicas": _structure_aware,
    "exact recovery": _exact_recovery,
    "fidelity": _scoring,
}


def report(plan: ScalePlan, frame: pl.DataFrame) -> Findings:
    """Goals and measurements, and the times behind the exponents."""
    goals, growth = frame.filter(pl.col("goal").is_not_null()), frame.filter(what="growth")
    bounds = frame.filter(what="bound")
    return Findings(
        settings={
            "repeats": f"median of {plan.repeats}, where a plan takes milliseconds",
            "sizes": "a fraction of the full ones" if plan.quick else "full",
            "exact goals": f"proven within {EXACT_GOAL_S:g} s, the limit that a user gets without asking",
        },
        tables=(
            table(
                "Goals and measurements",
                goals,
                "what | size | goal at most = goal | goal from = source | measured | unit | met",
                met=pl.when("met").then(pl.lit("yes")).otherwise(pl.lit("no")),
            ),
            table("Times behind the exponents", growth, "algorithm | tasks | ms"),
        ),
        claims=(
            Claim(
                "Senti-1050: exhaustive 108.22 s, the algorithm for DAGs 501 ms",
                "501 ms (DAG, not optimal)",
                value(bounds, pl.col("ms").max()),
                "ms",
                "exact, optimal, the slowest of R = 2..5 (each a median); the paper's machine is unknown",
            ),
            _claim("lines and trees take linear time", "O(N)", TREE, goals, growth),
            _claim("DAGs take quadratic time", "O(N²)", DAG, goals, growth),
        ),
        remarks=("the paper's machine is unknown; its times say what was fast enough for its authors",),
        panels=(
            Panel(
                "Exact backups on TwitterSentiment (30, 30, 30)",
                "latency bound R in s",
                "ms per plan",
                curves(bounds.with_columns(side=pl.lit("exact")), "bound_s", "ms"),
                "exhaustive search 108.22 s, DAG algorithm 501 ms, share 29 ms",
                (Reference("paper's DAG algorithm, 501 ms", PAPER_DAG_MS),),
            ),
            _panel(TREE, "O(N)", 1.0, 2, goals, growth),
            _panel(DAG, "O(N²)", 2.0, 3, goals, growth),
        ),
    )


def _exponent(name: str, goals: pl.DataFrame) -> float:
    return value(goals.filter(what=f"{name} backups: exponent"), "measured")


def _claim(statement: str, paper: str, name: str, goals: pl.DataFrame, growth: pl.DataFrame) -> Claim:
    sizes = growth.filter(algorithm=name)["tasks"].to_list()
    over = f"exponent of a log-log fit over {sizes[0]:,} to {sizes[-1]:,} tasks"
    return Claim(statement, paper, _exponent(name, goals), "(exponent)", over)


def _panel(name: str, claim: str, power: float, look: int, goals: pl.DataFrame, growth: pl.DataFrame) -> Panel:
    """Times, and the growth that the paper states, through the first point."""
    own = growth.filter(algorithm=name)
    sizes, seconds = values(own, "tasks"), values(own, pl.col("ms") / 1000)
    start = seconds[0] / sizes[0] ** power
    stated = tuple(start * size**power for size in sizes)
    measured = Curve(f"{name}, exponent {_exponent(name, goals):.2f}", tuple(sizes), tuple(seconds), look)
    drawn = (measured, Curve(claim, tuple(sizes), stated, 6, dashed=True))
    return Panel(f"Time of {name} backups", "tasks", "seconds", drawn, claim, logarithmic=True)


CASES = tuple(Part(part) for part in PARTS)
EXPERIMENT = Experiment(
    full=ScalePlan(CASES), quick=ScalePlan(CASES, shrink=50, repeats=1), measure=measure, report=report
)
