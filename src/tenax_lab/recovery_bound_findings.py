"""What measured losses say: tables, the paper's claims beside ours, pictures."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from tenax.model.graph import TaskGraph
from tenax.model.protection import Recovery
from tenax.pictures.figures import Curve, Panel
from tenax_lab.recovery_bound_cases import NODES, Case, Measured, typical_s
from tenax_lab.results import Cell, Claim, Findings, Table

GREY = 6  # the look of what is drawn to compare with


def findings(found: Measured) -> Findings:
    """Tables, claims and pictures."""
    plan = found.plan
    tables = [_cases(found), _bounds(found), _times(found)]
    if plan.incremental:
        tables.insert(2, _kinds(found))
    return Findings(
        settings={
            "topology": "16 sources, merges of 8, 4, 2 and 1 tasks (paper 1, Figure 6), results",
            "a batch": f"{plan.load.batch_rows:,} rows; each task resamples {plan.load.sensors} sensors "
            f"{plan.load.resamples:,} times",
            "checkpoints": f"every {plan.interval} batches",
            "passes and rounds": f"{plan.per_pass} batches",
            "killed": f"after batch {2 * plan.interval - plan.per_pass}, the last before a checkpoint",
            "cluster": f"local-cluster[{NODES},2,1024] on {found.cores} cores",
            "T measured on": f"{min(NODES, found.cores)} nodes, {plan.batches} batches, second half",
        },
        tables=tuple(tables),
        claims=_claims(found),
        remarks=_remarks(found),
        panels=_panels(found),
        panel_columns=2,
    )


def _cases(found: Measured) -> Table:
    """One row for each loss under blocking recovery: nothing else competes for the nodes."""
    rows = tuple(
        (
            one.loss.bound_s,
            len(one.facts.retained),
            one.loss.victim + 1,
            named(found.graph, one.facts.lost),
            _yes(one.prediction.retainers_live),
            one.bound_s,
            one.expected_s,
            one.chain_s,
            one.nodes_s,
            one.steps_s,
            one.scheduling_s,
            one.facts.recovery_s,
            len(one.facts.rounds),
            one.stages,
        )
        for one in found.of(Recovery.BLOCKING)
    )
    columns = (
        "R",
        "backups",
        "node",
        "lost tasks",
        "retainers live",
        "R replayed",
        "L_F",
        "chain",
        "L_F on nodes",
        "steps",
        "scheduling",
        "recovery",
        "rounds",
        "stages",
    )
    return Table("Each loss under blocking recovery, in s", columns, rows)


def _bounds(found: Measured) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for length in found.plan.lengths:
        cases = found.of(Recovery.BLOCKING, length)
        promised = [one for one in cases if one.prediction.retainers_live]
        rows.append(
            (
                cases[0].loss.bound_s,
                len(cases[0].facts.retained),
                *(
                    statistics.fmean(measure(one) for one in cases)
                    for measure in (_expected, _chain, _steps, _scheduling, _recovery)
                ),
                *(f"{_kept(promised, measure)} of {len(promised)}" for measure in (_chain, _steps, _recovery)),
                ", ".join(_yes(one.facts.exact) for one in cases if one.facts.exact is not None),
            )
        )
    columns = (
        "R",
        "backups",
        "L_F",
        "chain",
        "steps",
        "scheduling",
        "recovery",
        "chain kept R",
        "steps kept R",
        "recovery kept R",
        "exact",
    )
    title = "By bound, in s: means over the nodes; R is kept by losses whose retainers live"
    return Table(title, columns, tuple(rows))


def _kinds(found: Measured) -> Table:
    rows = tuple(
        (
            one.loss.bound_s,
            one.loss.victim + 1,
            one.loss.recovery.value,
            one.steps_s,
            one.facts.recovery_s,
            len(one.facts.rounds),
            one.facts.detection_s,
        )
        for length in found.plan.incremental
        for recovery in (Recovery.BLOCKING, Recovery.INCREMENTAL)
        for one in found.of(recovery, length)
    )
    columns = ("R", "node", "recovery is", "steps", "recovery", "rounds", "detection")
    return Table("Blocking recovery, and one that lets live passes go on, in s", columns, rows)


def _times(found: Measured) -> Table:
    graph, interval = found.graph, found.plan.interval
    typical = interval * typical_s(graph, found.batch_s)
    rows = []
    for number, operator in enumerate(graph.operators):
        first, span = int(graph.first[number]), graph.span(number)
        tasks = [interval * statistics.median(one) for one in found.batch_s[span]]
        times = (float(typical[first]), min(tasks), max(tasks), float(graph.reprocess[first]))
        rows.append((operator.name, operator.parallelism, *times))
    title = f"Steps of a task through one checkpoint interval of {interval} batches, and T as planned, in s"
    return Table(title, ("operator", "tasks", "median", "fastest task", "slowest task", "T"), tuple(rows))


def _claims(found: Measured) -> tuple[Claim, ...]:
    cases = found.of(Recovery.BLOCKING)
    promised = [one for one in cases if one.prediction.retainers_live]
    guaranteed = "guaranteed, for every DAG and the loss of one task at a time (Theorem 1; simulated)"
    claims = [
        Claim(
            f"recovery within R, {what}",
            guaranteed,
            100.0 * _kept(promised, measure) / len(promised),
            "% of losses",
            f"{_kept(promised, measure)} of {len(promised)} losses of a node whose retainers live",
        )
        for what, measure in (
            ("each task on a processor of its own as the paper assumes (longest chain of measured steps)", _chain),
            ("without scheduling (steps of a node's tasks take turns)", _steps),
            ("with scheduling", _recovery),
        )
        if promised
    ]
    ratios = [one.chain_s / one.expected_s for one in cases]
    claims.append(
        Claim(
            "recovery latency is T(v) plus the longest latency of producers that retain nothing (equation 3)",
            "an equation, not measured",
            statistics.median(ratios),
            "× L_F",
            f"longest chain of measured steps over L_F, median of {len(cases)} losses, {_range(ratios)}",
        )
    )
    if len(found.plan.lengths) > 1:
        claims.append(_gain(found))
    return tuple(claims)


def _gain(found: Measured) -> Claim:
    """What retaining everything is worth."""
    most, fewest = (found.of(Recovery.BLOCKING, pick(found.plan.lengths)) for pick in (min, max))

    def ratio(measure: Callable[[Case], float]) -> float:
        return statistics.fmean(map(measure, fewest)) / statistics.fmean(map(measure, most))

    return Claim(
        f"latency with {len(fewest[0].facts.retained)} backups over latency with {len(most[0].facts.retained)}",
        "retaining everywhere minimises recovery latency, on inputs only maximises it (no number)",
        ratio(_chain),
        "× in the longest chain",
        f"means over {len(most)} nodes; × {ratio(_steps):.2f} in steps, × {ratio(_recovery):.2f} with scheduling; "
        f"L_F says × {ratio(_expected):.2f}",
    )


def _remarks(found: Measured) -> tuple[str, ...]:
    cases = found.of(Recovery.BLOCKING)
    judged = [one.facts.exact for one in found.cases if one.facts.exact is not None]
    in_jobs = [(sum(part.seconds for part in one.facts.rounds) - one.steps_s) / one.scheduling_s for one in cases]
    first, last = [min(one.facts.back_s) for one in cases], [max(one.facts.back_s) for one in cases]
    together = sum(not one.prediction.retainers_live for one in cases)
    return (
        "R is for a whole checkpoint interval; R replayed and L_F are its part for the batches replayed, "
        + _told_shares(cases, found.plan.interval),
        "L_F and chain count as the paper does, each task on a processor of its own: the first of T, the second of the "
        "steps measured during recovery, along the longest chain of tasks that wait for each other",
        "L_F on nodes and steps count as rounds run: levels one after the other, also where retained outputs make "
        f"tasks independent, tasks of a node in turn, {NODES - 1} nodes on {found.cores} cores; the first of T, at the "
        "places that recovery gave the lost tasks, the second of measured steps; scheduling is all else of recovery: "
        "jobs, stages, checkpoints and retained outputs read",
        f"{together} of {len(cases)} losses hit a task together with one that retained for it: consumers are placed "
        "apart from those that retain for them where that is possible; for such losses the plan promises L_F, not R",
        "T of a task that sources feed includes reading their log again; the task that writes results has T = 0, "
        "because a replay does not write them again",
        "recovery is counted from the moment at which the loss is known (after a median of "
        f"{statistics.median(one.facts.detection_s for one in cases):.2f} s) to the end of the outage",
        f"scheduling: {100 * statistics.median(in_jobs):.0f} % of it within the jobs of rounds (median), "
        f"{1000 * statistics.median(one.scheduling_s / one.stages for one in cases):.0f} ms for each stage",
        f"the first of the lost tasks is back after {statistics.median(first):.2f} s, the last after "
        f"{statistics.median(last):.2f} s (medians)",
        f"the oracle found {sum(map(bool, judged))} of {len(judged)} judged runs exact: final results as without "
        "failures, to the byte",
    )


def _told_shares(cases: Sequence[Case], interval: int) -> str:
    counts = sorted({one.facts.replayed for one in cases})
    return ", ".join(map(str, counts)) + f" of {interval}"


def _panels(found: Measured) -> tuple[Panel, ...]:
    chain = _scatter(found, "Each task on its own processor", "L_F in s", _expected, "longest chain, s", _chain)
    nodes = _scatter(found, "Tasks of a node take turns", "L_F on nodes in s", _on_nodes, "steps, s", _steps)
    whole = _scatter(found, "With scheduling", "L_F in s", _expected, "recovery, s", _recovery)
    return chain, nodes, whole, _stacked(found)


def _scatter(
    found: Measured,
    title: str,
    x_label: str,
    x: Callable[[Case], float],
    y_label: str,
    y: Callable[[Case], float],
) -> Panel:
    """A point for each loss, a colour for each bound, and the line on which the prediction is true."""
    cases = found.of(Recovery.BLOCKING)
    most = 1.05 * max(x(one) for one in cases)
    curves = [Curve("as predicted", (0.0, most), (0.0, most), GREY, dashed=True)]
    for look, length in enumerate(found.plan.lengths):
        for number, one in enumerate(found.of(Recovery.BLOCKING, length)):
            label = f"R = {one.loss.bound_s:.2f} s, {len(one.facts.retained)} backups"
            # Points are curves of their own, so that no line joins them; only the first is named.
            curves.append(Curve("_" if number else label, (x(one),), (y(one),), look))
    return Panel(title, x_label, y_label, tuple(curves))


def _stacked(found: Measured) -> Panel:
    """Steps, and scheduling above them, over the bound."""
    bounds, steps, whole = [], [], []
    for length in found.plan.lengths:
        cases = found.of(Recovery.BLOCKING, length)
        bounds.append(cases[0].loss.bound_s)
        steps.append(statistics.fmean(map(_steps, cases)))
        whole.append(statistics.fmean(map(_recovery, cases)))
    claim = "recovery latency within R, guaranteed; scheduling is not part of its model"
    share = found.of(Recovery.BLOCKING)[0].share
    return Panel(
        "What recovery takes, mean over the nodes",
        "R in s",
        "seconds",
        (
            Curve("scheduling, on top", tuple(bounds), tuple(whole), 1, spread=tuple(zip(steps, whole, strict=True))),
            Curve("steps", tuple(bounds), tuple(steps), 0, spread=tuple((0.0, one) for one in steps)),
            Curve(f"R × {share:.2f}", tuple(bounds), tuple(share * one for one in bounds), GREY, dashed=True),
        ),
        claim=claim,
    )


def _kept(cases: Sequence[Case], measure: Callable[[Case], float]) -> int:
    return sum(measure(one) <= one.bound_s for one in cases)


def _expected(one: Case) -> float:
    return one.expected_s


def _on_nodes(one: Case) -> float:
    return one.nodes_s


def _chain(one: Case) -> float:
    return one.chain_s


def _steps(one: Case) -> float:
    return one.steps_s


def _scheduling(one: Case) -> float:
    return one.scheduling_s


def _recovery(one: Case) -> float:
    return one.facts.recovery_s


def named(graph: TaskGraph, tasks: Sequence[int]) -> str:
    """Tasks by operator: `o1[0 4] o2[0]`."""
    by_operator: dict[str, list[int]] = {}
    for task in graph.tasks(tasks):
        by_operator.setdefault(task.operator, []).append(task.index)
    return " ".join(f"{name}[{' '.join(map(str, found))}]" for name, found in by_operator.items())


def _range(values: Sequence[float]) -> str:
    return f"from {min(values):.2f} to {max(values):.2f}"


def _yes(holds: bool | None) -> str:
    return "yes" if holds else "no"
