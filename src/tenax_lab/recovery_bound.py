"""Recovery after the loss of each node, predicted by the plan of backups and measured, for several latency bounds."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

import numpy as np
import polars as pl

from tenax.chaos.record import impacts
from tenax.chaos.schedule import Kind as FaultKind
from tenax.chaos.schedule import parse_fault
from tenax.errors import ClusterFailed
from tenax.model.graph import Floats, TaskGraph
from tenax.model.protection import Protection, Recovery
from tenax.model.settings import Settings
from tenax.pictures.figures import Curve, Panel
from tenax_lab import recovery_bound_model as model
from tenax_lab.findings import Claim, Findings, Table
from tenax_lab.lab import Bench, Experiment, Plan, Row, Trial
from tenax_lab.loads.tree import Sensors, smoothing_tree, tree_topology
from tenax_lab.recorder import Kind, RunRecorder
from tenax_lab.report import curves, median, spread, table, value, values, yes_no
from tenax_lab.runs import run

NODES = 4
VICTIM = "o2"  # the operator with one task on each of the nodes: the node that holds its n-th task is the n-th node
BLOCKING, INCREMENTAL = Recovery.BLOCKING.value, Recovery.INCREMENTAL.value
TIME, LOSS = "time", "loss"
PASS_DEADLINE_S = 300.0  # of a pass on a machine with other things to do
FULL_LOAD = Sensors(255, 12_000)
GREY = 6  # the look of what is drawn to compare with


@dataclass(frozen=True, slots=True)
class Case:
    """A bound that chains of so many tasks keep, and longer ones do not; and the node that is killed."""

    length: int
    victim: int


@dataclass(frozen=True, slots=True)
class BoundPlan(Plan[Case]):
    """How much is measured: checkpoints every `interval` batches, passes and rounds of `per_pass` batches.

    Steps are timed over `batches` without failures.
    """

    load: Sensors = FULL_LOAD
    interval: int = 8
    per_pass: int = 2
    batches: int = 24

    @property
    def killed_at(self) -> int:
        """The batch after which a node is killed: the next pass would bring the second checkpoint."""
        return 2 * self.interval - self.per_pass

    @property
    def lengths(self) -> tuple[int, ...]:
        """Of all cases, each once."""
        return tuple(dict.fromkeys(case.length for case in self.cases))

    def settings(self, protection: Protection, nodes: int) -> Settings:
        """How the driver runs it: a round takes as many batches as a pass, whatever outputs are retained."""
        return Settings(protection=protection).but(
            nodes=nodes,
            batch="0s",
            max_rows=self.load.batch_rows,
            max_batches_per_pass=self.per_pass,
            max_batches_ahead=17,
            max_unpublished=17,
            max_batches_per_round=self.per_pass,
            pass_deadline=timedelta(seconds=PASS_DEADLINE_S),
        )

    def protection(self, bound_s: float, recovery: str) -> Protection:
        """What a user asks for who wants lost tasks back within a bound."""
        latency = f"{round(bound_s * 1_000_000)}us"
        # the plan that is judged stays: T(v) was measured before, with medians over all tasks of an operator
        return Protection(recovery_latency=latency, recovery=recovery, checkpoint_every=self.interval, follow_load=1.0)


@dataclass(frozen=True, slots=True)
class Timed:
    """The tree with T(v) of every task, the seconds of its tasks for a batch, and the bound for each length."""

    graph: TaskGraph
    batch_s: Floats
    bounds_s: dict[int, float]


def prepare(bench: Bench, plan: BoundPlan) -> Iterator[Row]:
    """Time the steps of every task; the first half of the passes warms the processes up.

    With more nodes than cores, steps would wait for each other's processors, and T would count that.
    """
    settings = plan.settings(Protection(checkpoint_every=plan.interval), min(NODES, _cores()))
    recorder = run(bench, smoothing_tree(bench.seed, plan.load, plan.batches), settings, by_task=True)
    bare = TaskGraph(tree_topology())
    names = [bare.operators[operator].name for operator in bare.operator_of]
    tasks = recorder.of(Kind.TASK).filter(pl.col("last") > pl.col("last").max() // 2)
    times = tasks.select(
        "task",
        operator=pl.col("task").replace_strict(range(len(bare)), names, return_dtype=pl.String),
        batch_s=pl.col("seconds") / (pl.col("last") - pl.col("first") + 1),
    )
    graph = model.planned_graph(bare, times, plan.interval)
    bounds = dict(zip(plan.lengths, model.latency_bounds(graph, plan.lengths), strict=True))
    bench.prepared = Timed(graph, model.typical_s(graph, times), bounds)
    for row in times.iter_rows(named=True):
        yield {"what": TIME, "side": "", **row, "planned_s": float(graph.reprocess[row["task"]])}


def _cores() -> int:
    return os.cpu_count() or 1


def measure(bench: Bench, plan: BoundPlan, trial: Trial[Case]) -> Iterator[Row]:
    """Run the application, kill a node just before a checkpoint is due, and watch the way back."""
    timed: Timed = bench.prepared
    bound_s = timed.bounds_s[trial.case.length]
    application = smoothing_tree(bench.seed, plan.load, 2 * plan.interval, timed.graph.reprocess.tolist())
    settings = plan.settings(plan.protection(bound_s, trial.side), NODES)
    fault = parse_fault(FaultKind.KILL, f"{VICTIM}[{trial.case.victim}]@{plan.killed_at}b")
    judged = trial.case.victim == plan.cases[0].victim
    recorder = run(bench, application, settings, faults=(fault,), judged=judged)
    yield {"what": LOSS, "bound_s": bound_s, **loss_row(recorder, timed, plan.interval)}


def loss_row(recorder: RunRecorder, timed: Timed, interval: int) -> Row:
    """What was seen of one loss, beside what was to be expected of it; times are in seconds."""
    (impact,) = impacts(recorder.moments)
    assert recorder.driver is not None
    if impact.detection_s is None or impact.recovered_s is None or not recorder.lost:
        raise ClusterFailed(f"a killed node is missed and its tasks come back, found {impact}: run it again")
    back = recorder.of(Kind.BACK)["seconds"]
    retained = tuple(map(timed.graph.number, recorder.driver.plan.retain))
    seen: Row = {
        "detection_s": impact.detection_s,
        "recovery_s": impact.recovered_s - impact.detection_s,
        "first_back_s": float(back.min()),  # type: ignore[arg-type]
        "last_back_s": float(back.max()),  # type: ignore[arg-type]
        "replayed": recorder.replayed,
        "exact": recorder.exact,
    }
    rounds = model.rounds_of(recorder.rows)
    return {**seen, **expectations(timed, interval, rounds, retained, recorder.lost, recorder.replayed)}


def expectations(
    timed: Timed,
    interval: int,
    rounds: Sequence[model.Round],
    retained: Sequence[int],
    lost: Sequence[int],
    replayed: int,
) -> Row:
    """What the model says of a loss.

    - What was replayed is `share` of a checkpoint interval; expectations and the bound are scaled to it.
    - `chain_s` is the longest chain of measured steps, `steps_s` the time in steps on the nodes, one after the other.
    """
    graph = timed.graph
    own = np.where(graph.is_output, 0.0, timed.batch_s)  # a replay writes no results again
    prediction = model.predicted(graph, retained, lost)
    share = replayed / interval
    return {
        "backups": len(retained),
        "lost_tasks": model.named(graph, lost),
        "share": share,
        "expected_s": prediction.together_s * share,
        "retainers_live": prediction.retainers_live,
        "chain_s": model.chain_s(graph, rounds),
        "nodes_s": model.nodes_s(graph, rounds, own, _cores()),
        "steps_s": model.steps_s(graph, rounds),
        "stages": model.stages(graph, rounds),
        "rounds": len(rounds),
        "jobs_s": sum(each.seconds for each in rounds),
    }


def losses(frame: pl.DataFrame) -> pl.DataFrame:
    """All losses; `scheduling_s` is what recovery took beside steps: jobs, stages, checkpoints and outputs read."""
    return frame.filter(what=LOSS).with_columns(
        bound_replayed_s=pl.col("bound_s") * pl.col("share"),
        scheduling_s=pl.col("recovery_s") - pl.col("steps_s"),
        node=pl.col("victim") + 1,
    )


MEASURES = {"chain": "chain_s", "steps": "steps_s", "recovery": "recovery_s"}


def kept(measure_column: str) -> pl.Expr:
    """In how many losses a time stayed within the bound for what was replayed."""
    return (pl.col(measure_column) <= pl.col("bound_replayed_s")).sum()


def report(plan: BoundPlan, frame: pl.DataFrame) -> Findings:
    """Each loss, the bounds, both kinds of recovery, and the times that plans were made with."""
    lost = losses(frame)
    blocking = lost.filter(side=BLOCKING)
    tables = [_each(blocking), _bounds(blocking), _times(plan, frame.filter(what=TIME))]
    if blocking.height < lost.height:
        tables.insert(2, _kinds(lost))
    return Findings(
        settings={
            "topology": "16 sources, merges of 8, 4, 2 and 1 tasks (Su, Zhou 2016, Figure 6), results",
            "a batch": f"{plan.load.batch_rows:,} rows; each task resamples {plan.load.sensors} sensors "
            f"{plan.load.resamples:,} times",
            "checkpoints": f"every {plan.interval} batches",
            "passes and rounds": f"{plan.per_pass} batches",
            "killed": f"after batch {plan.killed_at}, the last before a checkpoint",
            "cluster": f"local-cluster[{NODES},2,1024] on {_cores()} cores",
            "T measured on": f"{min(NODES, _cores())} nodes, {plan.batches} batches, second half",
        },
        tables=tuple(tables),
        claims=tuple(_claims(blocking)),
        remarks=_remarks(plan, lost, blocking),
        panels=tuple(_panels(blocking)),
        panel_columns=2,
    )


def _each(blocking: pl.DataFrame) -> Table:
    """Under blocking recovery: nothing else competes for the nodes."""
    return table(
        "Each loss under blocking recovery, in s",
        blocking,
        "R = bound_s | backups | node | lost tasks = lost_tasks | retainers live = retainers_live | "
        "R replayed = bound_replayed_s | L_F = expected_s | chain = chain_s | L_F on nodes = nodes_s | "
        "steps = steps_s | scheduling = scheduling_s | recovery = recovery_s | rounds | stages",
        retainers_live=yes_no("retainers_live", otherwise="no"),
    )


def _bounds(blocking: pl.DataFrame) -> Table:
    promised = pl.col("retainers_live")
    counts = {
        f"{name} kept R": pl.format("{} of {}", _kept_of(column), promised.sum()) for name, column in MEASURES.items()
    }
    by_bound = blocking.group_by("length", maintain_order=True).agg(
        pl.col("bound_s", "backups").first(),
        pl.col("expected_s", "chain_s", "steps_s", "scheduling_s", "recovery_s").mean(),
        yes_no("exact", otherwise="no").drop_nulls().implode().list.join(", ").alias("exact"),
        **counts,
    )
    return table(
        "By bound, in s: means over the nodes; R is kept by losses whose retainers live",
        by_bound,
        {
            "R": "bound_s",
            "backups": "backups",
            "L_F": "expected_s",
            "chain": "chain_s",
            "steps": "steps_s",
            "scheduling": "scheduling_s",
            "recovery": "recovery_s",
            **{name: name for name in counts},
            "exact": "exact",
        },
    )


def _kept_of(column: str) -> pl.Expr:
    return (pl.col("retainers_live") & (pl.col(column) <= pl.col("bound_replayed_s"))).sum()


def _kinds(lost: pl.DataFrame) -> Table:
    both = lost.filter(pl.col("side").n_unique().over("length") > 1)
    return table(
        "Blocking recovery, and one that lets live passes go on, in s",
        both.sort("length", pl.col("side") != BLOCKING, "node", maintain_order=True),
        "R = bound_s | node | recovery is = side | steps = steps_s | recovery = recovery_s | rounds | "
        "detection = detection_s",
    )


def _times(plan: BoundPlan, times: pl.DataFrame) -> Table:
    interval_s = plan.interval * pl.col("batch_s")
    by_task = times.group_by("operator", "task", maintain_order=True).agg(
        interval_s.median().alias("task_s"), pl.col("planned_s").first()
    )
    typical = times.group_by("operator").agg(interval_s.median().alias("typical_s"))
    by_operator = (
        by_task.sort("task")
        .group_by("operator", maintain_order=True)
        .agg(
            tasks=pl.len(),
            fastest_s=pl.col("task_s").min(),
            slowest_s=pl.col("task_s").max(),
            T=pl.col("planned_s").first(),
        )
    )
    title = f"Steps of a task through one checkpoint interval of {plan.interval} batches, and T as planned, in s"
    return table(
        title,
        by_operator.join(typical, on="operator", maintain_order="left"),
        "operator | tasks | median = typical_s | fastest task = fastest_s | slowest task = slowest_s | T",
    )


def _claims(blocking: pl.DataFrame) -> Iterator[Claim]:
    promised = blocking.filter("retainers_live")
    conditions = {
        "chain_s": "each task on a processor of its own as the paper assumes (longest chain of measured steps)",
        "steps_s": "without scheduling (steps of a node's tasks take turns)",
        "recovery_s": "with scheduling",
    }
    for column, what in conditions.items() if promised.height else ():
        count = int(value(promised, kept(column)))
        yield Claim(
            f"recovery within R, {what}",
            "guaranteed, for every DAG and the loss of one task at a time (Theorem 1; simulated)",
            100.0 * count / promised.height,
            "% of losses",
            f"{count} of {promised.height} losses of a node whose retainers live",
        )
    ratios = values(blocking, pl.col("chain_s") / pl.col("expected_s"))
    yield Claim(
        "recovery latency is T(v) plus the longest latency of producers that retain nothing (equation 3)",
        "an equation, not measured",
        median(ratios),
        "× L_F",
        f"longest chain of measured steps over L_F, median of {len(ratios)} losses, from {spread(ratios)}",
    )
    if blocking["length"].n_unique() > 1:
        yield _gain(blocking)


def _gain(blocking: pl.DataFrame) -> Claim:
    """What retaining everything is worth."""
    most, fewest = (
        blocking.filter(pl.col("length") == end) for end in (pl.col("length").min(), pl.col("length").max())
    )

    def ratio(column: str) -> float:
        return value(fewest, pl.col(column).mean()) / value(most, pl.col(column).mean())

    return Claim(
        f"latency with {fewest['backups'][0]} backups over latency with {most['backups'][0]}",
        "retaining everywhere minimises recovery latency, on inputs only maximises it (no number)",
        ratio("chain_s"),
        "× in the longest chain",
        f"means over {most.height} nodes; × {ratio('steps_s'):.2f} in steps, × {ratio('recovery_s'):.2f} with "
        f"scheduling; L_F says × {ratio('expected_s'):.2f}",
    )


def _remarks(plan: BoundPlan, lost: pl.DataFrame, blocking: pl.DataFrame) -> tuple[str, ...]:
    judged = lost["exact"].drop_nulls()
    in_jobs = value(blocking, ((pl.col("jobs_s") - pl.col("steps_s")) / pl.col("scheduling_s")).median())
    stage_s = value(blocking, (pl.col("scheduling_s") / pl.col("stages")).median())
    medians = {name: value(blocking, pl.col(name).median()) for name in ("detection_s", "first_back_s", "last_back_s")}
    together = blocking.height - int(blocking["retainers_live"].sum())
    replayed = ", ".join(map(str, blocking["replayed"].unique().sort()))
    return (
        "R is for a whole checkpoint interval; R replayed and L_F are its part for the batches replayed, "
        f"{replayed} of {plan.interval}",
        "L_F and chain count as the paper does, each task on a processor of its own: the first of T, the second of the "
        "steps measured during recovery, along the longest chain of tasks that wait for each other",
        "L_F on nodes and steps count as rounds run: levels one after the other, also where retained outputs make "
        f"tasks independent, tasks of a node in turn, {NODES - 1} nodes on {_cores()} cores; the first of T, at the "
        "places that recovery gave the lost tasks, the second of measured steps; scheduling is all else of recovery: "
        "jobs, stages, checkpoints and retained outputs read",
        f"{together} of {blocking.height} losses hit a task together with one that retained for it: consumers are "
        "placed apart from those that retain for them where that is possible; for such losses the plan promises L_F, "
        "not R",
        "T of a task that sources feed includes reading their log again; the task that writes results has T = 0, "
        "because a replay does not write them again",
        "recovery is counted from the moment at which the loss is known (after a median of "
        f"{medians['detection_s']:.2f} s) to the end of the outage",
        f"scheduling: {100 * in_jobs:.0f} % of it within the jobs of rounds (median), {1000 * stage_s:.0f} ms for each "
        "stage",
        f"the first of the lost tasks is back after {medians['first_back_s']:.2f} s, the last after "
        f"{medians['last_back_s']:.2f} s (medians)",
        f"the oracle found {int(judged.sum())} of {len(judged)} judged runs exact: final results as without failures, "
        "to the byte",
    )


def _panels(blocking: pl.DataFrame) -> Iterator[Panel]:
    points = (
        ("Each task on its own processor", "L_F in s", "expected_s", "longest chain, s", "chain_s"),
        ("Tasks of a node take turns", "L_F on nodes in s", "nodes_s", "steps, s", "steps_s"),
        ("With scheduling", "L_F in s", "expected_s", "recovery, s", "recovery_s"),
    )
    for title, x_label, x, y_label, y in points:
        yield Panel(title, x_label, y_label, tuple(_scatter(blocking, x, y)))
    yield _stacked(blocking)


def _scatter(blocking: pl.DataFrame, x: str, y: str) -> Iterator[Curve]:
    """A point for each loss, a colour for each bound, and the line on which the prediction is true."""
    most = 1.05 * value(blocking, pl.col(x).max())
    yield Curve("as predicted", (0.0, most), (0.0, most), GREY, dashed=True)
    for look, of_bound in enumerate(blocking.partition_by("length", maintain_order=True)):
        label = f"R = {of_bound['bound_s'][0]:.2f} s, {of_bound['backups'][0]} backups"
        for number, point in enumerate(of_bound.select(x, y).iter_rows()):
            # Points are curves of their own, so that no line joins them; only the first is named.
            yield Curve("_" if number else label, (point[0],), (point[1],), look)


def _stacked(blocking: pl.DataFrame) -> Panel:
    """Steps, and scheduling above them, over the bound."""
    steps, whole = (
        replace(curve, label=label, look=look)
        for label, look, column in (("steps", 0, "steps_s"), ("scheduling, on top", 1, "recovery_s"))
        for curve in curves(blocking, "bound_s", column, middle="mean")
    )
    share = value(blocking, pl.col("share").first())
    return Panel(
        "What recovery takes, mean over the nodes",
        "R in s",
        "seconds",
        (
            replace(whole, spread=tuple(zip(steps.y, whole.y, strict=True))),
            replace(steps, spread=tuple((0.0, height) for height in steps.y)),
            Curve(f"R × {share:.2f}", steps.x, tuple(share * bound_s for bound_s in steps.x), GREY, dashed=True),
        ),
        claim="recovery latency within R, guaranteed; scheduling is not part of its model",
    )


def _plan(
    lengths: Sequence[int],
    victims: Sequence[int],
    incremental: Sequence[int],
    load: Sensors,
    interval: int,
    batches: int,
) -> BoundPlan:
    """`incremental` are the lengths for which live passes go on while tasks are missing, too."""
    return BoundPlan(
        tuple(Case(length, victim) for length in lengths for victim in victims),
        (BLOCKING, INCREMENTAL),
        applies=lambda case, side: side == BLOCKING or case.length in incremental,
        load=load,
        interval=interval,
        batches=batches,
    )


EXPERIMENT = Experiment(
    full=_plan((1, 2, 3, 4), (0, 1, 2, 3), (2,), FULL_LOAD, interval=8, batches=24),
    quick=_plan((2,), (1,), (), Sensors(63, 500), interval=4, batches=8),
    measure=measure,
    report=report,
    prepare=prepare,
)
