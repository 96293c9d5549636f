"""Latency through losses that follow each other, each before the last one is over: source replay and checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import polars as pl

from tenax.chaos.record import What
from tenax.chaos.schedule import Fault, Kind, Unit, When
from tenax.engine.driver import Driver
from tenax.errors import ClusterFailed
from tenax.model.protection import Protection, Recovery
from tenax.model.settings import Settings
from tenax.pictures.figures import Panel
from tenax_lab.arrivals import HEADROOM, Arrivals
from tenax_lab.findings import Claim, Findings
from tenax_lab.lab import WHAT, Bench, Experiment, Plan, Row, Trial
from tenax_lab.loads.layered import Load, Tap, layered
from tenax_lab.recorder import Kind as Observed
from tenax_lab.recorder import RunRecorder
from tenax_lab.report import claim_of_ratios, curves, median, ratios, table, value, yes_no
from tenax_lab.runs import SELDOM, run, tapped

REPLAY, CHECKPOINTS = "source replay", "checkpoints"
SIDES = (REPLAY, CHECKPOINTS)
QUERIES = 4  # window operators that read the parser, as in the paper's Figure 7
VICTIM = "o0[0]"
BATCH, OUTCOME = "batch", "outcome"


@dataclass(frozen=True, slots=True)
class Case:
    """So many nodes die one after the other: each time the one that has the first query by then."""

    failures: int


@dataclass(frozen=True, slots=True)
class RepeatedPlan(Plan[Case]):
    """The first node dies `kill_after_s` after the first result, the others every `gap_s`; rows come for `tail_s` more.

    No node returns. With `checkpoint_s` between checkpoints that is little to replay; source replay stores none.
    """

    nodes: int = 5
    load: Load = field(default_factory=lambda: Load(200, 1_500))
    batch_s: float = 1.0
    checkpoint_s: float = 10.0
    kill_after_s: float = 20.0
    gap_s: float = 6.0
    tail_s: float = 14.0

    def faults(self, case: Case) -> tuple[Fault, ...]:
        """The kills."""
        return tuple(
            Fault(Kind.KILL, VICTIM, When(self.kill_after_s + number * self.gap_s, Unit.SECONDS))
            for number in range(case.failures)
        )

    def settings(self, side: str) -> Settings:
        """Nothing but recovery goes on while tasks are missing, as in the paper's system."""
        every = SELDOM if side == REPLAY else timedelta(seconds=self.checkpoint_s)
        protection = Protection(recovery=Recovery.BLOCKING.value, checkpoint_every=every)
        return Settings(protection=protection).but(
            nodes=self.nodes,
            batch=timedelta(seconds=self.batch_s),
            max_rows=round(HEADROOM * self.load.rate * self.batch_s),
            max_batches_per_pass=8,
            max_batches_ahead=17,
            max_unpublished=17,
        )


def measure(bench: Bench, plan: RepeatedPlan, trial: Trial[Case]) -> Iterator[Row]:
    """Run through the kills, and tell how late the results of every batch were."""
    tap = Tap(bench.folder("tap"))
    application = layered(bench.seed, plan.load, tap, QUERIES)
    faults = plan.faults(trial.case)
    arrivals: list[Arrivals] = []

    def begin(recorder: RunRecorder, _driver: Driver, _folder: Path) -> None:
        arrivals.append(Arrivals(recorder, plan.load.rate))
        tapped(recorder, tap, len(faults), plan.tail_s)

    judged = trial.case == plan.cases[-1]  # where most is lost
    recorder = run(bench, application, plan.settings(trial.side), faults=faults, judged=judged, prepare=begin)
    yield from latency_rows(recorder, arrivals[0].came_s)


def latency_rows(recorder: RunRecorder, came_s: Mapping[int, float]) -> Iterator[Row]:
    """How late the final results of every batch were, from when its rows came; that is counted from the first kill."""
    kills = [moment.at_s for moment in recorder.moments if moment.what is What.FAULT]
    if not kills:
        raise ClusterFailed("nodes are killed while batches come, found none that were: see spark.log")
    shown = recorder.of(Observed.SHOWN).filter(~pl.col("tentative"))
    final: dict[int, float] = {}
    for at_s, first, last in shown.select("at_s", "first", "last").iter_rows():
        final.update({batch: max(at_s, final.get(batch, 0.0)) for batch in range(first, last + 1) if batch in came_s})
    latencies = {batch: max(0.0, at_s - came_s[batch]) for batch, at_s in final.items()}
    for batch, latency_s in sorted(latencies.items()):
        yield {WHAT: BATCH, "after_s": came_s[batch] - kills[0], "latency_s": latency_s}
    before = [latency for batch, latency in latencies.items() if final[batch] < kills[0]]
    rounds = recorder.of(Observed.ROUND)
    yield {
        WHAT: OUTCOME,
        "usual_s": median(before) if before else None,
        "highest_s": max(latency for batch, latency in latencies.items() if final[batch] >= kills[0]),
        "replayed": 0 if rounds.is_empty() else int(value(rounds, (pl.col("last") - pl.col("first") + 1).sum())),
        "exact": recorder.exact,
    }


def report(plan: RepeatedPlan, frame: pl.DataFrame) -> Findings:
    """The highest latency by the number of losses, and that of every batch."""
    outcomes, batches = frame.filter(what=OUTCOME), frame.filter(what=BATCH)
    typical = outcomes.group_by("failures", "side", maintain_order=True).agg(
        pl.col("usual_s", "highest_s", "replayed").median(),
        exact=pl.when(pl.col("exact").count() > 0).then(pl.col("exact").all()),
        runs=pl.len(),
    )
    return Findings(
        settings={
            "cluster": f"local-cluster[{plan.nodes},2,1024]",
            "queries": f"{QUERIES} aggregates behind a parser; they wait {plan.load.wait_us} µs for each of "
            f"{plan.load.rate} rows/s",
            "batches": f"{plan.batch_s:g} s; with checkpoints, one every {plan.checkpoint_s:g} s",
            "failures": f"SIGKILL of the node of {VICTIM}, {plan.kill_after_s:g} s after the first result, the next "
            f"ones every {plan.gap_s:g} s; no node returns",
            "recovery": "blocking",
        },
        tables=(
            table(
                "The latency of a batch in s, from when its rows were there to its final results, and batches that "
                "were replayed; medians of runs",
                typical,
                "losses = failures | recovery = side | runs | usual = usual_s | highest = highest_s | replayed | exact",
                exact=yes_no("exact"),
            ),
        ),
        claims=tuple(_claims(outcomes)),
        remarks=(
            "the paper has Storm, 200 tuples/s, windows of 5 s, failures 60 s apart of which each comes before the "
            "replay of the last is over; ours come every "
            f"{plan.gap_s:g} s, because recovery takes seconds here",
            "source replay: no checkpoint is stored, so everything since the first batch is replayed, and again when "
            "the node dies that does so. The paper's replays the tuples that were not acknowledged",
            f"{outcomes['exact'].sum()} of {outcomes['exact'].count()} judged runs were exact by the oracle",
        ),
        panels=tuple(
            Panel(
                f"{case.failures} loss{'es' * (case.failures > 1)}",
                "when rows came, in s since the first kill",
                "latency in s",
                curves(
                    batches.filter(failures=case.failures).with_columns(pl.col("after_s").round(0)),
                    "after_s",
                    "latency_s",
                    looks=SIDES,
                ),
                "latency during recovery increases with the number of consecutive failures",
            )
            for case in plan.cases
        ),
    )


def _claims(outcomes: pl.DataFrame) -> Iterator[Claim]:
    most = value(outcomes, pl.col("failures").max())
    for side in SIDES:
        own = outcomes.filter(side=side)
        several = own.filter(pl.col("failures") == most)
        single = own.filter(failures=1)
        if most > 1 and not single.is_empty():
            yield Claim(
                f"{side}: the highest latency after {most:g} losses in a row, over that after one",
                "increases with the number of consecutive failures",
                value(several, pl.col("highest_s").median()) / value(single, pl.col("highest_s").median()),
                "×",
                f"medians of {several.height} and {single.height} runs",
            )
    compared = ratios(outcomes, "highest_s", CHECKPOINTS, REPLAY, on=["failures", "round"])
    yield from claim_of_ratios(
        "the highest latency with checkpoints over that with source replay", "no number", compared, "pairs of runs"
    )


EXPERIMENT = Experiment(
    full=RepeatedPlan((Case(1), Case(2), Case(3)), SIDES),
    quick=RepeatedPlan(
        (Case(2),),
        SIDES,
        nodes=4,
        load=Load(50, 1_000),
        checkpoint_s=2.0,
        kill_after_s=5.0,
        gap_s=1.0,
        tail_s=3.0,
    ),
    measure=measure,
    report=report,
)
