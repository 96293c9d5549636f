"""What standbys send: bytes with none, with active ones on one side or both, and with passive ones by sweeping."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from tenax.model.protection import Protection, Standby, Strategy
from tenax.pictures.figures import Panel
from tenax_lab.findings import Claim, Findings
from tenax_lab.lab import Bench, Experiment, Plan, Row, Trial
from tenax_lab.loads.chain import BATCHES_PER_S, CLUSTER, PROTECTED, Load, chain, chain_plan, chain_settings
from tenax_lab.recorder import Kind
from tenax_lab.report import curves, highest, median, met, ratios, spread, table
from tenax_lab.runs import SELDOM, run

NONE, ONE_SIDE, BOTH_SIDES, PASSIVE = "none", "active, output off", "active, both send", "passive, sweeping"
SIDES = (NONE, ONE_SIDE, BOTH_SIDES, PASSIVE)
PASSIVE_GOAL_PERCENT = 10.0


@dataclass(frozen=True, slots=True)
class Case:
    """Elements a second."""

    rate: int


@dataclass(frozen=True, slots=True)
class StandbyPlan(Plan[Case]):
    """For each rate so many `batches` of every side; passive ones for `intervals` of `interval` batches."""

    batches: int = 12
    interval: int = 20
    intervals: int = 3

    def load(self, trial: Trial[Case]) -> Load:
        """What a side runs at a rate."""
        batches = self.interval * self.intervals if trial.side == PASSIVE else self.batches
        return Load(batches, trial.case.rate // BATCHES_PER_S)


def protection(side: str, interval: int) -> Protection:
    """What a side asks for: all elements but the source are protected alike."""
    if side == PASSIVE:
        return Protection(checkpoint=Strategy.SWEEPING.value, checkpoint_every=interval)
    mode = {ONE_SIDE: Standby.ACTIVE, BOTH_SIDES: Standby.ACTIVE_ACTIVE}.get(side)
    return Protection(checkpoint_every=SELDOM, standby=dict.fromkeys(PROTECTED, mode) if mode else {})


def measure(bench: Bench, plan: StandbyPlan, trial: Trial[Case]) -> Iterator[Row]:
    """Run the chain without failures; a row for each checkpoint and each pass."""
    load = plan.load(trial)
    application = chain(bench.seed, load, rate=trial.case.rate)
    asked = protection(trial.side, plan.interval)
    recorder = run(bench, application, chain_settings(asked, load), plan=chain_plan(application, asked))
    for row in recorder.rows:
        if row["what"] in (Kind.CHECKPOINT, Kind.PASS):
            yield {**row, "batches": load.batches, "batch_rows": load.batch_rows}


def sent_by(plan: StandbyPlan, frame: pl.DataFrame) -> pl.DataFrame:
    """What a side sent after its first batch; a passive one after its first interval, without the last checkpoint."""
    warm = pl.when(pl.col("side") == PASSIVE).then(plan.interval).otherwise(1)
    passes = pl.col("what") == Kind.PASS, pl.col("last") > warm
    stored = pl.col("side") == PASSIVE, pl.col("batch") >= warm, pl.col("batch") < pl.col("batches")
    batches = (pl.col("batches") - warm).first()
    elements = batches * pl.col("batch_rows").first()
    checkpoint_bytes = (pl.col("state_bytes") + pl.col("queue_bytes")).filter(*stored).sum()
    sent = frame.group_by("rate", "side", maintain_order=True).agg(
        messages=pl.col("messages").filter(*passes).sum() / batches,
        message_bytes=pl.col("sent_bytes").filter(*passes).sum() / elements,
        checkpoint_bytes=checkpoint_bytes / elements,
    )
    sent = sent.with_columns(bytes=pl.col("message_bytes") + pl.col("checkpoint_bytes"))
    none = sent.filter(side=NONE).select("rate", none="bytes")
    return sent.join(none, on="rate", maintain_order="left").with_columns(times=pl.col("bytes") / pl.col("none"))


def report(plan: StandbyPlan, frame: pl.DataFrame) -> Findings:
    """Bytes of each side, and how many times those without a standby they are."""
    sent = sent_by(plan, frame)
    times = curves(sent, "rate", "times", looks=SIDES)
    fastest = sent.filter(pl.col("rate") == pl.col("rate").max())
    none, passive = (fastest.filter(side=side).row(0, named=True) for side in (NONE, PASSIVE))
    return Findings(
        settings={
            "cluster": CLUSTER,
            "state, elements": Load(1, 1).groups,
            "batches for each element/s": f"a batch stands for 1/{BATCHES_PER_S} s",
            "passive": f"a sweep every {plan.interval} batches",
        },
        tables=(
            table(
                "What is sent for each element",
                sent,
                "elements/s = rate | standby = side | messages a batch = messages | "
                "bytes between nodes = message_bytes | bytes to the store = checkpoint_bytes | times none = times",
            ),
        ),
        claims=tuple(_claims(sent)),
        remarks=(
            "all elements but the source are protected alike, so every stream between nodes is counted; the paper "
            "counts one part of its chain",
            "with the output of standbys off, a producer sends to both copies; with both copies sending, each of "
            "them does. The paper's None-AS counts what the second copy sends as well; here a copy that lies on the "
            "node of its producer costs no message",
            "a standby reads the log of the source itself, which costs no messages",
            f"at {none['rate']:,} elements/s passive standby writes {passive['checkpoint_bytes']:.3g} bytes an element "
            f"to the store beside {passive['message_bytes']:.3g} between nodes (none: {none['message_bytes']:.3g})",
        ),
        panels=(
            Panel(
                "Bytes sent",
                "elements/s",
                "KB/s",
                curves(sent, "rate", pl.col("bytes") * pl.col("rate") / 1000, looks=SIDES),
                claim="none, × 2, × 4, + 10 % (Figure 5)",
                logarithmic=True,
            ),
            Panel(
                "Bytes sent, times those without a standby",
                "elements/s",
                "times",
                times,
                claim="1, 2, 4, 1.1",
                y_range=(0.0, 1.6 * highest(times)),
            ),
        ),
        panel_columns=2,
    )


def _claims(sent: pl.DataFrame) -> Iterator[Claim]:
    for side, what, paper in (
        (ONE_SIDE, "active on one side", "about 2"),
        (BOTH_SIDES, "active on both sides", "about 4"),
    ):
        times = ratios(sent, "bytes", side, NONE, ["rate"])
        over = f"median over {len(times)} rates"
        yield Claim(f"bytes sent, {what}, for one without a standby", paper, median(times), "times", over)
    added = [100 * (each - 1) for each in ratios(sent, "bytes", PASSIVE, NONE, ["rate"])]
    statement = "bytes that passive standby by sweeping adds"
    yield Claim(statement, "about 10 %", median(added), "%", f"{spread(added, '.3g')} % over {len(added)} rates")
    yield Claim(
        statement,
        f"at most {PASSIVE_GOAL_PERCENT:g} %",
        max(added),
        "%",
        f"the most of {len(added)} rates; {met(max(added) <= PASSIVE_GOAL_PERCENT)}",
        "we aim at",
    )


EXPERIMENT = Experiment(
    full=StandbyPlan(tuple(map(Case, (1_500, 6_000, 24_000))), SIDES),
    quick=StandbyPlan((Case(3_000),), SIDES, batches=3, interval=4, intervals=2),
    measure=measure,
    report=report,
)
