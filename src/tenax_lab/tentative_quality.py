"""Whether predicted fidelity and completeness tell how accurate tentative results are, by killing all primaries."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tenax.engine.session import Session
from tenax.model.graph import Floats
from tenax.model.settings import ClusterSettings
from tenax.model.tasks import Task
from tenax.pictures.figures import Curve, Panel
from tenax.planning.rates import Rows
from tenax.store.records import JsonObject, integer, text
from tenax_lab.processes import run_side
from tenax_lab.results import Cell, Claim, Findings, Progress, Table
from tenax_lab.sides.sides import Series, Step, serve
from tenax_lab.tentative_quality_queries import (
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
    Case,
    Predicted,
    Query,
    application,
    cases,
    declared,
    measured,
    predicted,
)
from tenax_lab.tentative_quality_trials import KILL_AT, NODES, STANDBY, Trial, count_rows, run_trial

DEADLINE_S = 3_600.0
TIE = 1e-9  # accuracies that differ by less are equal


@dataclass(frozen=True, slots=True)
class Plan:
    """What is compared: queries, budgets as parts of the tasks that can fail, algorithms, batches of a run."""

    queries: tuple[str, ...]
    ratios: tuple[float, ...]
    algorithms: tuple[str, ...]
    batches: int

    @property
    def steps(self) -> int:
        """How many parts the work has."""
        return len(self.queries) * (1 + len(self.ratios) * len(self.algorithms))


FULL = Plan(("Q1", "Q2"), (0.3, 0.5, 0.7, 0.9), tuple(ALGORITHMS), 18)
QUICK = Plan(("Q2",), (0.9,), (STRUCTURE_AWARE, FOR_COMPLETENESS, MOST_COMPLETE), 9)
PLANS = {"full": FULL, "quick": QUICK}


def run(seed: int, quick: bool, progress: Progress) -> Findings:
    """Measure in a process of its own, because it needs a cluster of its own size."""
    plan = QUICK if quick else FULL
    progress.total(plan.steps)
    with tempfile.TemporaryDirectory(prefix="tenax-tentative-") as folder:
        series = run_side(
            "tenax_lab.tentative_quality",
            {"work": folder, "seed": seed, "plan": "quick" if quick else "full"},
            deadline_s=DEADLINE_S,
            step=progress.advance,
        ).series
    return findings(plan, seed, series)


def measure(arguments: JsonObject, step: Step) -> Series:
    """All trials in one session: a run without failures for the rates of each query, then a failure for each plan."""
    plan, work, seed = PLANS[text(arguments, "plan")], Path(text(arguments, "work")), integer(arguments, "seed")
    session = Session(work / "cluster", ClusterSettings(NODES))
    found: Series = {}
    for name in plan.queries:
        query = QUERIES[name]
        app = application(query, seed, plan.batches)
        rows = count_rows(session, app, work / f"{name}-rates")
        found |= {f"{name} taken": list(rows.taken), f"{name} given": list(rows.given)}
        step(f"{name}, rates without failures")
        known: dict[tuple[Task, ...], Trial] = {}
        for case in cases(query, measured(app, rows), plan.ratios, plan.algorithms):
            if case.replicas not in known:  # equal plans are run once
                folder = work / f"{name}-{len(known)}"
                known[case.replicas] = run_trial(session, query, app, case.replicas, folder, plan.batches)
            found |= _told(case, known[case.replicas])
            step(case.label)
    session.stop()
    return found


def _told(case: Case, trial: Trial) -> Series:
    return {
        f"{case.label} accuracy": list(trial.accuracy),
        f"{case.label} quality": list(trial.quality),
        f"{case.label} judged": [float(trial.killed_after), float(trial.final), float(trial.corrected)],
    }


@dataclass(frozen=True, slots=True)
class Compared:
    """A plan with what was predicted of it, by measured rates and by what the application declares, and what came."""

    case: Case
    by_rates: Predicted
    by_declaration: Predicted
    trial: Trial

    @property
    def accuracy(self) -> float:
        """The mean over windows."""
        return statistics.fmean(self.trial.accuracy)

    @property
    def quality(self) -> float:
        """What the run itself published, in the mean over batches."""
        return statistics.fmean(self.trial.quality)


PREDICTIONS = (
    "fidelity, measured rates",
    "completeness, measured rates",
    "completeness with sources, measured rates",
    "fidelity, as declared",
    "completeness, as declared",
    "published by the run",
)


def _predictions(one: Compared) -> tuple[float, ...]:
    """The values of all predictions of a plan, in the order of their names."""
    rates, declaration = one.by_rates, one.by_declaration
    return (
        rates.fidelity,
        rates.processed,
        rates.completeness,
        declaration.fidelity,
        declaration.processed,
        one.quality,
    )


def compared(plan: Plan, seed: int, series: Mapping[str, Sequence[float]]) -> list[Compared]:
    """Recorded series, with the plans and predictions that belong to them."""
    found = []
    for name in plan.queries:
        query = QUERIES[name]
        app = application(query, seed, plan.batches)
        by_rates = measured(app, Rows(tuple(series[f"{name} taken"]), tuple(series[f"{name} given"])))
        by_declaration = declared(app)
        for case in cases(query, by_rates, plan.ratios, plan.algorithms):
            killed_after, final, corrected = map(int, series[f"{case.label} judged"])
            accuracy, quality = (tuple(series[f"{case.label} {what}"]) for what in ("accuracy", "quality"))
            trial = Trial(accuracy, quality, killed_after, final, corrected)
            plans = predicted(by_rates, case.replicas), predicted(by_declaration, case.replicas)
            found.append(Compared(case, *plans, trial))
    return found


def findings(plan: Plan, seed: int, series: Mapping[str, Sequence[float]]) -> Findings:
    """Tables, claims and pictures of recorded series."""
    found = compared(plan, seed, series)
    distinct = _distinct(found)
    return Findings(
        settings={
            "cluster": f"local-cluster[{NODES},2,1024]: {STANDBY} standby, {NODES - STANDBY} with all primaries",
            "failure": f"SIGKILL of all nodes with primaries after batch {KILL_AT}; they return after batch "
            f"{plan.batches}, the last",
            "windows": f"{WINDOW_BATCHES} batches long, one every batch",
            **{f"input of {name}": _input(QUERIES[name]) for name in plan.queries},
            "budgets": ", ".join(f"{ratio:g}" for ratio in plan.ratios) + " of the tasks that are no sources",
        },
        tables=(_table(found), _fits(plan, distinct)),
        claims=(*_claims_of_predictions(plan, found), *_claims_of_algorithms(plan, found)),
        remarks=_remarks(found, distinct),
        panels=tuple(panel for name in plan.queries for panel in _panels(QUERIES[name], found)),
        panel_columns=3,
    )


def _input(query: Query) -> str:
    if query is TOP_PAGES:
        return f"{PAGE_RATE:,.0f} views/s of {PAGES:,} pages (Zipf 1), batches of 1 s"
    return (
        f"{LOCATION_RATE:g} locations/s of {USERS:,} users on {SEGMENTS} segments (Zipf 0.5), an incident every 2 s, "
        f"batches of {query.batch_us // 1_000_000} s"
    )


def _distinct(found: Sequence[Compared]) -> list[Compared]:
    """Every plan of a query once."""
    return list({(one.case.query.name, one.case.replicas): one for one in reversed(found)}.values())[::-1]


def _table(found: Sequence[Compared]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (
            one.case.query.name,
            one.case.ratio,
            one.case.algorithm,
            len(one.case.replicas),
            one.by_rates.fidelity,
            one.by_rates.processed,
            one.by_declaration.fidelity,
            one.by_declaration.processed,
            one.quality,
            one.accuracy,
            f"{min(one.trial.accuracy):.2f} to {max(one.trial.accuracy):.2f}",
            len(one.trial.accuracy),
        )
        for one in found
    ]
    columns = (
        "query",
        "budget",
        "algorithm",
        "replicas",
        "fidelity",
        "completeness",
        "declared fidelity",
        "declared completeness",
        "published",
        "accuracy",
        "over windows",
        "windows",
    )
    title = "Predicted by measured rates, predicted as declared, published by the run, and the real accuracy (mean)"
    return Table(title, columns, tuple(rows))


@dataclass(frozen=True, slots=True)
class Fit:
    """How a prediction fits the accuracy over several plans; no correlation if one of the two does not vary."""

    difference: float
    correlation: float | None


def fit(predictions: Sequence[float], accuracies: Sequence[float]) -> Fit:
    """The mean absolute difference, and the rank correlation."""
    differences = [abs(one - other) for one, other in zip(predictions, accuracies, strict=True)]
    return Fit(statistics.fmean(differences), rank_correlation(predictions, accuracies))


def _fit(ours: Sequence[Compared], place: int) -> Fit:
    """How the prediction at a place fits."""
    return fit([_predictions(one)[place] for one in ours], [one.accuracy for one in ours])


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Spearman's: Pearson's of the ranks, equal values sharing theirs; None if either side is all alike."""
    first, second = _ranks(one), _ranks(other)
    if min(len(set(first.tolist())), len(set(second.tolist()))) < 2:
        return None
    return float(np.corrcoef(first, second)[0, 1])


def _ranks(values: Sequence[float]) -> Floats:
    rounded = np.round(np.asarray(values, dtype=np.float64), 9)  # sums in another order are the same value
    _, place, counts = np.unique(rounded, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2)[place])


def _fits(plan: Plan, distinct: Sequence[Compared]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name in plan.queries:
        ours = [one for one in distinct if one.case.query.name == name]
        for number, prediction in enumerate(PREDICTIONS):
            one = _fit(ours, number)
            rows.append((name, prediction, len(ours), one.difference, one.correlation))
    columns = ("query", "prediction", "plans", "mean |difference|", "rank correlation")
    return Table("How predictions fit the accuracy, over all different plans", columns, tuple(rows))


SAID: Mapping[str, tuple[str, str]] = {
    TOP_PAGES.name: ("a good prediction", "a good prediction as well"),
    INCIDENTS.name: ("generally quite close", "cannot provide a good prediction for queries with joins"),
}
"""What the paper says of fidelity and of completeness, by query."""


METRICS = (
    (STRUCTURE_AWARE, "fidelity", 0),
    (FOR_COMPLETENESS, "completeness", 1),
)
"""The paper's algorithm with the metric that its plans maximise, and the place of that among the predictions."""


def _claims_of_predictions(plan: Plan, found: Sequence[Compared]) -> list[Claim]:
    """Figure 12: each metric beside the accuracy of the plans that maximise it."""
    claims = []
    for name in plan.queries:
        everything = _distinct([one for one in found if one.case.query.name == name])
        for algorithm, metric, place in METRICS:
            ours = _of(found, name, algorithm)
            if not ours:
                continue
            overall = _fit(everything, place)
            over = f"over {_budgets(ours)}; over all {len(everything)} different plans of the query "
            over += f"{overall.difference:.3g}, rank correlation {_shown(overall.correlation)}"
            exact = _of(found, name, MOST_COMPLETE) if algorithm == FOR_COMPLETENESS else []
            if exact:
                over += f"; over plans by {MOST_COMPLETE} {_fit(exact, place).difference:.3g}"
            claims.append(
                Claim(
                    f"{QUERIES[name].title}: {metric} as a prediction of accuracy, plans by {algorithm}",
                    SAID[name][place],
                    _fit(ours, place).difference,
                    "away in the mean",
                    over,
                )
            )
    return claims


def _of(found: Sequence[Compared], query: str, algorithm: str) -> list[Compared]:
    return [one for one in found if (one.case.query.name, one.case.algorithm) == (query, algorithm)]


def _budgets(ours: Sequence[Compared]) -> str:
    return f"{len(ours)} budget{'s' * (len(ours) > 1)}"


def _shown(correlation: float | None) -> str:
    return "unknown" if correlation is None else f"{correlation:.2f}"


NOT_BETTER = "plans with higher completeness do not have higher accuracies"


def _claims_of_algorithms(plan: Plan, found: Sequence[Compared]) -> list[Claim]:
    """Figures 12 (b) and 13: the accuracy of plans against that of others of the same budgets."""
    pairs = (
        (FOR_COMPLETENESS, STRUCTURE_AWARE, "structure-aware for completeness against for fidelity", NOT_BETTER),
        (MOST_COMPLETE, STRUCTURE_AWARE, "the most complete plans against structure-aware for fidelity", NOT_BETTER),
        (STRUCTURE_AWARE, DYNAMIC, "structure-aware against dynamic programming", "quite close"),
        (GREEDY, STRUCTURE_AWARE, "greedy against structure-aware", "the worst"),
    )
    claims = []
    for name in plan.queries:
        for algorithm, other, what, said in pairs:
            if said == NOT_BETTER and name != INCIDENTS.name:
                continue  # said of the query with a join alone
            ours, theirs = _of(found, name, algorithm), _of(found, name, other)
            accuracy, theirs_accuracy = (sum(one.accuracy for one in side) for side in (ours, theirs))
            if not ours or not theirs_accuracy:
                continue
            worth, theirs_worth = (sum(one.by_rates.fidelity for one in side) for side in (ours, theirs))
            fidelities = f"; of the fidelity {100 * worth / theirs_worth:.3g} %" if theirs_worth else ""
            above = sum(one.accuracy > another.accuracy + TIE for one, another in zip(ours, theirs, strict=True))
            claims.append(
                Claim(
                    f"{QUERIES[name].title}: {what}",
                    said,
                    100 * accuracy / theirs_accuracy,
                    "% of the accuracy",
                    f"summed over {_budgets(ours)}, higher at {above} of them{fidelities}",
                )
            )
    return claims


def _remarks(found: Sequence[Compared], distinct: Sequence[Compared]) -> tuple[str, ...]:
    final, corrected = (sum(getattr(one.trial, name) for one in distinct) for name in ("final", "corrected"))
    killed = sorted({one.trial.killed_after for one in distinct})
    remarks: tuple[str, ...] = (
        "accuracy is the part of a window's final rows that was shown before nodes returned, by page (Q1) or by "
        "segment and incident (Q2), as the paper defines it; results that depend on no missing task stay final and "
        "count as shown. Only windows that lie wholly after the failure count: earlier ones still hold panes from "
        "before it",
        f"the oracle judged all {len(distinct)} runs exact: {final:,} final results as in a run without failures, "
        f"{corrected:,} of them tentative first; the last batch before the failure was "
        + " or ".join(map(str, killed)),
        f"{len(found) - len(distinct)} of {len(found)} plans equal another one of their query and were not run again",
        "measured rates are rows in and out per task of a run without failures; an application declares none, so all "
        "are 1. A run's own estimate goes by what it has measured, after 20 batches. Plans are made by measured rates",
        "completeness is that of the tasks that can fail; with sources, which live on, it is nearer to 1. It knows no "
        "joins, so structure-aware plans for it are made as if there were none; exact ones are the most complete ones",
    )
    if TOP_PAGES in (one.case.query for one in found):
        remarks += (
            "a task of Q1's slices that is lost takes views from all pages alike, which changes their order less than "
            "fidelity says; one of pages takes its pages with it",
        )
    return remarks


def _panels(query: Query, found: Sequence[Compared]) -> list[Panel]:
    aware, complete = (_of(found, query.name, one) for one in (STRUCTURE_AWARE, FOR_COMPLETENESS))
    most = _of(found, query.name, MOST_COMPLETE)
    by_algorithm: list[Curve] = []
    for look, algorithm in enumerate((DYNAMIC, STRUCTURE_AWARE, GREEDY)):
        ours = _of(found, query.name, algorithm)
        by_algorithm += _curves(ours, f"of {algorithm}", "fidelity", look)
    said = SAID[query.name]
    panels = (
        (
            "structure-aware (Figure 12)",
            [
                *_curves(aware, "of plans for fidelity", "fidelity", 0),
                *_curves(complete, "of plans for completeness", "completeness", 1),
            ],
            f"fidelity is {said[0]}; completeness: {said[1]}",
        ),
        (
            "exact for completeness (ours)",
            [*_curves(most, "", "completeness", 1), *_curves(most, "", "fidelity", 0)[:1]],
            "",
        ),
        (
            "by algorithm (Figure 13)",
            by_algorithm,
            "structure-aware is quite close to dynamic programming (dp) in both; greedy is the worst",
        ),
    )
    return [
        Panel(
            f"{query.title}: {title}",
            "replicas / tasks that are no sources",
            "predicted and real",
            tuple(curves),
            claim,
            y_range=(-0.03, 1.03),
            nested=True,
        )
        for title, curves, claim in panels
        if curves
    ]


def _curves(ours: Sequence[Compared], plans: str, metric: str, look: int) -> list[Curve]:
    """What was predicted of plans, dashed, and how accurate they were; none if there are no such plans."""
    if not ours:
        return []
    budgets = tuple(one.case.ratio for one in ours)
    values = tuple(one.by_rates.fidelity if metric == "fidelity" else one.by_rates.processed for one in ours)
    return [
        Curve(f"predicted {metric} {plans}".rstrip(), budgets, values, look, dashed=True),
        Curve(f"accuracy {plans}".rstrip(), budgets, tuple(one.accuracy for one in ours), look),
    ]


if __name__ == "__main__":
    serve(measure)
