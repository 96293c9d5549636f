"""Recovery after the loss of a node, beside what the run had promised of it and what it had predicted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import polars as pl

from tenax.chaos.record import impacts
from tenax.chaos.schedule import Kind as FaultKind
from tenax.chaos.schedule import parse_fault
from tenax.control import events
from tenax.control.instructions import PlanBackups
from tenax.engine.driver.membership import NOTICED_S
from tenax.engine.protection import with_safe_sources
from tenax.errors import ClusterFailed
from tenax.model.graph import TaskGraph
from tenax.model.protection import Protection, Recovery
from tenax.model.settings import Settings
from tenax.pictures.figures import Curve, Panel
from tenax.planning.backups import plan_backups
from tenax.planning.measured import with_measures
from tenax.planning.node_losses import NodeLoss, Rounds, node_losses
from tenax.planning.promises import Promise
from tenax_lab.findings import Claim, Findings, Table
from tenax_lab.lab import WHAT, Bench, Experiment, Plan, Row, Trial
from tenax_lab.loads.tree import tree_topology
from tenax_lab.loads.waiting_tree import Waits, waiting_tree
from tenax_lab.recorder import Kind, RunRecorder
from tenax_lab.report import median, met, spread, table, value, values, yes_no
from tenax_lab.runs import run

NODES = 4
VICTIM = "o2"  # the operator with one task on each of the nodes: the node that holds its n-th task is the n-th node
BLOCKING, INCREMENTAL = Recovery.BLOCKING.value, Recovery.INCREMENTAL.value
LOSS, STEPS = "loss", "steps"
EVERYTHING = "1h"  # a bound that no recovery exceeds
MORE_BATCHES = 6
MIDDLE = 2  # tasks of a chain
ROOM = 1.15  # times what is predicted at first is what is asked for
GOAL_KEPT, GOAL_NEAR = 0.95, 0.3
GREY = 6  # the look of what is drawn to compare with
PASS_DEADLINE_S = 300.0  # of a pass on a machine with other things to do


@dataclass(frozen=True, slots=True)
class Case:
    """A bound that the loss of any node keeps if chains of so many tasks lack retained outputs; the node that dies."""

    length: int
    victim: int


@dataclass(frozen=True, slots=True)
class BoundPlan(Plan[Case]):
    """A checkpoint every `interval` batches; a node dies after batch `killed_at`, when the next one is due."""

    load: Waits = field(default_factory=lambda: Waits(160, 4_000))
    interval: int = 8
    killed_at: int = 24

    @property
    def batches(self) -> int:
        """All batches: some more than until the kill, so that live passes go on beside recovery."""
        return self.killed_at + MORE_BATCHES

    @property
    def lengths(self) -> tuple[int, ...]:
        """Of all cases, each once."""
        return tuple(dict.fromkeys(case.length for case in self.cases))

    def settings(self, recovery_latency: str, recovery: str) -> Settings:
        """What a user asks for who wants lost tasks back within a bound."""
        protection = Protection(recovery_latency=recovery_latency, recovery=recovery, checkpoint_every=self.interval)
        return Settings(protection=protection).but(
            nodes=NODES,
            batch="0s",
            max_rows=self.load.batch_rows,
            max_batches_per_pass=1,
            max_batches_per_round=self.interval,
            max_batches_ahead=17,
            max_unpublished=17,
            measure_every=2,
            pass_deadline=timedelta(seconds=PASS_DEADLINE_S),
        )


def prepare(bench: Bench, plan: BoundPlan) -> Iterator[Row]:
    """Let a run measure itself without failures; of what it has measured follow the bounds that are asked for."""
    application = waiting_tree(bench.seed, plan.load, plan.killed_at)
    recorder = run(bench, application, plan.settings(EVERYTHING, BLOCKING))
    asked = last_plan(recorder)
    bench.prepared = {length: bound_s(asked, length) for length in plan.lengths}
    graph = TaskGraph(with_measures(with_safe_sources(application.topology), asked.measures))
    for number, operator in enumerate(graph.operators):
        times = graph.reprocess[graph.span(number)]
        yield {
            WHAT: STEPS,
            "operator": operator.name,
            "least_s": float(times.min()),
            "most_s": float(times.max()),
            "level_s": asked.measures.level_s,
        }


def last_plan(recorder: RunRecorder) -> PlanBackups:
    """The last plan of backups that a run has asked for, with what it had measured until then."""
    assert recorder.coordinator is not None
    asked = [each for entry in recorder.coordinator.log for each in entry.decided if isinstance(each, PlanBackups)]
    if not asked:
        raise ClusterFailed("a run measures itself before its end, found no plan of backups: let it run for longer")
    return asked[-1]


def bound_s(asked: PlanBackups, length: int) -> float:
    """What the slowest node would take with backups for chains of so many tasks, and a little more. In milliseconds."""
    graph = TaskGraph(with_measures(with_safe_sources(tree_topology()), asked.measures))
    chain_s = float(graph.reprocess.max()) * (length + 0.5)
    backups = graph.mask(plan_backups(graph, chain_s).backups)
    homes = {graph.number(task): home for task, home in asked.homes.items()}
    rounds = Rounds(asked.measures.rounds, asked.measures.level_s, NOTICED_S)
    slowest = max(loss.total_s for loss in node_losses(graph, homes, graph.mask(()), backups, rounds))
    return round(ROOM * slowest, 3)


@dataclass(slots=True)
class Watch:
    """What the run said of itself just before it lost a node."""

    recorder: RunRecorder
    promise: Promise | None = None
    loss: NodeLoss | None = None
    backups: int = 0
    latest: Promise | None = None
    retained: int = 0

    def __post_init__(self) -> None:
        self.recorder.after_event.append(self.learn)

    def learn(self, event: events.Event) -> None:
        """Note what is promised; what was promised before a loss is what counts."""
        coordinator = self.recorder.coordinator
        assert coordinator is not None
        if isinstance(event, events.NodesLost) and self.promise is None and self.latest is not None:
            self.promise, self.backups = self.latest, self.retained
            self.loss = next((loss for loss in self.latest.losses if loss.node in event.nodes), None)
        promises = coordinator.state.promises
        self.latest, self.retained = promises.promise, len(promises.retained_by)


def measure(bench: Bench, plan: BoundPlan, trial: Trial[Case]) -> Iterator[Row]:
    """Let a run measure itself and follow, kill a node just before a checkpoint, and watch the way back."""
    bound = bench.prepared[trial.case.length]
    application = waiting_tree(bench.seed + trial.round, plan.load, plan.batches)
    settings = plan.settings(f"{round(1000 * bound)}ms", trial.side)
    fault = parse_fault(FaultKind.KILL, f"{VICTIM}[{trial.case.victim}]@{plan.killed_at}b")
    judged = trial.case.victim == plan.cases[0].victim
    watches: list[Watch] = []
    recorder = run(
        bench,
        application,
        settings,
        faults=(fault,),
        judged=judged,
        prepare=lambda recorder, _driver, _folder: watches.append(Watch(recorder)),
    )
    yield loss_row(recorder, watches[0], plan)


def loss_row(recorder: RunRecorder, watch: Watch, plan: BoundPlan) -> Row:
    """What was seen of one loss, beside what the run had said of it; times are in seconds and begin with the kill."""
    (impact,) = impacts(recorder.moments)
    if impact.detection_s is None or recorder.back_s is None or watch.promise is None or watch.loss is None:
        raise ClusterFailed(f"a killed node is missed and its tasks come back, found {impact}: run it again")
    rounds, steps = recorder.of(Kind.ROUND), recorder.of(Kind.STEP)
    return {
        WHAT: LOSS,
        "bound_s": watch.promise.bound_s,
        "backups": watch.backups,
        "promised": watch.loss.total_s <= watch.promise.bound_s,
        "retainers_live": watch.loss.retainers_live,
        "lost_tasks": named(recorder.graph, recorder.lost),
        "predicted_s": watch.loss.total_s,
        "predicted_steps_s": watch.loss.steps_s,
        "detection_s": impact.detection_s,
        "back_s": impact.detection_s + recorder.back_s,
        "rounds": rounds.height,
        "rounds_s": float(rounds["seconds"].sum()),
        "most_steps_s": float(steps["seconds"].max()),  # type: ignore[arg-type]
        "replayed": recorder.replayed,
        "share": recorder.replayed / plan.interval,
        "exact": recorder.exact,
    }


def named(graph: TaskGraph, tasks: Sequence[int]) -> str:
    """Tasks by operator: `o1[0 4] o2[0]`."""
    by_operator: dict[str, list[int]] = {}
    for task in graph.tasks(tasks):
        by_operator.setdefault(task.operator, []).append(task.index)
    return " ".join(f"{name}[{' '.join(map(str, indices))}]" for name, indices in by_operator.items())


def losses(frame: pl.DataFrame) -> pl.DataFrame:
    """All losses, with what was predicted over what was measured, and whether the bound was kept."""
    return frame.filter(pl.col(WHAT) == LOSS).with_columns(
        ratio=pl.col("predicted_s") / pl.col("back_s"),
        kept=pl.col("back_s") <= pl.col("bound_s"),
        node=pl.col("victim") + 1,
    )


def report(plan: BoundPlan, frame: pl.DataFrame) -> Findings:
    """How often the promise was kept, and how near the prediction was."""
    lost = losses(frame)
    return Findings(
        settings=_settings(plan),
        tables=(_by_bound(lost), _each(lost), _times(frame)),
        claims=tuple(_claims(lost)),
        remarks=_remarks(lost),
        panels=(_panel(lost),),
    )


def _settings(plan: BoundPlan) -> Mapping[str, str]:
    return {
        "topology": "16 sources, merges of 8, 4, 2 and 1 tasks (Su, Zhou 2016, Figure 6), results",
        "a batch": f"{plan.load.batch_rows:,} rows; every merge waits {1000 * plan.load.step_s:.3g} ms for its own",
        "checkpoints": f"every {plan.interval} batches",
        "killed": f"one node by SIGKILL after batch {plan.killed_at}, when a checkpoint is due and none stored",
        "cluster": f"local-cluster[{NODES},2,1024]",
        "R": f"{ROOM:g} times what was predicted of the slowest node in a run without failures",
        "rounds": str(plan.rounds),
    }


def _by_bound(lost: pl.DataFrame) -> Table:
    promised = pl.col("promised")
    by_bound = lost.group_by("bound_s", "side", maintain_order=True).agg(
        pl.len().alias("losses"),
        pl.col("backups").median(),
        pl.col("predicted_s", "back_s").median(),
        promised=promised.sum(),
        kept=(pl.col("kept") & promised).sum(),
        ratio=pl.col("ratio").median(),
        least=pl.col("ratio").min(),
        most=pl.col("ratio").max(),
    )
    return table(
        "By bound, in s: medians of losses; kept are those of the promised",
        by_bound.sort("bound_s", "side"),
        "R = bound_s | recovery = side | losses | backups | predicted = predicted_s | back = back_s | promised | "
        "kept | predicted / back = ratio | least | most",
    )


def _each(lost: pl.DataFrame) -> Table:
    return table(
        "Each loss, in s from the kill",
        lost.sort("bound_s", "side", "node", "round"),
        "R = bound_s | recovery = side | node | round | lost tasks = lost_tasks | backups | retainers live = live | "
        "promised = said | predicted = predicted_s | back = back_s | kept = held | noticed = detection_s | "
        "in rounds = rounds_s | rounds | replayed | exact = judged",
        live=yes_no("retainers_live", otherwise="no"),
        said=yes_no("promised", otherwise="no"),
        held=yes_no("kept", otherwise="no"),
        judged=pl.when(pl.col("exact").is_null()).then(pl.lit("–")).otherwise(yes_no(pl.col("exact").fill_null(True))),
    )


def _times(frame: pl.DataFrame) -> Table:
    return table(
        "T(v) as measured by a run without failures, in s for a checkpoint interval",
        frame.filter(pl.col(WHAT) == STEPS),
        "operator | least = least_s | most = most_s | fixed part of a level = level_s",
    )


def _claims(lost: pl.DataFrame) -> Iterator[Claim]:
    promised = lost.filter("promised")
    if not promised.is_empty():
        kept = value(promised, pl.col("kept").mean())
        yield Claim(
            "losses of nodes whose tasks are back within the R that the run promised",
            "recovery latency within R, guaranteed",
            100 * kept,
            "%",
            f"{promised['kept'].sum()} of {promised.height} losses; goal {100 * GOAL_KEPT:g} %, "
            f"{met(kept >= GOAL_KEPT)}",
        )
    ratios = values(lost, "ratio")
    near = sum(abs(ratio - 1.0) <= GOAL_NEAR for ratio in ratios) / len(ratios)
    within = met(abs(median(ratios) - 1.0) <= GOAL_NEAR)
    yield Claim(
        "what the run predicted of a loss, over what it took",
        "an equation, not measured",
        median(ratios),
        "×",
        f"median of {len(ratios)} losses, {spread(ratios)}; {100 * near:.0f} % of them within "
        f"{100 * GOAL_NEAR:.0f} %; goal: within {100 * GOAL_NEAR:.0f} %, {within}",
    )
    if lost["bound_s"].n_unique() > 1:
        ends = [lost.filter(pl.col("bound_s") == each) for each in (lost["bound_s"].min(), lost["bound_s"].max())]
        means = [value(end, pl.col("back_s").mean()) for end in ends]
        backups = [value(end, pl.col("backups").median()) for end in ends]
        yield Claim(
            f"time with {backups[1]:.3g} backups over time with {backups[0]:.3g}",
            "retaining everywhere minimises recovery latency, on inputs only maximises it (no number)",
            means[1] / means[0],
            "×",
            f"means of {ends[1].height} and {ends[0].height} losses",
        )


def _remarks(lost: pl.DataFrame) -> tuple[str, ...]:
    judged = lost["exact"].drop_nulls()
    noticed = value(lost, pl.col("detection_s").median())
    beside = value(lost, (pl.col("back_s") - pl.col("rounds_s") - pl.col("detection_s")).median())
    together = lost.height - int(lost["retainers_live"].sum())
    return (
        "times are from the kill until the last lost task is where the run was; the promise includes the time until a "
        "loss is noticed",
        "the run measures T(v), plans its backups by it, and says of every node what its loss would take; what is "
        "compared is what it had said last. A loss is promised R if that is within R",
        f"{together} of {lost.height} losses hit a task together with one that feeds it: the paper's model has one "
        "lost task at a time, and its equation nothing for them. The run counts them as they run: levels follow each "
        "other, tasks of a node take turns",
        "tasks wait instead of computing, so that nodes can be lost on a machine with fewer cores than nodes",
        f"medians: a loss is noticed after {noticed:.2f} s; {beside:.2f} s pass beside the jobs of rounds",
        f"batches replayed: {', '.join(map(str, lost['replayed'].unique().sort()))}",
        f"{judged.sum()} of {len(judged)} judged runs were exact by the oracle",
    )


def _panel(lost: pl.DataFrame) -> Panel:
    """A point for each loss, a colour for each bound, and the line on which the prediction is true."""
    most = 1.05 * value(lost, pl.max_horizontal("predicted_s", "back_s").max())
    drawn = [Curve("as predicted", (0.0, most), (0.0, most), GREY, dashed=True)]
    for look, of_bound in enumerate(lost.sort("bound_s").partition_by("bound_s", maintain_order=True)):
        label = f"R = {of_bound['bound_s'][0]:.2f} s"
        for number, (x, y) in enumerate(of_bound.select("predicted_s", "back_s").iter_rows()):
            # Points are curves of their own, so that no line joins them; only the first is named.
            drawn.append(Curve("_" if number else label, (x,), (y,), look))
    return Panel("Every loss", "predicted, s", "back after, s", tuple(drawn), "recovery latency within R, guaranteed")


def _applies(case: Case, side: str) -> bool:
    """Beside live passes recovery is looked at with the tightest and with the widest bound."""
    return side == BLOCKING or case.length != MIDDLE


def _plan(lengths: Sequence[int], victims: Sequence[int], sides: tuple[str, ...], **how: object) -> BoundPlan:
    cases = tuple(Case(length, victim) for length in lengths for victim in victims)
    return BoundPlan(cases, sides, applies=_applies, **how)  # type: ignore[arg-type]


EXPERIMENT = Experiment(
    full=_plan((1, MIDDLE, 4), (0, 1, 2, 3), (BLOCKING, INCREMENTAL)),
    quick=_plan((MIDDLE,), (1,), (BLOCKING,), load=Waits(160, 500), interval=4, killed_at=12),
    measure=measure,
    report=report,
    prepare=prepare,
)
