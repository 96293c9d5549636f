"""Whether predicted fidelity and completeness tell how accurate tentative results are, by killing all primaries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl

from tenax.application.application import Application
from tenax.model.graph import Floats, TaskGraph
from tenax.model.settings import Settings
from tenax.model.tasks import Task
from tenax.model.topology import Topology
from tenax.pictures.figures import Curve, Panel
from tenax.planning.rates import Rows
from tenax_lab import recorder as recording
from tenax_lab.findings import Claim, Findings, Table
from tenax_lab.lab import Bench, Experiment, Plan, Row, Trial
from tenax_lab.loads.judged_queries import (
    ALGORITHMS,
    DYNAMIC,
    FOR_COMPLETENESS,
    GREEDY,
    INCIDENTS,
    LOCATION_RATE,
    MOST_COMPLETE,
    PAGE_RATE,
    PAGES,
    QUERIES,
    SEGMENTS,
    STRUCTURE_AWARE,
    TOP_PAGES,
    USERS,
    WINDOW_BATCHES,
    Query,
    application,
    declared,
    measured,
    predicted,
    replicas_of,
)
from tenax_lab.report import curves, table, value, values
from tenax_lab.runs import run
from tenax_lab.tentative_runs import KILL_AT, MAX_ROWS, NODES, PLAN, STANDBY, WINDOW, run_failure

TIE = 1e-9  # accuracies that differ by less are equal
PREDICTIONS = {
    "fidelity": "fidelity, measured rates",
    "completeness": "completeness, measured rates",
    "completeness_with_sources": "completeness with sources, measured rates",
    "declared_fidelity": "fidelity, as declared",
    "declared_completeness": "completeness, as declared",
    "quality": "published by the run",
}
SAID: Mapping[str, Mapping[str, str]] = {
    TOP_PAGES.name: {"fidelity": "a good prediction", "completeness": "a good prediction as well"},
    INCIDENTS.name: {
        "fidelity": "generally quite close",
        "completeness": "cannot provide a good prediction for queries with joins",
    },
}
"""What Su and Zhou 2016 say of each metric, by query."""
METRIC_OF = {STRUCTURE_AWARE: "fidelity", FOR_COMPLETENESS: "completeness"}
"""The algorithm with the metric that its plans maximise."""
NOT_BETTER = "plans with higher completeness do not have higher accuracies"


@dataclass(frozen=True, slots=True)
class Case:
    """A query, and a budget as a part of its tasks that can fail."""

    query: str
    ratio: float


@dataclass(frozen=True, slots=True)
class QualityPlan(Plan[Case]):
    """All queries with all budgets by all algorithms, in runs of so many batches."""

    batches: int = 18


@dataclass(frozen=True, slots=True)
class Rated:
    """A query with the rates of a run without failures, and the trials of its plans: equal ones are run once."""

    application: Application
    by_rates: Topology
    by_declaration: Topology
    trials: dict[tuple[Task, ...], list[Row]] = field(default_factory=dict)


def prepare(bench: Bench, plan: QualityPlan) -> tuple[Row, ...]:
    """Run every query without failures, and count the rows of its tasks."""
    bench.prepared = {}
    for name in dict.fromkeys(case.query for case in plan.cases):
        app = application(QUERIES[name], bench.seed, plan.batches)
        settings = Settings.of(nodes=NODES, batch="0s", max_rows=MAX_ROWS)
        tasks = run(bench, app, settings, by_task=True).of(recording.Kind.TASK)
        counts = tasks.group_by("task").agg(pl.col("rows_in", "rows_out").sum()).sort("task")
        numbers = pl.DataFrame({"task": range(len(TaskGraph(app.topology)))}, schema={"task": pl.Int64})
        counts = numbers.join(counts, on="task", how="left", maintain_order="left").fill_null(0)
        rows = Rows(tuple(map(float, counts["rows_in"])), tuple(map(float, counts["rows_out"])))
        bench.prepared[name] = Rated(app, measured(app, rows), declared(app))
    return ()


def measure(bench: Bench, plan: QualityPlan, trial: Trial[Case]) -> Iterator[Row]:
    """The plan of one algorithm: what is predicted of it, and what a failure of all primaries did to results."""
    query, rated = QUERIES[trial.case.query], bench.prepared[trial.case.query]
    replicas = replicas_of(query, rated.by_rates, trial.case.ratio, trial.side)
    if replicas not in rated.trials:
        rated.trials[replicas] = list(run_failure(bench, query, rated.application, replicas, plan.batches))
    by_rates, by_declaration = (predicted(each, replicas) for each in (rated.by_rates, rated.by_declaration))
    for row in rated.trials[replicas]:
        if row["what"] == WINDOW:
            yield row
        else:
            yield {
                **row,
                "tasks": " ".join(map(str, replicas)),
                "replicas": len(replicas),
                "fidelity": by_rates.fidelity,
                "completeness": by_rates.processed,
                "completeness_with_sources": by_rates.completeness,
                "declared_fidelity": by_declaration.fidelity,
                "declared_completeness": by_declaration.processed,
            }


def compared(frame: pl.DataFrame) -> pl.DataFrame:
    """A row per plan: what was predicted of it, and how accurate its results were over all windows."""
    by = ["query", "ratio", "side"]
    windows = (
        frame.filter(what=WINDOW)
        .group_by(by)
        .agg(
            pl.col("accuracy").mean(),
            low=pl.col("accuracy").min(),
            high=pl.col("accuracy").max(),
            windows=pl.len(),
        )
    )
    return frame.filter(what=PLAN).drop("accuracy").join(windows, on=by, how="left", maintain_order="left")


def distinct(plans: pl.DataFrame) -> pl.DataFrame:
    """Every plan of a query once."""
    return plans.unique(["query", "tasks"], keep="first", maintain_order=True)


def difference(plans: pl.DataFrame, prediction: str) -> float:
    """How far a prediction is from the accuracy, in the mean over plans."""
    return value(plans, (pl.col(prediction) - pl.col("accuracy")).abs().mean())


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's: Pearson's of the ranks, equal values sharing theirs; None if either side is all alike."""
    ranks = _ranks(first), _ranks(second)
    if min(len(set(each.tolist())) for each in ranks) < 2:
        return None
    return float(np.corrcoef(*ranks)[0, 1])


def _ranks(numbers: Sequence[float]) -> Floats:
    rounded = pl.Series(numbers, dtype=pl.Float64).round(9)  # sums in another order are the same value
    return rounded.rank("average").to_numpy()


def _correlation(plans: pl.DataFrame, prediction: str) -> float | None:
    return rank_correlation(values(plans, prediction), values(plans, "accuracy"))


def report(plan: QualityPlan, frame: pl.DataFrame) -> Findings:
    """Tables, claims and pictures: Figures 12 and 13."""
    plans = compared(frame)
    queries = tuple(dict.fromkeys(case.query for case in plan.cases))
    ratios = dict.fromkeys(case.ratio for case in plan.cases)
    title = "Predicted by measured rates, predicted as declared, published by the run, and the real accuracy (mean)"
    over_windows = pl.format("{} to {}", *(pl.col(each).map_elements(_two, pl.String) for each in ("low", "high")))
    return Findings(
        settings={
            "cluster": f"local-cluster[{NODES},2,1024]: {STANDBY} standby, {NODES - STANDBY} with all primaries",
            "failure": f"SIGKILL of all nodes with primaries after batch {KILL_AT}; they return after batch "
            f"{plan.batches}, the last",
            "windows": f"{WINDOW_BATCHES} batches long, one every batch",
            **{f"input of {name}": _input(QUERIES[name]) for name in queries},
            "budgets": ", ".join(f"{ratio:g}" for ratio in ratios) + " of the tasks that are no sources",
        },
        tables=(
            table(
                title,
                plans,
                "query | budget = ratio | algorithm = side | replicas | fidelity | completeness | "
                "declared fidelity = declared_fidelity | declared completeness = declared_completeness | "
                "published = quality | accuracy | over windows = over_windows | windows | exact",
                over_windows=over_windows,
                exact=pl.when("exact").then(pl.lit("yes")).otherwise(pl.lit("NO")),
            ),
            _fits(distinct(plans)),
        ),
        claims=(*_claims_of_predictions(plans), *_claims_of_algorithms(plans)),
        remarks=_remarks(queries, plans),
        panels=tuple(panel for name in queries for panel in _panels(QUERIES[name], plans.filter(query=name))),
        panel_columns=3,
    )


def _two(accuracy: float) -> str:
    return f"{accuracy:.2f}"


def _input(query: Query) -> str:
    if query is TOP_PAGES:
        return f"{PAGE_RATE:,.0f} views/s of {PAGES:,} pages (Zipf 1), batches of 1 s"
    return (
        f"{LOCATION_RATE:g} locations/s of {USERS:,} users on {SEGMENTS} segments (Zipf 0.5), an incident every 2 s, "
        f"batches of {query.batch_us // 1_000_000} s"
    )


def _fits(plans: pl.DataFrame) -> Table:
    rows = [
        {
            "query": own["query"][0],
            "prediction": name,
            "plans": own.height,
            "mean |difference|": difference(own, column),
            "rank correlation": _correlation(own, column),
        }
        for own in plans.partition_by("query", maintain_order=True)
        for column, name in PREDICTIONS.items()
    ]
    title = "How predictions fit the accuracy, over all different plans"
    return table(title, pl.DataFrame(rows, infer_schema_length=None), {name: name for name in rows[0]})


def _claims_of_predictions(plans: pl.DataFrame) -> Iterator[Claim]:
    """Figure 12: each metric beside the accuracy of the plans that maximise it."""
    for of_query in plans.partition_by("query", maintain_order=True):
        name, everything = of_query["query"][0], distinct(of_query)
        for algorithm, metric in METRIC_OF.items():
            ours = of_query.filter(side=algorithm)
            if ours.is_empty():
                continue
            correlation = _correlation(everything, metric)
            over = f"over {_budgets(ours)}; over all {everything.height} different plans of the query "
            over += f"{difference(everything, metric):.3g}, rank correlation "
            over += "unknown" if correlation is None else f"{correlation:.2f}"
            exact = of_query.filter(side=MOST_COMPLETE)
            if algorithm == FOR_COMPLETENESS and not exact.is_empty():
                over += f"; over plans by {MOST_COMPLETE} {difference(exact, metric):.3g}"
            yield Claim(
                f"{QUERIES[name].title}: {metric} as a prediction of accuracy, plans by {algorithm}",
                SAID[name][metric],
                difference(ours, metric),
                "away in the mean",
                over,
            )


def _budgets(ours: pl.DataFrame) -> str:
    return f"{ours.height} budget{'s' * (ours.height > 1)}"


def _claims_of_algorithms(plans: pl.DataFrame) -> Iterator[Claim]:
    """Figures 12 (b) and 13: the accuracy of plans against that of others of the same budgets."""
    pairs = (
        (FOR_COMPLETENESS, STRUCTURE_AWARE, "structure-aware for completeness against for fidelity", NOT_BETTER),
        (MOST_COMPLETE, STRUCTURE_AWARE, "the most complete plans against structure-aware for fidelity", NOT_BETTER),
        (STRUCTURE_AWARE, DYNAMIC, "structure-aware against dynamic programming", "quite close"),
        (GREEDY, STRUCTURE_AWARE, "greedy against structure-aware", "the worst"),
    )
    for of_query in plans.partition_by("query", maintain_order=True):
        name = of_query["query"][0]
        for algorithm, other, what, said in pairs:
            if said == NOT_BETTER and name != INCIDENTS.name:
                continue  # said of the query with a join alone
            ours = of_query.filter(side=algorithm)
            both = ours.join(of_query.filter(side=other), on="ratio", suffix="_other", maintain_order="left")
            if both.is_empty() or not both["accuracy_other"].sum():
                continue
            fidelity, theirs = (value(both, pl.col(each).sum()) for each in ("fidelity", "fidelity_other"))
            accuracy, other_accuracy = (value(both, pl.col(each).sum()) for each in ("accuracy", "accuracy_other"))
            fidelities = f"; of the fidelity {100 * fidelity / theirs:.3g} %" if theirs else ""
            above = int((both["accuracy"] > both["accuracy_other"] + TIE).sum())
            yield Claim(
                f"{QUERIES[name].title}: {what}",
                said,
                100 * accuracy / other_accuracy,
                "% of the accuracy",
                f"summed over {_budgets(ours)}, higher at {above} of them{fidelities}",
            )


def _remarks(queries: Sequence[str], plans: pl.DataFrame) -> tuple[str, ...]:
    different = distinct(plans)
    exact = int(different["exact"].sum())
    remarks = [
        "accuracy is the part of a window's final rows that was shown before nodes returned, by page (Q1) or by "
        "segment and incident (Q2), as the paper defines it; results that depend on no missing task stay final and "
        "count as shown. Only windows that lie wholly after the failure count: earlier ones still hold panes from "
        "before it",
        f"the oracle judged {exact} of {different.height} runs exact: {different['final'].sum():,} final results as in "
        f"a run without failures, {different['corrected'].sum():,} of them tentative first; the last batch before the "
        "failure was " + " or ".join(map(str, different["killed_after"].unique().sort())),
        f"{plans.height - different.height} of {plans.height} plans equal another one of their query and were not run "
        "again",
        "measured rates are rows in and out per task of a run without failures; an application declares none, so all "
        "are 1. A run's own estimate goes by what it has measured, after 20 batches. Plans are made by measured rates",
        "completeness is that of the tasks that can fail; with sources, which live on, it is nearer to 1. It knows no "
        "joins, so structure-aware plans for it are made as if there were none; exact ones are the most complete ones",
    ]
    if TOP_PAGES.name in queries:
        remarks += [
            f"Q1 of the paper reads 40,718 records/s of a real log, ours {PAGE_RATE:,.0f} views/s of a Zipf generator: "
            "the log is not redistributable. The paper's operators look back over 100 tuples each, ours over windows "
            f"of {WINDOW_BATCHES} s of event time, one every second",
            "a task of Q1's slices that is lost takes views from all pages alike, which changes their order less than "
            "fidelity says; one of pages takes its pages with it",
        ]
    if INCIDENTS.name in queries:
        batch_s = INCIDENTS.batch_us // 1_000_000
        remarks.append(
            "Q2 of the paper has 20,000 locations/s of 100,000 users, windows of 5 min every 10 s; ours "
            f"{LOCATION_RATE:g} locations/s of {USERS:,} users, windows of {WINDOW_BATCHES * batch_s} s every "
            f"{batch_s} s: a window has {100 * LOCATION_RATE * WINDOW_BATCHES * batch_s / (20_000 * 300):.2g} % of the "
            "paper's locations, but as many incidents a second"
        )
    return tuple(remarks)


def _panels(query: Query, plans: pl.DataFrame) -> Iterator[Panel]:
    said = SAID[query.name]
    shown = (
        (
            "structure-aware (Figure 12)",
            [
                *_curves(plans, STRUCTURE_AWARE, "of plans for fidelity", "fidelity", 0),
                *_curves(plans, FOR_COMPLETENESS, "of plans for completeness", "completeness", 1),
            ],
            f"fidelity is {said['fidelity']}; completeness: {said['completeness']}",
        ),
        (
            "exact for completeness (ours)",
            [
                *_curves(plans, MOST_COMPLETE, "", "completeness", 1),
                *_curves(plans, MOST_COMPLETE, "", "fidelity", 0)[:1],
            ],
            "",
        ),
        (
            "by algorithm (Figure 13)",
            [
                curve
                for look, algorithm in enumerate((DYNAMIC, STRUCTURE_AWARE, GREEDY))
                for curve in _curves(plans, algorithm, f"of {algorithm}", "fidelity", look)
            ],
            "structure-aware is quite close to dynamic programming (dp) in both; greedy is the worst",
        ),
    )
    for title, drawn, claim in shown:
        if drawn:
            yield Panel(
                f"{query.title}: {title}",
                "replicas / tasks that are no sources",
                "predicted and real",
                tuple(drawn),
                claim,
                y_range=(-0.03, 1.03),
                nested=True,
            )


def _curves(plans: pl.DataFrame, algorithm: str, whose: str, metric: str, look: int) -> list[Curve]:
    """What was predicted of plans, dashed, and how accurate they were; none if there are no such plans."""
    ours = plans.filter(side=algorithm)
    return [
        replace(curve, label=f"{what} {whose}".rstrip(), look=look, dashed=dashed)
        for what, column, dashed in ((f"predicted {metric}", metric, True), ("accuracy", "accuracy", False))
        for curve in curves(ours, "ratio", column)
    ]


def _plan(queries: Sequence[str], ratios: Sequence[float], algorithms: Sequence[str], batches: int) -> QualityPlan:
    cases = tuple(Case(query, ratio) for query in queries for ratio in ratios)
    return QualityPlan(cases, tuple(algorithms), batches=batches)


EXPERIMENT = Experiment(
    full=_plan(("Q1", "Q2"), (0.3, 0.5, 0.7, 0.9), tuple(ALGORITHMS), 18),
    quick=_plan(("Q2",), (0.9,), (STRUCTURE_AWARE, FOR_COMPLETENESS, MOST_COMPLETE), 9),
    measure=measure,
    report=report,
    prepare=prepare,
)
