"""Recovered priority over the recovery capacity, on the random queries of paper 4's Figure 15."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tenax.errors import TooLarge
from tenax.model.generators import Priorities, QuerySpec, random_queries
from tenax.model.graph import TaskGraph
from tenax.model.queries import membership
from tenax.pictures.figures import Curve, Panel
from tenax.planning.recovery import check_recovery, plan_recovery
from tenax_lab.results import Cell, Claim, Findings, Progress, Table

PERCENTS = (10, 20, 30, 40, 50, 60, 70, 80, 90)
QUICK_PERCENTS = (20, 60)
TOPOLOGIES = 100
QUICK_TOPOLOGIES = 2
QUICK_QUERIES = 8
DP_TOPOLOGIES = 2  # of the hundred: it takes seconds at high capacity, and must agree with exact wherever it runs
EXACT_TIME_LIMIT_S = 5.0
ALGORITHMS = ("exact", "best-density", "operator-centric")


@dataclass(frozen=True, slots=True)
class Setting:
    """One curve of the figure: a specification and what it is called there."""

    title: str
    spec: QuerySpec


@dataclass(frozen=True, slots=True)
class Diagram:
    """One part of the figure: the settings that it compares, and what the paper sees there."""

    title: str
    claim: str
    settings: tuple[Setting, ...]


DIAGRAMS = (
    Diagram(
        "(a) most queries that share a partition",
        "more sharing lowers all three; best-density stays close to the optimum, operator-centric is worst",
        (Setting("3", QuerySpec(max_share=3)), Setting("6", QuerySpec(max_share=6))),
    ),
    Diagram(
        "(b) skew of sharing (Zipf)",
        "more skew raises best-density and lowers operator-centric",
        (Setting("0.2", QuerySpec(max_share=6, skew=0.2)), Setting("0.5", QuerySpec(max_share=6, skew=0.5))),
    ),
    Diagram(
        "(c) priorities",
        "slightly lower when priorities grow with the load",
        (
            Setting("random", QuerySpec(max_share=6)),
            Setting("linear in load", QuerySpec(max_share=6, priorities=Priorities.LINEAR)),
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class Sample:
    """Plans for one set of queries and capacity: the part of all priority that each algorithm brings back."""

    percent: int
    recovered: dict[str, float]
    proven: bool
    tried_dp: bool
    dp: float | None
    share: int
    """The most queries that share a partition here: d of the guarantee."""

    @property
    def ratio(self) -> float:
        """Best-density beside the optimum."""
        best = self.recovered["exact"]
        return self.recovered["best-density"] / best if best > 0 else 1.0

    @property
    def guarantee(self) -> float:
        """What Theorem 5.1 promises for that ratio."""
        return 1.0 - math.exp(-1.0 / self.share)


def run(seed: int, quick: bool, progress: Progress) -> Findings:
    """Plan for every set of queries, capacity and algorithm; every plan passes the validator."""
    topologies = QUICK_TOPOLOGIES if quick else TOPOLOGIES
    percents = QUICK_PERCENTS if quick else PERCENTS
    diagrams = _quick(DIAGRAMS) if quick else DIAGRAMS
    specs = list(dict.fromkeys(setting.spec for diagram in diagrams for setting in diagram.settings))
    progress.total(len(specs) * topologies)
    samples: dict[QuerySpec, list[Sample]] = {spec: [] for spec in specs}
    for spec in specs:
        for number in range(topologies):
            graph = TaskGraph(random_queries(spec, seed * 1_000_000 + number))
            with_dp = number < DP_TOPOLOGIES
            samples[spec] += _samples(graph, percents, with_dp=with_dp)
            progress.advance(f"{spec.queries} queries, share at most {spec.max_share}, skew {spec.skew:g}")
    everything = [sample for spec in specs for sample in samples[spec]]
    return Findings(
        settings={
            "topologies per setting": topologies,
            "queries": specs[0].queries,
            "partitions per query": specs[0].size,
            "failed": "every partition",
            "capacity": "10 to 90 % of the cost of all",
            "dp": f"on the first {min(topologies, DP_TOPOLOGIES)} of each setting",
            "exact time limit": f"{EXACT_TIME_LIMIT_S:g} s",
        },
        tables=(_table(diagrams, samples, percents),),
        claims=_claims(everything),
        remarks=_remarks(everything),
        panels=_panels(diagrams, samples, percents),
    )


def _quick(diagrams: Sequence[Diagram]) -> tuple[Diagram, ...]:
    """The same settings with fewer queries."""
    small = []
    for diagram in diagrams:
        settings = []
        for setting in diagram.settings:
            spec = setting.spec
            queries = QuerySpec(QUICK_QUERIES, 4, None, spec.max_share, spec.skew, spec.priorities)
            settings.append(Setting(setting.title, queries))
        small.append(Diagram(diagram.title, diagram.claim, tuple(settings)))
    return tuple(small)


def _samples(graph: TaskGraph, percents: Sequence[int], *, with_dp: bool) -> list[Sample]:
    failed = np.ones(len(graph), dtype=np.bool_)
    total_cost, total_priority = float(graph.cost.sum()), float(graph.priority.sum())
    share = int(membership(graph, np.flatnonzero(graph.is_output)).sum(axis=0).max())
    samples = []
    for percent in percents:
        capacity = total_cost * percent / 100
        recovered = {}
        proven = False
        for algorithm in ALGORITHMS:
            plan = plan_recovery(graph, failed, capacity, algorithm, EXACT_TIME_LIMIT_S)
            check_recovery(graph, failed, plan, capacity)
            recovered[algorithm] = plan.priority / total_priority
            if algorithm == "exact":
                proven = plan.optimal
        by_dp = _by_dp(graph, capacity) if with_dp else None
        by_dp = None if by_dp is None else by_dp / total_priority
        samples.append(Sample(percent, recovered, proven, with_dp, by_dp, share))
    return samples


def _by_dp(graph: TaskGraph, capacity: float) -> float | None:
    """The priority that dp brings back, or nothing where it would pass its bound."""
    failed = np.ones(len(graph), dtype=np.bool_)
    try:
        plan = plan_recovery(graph, failed, capacity, "dp", EXACT_TIME_LIMIT_S)
    except TooLarge:
        return None
    check_recovery(graph, failed, plan, capacity)
    return plan.priority


def _mean(samples: Sequence[Sample], percent: int, algorithm: str) -> float:
    return statistics.fmean(sample.recovered[algorithm] for sample in samples if sample.percent == percent)


def _table(diagrams: Sequence[Diagram], samples: dict[QuerySpec, list[Sample]], percents: Sequence[int]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for diagram in diagrams:
        for setting in diagram.settings:
            own = samples[setting.spec]
            for percent in percents:
                here = [sample for sample in own if sample.percent == percent]
                by_dp = [sample.dp for sample in here if sample.dp is not None]
                rows.append(
                    (
                        diagram.title,
                        setting.title,
                        percent,
                        *(_mean(own, percent, algorithm) for algorithm in ALGORITHMS),
                        statistics.fmean(by_dp) if by_dp else None,
                        len(by_dp),
                        min(sample.ratio for sample in here),
                        min(sample.guarantee for sample in here),
                        sum(sample.proven for sample in here),
                    )
                )
    columns = (
        "figure 15",
        "setting",
        "capacity %",
        *ALGORITHMS,
        "dp",
        "dp cases",
        "least best-density / exact",
        "guarantee",
        "proven",
    )
    return Table("Recovered part of all priority, in the mean (dp: over its own cases)", columns, tuple(rows))


def _claims(samples: Sequence[Sample]) -> tuple[Claim, ...]:
    proven = [sample for sample in samples if sample.proven]
    least = min(proven, key=lambda sample: sample.ratio, default=None)
    claims = []
    if least is not None:
        nearest = min(sample.ratio - sample.guarantee for sample in proven)
        claims.append(
            Claim(
                "best-density / optimum is at least 1 − e^(−1/d), d = most queries sharing a partition",
                f"≥ {least.guarantee:.3f} (d = {least.share})",
                least.ratio,
                "",
                f"smallest of {len(proven)} proven cases, mean {statistics.fmean(one.ratio for one in proven):.3f}; "
                f"nowhere nearer than {nearest:.3f} to its own guarantee",
            )
        )
    worst = [sample.recovered["operator-centric"] <= sample.recovered["best-density"] + 1e-12 for sample in samples]
    claims.append(
        Claim(
            "operator-centric has the worst performance in all settings",
            "all",
            100 * statistics.fmean(worst),
            "%",
            f"of {len(worst)} cases bring back no more than best-density",
        )
    )
    both = [(sample.dp, sample.recovered["exact"]) for sample in proven if sample.dp is not None]
    if both:
        claims.append(
            Claim(
                "dynamic programming finds the optimum",
                "the optimum",
                100 * statistics.fmean(abs(found - best) < 1e-9 for found, best in both if found is not None),
                "%",
                f"of {len(both)} cases where dp was small enough agree with exact",
            )
        )
    return tuple(claims)


def _remarks(samples: Sequence[Sample]) -> tuple[str, ...]:
    tried = sum(sample.tried_dp for sample in samples)
    solved = sum(sample.dp is not None for sample in samples)
    return (
        f"exact proved its plan best in {sum(sample.proven for sample in samples)} of {len(samples)} cases",
        f"dp was tried in {tried} cases and small enough in {solved}",
        "the paper does not tell the size of its queries, their costs, nor what (b) and (c) hold fixed: ours",
    )


def _panels(
    diagrams: Sequence[Diagram], samples: dict[QuerySpec, list[Sample]], percents: Sequence[int]
) -> tuple[Panel, ...]:
    panels = []
    for diagram in diagrams:
        curves = []
        for place, setting in enumerate(diagram.settings):
            for look, algorithm in enumerate(ALGORITHMS):
                means = tuple(_mean(samples[setting.spec], percent, algorithm) for percent in percents)
                x = tuple(float(percent) for percent in percents)
                curves.append(Curve(f"{algorithm}, {setting.title}", x, means, look, dashed=place > 0))
        panels.append(
            Panel(
                diagram.title,
                "capacity in % of the cost of all failed partitions",
                "recovered priority / all",
                tuple(curves),
                diagram.claim,
                y_range=(0.0, 1.0),
                nested=True,
            )
        )
    return tuple(panels)
