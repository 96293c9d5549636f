"""Time and size that the planners reach, in one run: each measurement beside its goal."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

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
from tenax_lab.results import Claim, Findings, Progress, Table

PAPER_DAG_MS = 501.0  # Table III of paper 3, Senti-1050: what exact is to beat
LINEAR = 1.1  # the largest fitted exponent that passes for O(N)
QUADRATIC = 2.1  # and for O(N²)
EXACT_GOAL_S = 10.0  # the time limit that a user gets without asking for one
AT_ONCE_MS = 100.0  # what feels like no wait at all
STRUCTURE_AWARE_GOAL_S = 2.0
SCORING_GOAL_S = 0.5
REPEATS = 5
TREE_TASKS = (1_000, 10_000, 100_000, 1_000_000)
DAG_TASKS = (1_250, 2_500, 5_000, 10_000)
DAG_EDGES_PER_TASK = 10
DAG_LAYERS = 25
TREE_BOUND_S = 5.0
DAG_BOUND_S = 8.0
SMALL_BOUND_S = 3.0
REPLICA_EXAMPLES = ("window-tree", "top-pages", "traffic-incidents")
REPLICA_RATIO = 0.3
CAPACITY_RATIOS = (0.1, 0.5, 0.9)
SHARES = (3, 6)  # the most queries that share a partition, as in paper 4's Figure 15
SCORED_TASKS = 100_000
QUICK_SHRINK = 50  # how much smaller the large sizes are in a quick run


@dataclass(frozen=True, slots=True)
class Measurement:
    """One row of the table: what was measured, and the goal that it is at most."""

    what: str
    size: str
    measured: float
    unit: str
    goal: float
    goal_from: str
    proven: bool = True
    """Exact plans: whether all of them were proven best; otherwise the goal is missed, whatever the time."""

    @property
    def met(self) -> bool:
        """Whether the goal is reached."""
        return self.proven and self.measured <= self.goal


@dataclass(frozen=True, slots=True)
class Growth:
    """Times over sizes, and the exponent of the power of the size that fits them best."""

    sizes: tuple[int, ...]
    seconds: tuple[float, ...]

    @property
    def exponent(self) -> float:
        """The slope of the least-squares line through the logarithms."""
        slope, _ = np.polyfit(np.log(self.sizes), np.log(self.seconds), 1)
        return float(slope)


def run(seed: int, quick: bool, progress: Progress) -> Findings:
    """Measure all of it, one after the other; every plan passes its validator."""
    bounds: dict[float, float] = {}
    growths: dict[str, Growth] = {}
    repeats = 1 if quick else REPEATS

    def twitter() -> list[Measurement]:
        found = _exact_backups(repeats)
        bounds.update(found)
        worst = max(found.values())
        size = "93 tasks, 1,050 edges, R = 2..5, the slowest"
        return [Measurement("exact backups, TwitterSentiment (30, 30, 30)", size, worst, "ms", PAPER_DAG_MS, "paper 3")]

    def grow(name: str, growth: Callable[[], Growth], goal: float, unit: str) -> Callable[[], list[Measurement]]:
        def measure() -> list[Measurement]:
            growths[name] = growth()
            sizes = growths[name].sizes
            size = f"{sizes[0]:,} to {sizes[-1]:,} tasks, {growths[name].seconds[-1]:.2f} s at the largest"
            return [Measurement(f"{name} backups: exponent", size, growths[name].exponent, unit, goal, "paper 3")]

        return measure

    shrink = QUICK_SHRINK if quick else 1
    steps: list[tuple[str, Callable[[], list[Measurement]]]] = [
        ("exact backups", twitter),
        ("backups on lines and trees", partial(_lines_and_trees, repeats)),
        ("tree backups", grow("tree", partial(_trees, shrink, repeats), LINEAR, "exponent")),
        ("dag backups", grow("dag", partial(_dags, shrink, repeats, seed), QUADRATIC, "exponent")),
        ("exact replicas", partial(_exact_replicas, quick)),
        ("structure-aware replicas", partial(_structure_aware, seed, quick)),
        ("exact recovery", partial(_exact_recovery, seed, quick)),
        ("fidelity", partial(_scoring, seed, shrink, repeats)),
    ]
    progress.total(len(steps))
    rows: list[Measurement] = []
    for label, measure in steps:
        rows += measure()
        progress.advance(label)
    return Findings(
        settings={
            "repeats": f"median of {repeats}, where a plan takes milliseconds",
            "sizes": "a fraction of the full ones" if quick else "full",
            "exact goals": f"proven within {EXACT_GOAL_S:g} s, the limit that a user gets without asking",
        },
        tables=(
            Table(
                "Goals and measurements",
                ("what", "size", "goal at most", "goal from", "measured", "unit", "met"),
                tuple(
                    (row.what, row.size, row.goal, row.goal_from, row.measured, row.unit, "yes" if row.met else "no")
                    for row in rows
                ),
            ),
            _growth_table(growths),
        ),
        claims=_claims(bounds, growths),
        remarks=("the paper's machine is unknown; its times say what was fast enough for its authors",),
        panels=_panels(bounds, growths),
    )


def _timed(repeats: int, action: Callable[[], object]) -> float:
    """The median seconds of an action."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _exact_backups(repeats: int) -> dict[float, float]:
    """Milliseconds by bound."""
    graph = TaskGraph(read_topology(example_path("twitter-sentiment-30-30-30")))
    found = {}
    plan_backups(graph, 2.0, "exact")  # the first plan also imports the solver
    for bound in (2.0, 3.0, 4.0, 5.0):
        check_backups(graph, plan_backups(graph, bound, "exact"), bound)
        found[bound] = 1000 * _timed(repeats, partial(plan_backups, graph, bound, "exact"))
    return found


def _lines_and_trees(repeats: int) -> list[Measurement]:
    """The paper's own algorithm, and exact."""
    rows = []
    for name, algorithm in (("line", "line"), ("lines", "line"), ("tree", "tree")):
        graph = TaskGraph(read_topology(example_path(name)))
        size = f"{len(graph)} tasks, R = {SMALL_BOUND_S:g}"
        for chosen in (algorithm, "exact"):
            check_backups(graph, plan_backups(graph, SMALL_BOUND_S, chosen), SMALL_BOUND_S)
            spent = 1000 * _timed(4 * repeats, partial(plan_backups, graph, SMALL_BOUND_S, chosen))
            rows.append(Measurement(f"{chosen} backups, {name}", size, spent, "ms", AT_ONCE_MS, "at once"))
    return rows


def _trees(shrink: int, repeats: int) -> Growth:
    sizes, seconds = [], []
    for tasks in TREE_TASKS:
        graph = TaskGraph(merge_tree(max(2, tasks // shrink // 2), 2))
        check_backups(graph, plan_backups(graph, TREE_BOUND_S, "tree"), TREE_BOUND_S)
        sizes.append(len(graph))
        seconds.append(_timed(repeats, partial(plan_backups, graph, TREE_BOUND_S, "tree")))
    return Growth(tuple(sizes), tuple(seconds))


def _dags(shrink: int, repeats: int, seed: int) -> Growth:
    sizes, seconds = [], []
    for tasks in DAG_TASKS:
        layers = DAG_LAYERS if shrink == 1 else 5
        width = tasks // shrink // layers
        edges = min(DAG_EDGES_PER_TASK, width) * layers * width * (layers - 1) // layers
        spec = LayeredSpec(layers=layers, width=width, edges=edges, reprocess=(1, 1))
        graph = TaskGraph(random_layered(spec, seed))
        bound = DAG_BOUND_S if shrink == 1 else 2.0
        check_backups(graph, plan_backups(graph, bound, "dag"), bound)
        seconds.append(_timed(min(repeats, 3), partial(plan_backups, graph, bound, "dag")))
        sizes.append(len(graph))
    return Growth(tuple(sizes), tuple(seconds))


def _exact_replicas(quick: bool) -> list[Measurement]:
    """The slowest budget of each example."""
    rows = []
    for name in REPLICA_EXAMPLES[-1:] if quick else REPLICA_EXAMPLES:
        graph = TaskGraph(read_topology(example_path(name)))
        slowest, proven = 0.0, 0
        budgets = range(len(graph) + 1)
        for budget in budgets:
            start = time.perf_counter()
            plan = plan_replicas(graph, budget, "exact", time_limit_s=EXACT_GOAL_S)
            spent = time.perf_counter() - start
            check_replicas(graph, plan, budget)
            proven += plan.optimal
            slowest = max(slowest, spent)
        size = f"{len(graph)} tasks, {proven} of {len(budgets)} budgets proven, the slowest"
        what = f"exact replicas, {name}"
        rows.append(Measurement(what, size, slowest, "s", EXACT_GOAL_S, "default limit", proven == len(budgets)))
    return rows


def _structure_aware(seed: int, quick: bool) -> list[Measurement]:
    rows = []
    parallelism = (5, 15) if quick else (50, 150)
    for style in Style:
        spec = TopologySpec(operators=(10, 10), parallelism=parallelism, style=style)
        graph = TaskGraph(random_topology(spec, seed))
        budget = round(REPLICA_RATIO * len(graph))
        start = time.perf_counter()
        plan = plan_replicas(graph, budget, "structure-aware")
        spent = time.perf_counter() - start
        check_replicas(graph, plan, budget)
        size = f"10 operators, {len(graph):,} tasks, budget {budget}"
        rows.append(Measurement(f"structure-aware replicas, {style}", size, spent, "s", STRUCTURE_AWARE_GOAL_S, "ours"))
    return rows


def _exact_recovery(seed: int, quick: bool) -> list[Measurement]:
    large = QuerySpec(queries=20, partitions=100) if quick else QuerySpec(queries=200, partitions=2000)
    rows = []
    for spec, goal in ((QuerySpec(queries=18), AT_ONCE_MS / 1000), (large, EXACT_GOAL_S)):
        for share in SHARES:
            graph = TaskGraph(random_queries(replace(spec, max_share=share), seed))
            failed = np.ones(len(graph), dtype=np.bool_)
            times, proven, gap = [], 0, 0.0
            for ratio in CAPACITY_RATIOS:
                capacity = ratio * float(graph.cost.sum())
                start = time.perf_counter()
                plan = plan_recovery(graph, failed, capacity, "exact", EXACT_GOAL_S)
                times.append(time.perf_counter() - start)
                check_recovery(graph, failed, plan, capacity)
                proven += plan.optimal
                gap = max(gap, plan.gap)
            all_proven = proven == len(CAPACITY_RATIOS)
            proof = "all proven" if all_proven else f"{proven} of {len(times)} proven, gap at most {100 * gap:.2g} %"
            size = f"{spec.queries} queries, {len(graph):,} partitions shared by at most {share}, {proof}, the slowest"
            rows.append(Measurement("exact recovery", size, max(times), "s", goal, "default limit", all_proven))
    return rows


def _scoring(seed: int, shrink: int, repeats: int) -> list[Measurement]:
    parallelism = SCORED_TASKS // shrink // 10
    operators = [Operator("o0", parallelism)]
    operators += [Operator(f"o{number}", parallelism, (Input(f"o{number - 1}"),)) for number in range(1, 10)]
    graph = TaskGraph(Topology("full-line", tuple(operators)))
    failed = np.random.default_rng(seed).random(len(graph)) < 0.1
    spent = _timed(repeats, partial(fidelity, graph, failed))
    size = f"{len(graph):,} tasks, {graph.edge_count:,} substreams"
    return [Measurement("fidelity of one failure", size, spent, "s", SCORING_GOAL_S, "ours")]


def _growth_table(growths: dict[str, Growth]) -> Table:
    rows = []
    for name, growth in growths.items():
        rows += [(name, size, 1000 * spent) for size, spent in zip(growth.sizes, growth.seconds, strict=True)]
    return Table("Times behind the exponents", ("algorithm", "tasks", "ms"), tuple(rows))


def _claims(bounds: dict[float, float], growths: dict[str, Growth]) -> tuple[Claim, ...]:
    def sizes(growth: Growth) -> str:
        return f"exponent of a log-log fit over {growth.sizes[0]:,} to {growth.sizes[-1]:,} tasks"

    return (
        Claim(
            "Senti-1050: exhaustive 108.22 s, the algorithm for DAGs 501 ms",
            "501 ms (DAG, not optimal)",
            max(bounds.values()),
            "ms",
            "exact, optimal, the slowest of R = 2..5 (each a median); the paper's machine is unknown",
        ),
        Claim(
            "lines and trees take linear time", "O(N)", growths["tree"].exponent, "(exponent)", sizes(growths["tree"])
        ),
        Claim("DAGs take quadratic time", "O(N²)", growths["dag"].exponent, "(exponent)", sizes(growths["dag"])),
    )


def _panels(bounds: dict[float, float], growths: dict[str, Growth]) -> tuple[Panel, ...]:
    panels = [
        Panel(
            "Exact backups on TwitterSentiment (30, 30, 30)",
            "latency bound R in s",
            "ms per plan",
            (Curve("exact", tuple(bounds), tuple(bounds.values()), 0),),
            "exhaustive search 108.22 s, DAG algorithm 501 ms, share 29 ms",
            (Reference("paper's DAG algorithm, 501 ms", PAPER_DAG_MS),),
        )
    ]
    for look, (name, claim) in enumerate((("tree", "O(N)"), ("dag", "O(N²)")), start=2):
        growth = growths[name]
        panels.append(
            Panel(
                f"Time of {name} backups",
                "tasks",
                "seconds",
                (
                    Curve(f"{name}, exponent {growth.exponent:.2f}", _floats(growth.sizes), growth.seconds, look),
                    _slope(growth, 1.0 if name == "tree" else 2.0, claim),
                ),
                f"{claim}",
                logarithmic=True,
            )
        )
    return tuple(panels)


def _floats(values: Sequence[int]) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def _slope(growth: Growth, power: float, claim: str) -> Curve:
    """The growth that the paper states, through the first point."""
    start = growth.seconds[0] / growth.sizes[0] ** power
    return Curve(claim, _floats(growth.sizes), tuple(start * size**power for size in growth.sizes), 6, dashed=True)
