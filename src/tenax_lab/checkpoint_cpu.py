"""Processor time of checkpoints over the time between them, beside the same work without any."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

import polars as pl

from tenax.chaos.injector import pid_of
from tenax.engine.costs import Costs
from tenax.model.settings import Settings
from tenax.pictures.figures import Curve, Panel
from tenax_lab.findings import Claim, Findings
from tenax_lab.lab import Bench, Experiment, Plan, Row, Trial
from tenax_lab.loads.tree import MAX_ROWS, SHAPE, Arrival, Load, window_tree
from tenax_lab.processes import cpu_s, tree
from tenax_lab.recorder import RunRecorder
from tenax_lab.report import curves, spread, table, value, values
from tenax_lab.runs import SELDOM, run

NODES = 2
NONE = "none"
SHARES = {"nodes": "of nodes", "everything": "of all processes", "counted": "as the engine counts"}


@dataclass(frozen=True, slots=True)
class Case:
    """The first `warmup` batches fill windows; the `measured` ones after them hold a whole number of every interval."""

    rate: int
    window_s: int
    batch_s: int
    warmup: int
    measured: int

    @property
    def load(self) -> Load:
        """What the tree has to do."""
        return Load(self.rate, self.window_s, self.batch_s)


def every(interval_s: int) -> str:
    """The side with a checkpoint every so many seconds of event time."""
    return f"every {interval_s} s"


def interval_s(side: str) -> int | None:
    """The seconds of event time between checkpoints; None where there are none."""
    return None if side == NONE else int(side.split()[1])


def prepare(bench: Bench, plan: Plan[Case]) -> list[Row]:
    """Code is compiled and pages are touched for the first time: no side's cost. A quick run concludes nothing."""
    if plan.rounds > 1:
        measure(bench, plan, Trial(plan.cases[0], plan.sides[1], 0))
    return []


def measure(bench: Bench, _: Plan[Case], trial: Trial[Case]) -> list[Row]:
    """Run the tree once: what its measured batches cost."""
    case, interval = trial.case, interval_s(trial.side)
    batches = case.warmup + case.measured
    settings = Settings.of(
        nodes=NODES,
        batch="0s",
        max_rows=MAX_ROWS,
        checkpoint_every=SELDOM if interval is None else case.load.batches(interval),
        max_batches_per_pass=1,
        max_batches_ahead=8,
        max_unpublished=8,
    )
    meters: list[Meter] = []
    run(
        bench,
        window_tree(bench.seed, case.load, Arrival(batches + 1, batches + 1)),
        settings,
        ends_after=batches + 1,
        prepare=lambda recorder, _driver, _folder: meters.append(Meter(recorder, case.warmup, batches)),
    )
    return [{"interval_s": interval, **meters[0].spent}]


class Meter:
    """What the batches after `first` up to `last` cost. A checkpoint belongs to the batch before it."""

    def __init__(self, recorder: RunRecorder, first: int, last: int) -> None:
        self._recorder = recorder
        self._ends = (first, last)
        self._seen: list[tuple[float, float, Costs]] = []
        recorder.after_pass.append(self._look)

    def _look(self, last: int) -> None:
        """A pass of one batch has finished; the next one, and a checkpoint, begin when this returns."""
        coordinator = self._recorder.coordinator
        if last in self._ends and coordinator is not None:
            nodes = {pid for node in coordinator.state.nodes for pid in tree(pid_of(node.name))}
            driver_s = cpu_s(set(tree(os.getpid())) - nodes)
            self._seen.append((cpu_s(nodes), driver_s, replace(self._recorder.costs)))

    @property
    def spent(self) -> Row:
        """Of executors with their workers, of the driver with its virtual machine, and as the engine counts."""
        (nodes_s, driver_s, before), (nodes_end_s, driver_end_s, after) = self._seen
        return {
            "nodes_s": nodes_end_s - nodes_s,
            "driver_s": driver_end_s - driver_s,
            "checkpoints": after.checkpoints - before.checkpoints,
            "checkpoint_cpu_s": after.checkpoint_cpu_s - before.checkpoint_cpu_s,
            "step_cpu_s": after.step_cpu_s - before.step_cpu_s,
            "written_mb": (after.written_bytes - before.written_bytes) / 2**20,
        }


def shares_of(frame: pl.DataFrame) -> pl.DataFrame:
    """What checkpoints of an interval cost, in percent of the normal work, round by round.

    - `counted`: processor time that the engine itself counts for checkpoints, over that inside steps.
    - `nodes` and `everything`: processor time with checkpoints beyond that without any, of the same round, of the
      executors and workers, and of all processes.
    """
    none = frame.filter(side=NONE).select("round", bare_s="nodes_s", bare_driver_s="driver_s")
    beside = pl.col("nodes_s") + pl.col("driver_s"), pl.col("bare_s") + pl.col("bare_driver_s")
    return (
        frame.filter(pl.col("side") != NONE)
        .join(none, on="round", maintain_order="left")
        .with_columns(
            counted=100 * pl.col("checkpoint_cpu_s") / pl.col("step_cpu_s"),
            nodes=100 * (pl.col("nodes_s") / pl.col("bare_s") - 1),
            everything=100 * (beside[0] / beside[1] - 1),
        )
        .sort("interval_s", "round")
    )


def report(plan: Plan[Case], frame: pl.DataFrame) -> Findings:
    """Medians of rounds, with their spread."""
    (case,), shares = plan.cases, shares_of(frame)
    median = shares.group_by("interval_s", maintain_order=True).agg(
        pl.col(*SHARES).median(), pl.col(*SHARES).min().name.suffix(" low"), pl.col(*SHARES).max().name.suffix(" high")
    )
    per_batch = pl.col("nodes_s", "driver_s", "step_cpu_s", "checkpoint_cpu_s") * 1000 / case.measured
    batch = frame.group_by("side", "interval_s").agg(per_batch.median(), pl.col("checkpoints", "written_mb").median())

    def columns(name: str, heading: str) -> dict[str, str | pl.Expr]:
        low, high = (pl.col(f"{name} {end}").map_elements(lambda x: f"{x:.3g}", pl.String) for end in ("low", "high"))
        return {f"{name} %": name, heading: pl.format("{} to {}", low, high)}

    return Findings(
        settings={
            "cluster": f"local-cluster[{NODES},2,1024]",
            "topology": f"{SHAPE}, windows of {case.window_s} s every 1 s in four operators",
            "rate": f"{case.rate:,} tuples/s of each of 16 sources",
            "a batch": f"{case.batch_s} s of event time, one a pass, as fast as they can be run; intervals are in "
            "event time",
            "measured": f"{case.measured} batches after {case.warmup} that fill windows, {plan.rounds} rounds",
            "checkpoints": "aligned",
        },
        tables=(
            table(
                "Processor time of checkpoints over that of normal work: as the engine counts, of nodes, of all "
                "processes",
                median,
                {
                    "interval s": "interval_s",
                    **columns("counted", "spread"),
                    **columns("nodes", "spread of it"),
                    **columns("everything", "spread of that"),
                },
            ),
            table(
                "A batch, in ms (medians of rounds), and what was stored in all",
                batch.sort(pl.col("interval_s").fill_null(0)),
                "checkpoints = side | nodes ms = nodes_s | driver ms = driver_s | in steps ms = step_cpu_s | "
                "counted ms = checkpoint_cpu_s | stored = checkpoints | written MB = written_mb",
            ),
        ),
        claims=tuple(_claims(shares)),
        remarks=(
            "every round runs each interval once and no checkpoints once, in the opposite order in the next round; a "
            "ratio is of two runs of one round",
            "counted is the processor time that the engine finds in checkpoints, in workers and driver, over that in "
            "steps; the paper counts it within a task as well",
            "of nodes and everything the kernel tells: of executors with their Python workers, and of all processes. "
            "These are differences of two runs, so that they tell little where a machine is not alone and checkpoints "
            "cost less than its speed varies",
            "checkpoints are incremental: one stores what has changed since the last, so that the time between them "
            "changes their number and hardly what is written in all",
            *_fewer(case, batch),
        ),
        panels=_panels(case, frame, shares),
        panel_columns=2,
    )


def _claims(shares: pl.DataFrame) -> Iterator[Claim]:
    often, seldom = (
        shares.filter(pl.col("interval_s") == end) for end in (pl.col("interval_s").min(), pl.col("interval_s").max())
    )
    short, long = (int(each["interval_s"][0]) for each in (often, seldom))
    most, least = (value(each, pl.col("counted").median()) for each in (often, seldom))
    yield Claim(
        f"processor time for a checkpoint every {short} s, over that of normal work",
        "prohibitively expensive (no number)",
        most,
        "%",
        f"median of {often.height} rounds, {spread(often['counted'], '.3g')}; of all processes "
        f"{value(often, pl.col('everything').median()):.3g} %",
    )
    yield Claim(
        f"the same, every {long} s",
        f"increases quickly from {long} s to {short} s (no number)",
        least,
        "%",
        f"median of {seldom.height} rounds, {spread(seldom['counted'], '.3g')}; with checkpoints "
        f"{long / short:g} times as often it is {most - least:.3g} percentage points more",
    )


def _fewer(case: Case, batch: pl.DataFrame) -> Iterator[str]:
    """Where checkpoints were due more often than they could be stored."""
    for side, interval, stored in batch.select("side", "interval_s", "checkpoints").sort("interval_s").iter_rows():
        due = 0 if interval is None else case.measured // case.load.batches(interval)
        if stored < due:
            yield (
                f"{side}: {due} checkpoints were due and {stored:g} were stored, since one is on its way at a time, "
                "from the pass after which it is due to the end of the next one"
            )


def _panels(case: Case, frame: pl.DataFrame, shares: pl.DataFrame) -> tuple[Panel, Panel]:
    x_label = "seconds of event time between checkpoints"
    per_batch = {name: 1000 * pl.col(f"{name}_s") / case.measured for name in ("nodes", "driver")}
    ends = (float(shares["interval_s"].min()), float(shares["interval_s"].max()))  # type: ignore[arg-type]
    drawn: list[Curve] = []
    for look, (name, column) in enumerate(per_batch.items()):
        looks = [""] * look + [name]
        drawn += curves(shares, "interval_s", column, by=pl.lit(name), looks=looks, band="range")
        level = value(frame.filter(side=NONE), column.median())
        drawn.append(Curve(f"{name} without checkpoints", ends, (level, level), look, dashed=True))
    percent: list[Curve] = []
    for look, (column_name, label) in enumerate(SHARES.items()):
        looks = [""] * look + [label]
        percent += curves(shares, "interval_s", column_name, by=pl.lit(label), looks=looks, band="range")
    claim = "increases quickly with shorter intervals; every second is prohibitively expensive (Figure 9)"
    return (
        Panel("Processor time over that of normal work", x_label, "percent", tuple(percent), claim=claim),
        Panel(
            "Processor time of a batch",
            x_label,
            "ms",
            tuple(drawn),
            y_range=(0.0, 1.3 * max(values(frame, per_batch["nodes"]))),
        ),
    )


EXPERIMENT = Experiment(
    full=Plan((Case(1_000, 30, 1, 30, 30),), (NONE, *map(every, (1, 5, 15, 30))), rounds=3),
    quick=Plan((Case(50, 2, 1, 2, 4),), (NONE, *map(every, (1, 2)))),
    measure=measure,
    report=report,
    prepare=prepare,
)
