"""Nodes that are missed: latency when what is left cannot do all the work, in Tenax and in Structured Streaming."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import numpy as np
import polars as pl

from tenax.application.application import Application
from tenax.application.schemas import with_schemas
from tenax.chaos.record import What
from tenax.chaos.schedule import Fault, Kind, Unit, When
from tenax.connectors.parquet import parquet
from tenax.engine.driver import Driver
from tenax.engine.queries import AVAILABLE
from tenax.model.cluster import Node
from tenax.model.graph import TaskGraph
from tenax.model.plans import Placement
from tenax.model.protection import Outputs, Protection
from tenax.model.settings import Settings
from tenax.model.topology import Input, Operator, Output, Partitioning, Topology
from tenax.pictures.figures import Panel
from tenax.store.records import Json
from tenax_lab.arrivals import HEADROOM, Arrivals
from tenax_lab.findings import Claim, Findings
from tenax_lab.lab import WHAT, Bench, Experiment, Plan, Row, Trial
from tenax_lab.loads.layered import KEYS, Load, Tap, TappedRows, Waiting
from tenax_lab.processes import run_side
from tenax_lab.recorder import Kind as Observed
from tenax_lab.recorder import RunRecorder
from tenax_lab.report import curves, median, table, values, yes_no
from tenax_lab.runs import run, tapped
from tenax_lab.sides.waiting_structured import OUTCOME, SECOND

LIMITED, EAGER, STRUCTURED = "Tenax", "Tenax, without a limit", "Structured Streaming"
SIDES = (LIMITED, EAGER, STRUCTURED)
SOURCE, COUNTS = "rows", "counts"
EACH = 2  # queries on a node
SIDE_DEADLINE_S = 1_200.0
NO_LIMIT = 100.0  # times a batch interval
COMMITS = 3  # that tell how latency grows


@dataclass(frozen=True, slots=True)
class Case:
    """So many nodes are killed."""

    killed: int


@dataclass(frozen=True, slots=True)
class CapacityPlan(Plan[Case]):
    """Two queries of one task on every node, which wait for their rows; a node takes them for `node_limit` of the time.

    Nodes are killed `kill_after_s` after the first result and away for `away_s`; rows come for `tail_s` after that.
    """

    nodes: int = 5
    node_limit: float = 0.9
    load: Load = field(default_factory=lambda: Load(1_000, 2_700))
    batch_s: float = 2.0
    kill_after_s: float = 45.0
    away_s: float = 25.0
    tail_s: float = 15.0

    @property
    def tasks(self) -> int:
        """The queries, one task each."""
        return EACH * self.nodes

    @property
    def busy(self) -> float:
        """The part of the time that a query waits for its rows."""
        return self.load.busy / self.tasks

    @property
    def fits(self) -> int:
        """How many queries a node takes."""
        return int(self.node_limit / self.busy)

    def faults(self, case: Case) -> tuple[Fault, ...]:
        """The kill and the return."""
        back_s = self.kill_after_s + self.away_s
        return (
            Fault(Kind.KILL, str(case.killed), When(self.kill_after_s, Unit.SECONDS)),
            Fault(Kind.RETURN, "all", When(back_s, Unit.SECONDS)),
        )

    def settings(self, side: str) -> Settings:
        """What fits comes back, the rest waits; or everything comes back at once."""
        return Settings(protection=Protection(outputs=Outputs.HOLD.value)).but(
            nodes=self.nodes,
            node_limit=self.node_limit if side == LIMITED else NO_LIMIT,
            batch=timedelta(seconds=self.batch_s),
            max_rows=round(HEADROOM * self.load.rate * self.batch_s),
        )


def application(seed: int, plan: CapacityPlan, tap: Tap) -> Application:
    """Rows counted by partition, each a query."""
    inputs = (Input(SOURCE, Partitioning.ONE_TO_ONE),)
    topology = Topology(
        "waiting",
        (Operator(SOURCE, plan.tasks), Operator(COUNTS, plan.tasks, inputs, output=Output())),
    )
    sources = {SOURCE: Keyed(seed, plan.load.rate, tap)}
    return with_schemas(
        Application(topology, sources, {COUNTS: Waiting(plan.load.wait_us)}, {COUNTS: parquet(Path(COUNTS))})
    )


class Keyed(TappedRows):
    """Rows with a key."""

    def read(self, partition: int, planned: Json) -> pl.DataFrame:
        """The rows of a range."""
        return super().read(partition, planned).select(self.time, (pl.col("sequence") % KEYS).alias("key"))


def places(graph: TaskGraph, nodes: Sequence[Node], _limits: Mapping[str, float]) -> Placement:
    """As many queries on each node, beside their sources."""
    tasks = graph.tasks(range(len(graph)))
    return Placement({task: nodes[task.index % len(nodes)].name for task in tasks}, {})


def measure(bench: Bench, plan: CapacityPlan, trial: Trial[Case]) -> Iterator[Row]:
    """Let one side go through the loss."""
    if trial.side == STRUCTURED:
        arguments: dict[str, Json] = {
            "work": str(bench.folder("structured")),
            "nodes": plan.nodes,
            "tasks": plan.tasks,
            "keys": KEYS,
            "rate": plan.load.rate,
            "wait_us": plan.load.wait_us,
            "batch_s": plan.batch_s,
            "killed": trial.case.killed,
            "kill_after_s": plan.kill_after_s,
            "away_s": plan.away_s,
            "tail_s": plan.tail_s,
        }
        bench.close()  # two clusters at a time would compete
        rows = run_side("tenax_lab.sides.waiting_structured", arguments, deadline_s=SIDE_DEADLINE_S).rows
        (away_s,) = [float(str(row["away_s"])) for row in rows if row[WHAT] == OUTCOME]
        seconds = [row for row in rows if row[WHAT] == SECOND]
        yield from seconds
        yield {**outcome(seconds, away_s), "exact": None}
        return
    tap = Tap(bench.folder("tap"))
    faults = plan.faults(trial.case)
    arrivals: list[Arrivals] = []

    def begin(recorder: RunRecorder, _driver: Driver, _folder: Path) -> None:
        arrivals.append(Arrivals(recorder, plan.load.rate))
        tapped(recorder, tap, len(faults), plan.tail_s)

    app = application(bench.seed, plan, tap)
    how = plan.settings(trial.side)
    judged = trial.side == LIMITED  # who waits, and goes on later: the other side only falls behind
    recorder = run(bench, app, how, faults=faults, judged=judged, place=places, prepare=begin)
    killed, returned = (moment.at_s for moment in recorder.moments if moment.what is What.FAULT)
    seconds = list(latencies(recorder, arrivals[0].came_s, killed))
    yield from seconds
    yield {**outcome(seconds, returned - killed), "exact": recorder.exact}


def latencies(recorder: RunRecorder, came_s: Mapping[int, float], killed_s: float) -> Iterator[Row]:
    """How late the final results of every batch and query were, from when its rows came."""
    shown = recorder.of(Observed.SHOWN).filter(~pl.col("tentative"))
    for at_s, partition, first, last in shown.select("at_s", "partition", "first", "last").iter_rows():
        for batch in range(first, last + 1):
            if batch in came_s:
                after_s, latency_s = came_s[batch] - killed_s, max(0.0, at_s - came_s[batch])
                yield {WHAT: SECOND, "after_s": after_s, "latency_s": latency_s, "partition": partition}


def outcome(seconds: Sequence[Row], away_s: float) -> Row:
    """The usual latency, and of rows that came while nodes were away the highest, its growth and who was on time.

    `growth` is how many seconds later results are for every second that passes: 0 if latency is bounded; of each query
    by itself, and of these the median. `on_time` is the share of results less than 1.2 times as late as usual.
    """
    known = [(float(str(row["after_s"])), float(str(row["latency_s"])), str(row["partition"])) for row in seconds]
    usual_s = float(np.median([latency_s for after_s, latency_s, _ in known if -away_s < after_s <= 0]))
    away = [each for each in known if 0 < each[0] <= away_s]
    by_query = ([each for each in away if each[2] == query] for query in sorted({each[2] for each in away}))
    growths = [growth for own in by_query if (growth := _growth(own)) is not None]
    return {
        WHAT: OUTCOME,
        "usual_s": usual_s,
        "highest_s": max(latency_s for _, latency_s, _ in away),
        "growth": float(np.median(growths)) if growths else None,
        "on_time": sum(latency_s < AVAILABLE * usual_s for _, latency_s, _ in away) / len(away),
    }


def _growth(seconds: Sequence[tuple[float, float, str]]) -> float | None:
    """How latency grows with time, by the oldest rows of every commit; None if there are too few of those."""
    oldest: dict[float, float] = {}
    for after_s, latency_s, _ in seconds:
        committed_s = round(after_s + latency_s, 3)
        oldest[committed_s] = max(latency_s, oldest.get(committed_s, 0.0))
    if len(oldest) < COMMITS:
        return None
    times, highest = np.array(list(oldest)), np.array(list(oldest.values()))
    slope, _ = np.polyfit(times, highest, deg=1)
    return float(slope)


def report(plan: CapacityPlan, frame: pl.DataFrame) -> Findings:
    """Latency by side while nodes are missed."""
    outcomes, seconds = frame.filter(what=OUTCOME), frame.filter(what=SECOND)
    judged = outcomes["exact"].drop_nulls()
    return Findings(
        settings={
            "cluster": f"local-cluster[{plan.nodes},2,1024]; {plan.tasks} tasks wait {plan.load.wait_us} µs for each "
            f"of {plan.load.rate:,} rows/s, {100 * plan.busy:.3g} % of the time each",
            "batches": f"{plan.batch_s:g} s",
            "failure": f"SIGKILL {plan.kill_after_s:g} s after the first result; nodes return {plan.away_s:g} s later",
            "limit": f"a node of {LIMITED} is busy for {100 * plan.node_limit:.3g} % of the time, as measured; the "
            "other sides have none",
        },
        tables=(
            table(
                "Latency in s of rows that came while nodes were away",
                outcomes,
                "killed | side | round | usual = usual_s | highest = highest_s | s later for every s = growth | "
                "on time % = percent | exact",
                percent=100 * pl.col("on_time"),
                exact=pl.when(pl.col("exact").is_null()).then(pl.lit("–")).otherwise(yes_no("exact")),
            ),
        ),
        claims=tuple(_claims(outcomes)),
        remarks=(
            "the paper has Spark Streaming, 5,000 tuples/s and nodes that compute; here Structured Streaming, and "
            "tasks that wait instead of computing, so that nodes can be lost on a machine with fewer cores than nodes. "
            "An executor takes one task at a time, as a node of Tenax does",
            "a query of Tenax is a task here, and its latency its own; Structured Streaming has one for all rows: when "
            "the batch with a second of them was committed",
            f"with its limit, Tenax lets {plan.fits} queries on a node; those that find no room wait, and the others "
            "stay on time",
            f"the oracle found {judged.sum()} of {len(judged)} runs of Tenax exact",
        ),
        panels=tuple(
            Panel(
                f"{case.killed} of {plan.nodes} nodes killed",
                "when rows came, in s since the kill",
                "latency in s, median of queries",
                curves(
                    seconds.filter(pl.col("after_s") > -plan.kill_after_s / 2, killed=case.killed).with_columns(
                        (pl.col("after_s") / plan.batch_s).round(0) * plan.batch_s
                    ),
                    "after_s",
                    "latency_s",
                    looks=SIDES,
                ),
                "killing 1 node brings an obvious increment; after killing 2, latency starts increasing unboundedly",
            )
            for case in plan.cases
        ),
    )


def _claims(outcomes: pl.DataFrame) -> Iterator[Claim]:
    for (killed, side), own in outcomes.partition_by("killed", "side", as_dict=True, maintain_order=True).items():
        growths = values(own, "growth")
        if growths:
            yield Claim(
                f"{side}, {killed} lost: results are so much later for every second that passes meanwhile",
                "unbounded with 2 of 5 nodes lost, in Spark Streaming",
                median(growths),
                "s/s",
                f"median of {len(growths)} runs; {100 * median(values(own, 'on_time')):.0f} % of results on time",
            )


EXPERIMENT = Experiment(
    full=CapacityPlan((Case(1), Case(2)), SIDES, applies=lambda case, side: side != EAGER or case.killed > 1),
    quick=CapacityPlan(
        (Case(2),),
        (LIMITED, STRUCTURED),
        nodes=4,
        node_limit=0.5,
        load=Load(200, 6_000),
        batch_s=1.0,
        kill_after_s=6.0,
        away_s=5.0,
        tail_s=3.0,
    ),
    measure=measure,
    report=report,
)
