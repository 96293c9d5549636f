"""Batches that size themselves beside fixed sizes: speed of a backlog on four loads, latency without one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from tenax.model.settings import FIRST_ROWS, PER_PASS, Settings
from tenax.pictures.figures import Panel, Reference
from tenax_lab.findings import Claim, Findings
from tenax_lab.lab import WHAT, Bench, Experiment, Plan, Row, Trial
from tenax_lab.peers import NODES, QUERIES, SETTLED, application
from tenax_lab.recorder import Kind, RunRecorder
from tenax_lab.report import curves, median, percentile, ratios, spread, table, value, yes_no
from tenax_lab.runs import run
from tenax_lab.sides.inputs import KINDS, Schedule, Shape, write_inputs
from tenax_lab.sides.tenax_queries import paced_latencies

DEFAULT = "default"
PACED = "paced"
SPEED, LATENCY = "speed", "latency"
FIRST_PART = 0.25  # of the rows of a backlog, in which sizes grow
GOAL = 0.9
INTERVAL_MS = 370  # between paced files: no part of a second, so that they meet every moment of a batch interval
WHOLE, AFTER = "whole_rows_per_s", "rows_per_s"
MEASURES = {WHOLE: "from the first pass to the last commit", AFTER: "after a quarter of the rows"}


@dataclass(frozen=True, slots=True)
class Case:
    """A load: a query of those that peers are compared on, over files that are all there or appear by the clock."""

    load: str
    query: str
    shape: Shape
    every: str = "1s"

    @property
    def is_paced(self) -> bool:
        """Whether its files appear by the clock."""
        return self.load == PACED

    @property
    def kinds(self) -> tuple[str, ...]:
        """The inputs that it reads; a schedule lets all kinds appear."""
        return KINDS if self.is_paced or self.query == "joined" else KINDS[:1]

    @property
    def words(self) -> str:
        """What it is."""
        rows = f"{len(self.kinds)} × " * (len(self.kinds) > 1 and not self.is_paced)
        rows += f"{self.shape.batches * self.shape.batch_rows:,} rows"
        return f"{QUERIES[self.query]}, {rows}, {self.shape.segments:,} {'text ' * self.shape.named}keys"


def fixed(rows: int) -> str:
    """The side of a fixed size."""
    return f"{rows:,}"


def max_rows(side: str) -> int | None:
    """The fixed size of a side; none if batches size themselves."""
    return None if side == DEFAULT else int(side.replace(",", ""))


def prepare(bench: Bench, plan: Plan[Case]) -> Iterator[Row]:
    """Write the inputs of all loads, and let the cluster warm up with the first of them."""
    bench.prepared = {}
    for case in plan.cases:
        bench.prepared[case.load] = inputs = bench.folder(case.load)
        write_inputs(inputs, bench.seed, case.shape, case.kinds)
    first = plan.cases[0]
    run(bench, application(first.query, bench.prepared[first.load], follow=False, every=first.every), settings(DEFAULT))
    yield from ()


def measure(bench: Bench, _: Plan[Case], trial: Trial[Case]) -> Iterator[Row]:
    """How fast a backlog was worked off, or the latency of each batch of files that appeared."""
    case, inputs = trial.case, bench.prepared[trial.case.load]
    if case.is_paced:
        schedule = Schedule(inputs, bench.folder("appearing"), case.shape, INTERVAL_MS / 1000)
        for place, latency_s in enumerate(paced_latencies(bench, case.query, schedule, settings(trial.side))):
            yield {WHAT: LATENCY, "place": place, "latency_s": latency_s}
        return
    recorder = run(bench, application(case.query, inputs, follow=False, every=case.every), settings(trial.side))
    yield {WHAT: SPEED, "max_rows": max_rows(trial.side), **speeds(recorder)}
    shutil.rmtree(recorder.folder)  # the results of a wide load are larger than its input


def settings(side: str) -> Settings:
    """As a run has them, but for the size of batches."""
    return Settings.of(nodes=NODES, max_rows=max_rows(side))


def speeds(recorder: RunRecorder) -> Row:
    """Rows per second of the whole run, and after the first part of its rows; what its passes were like."""
    passes = recorder.of(Kind.PASS).sort("last").with_columns(read=pl.col("rows").cum_sum())
    final = recorder.of(Kind.FINAL).sort("last").join_asof(passes.select("last", "read"), on="last")
    rows, begun_s, ended_s = passes["read"][-1], passes["at_s"][0] - passes["seconds"][0], final["at_s"][-1]
    whole = rows / (ended_s - begun_s)
    settled_s, settled = final.filter(pl.col("read") >= FIRST_PART * rows).select("at_s", "read").row(0)
    return {
        WHOLE: whole,
        AFTER: (rows - settled) / (ended_s - settled_s) if settled < rows else whole,
        "passes": passes.height,
        "pass_s": value(passes, pl.col("seconds").median()),
        "longest_s": value(passes, pl.col("seconds").max()),
        "batch_rows": value(passes, (pl.col("rows") / (pl.col("last") - pl.col("first") + 1)).max()),
    }


def compared(frame: pl.DataFrame, load: str, measured: str) -> tuple[str, list[float]]:
    """The fixed size that is best on a load, by the median of rounds, and the default over it, round by round."""
    own = frame.filter(pl.col(WHAT) == SPEED, pl.col("load") == load)
    typical = own.filter(pl.col("side") != DEFAULT).group_by("side", maintain_order=True).agg(pl.col(measured).median())
    best = str(typical.sort(measured, descending=True, maintain_order=True)["side"][0])
    return best, ratios(own, measured, DEFAULT, best, on=["round"])


def settled_latencies(frame: pl.DataFrame) -> pl.DataFrame:
    """Latencies without the first quarter of each run."""
    late = frame.filter(pl.col(WHAT) == LATENCY)
    return late.filter(pl.col("place") >= (SETTLED * pl.len().over("side", "round")).floor())


def report(plan: Plan[Case], frame: pl.DataFrame) -> Findings:
    """Speeds by load and size, the default over the best fixed size, latencies."""
    speed = frame.filter(pl.col(WHAT) == SPEED)
    typical = speed.group_by("load", "side", maintain_order=True).agg(
        pl.col(WHOLE, AFTER, "passes", "pass_s", "batch_rows").median(), pl.col("longest_s").max()
    )
    backlogs = [case for case in plan.cases if not case.is_paced]
    rows = []
    for case in backlogs:
        for measured, what in MEASURES.items():
            best, over = compared(frame, case.load, measured)
            ratio = median(over)
            rows.append(
                {
                    "load": case.load,
                    "measured": what,
                    "best": best,
                    "ratio": ratio,
                    "spread": spread(over),
                    "met": ratio >= GOAL,
                }
            )
    by_side = (
        settled_latencies(frame)
        .group_by("side", maintain_order=True)
        .agg(batches=pl.len(), p50=percentile("latency_s", 50), p99=percentile("latency_s", 99))
    )
    return Findings(
        settings={
            "loads": "; ".join(f"{case.load}: {case.words}" for case in plan.cases),
            "files": f"{backlogs[0].shape.file_rows:,} rows each; two cover a second of event time",
            "windows": ", ".join(f"{case.load}: 10 s, one every {case.every}" for case in plan.cases),
            "batch interval": f"{Settings().batches.batch_s:g} s",
            "batches of a pass": f"at most {PER_PASS}",
            "first batches": f"at most {FIRST_ROWS:,} rows where sizes are measured",
            "cluster": f"{NODES} nodes, the same for all runs",
            "rounds": plan.rounds,
        },
        tables=(
            table(
                "The default over the best fixed size, medians of rounds",
                pl.DataFrame(rows).with_columns(goal=pl.lit(GOAL)),
                "load | measured | best fixed = best | ratio | spread | goal | met",
                met=yes_no("met", otherwise="no"),
            ),
            table(
                "A backlog: medians of rounds; rows are those of the largest batch",
                typical,
                f"load | size = side | rows/s = {WHOLE} | after a quarter = {AFTER} | passes | pass s = pass_s | "
                "longest s = longest_s | rows of a batch = batch_rows",
            ),
            table(
                f"Latency in s of files that appear every {INTERVAL_MS} ms, the first quarter left out",
                by_side,
                "size = side | batches | p50 | p99",
            ),
        ),
        claims=tuple(_claims(plan, frame, by_side)),
        remarks=(
            "a run is measured from the beginning of its first pass to the commit of its last results: starting a "
            "cluster is in no number, and the cluster has run before",
            "the best fixed size is the one with the best median; it is another one for every load and machine",
        ),
        panels=tuple(_panels(backlogs, speed)),
        panel_columns=2,
    )


def _claims(plan: Plan[Case], frame: pl.DataFrame, latency: pl.DataFrame) -> Iterator[Claim]:
    for case in plan.cases:
        for measured, what in MEASURES.items() if not case.is_paced else ():
            best, over = compared(frame, case.load, measured)
            of = f"median of {len(over)} rounds, {spread(over)}, best fixed size {best}"
            yield Claim(
                f"{case.load}: rows/s of the default over the best fixed size, {what}",
                f"at least {GOAL:g}",
                median(over),
                "×",
                of,
                "we aim at",
            )
    ours, theirs = latency.filter(side=DEFAULT), latency.filter(pl.col("side") != DEFAULT)
    for percent in ("p50", "p99") if not ours.is_empty() and not theirs.is_empty() else ():
        ratio = value(ours, percent) / value(theirs.head(1), percent)
        of = f"{ours['batches'][0]} batches of files each, against {theirs['side'][0]} rows"
        yield Claim(f"{percent} latency without a backlog over that of a fixed size", "1", ratio, "×", of, "we aim at")


def _panels(backlogs: list[Case], speed: pl.DataFrame) -> Iterator[Panel]:
    for case in backlogs:
        own = speed.filter(load=case.load)
        default = value(own.filter(side=DEFAULT), pl.col(WHOLE).median())
        drawn = own.filter(pl.col("side") != DEFAULT).with_columns(size=pl.lit("fixed size"))
        yield Panel(
            f"{case.load}: {case.words}",
            "rows of a batch",
            "rows per second",
            curves(drawn.sort("max_rows"), "max_rows", WHOLE, by="size", band="range"),
            references=(Reference("by measured speed", default),),
        )


def _applies(case: Case, side: str) -> bool:
    """Latency is compared with the size that batches had before."""
    return not case.is_paced or side in {DEFAULT, fixed(FIRST_ROWS)}


EXPERIMENT = Experiment(
    full=Plan(
        (
            Case("means", "means", Shape(200, 200_000, 1_000)),
            Case("narrow", "means", Shape(200, 200_000, 10)),
            Case("wide", "means", Shape(50, 200_000, 1_000_000, named=True), every="10s"),
            Case("join", "joined", Shape(100, 200_000, 1_000)),
            Case(PACED, "means", Shape(100, 40_000, 1_000)),
        ),
        (DEFAULT, *(fixed(rows) for rows in (FIRST_ROWS, 300_000, 1_000_000, 3_000_000))),
        rounds=3,
        applies=_applies,
    ),
    quick=Plan(
        (
            Case("means", "means", Shape(8, 2_000, 20)),
            Case("narrow", "means", Shape(8, 2_000, 2)),
            Case("wide", "means", Shape(4, 2_000, 10_000, named=True), every="10s"),
            Case("join", "joined", Shape(4, 2_000, 20)),
            Case(PACED, "means", Shape(6, 400, 20)),
        ),
        (DEFAULT, fixed(FIRST_ROWS)),
        applies=_applies,
    ),
    measure=measure,
    report=report,
    prepare=prepare,
)
