"""Output fidelity of replica plans over the replication ratio, on the random topologies of Su, Zhou 2016, Figure 14."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import polars as pl

from tenax.model.generators import Style, TopologySpec, random_topology
from tenax.model.graph import TaskGraph
from tenax.pictures.figures import Curve, Panel
from tenax.planning.replicas import check_replicas, plan_replicas
from tenax_lab.findings import Claim, Findings
from tenax_lab.lab import Bench, Experiment, Plan, Row, Trial
from tenax_lab.report import curves, table, value, wide

EXACT_TIME_LIMIT_S = 0.5
SCARCE = 0.2  # "with scarce budget": ratios up to this
AWARE, GREEDY, EXACT = "structure-aware", "greedy", "exact"
SPECS = {
    "uniform": TopologySpec(),  # uniform load, 1 to 10 tasks, mixed streams, no joins: the others differ in one thing
    "Zipf 0.1": TopologySpec(skew=0.1),
    "1 to 5": TopologySpec(parallelism=(1, 5)),
    "10 to 20": TopologySpec(parallelism=(10, 20)),
    "structured": TopologySpec(style=Style.STRUCTURED),
    "full": TopologySpec(style=Style.FULL),
    "50 %": TopologySpec(joins=0.5),
}
DIAGRAMS = pl.DataFrame(
    [
        ("(a) load of tasks", "uniform", "uniform"),
        ("(a) load of tasks", "Zipf 0.1", "Zipf 0.1"),
        ("(b) tasks per operator", "1 to 5", "1 to 5"),
        ("(b) tasks per operator", "1 to 10", "uniform"),
        ("(b) tasks per operator", "10 to 20", "10 to 20"),
        ("(c) kind of topology", "structured", "structured"),
        ("(c) kind of topology", "full", "full"),
        ("(d) part of joins", "0 %", "uniform"),
        ("(d) part of joins", "50 %", "50 %"),
    ],
    schema=["diagram", "setting", "spec"],
    orient="row",
)
"""The parts of the figure, the settings that each compares, and the specification of each."""


@dataclass(frozen=True, slots=True)
class Case:
    """A random topology; `tries_exact` says how far the heuristics are from the best plan."""

    spec: str
    number: int
    tries_exact: bool


@dataclass(frozen=True, slots=True)
class ReplicaPlan(Plan[Case]):
    """Beside the cases: the replication ratios."""

    ratios: tuple[float, ...] = ()


def _plan(topologies: int, exact: int, ratios: tuple[float, ...]) -> ReplicaPlan:
    cases = tuple(Case(spec, number, number < exact) for spec in SPECS for number in range(topologies))
    return ReplicaPlan(
        cases, (AWARE, GREEDY, EXACT), applies=lambda case, side: side != EXACT or case.tries_exact, ratios=ratios
    )


def measure(bench: Bench, plan: ReplicaPlan, trial: Trial[Case]) -> Iterator[Row]:
    """Plan for every ratio; every plan passes the validator."""
    graph = _graph(trial.case, bench.seed)
    for ratio in plan.ratios:
        budget = round(ratio * len(graph))
        replicas = plan_replicas(graph, budget, trial.side, time_limit_s=EXACT_TIME_LIMIT_S)
        check_replicas(graph, replicas, budget)
        yield {"ratio": ratio, "fidelity": replicas.fidelity, "optimal": replicas.optimal}


@lru_cache(maxsize=1)
def _graph(case: Case, seed: int) -> TaskGraph:
    return TaskGraph(random_topology(SPECS[case.spec], seed * 1_000_000 + case.number))


def report(plan: ReplicaPlan, frame: pl.DataFrame) -> Findings:
    """Means over topologies with the middle half, and how far both heuristics are from plans that are proven best."""
    proven = pl.when((pl.col("side") != EXACT) | pl.col("optimal")).then("fidelity")
    plans = wide(frame, proven, by=["spec", "number", "ratio", "tries_exact"])
    quarter, three = (pl.col(AWARE, GREEDY).quantile(part, "linear") for part in (0.25, 0.75))
    means = plans.group_by("spec", "ratio", maintain_order=True).agg(
        pl.col(AWARE, GREEDY).mean(), quarter.name.suffix(" lower"), three.name.suffix(" upper")
    )
    factor = pl.when(pl.col(GREEDY) > 0).then(pl.col(AWARE) / pl.col(GREEDY))
    known = pl.col(EXACT).is_not_null()
    best = plans.group_by("spec", maintain_order=True).agg(
        pl.col("tries_exact").sum().alias("tried"), known.sum().alias("proven"),
        pl.col(EXACT, AWARE, GREEDY).filter(known).mean(),
    )  # fmt: skip
    exact = sum(case.tries_exact for case in plan.cases) // len(SPECS)
    return Findings(
        settings={
            "topologies per setting": len(plan.cases) // len(SPECS),
            "operators": "5 to 10",
            "replication ratios": ", ".join(f"{ratio:g}" for ratio in plan.ratios),
            "budget": "ratio × tasks, rounded",
            "sources": "fail like all other tasks",
            "exact": f"on the first {exact} of each setting, at most {EXACT_TIME_LIMIT_S} s",
        },
        tables=(
            table(
                "Output fidelity: mean, and the quarters between which the middle half lies",
                DIAGRAMS.join(means, on="spec", maintain_order="left_right"),
                {
                    "figure 14": "diagram",
                    "setting": "setting",
                    "ratio": "ratio",
                    AWARE: AWARE,
                    "lower": f"{AWARE} lower",
                    "upper": f"{AWARE} upper",
                    **{name: name for name in (GREEDY, f"{GREEDY} lower", f"{GREEDY} upper")},
                    "ratio of means": factor,
                },
            ),
            table(
                "Mean fidelity where exact proved its plan best",
                DIAGRAMS.join(best, on="spec", maintain_order="left"),
                {
                    "figure 14": "diagram",
                    **{name: name for name in ("setting", "tried", "proven", EXACT, AWARE, GREEDY)},
                },
            ),
        ),
        claims=tuple(_claims(plans, means.with_columns(factor=factor))),
        remarks=(
            f"exact proved its plan best in {plans.select(known.sum()).item()} of "
            f"{plans['tries_exact'].sum()} cases within {EXACT_TIME_LIMIT_S} s each",
            "the paper gives neither its ratios, nor its ranges of parallelism, nor how operators are connected: ours",
        ),
        panels=tuple(_panel(title, frame) for title in DIAGRAMS["diagram"].unique(maintain_order=True)),
        panel_columns=2,
    )


def _claims(plans: pl.DataFrame, means: pl.DataFrame) -> Iterator[Claim]:
    scarce = means.filter(pl.col("ratio") <= SCARCE)
    hopeless = scarce.filter(pl.col(GREEDY) == 0, pl.col(AWARE) > 0).height
    typical = value(scarce, pl.col("factor").median().fill_null(0.0))
    single = value(plans, 100 * (pl.col(AWARE) >= pl.col(GREEDY) - 1e-12).mean())
    yield Claim(
        "structure-aware over greedy with scarce budget",
        "up to 10 × the quality",
        value(scarce, pl.col("factor").max().fill_null(0.0)),
        "×",
        f"largest ratio of mean fidelities at ratios up to {SCARCE:g}; median {typical:.3g} × over "
        f"{scarce['factor'].count()} means, beside {hopeless} where greedy keeps nothing and structure-aware something",
    )
    yield Claim(
        "structure-aware outperforms greedy in all combinations of specification and ratio",
        "all",
        value(means, 100 * (pl.col(AWARE) > pl.col(GREEDY)).mean()),
        "%",
        f"of {means.height} means; of {plans.height} single plans {single:.1f} % are at least as good as greedy's",
    )
    known = plans.filter(pl.col(EXACT).is_not_null())
    if known[EXACT].sum() > 0:
        yield Claim(
            "structure-aware is close to the optimum (said of Figure 13)",
            "quite close",
            value(known, 100 * pl.col(AWARE).sum() / pl.col(EXACT).sum()),
            "%",
            f"of the optimum's total fidelity over the {known.height} cases where exact proved it",
        )


def _panel(title: str, frame: pl.DataFrame) -> Panel:
    drawn: list[Curve] = []
    for look, (setting, spec) in enumerate(DIAGRAMS.filter(diagram=title).select("setting", "spec").iter_rows()):
        looks = [""] * look  # the same colour for both algorithms of a setting
        for side in (AWARE, GREEDY):
            drawn += curves(
                frame.filter(spec=spec, side=side),
                "ratio",
                "fidelity",
                looks=[*looks, side],
                labels={side: f"{side}, {setting}"},
                middle="mean",
                band="middle half" if look == 0 and side == AWARE else None,
                dashed=side == GREEDY,
            )
    claim = "structure-aware outperforms greedy everywhere, most with few replicas (up to 10 ×)"
    labels = "replicas / tasks", "mean output fidelity (band: middle half)"
    return Panel(title, *labels, tuple(drawn), claim, y_range=(0.0, 1.0))


EXPERIMENT = Experiment(
    full=_plan(100, 5, (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)),
    quick=_plan(3, 1, (0.2, 0.5)),
    measure=measure,
    report=report,
)
