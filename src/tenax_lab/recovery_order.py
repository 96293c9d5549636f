"""Recovered priority over the recovery capacity, on the random queries of Su, Zhou 2021, Figure 15."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import polars as pl

from tenax.errors import TooLarge
from tenax.model.generators import Priorities, QuerySpec, random_queries
from tenax.model.graph import TaskGraph
from tenax.model.queries import membership
from tenax.pictures.figures import Curve, Panel
from tenax.planning.recovery import check_recovery, plan_recovery
from tenax_lab.findings import Claim, Findings
from tenax_lab.lab import Bench, Experiment, Plan, Row, Trial
from tenax_lab.report import curves, table, value, wide

EXACT_TIME_LIMIT_S = 5.0
EXACT, DENSITY, CENTRIC, DP = "exact", "best-density", "operator-centric", "dp"
ALGORITHMS = (EXACT, DENSITY, CENTRIC)
SPECS = {
    "share 3": QuerySpec(max_share=3),
    "share 6": QuerySpec(max_share=6, skew=0.2),
    "skew 0.5": QuerySpec(max_share=6, skew=0.5),
    "linear": QuerySpec(max_share=6, priorities=Priorities.LINEAR),
}
SHARE, SKEW, PRIORITIES = "(a) most queries that share a partition", "(b) skew of sharing (Zipf)", "(c) priorities"
DIAGRAMS = pl.DataFrame(
    [
        (SHARE, "3", "share 3"),
        (SHARE, "6", "share 6"),
        (SKEW, "0.2", "share 6"),
        (SKEW, "0.5", "skew 0.5"),
        (PRIORITIES, "random", "share 6"),
        (PRIORITIES, "linear in load", "linear"),
    ],
    schema=["diagram", "setting", "spec"],
    orient="row",
)
"""The parts of the figure, the settings that each compares, and the specification of each."""
SAID = {
    SHARE: "more sharing lowers all three; best-density stays close to the optimum, operator-centric is worst",
    SKEW: "more skew raises best-density and lowers operator-centric",
    PRIORITIES: "slightly lower when priorities grow with the load",
}


@dataclass(frozen=True, slots=True)
class Case:
    """A random set of queries; dp is tried on some: it takes seconds, and must agree with exact wherever it runs."""

    spec: str
    number: int
    tries_dp: bool


@dataclass(frozen=True, slots=True)
class OrderPlan(Plan[Case]):
    """Beside the cases: capacities in percent of the cost of all; fewer queries in a quick run."""

    percents: tuple[int, ...] = ()
    queries: int | None = None

    def spec(self, name: str) -> QuerySpec:
        """The specification of a setting."""
        spec = SPECS[name]
        return spec if self.queries is None else replace(spec, queries=self.queries, size=4)


def _plan(topologies: int, with_dp: int, percents: tuple[int, ...], queries: int | None = None) -> OrderPlan:
    cases = tuple(Case(spec, number, number < with_dp) for spec in SPECS for number in range(topologies))
    sides = (*ALGORITHMS, DP)
    return OrderPlan(cases, sides, 1, lambda case, side: side != DP or case.tries_dp, percents, queries)


def measure(bench: Bench, plan: OrderPlan, trial: Trial[Case]) -> Iterator[Row]:
    """Plan for every capacity; every plan passes the validator. Where dp would pass its bound, it recovers nothing."""
    graph, share = _queries(plan.spec(trial.case.spec), bench.seed * 1_000_000 + trial.case.number)
    failed = np.ones(len(graph), dtype=np.bool_)
    for percent in plan.percents:
        capacity = float(graph.cost.sum()) * percent / 100
        row: Row = {"percent": percent, "share": share, "guarantee": 1.0 - math.exp(-1.0 / share)}
        try:
            order = plan_recovery(graph, failed, capacity, trial.side, EXACT_TIME_LIMIT_S)
        except TooLarge:
            yield row
            continue
        check_recovery(graph, failed, order, capacity)
        yield {**row, "recovered": order.priority / float(graph.priority.sum()), "proven": order.optimal}


@lru_cache(maxsize=1)
def _queries(spec: QuerySpec, seed: int) -> tuple[TaskGraph, int]:
    """The graph, and the most queries that share a partition: d of the guarantee (Theorem 5.1)."""
    graph = TaskGraph(random_queries(spec, seed))
    return graph, int(membership(graph, np.flatnonzero(graph.is_output)).sum(axis=0).max())


def report(plan: OrderPlan, frame: pl.DataFrame) -> Findings:
    """Means over the sets of queries, and how near best-density is to the optimum and to its guarantee."""
    index = ["spec", "number", "percent", "share", "guarantee", "tries_dp"]
    proven = frame.filter(side=EXACT).select("spec", "number", "percent", "proven")
    plans = wide(frame, "recovered", by=index).join(proven, on=["spec", "number", "percent"], maintain_order="left")
    plans = plans.with_columns(
        density=pl.when(pl.col(EXACT) > 0).then(pl.col(DENSITY) / pl.col(EXACT)).otherwise(1.0),
        **({DP: pl.lit(None, pl.Float64)} if DP not in plans.columns else {}),
    )
    means = plans.group_by("spec", "percent", maintain_order=True).agg(
        pl.col(*ALGORITHMS, DP).mean(),
        pl.col(DP).count().alias("dp cases"),
        pl.col("density", "guarantee").min(),
        pl.col("proven").sum(),
    )
    spec = plan.spec("share 3")
    return Findings(
        settings={
            "topologies per setting": len(plan.cases) // len(SPECS),
            "queries": spec.queries,
            "partitions per query": spec.size,
            "failed": "every partition",
            "capacity": "10 to 90 % of the cost of all",
            "dp": f"on the first {sum(case.tries_dp for case in plan.cases) // len(SPECS)} of each setting",
            "exact time limit": f"{EXACT_TIME_LIMIT_S:g} s",
        },
        tables=(
            table(
                "Recovered part of all priority, in the mean (dp: over its own cases)",
                DIAGRAMS.join(means, on="spec", maintain_order="left_right"),
                {
                    "figure 15": "diagram",
                    "setting": "setting",
                    "capacity %": "percent",
                    **{name: name for name in (*ALGORITHMS, DP, "dp cases")},
                    "least best-density / exact": "density",
                    "guarantee": "guarantee",
                    "proven": "proven",
                },
            ),
        ),
        claims=tuple(_claims(plans)),
        remarks=(
            f"exact proved its plan best in {plans['proven'].sum()} of {plans.height} cases",
            f"dp was tried in {plans['tries_dp'].sum()} cases and small enough in {plans[DP].count()}",
            "the paper does not tell the size of its queries, their costs, nor what (b) and (c) hold fixed: ours",
        ),
        panels=tuple(_panel(title, frame) for title in SAID),
    )


def _claims(plans: pl.DataFrame) -> Iterator[Claim]:
    proven = plans.filter("proven")
    if not proven.is_empty():
        least = proven.sort("density", maintain_order=True).row(0, named=True)
        yield Claim(
            "best-density / optimum is at least 1 − e^(−1/d), d = most queries sharing a partition",
            f"≥ {least['guarantee']:.3f} (d = {least['share']})",
            least["density"],
            "",
            f"smallest of {proven.height} proven cases, mean {value(proven, pl.col('density').mean()):.3f}; nowhere "
            f"nearer than {value(proven, (pl.col('density') - pl.col('guarantee')).min()):.3f} to its own guarantee",
        )
    yield Claim(
        "operator-centric has the worst performance in all settings",
        "all",
        value(plans, 100 * (pl.col(CENTRIC) <= pl.col(DENSITY) + 1e-12).mean()),
        "%",
        f"of {plans.height} cases bring back no more than best-density",
    )
    both = proven.filter(pl.col(DP).is_not_null())
    if not both.is_empty():
        yield Claim(
            "dynamic programming finds the optimum",
            "the optimum",
            value(both, 100 * ((pl.col(DP) - pl.col(EXACT)).abs() < 1e-9).mean()),
            "%",
            f"of {both.height} cases where dp was small enough agree with exact",
        )


def _panel(title: str, frame: pl.DataFrame) -> Panel:
    drawn: list[Curve] = []
    for place, (setting, spec) in enumerate(DIAGRAMS.filter(diagram=title).select("setting", "spec").iter_rows()):
        labels = {name: f"{name}, {setting}" for name in ALGORITHMS}
        own = frame.filter(spec=spec)
        drawn += curves(own, "percent", "recovered", looks=ALGORITHMS, labels=labels, middle="mean", dashed=place > 0)
    labels_of = "capacity in % of the cost of all failed partitions", "recovered priority / all"
    return Panel(title, *labels_of, tuple(drawn), SAID[title], y_range=(0.0, 1.0), nested=True)


EXPERIMENT = Experiment(
    full=_plan(100, 2, (10, 20, 30, 40, 50, 60, 70, 80, 90)),
    quick=_plan(2, 2, (20, 60), queries=8),
    measure=measure,
    report=report,
)
