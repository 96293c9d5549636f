"""Queries through the loss of nodes whose capacity is missed: which come back when, by what recovery goes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import polars as pl

from tenax.chaos.schedule import Fault, Kind, Unit, When
from tenax.engine.driver import Driver
from tenax.engine.queries import AVAILABLE
from tenax.model.graph import TaskGraph
from tenax.model.protection import Outputs, Protection, Recovery
from tenax.model.settings import Settings
from tenax.model.tasks import Task
from tenax.pictures.figures import Panel, Reference
from tenax_lab.arrivals import HEADROOM
from tenax_lab.findings import Claim, Findings
from tenax_lab.lab import Bench, Experiment, Plan, Row, Trial
from tenax_lab.loads.layered import Load, Places, Tap, layered
from tenax_lab.query_recovery_measures import MOMENT, OUTCOME, QUERY, RecoveryWatch, over_time, recovery_rows
from tenax_lab.recorder import RunRecorder
from tenax_lab.report import curves, median, met, ratios, spread, table, value, values, yes_no
from tenax_lab.runs import run, tapped

DENSITY, CENTRIC, BLOCKING, BEST = "best-density", "operator-centric", "blocking", "best case"
SIDES = (DENSITY, CENTRIC, BLOCKING, BEST)
TOP, BOTTOM = "top", "bottom"
GOAL_RATIO = 0.9
EVERY_S = 1.0  # of pictures
POOL = 4  # nodes beside the others: as many as a machine with two cores bears


@dataclass(frozen=True, slots=True)
class Case:
    """So many hosts are killed: those of the first aggregates (top) or of the last ones."""

    where: str
    killed: int


@dataclass(frozen=True, slots=True)
class RecoveryPlan(Plan[Case]):
    """Aggregates on `hosts`, two each, which is all they take; one more node has the source, the parser, and room.

    - A node takes tasks for `node_limit` of the time, by what they are measured to cost. Blocking recovery waits for no
      room that is measured, so that it is given the same as `slots`; where there is no limit all sides are.
    - Hosts are killed `kill_after_s` after the first result; the first comes back `away_s` later, the others one by
      one every `gap_s`. Rows come for `tail_s` after that, and the run ends when all their results are final. The best
      case, where none comes back, lasts as long.
    - A `pool` of nodes is there as well; all sides but the best case lose it right after the start.
    """

    hosts: int = 8
    pool: int = 0
    slots: int = 2
    node_limit: float | None = 0.115
    load: Load = field(default_factory=lambda: Load(100, 500))
    batch_s: float = 2.0
    checkpoint_s: float = 10.0
    kill_after_s: float = 30.0
    away_s: float = 6.0
    gap_s: float = 4.0
    tail_s: float = 14.0

    @property
    def nodes(self) -> int:
        """All nodes, those of the pool included."""
        return 1 + self.hosts + self.pool

    def window_s(self, case: Case) -> float:
        """So long after the kill queries are measured, on every side."""
        return self.away_s + (case.killed - 1) * self.gap_s + self.tail_s

    def faults(self, graph: TaskGraph, case: Case, side: str) -> tuple[Fault, ...]:
        """What happens to the nodes."""
        groups = Places(self.hosts).groups(graph)
        hit = groups[: case.killed] if case.where == TOP else groups[-case.killed :]
        kill = Fault(Kind.KILL, _tasks([group[0] for group in hit]), When(self.kill_after_s, Unit.SECONDS))
        if side == BEST:
            return (kill,)
        without = (Fault(Kind.KILL, f"rack{rack}", When(1, Unit.BATCHES)) for rack in self._pool_racks)
        back_s = self.kill_after_s + self.away_s
        returns = (
            Fault(Kind.RETURN, "1", When(back_s + number * self.gap_s, Unit.SECONDS)) for number in range(case.killed)
        )
        return (*without, kill, *returns)

    @property
    def _pool_racks(self) -> range:
        """Every node is a rack of its own, so that it can be named; those of the pool are the last ones."""
        return range(self.nodes - self.pool + 1, self.nodes + 1)

    def settings(self, side: str) -> Settings:
        """How a side meets the loss; results that miss tasks are held, as in the paper."""
        protection = Protection(
            recovery=(Recovery.BLOCKING if side == BLOCKING else Recovery.INCREMENTAL).value,
            order=CENTRIC if side == CENTRIC else DENSITY,
            outputs=Outputs.HOLD.value,
            checkpoint_every=timedelta(seconds=self.checkpoint_s),
        )
        return Settings(protection=protection).but(
            nodes=self.nodes,
            racks=self.nodes,
            **self._room(side),
            batch=timedelta(seconds=self.batch_s),
            max_rows=round(HEADROOM * self.load.rate * self.batch_s),
        )

    def _room(self, side: str) -> dict[str, float]:
        """How much a node takes."""
        if self.node_limit is None or side == BLOCKING:
            return {"slots": self.slots}
        return {"node_limit": self.node_limit}


def _tasks(tasks: list[Task]) -> str:
    return "+".join(map(str, tasks))


def measure(bench: Bench, plan: RecoveryPlan, trial: Trial[Case]) -> Iterator[Row]:
    """Kill the hosts of a case, and follow the queries until all are back; every round draws other priorities."""
    tap = Tap(bench.folder("tap"))
    application = layered(bench.seed + trial.round, plan.load, tap)
    faults = plan.faults(TaskGraph(application.topology), trial.case, trial.side)
    watches: list[RecoveryWatch] = []

    def begin(recorder: RunRecorder, _driver: Driver, _folder: Path) -> None:
        watches.append(RecoveryWatch(recorder))
        tapped(recorder, tap, len(faults), plan.tail_s if trial.side != BEST else plan.window_s(trial.case))

    recorder = run(
        bench,
        application,
        plan.settings(trial.side),
        faults=faults,
        judged=True,
        place=Places(plan.hosts),
        prepare=begin,
    )
    yield from recovery_rows(recorder, watches[0], plan.window_s(trial.case))


def report(plan: RecoveryPlan, frame: pl.DataFrame) -> Findings:
    """When queries are back, how available they were, and how near the optimum their priority was."""
    outcomes = frame.filter(what=OUTCOME)
    return Findings(
        settings={
            "cluster": f"local-cluster[{plan.nodes},2,1024]: a node for source and parser, {plan.hosts} hosts, a pool "
            f"of {plan.pool} for the best case",
            "queries": "15 aggregates in layers of one task, each an output with a priority of 1 to 10, drawn anew in "
            "every round",
            "load": f"{plan.load.rate} rows/s; an aggregate waits {plan.load.wait_us} µs for each, "
            f"{100 * plan.load.busy:.3g} % of the time",
            "room": f"{plan.slots} tasks on a node"
            + ("" if plan.node_limit is None else f", as measured: a node is busy for {100 * plan.node_limit:.3g} %"),
            "batches": f"{plan.batch_s:g} s, a checkpoint every {plan.checkpoint_s:g} s",
            "failure": f"SIGKILL; the first node is back after {plan.away_s:g} s, the others every {plan.gap_s:g} s",
            "available": f"latency below {AVAILABLE:g} times that before the loss, in the mean of an interval",
        },
        tables=(
            table(
                "From the kill, in s; availability of the queries that were cut off, until the window ends",
                outcomes,
                "lost hosts = killed | at the = where | recovery = side | round | tasks = lost_tasks | "
                "queries = lost_queries | first back = first_back_s | highest back = highest_back_s | "
                "all back = all_back_s | available % = percent | others % = others | least of optimum = least_ratio | "
                "exact",
                percent=100 * pl.col("availability"),
                others=100 * pl.col("availability_others"),
                exact=yes_no("exact"),
            ),
        ),
        claims=tuple(_claims(plan, frame)),
        remarks=tuple(_remarks(plan, outcomes)),
        panels=tuple(_panels(plan, frame)),
    )


def _claims(plan: RecoveryPlan, frame: pl.DataFrame) -> Iterator[Claim]:
    outcomes, on = frame.filter(what=OUTCOME), ["where", "killed", "round"]
    half = outcomes.filter(pl.col("killed") >= plan.hosts / 2, side=DENSITY)
    if not half.is_empty():
        least = value(half, pl.col("least_ratio").min())
        yield Claim(
            "with half of the hosts gone or more, best-density's queries hold the optimum's priority at every moment",
            f"at least {100 * GOAL_RATIO:g} %",
            100 * least,
            "%",
            f"the least of {half.height} losses; goal {met(least >= GOAL_RATIO)}",
            "we aim at",
        )
    sooner = _paired(outcomes, "highest_back_s", on)
    if sooner:
        yield Claim(
            "the highest priority is back before operator-centric recovery has it",
            "always",
            100 * sum(each < 1 for each in sooner) / len(sooner),
            "%",
            f"of {len(sooner)} losses; {median(sooner):.2f} times as late in the median, {spread(sooner)}",
            "we aim at",
        )
    for measure_of, what in (("first_back_s", "the first query"), ("all_back_s", "all queries")):
        compared = ratios(outcomes.drop_nulls(measure_of), measure_of, DENSITY, BLOCKING, on=on)
        if compared:
            yield Claim(
                f"incremental recovery brings {what} back sooner than blocking recovery",
                "incremental outperforms blocking in both scenarios",
                median(compared),
                "times as late",
                f"median of {len(compared)} losses, {spread(compared)}",
            )
    gains = _differences(outcomes, BLOCKING, on)
    if gains:
        yield Claim(
            "queries that were cut off are available for more of the time than with blocking recovery",
            "less time to recover the failed queries",
            100 * median(gains),
            "% of the time more",
            f"median of {len(gains)} losses, {spread([100 * gain for gain in gains], '.0f')}",
        )
    best = _differences(outcomes, BEST, on)
    if best:
        yield Claim(
            "the best case, with nodes that wait, is more available than incremental recovery",
            "the best case always outperforms the others",
            -100 * median(best),
            "% of the time more",
            f"median of {len(best)} losses, {spread([-100 * gain for gain in best], '.0f')}",
        )


def _paired(outcomes: pl.DataFrame, measure_of: str, on: list[str]) -> list[float]:
    known = outcomes.drop_nulls(measure_of)
    return ratios(known, measure_of, DENSITY, CENTRIC, on=on)


def _differences(outcomes: pl.DataFrame, other: str, on: list[str]) -> list[float]:
    """How much more available queries were with best-density."""
    ours, theirs = (outcomes.filter(side=side).select(*on, "availability") for side in (DENSITY, other))
    pairs = ours.join(theirs, on=on, suffix="_theirs")
    return values(pairs.drop_nulls(), pl.col("availability") - pl.col("availability_theirs"))


def _remarks(plan: RecoveryPlan, outcomes: pl.DataFrame) -> list[str]:
    judged = outcomes["exact"].drop_nulls()
    return [
        "the paper kills 2, 4 and 8 of 10 nodes, of which 8 hold the aggregates, two each; ours have "
        f"{-(-15 // plan.hosts)} each, and source and parser share a node",
        "aggregates wait instead of computing, so that nodes can be lost on a machine with fewer cores than nodes; the "
        "paper's count hashtags",
        "the optimum is what the exact planner brings back with the room that live nodes have at that moment; a query "
        "counts from when each of its tasks has a node. `least of optimum` is the least ratio at any moment of a loss",
        "the best case has a pool of nodes that hold nothing: they take lost tasks at once. In the paper it starts "
        "recovery three minutes after the failure, ours when it is noticed",
        "results that miss tasks are held on all sides: the paper knows none that are tentative",
        "layers wait for each other, so that all nodes together are never busy for most of the time, and the limit is "
        "below the paper's 80 %. Blocking recovery of Tenax places all tasks at once where the limit is measured; to "
        "wait for nodes, as the paper's does, it is given the same room in slots",
        f"the oracle found {judged.sum()} of {len(judged)} runs exact: final results as without failures, to the byte",
    ]


def _panels(plan: RecoveryPlan, frame: pl.DataFrame) -> Iterator[Panel]:
    for case in plan.cases:
        own = frame.filter(where=case.where, killed=case.killed)
        title = f"{case.killed} of {plan.hosts} hosts, {case.where}"
        window_s = plan.window_s(case)
        late = own.filter(pl.col("after_s").is_between(-5.0, window_s), what=QUERY, lost=True)
        late = late.with_columns(pl.col("after_s").round(0))
        yield Panel(
            f"Relative latency, {title}",
            "seconds since the kill",
            "mean of the queries that were cut off",
            curves(late, "after_s", "relative", looks=SIDES, middle="mean"),
            "incremental recovery outperforms blocking; the best case outperforms both",
            (Reference(f"available: below {AVAILABLE:g}", AVAILABLE),),
        )
        moments = over_time(own.filter(what=MOMENT), "back", EVERY_S, window_s)
        best = over_time(own.filter(what=MOMENT, side=DENSITY), "optimum", EVERY_S, window_s)
        best = best.rename({"optimum": "back"}).with_columns(side=pl.lit("optimum")).select(moments.columns)
        yield Panel(
            f"Priority that is back, {title}",
            "seconds since the kill",
            "sum of priorities",
            curves(pl.concat([moments, best]), "after_s", "back", looks=(*SIDES, "optimum"), middle="mean"),
            "failed queries are gradually recovered following the pace of resource acquiring",
        )


EXPERIMENT = Experiment(
    full=RecoveryPlan(
        (Case(TOP, 2), Case(BOTTOM, 2), Case(TOP, 4), Case(BOTTOM, 4), Case(TOP, 8)),
        SIDES,
        applies=lambda case, side: side != BEST or case.killed == POOL,
        pool=POOL,
    ),
    quick=RecoveryPlan(
        (Case(TOP, 1),),
        (DENSITY, BEST),
        hosts=2,
        pool=1,
        slots=8,
        node_limit=None,
        load=Load(50, 500),
        batch_s=1.0,
        checkpoint_s=3.0,
        kill_after_s=6.0,
        away_s=1.0,
        gap_s=1.0,
        tail_s=7.0,
    ),
    measure=measure,
    report=report,
)
