"""Recovery and scale-out by two methods: states replayed, or read from checkpoints; and when both neighbours fail."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from tenax.chaos.record import impacts
from tenax.chaos.schedule import Fault, Kind, Unit, When
from tenax.engine.driver import Driver
from tenax.model.elasticity import Handover
from tenax.model.protection import Recovery
from tenax.model.settings import Settings
from tenax.pictures.figures import Panel
from tenax_lab.findings import Claim, Findings
from tenax_lab.lab import Bench, Experiment, Plan, Row, Trial
from tenax_lab.loads.joined import FILTER, JOIN, Load, joined, places
from tenax_lab.loads.layered import Tap
from tenax_lab.recorder import Kind as Observed
from tenax_lab.recorder import RunRecorder
from tenax_lab.report import claim_of_ratios, curves, median, ratios, spread, table, value, values, yes_no
from tenax_lab.runs import run

LIGHT, HEAVY = "LSOM", "HSOM"
SIDES = (LIGHT, HEAVY)
HANDOVERS = {LIGHT: Handover.REPLAY, HEAVY: Handover.CHECKPOINT}
SLOWER_FROM, FASTER_BELOW, FASTER_BY = 900, 5, 22.8
NODES = 3  # one filters, two join


@dataclass(frozen=True, slots=True)
class Case:
    """So many rows a second; the join is scaled out so many times, and one of its nodes lost so many times.

    `both`: the node that filters is lost with it.
    """

    rate: int
    scale_outs: int = 0
    faults: int = 0
    both: bool = False


@dataclass(frozen=True, slots=True)
class ScaleOutPlan(Plan[Case]):
    """A batch is a second of rows; all are there from the start. What happens, happens `first` batches after that.

    One thing after the other, every `apart` batches; a node that was lost comes back into the pool in between.
    """

    seconds: int = 28
    window_s: int = 8
    wait_us: int = 600
    checkpoint_every: int = 5
    first: int = 8
    apart: int = 3

    def load(self, case: Case) -> Load:
        """What has to be done."""
        return Load(case.rate, self.seconds, self.window_s, self.wait_us)

    def faults(self, case: Case) -> tuple[Fault, ...]:
        """What happens to nodes and tasks."""
        what = f"{FILTER}[0]+{JOIN}[0]" if case.both else f"{JOIN}[0]"
        losses = [
            fault
            for number in range(case.faults)
            for fault in (
                Fault(Kind.KILL, what, self._when(number)),
                Fault(Kind.RETURN, "all", self._when(number, self.apart - 2)),
            )
        ]
        wishes = [
            Fault(Kind.RESCALE, f"{JOIN}={3 + number},nodes={NODES + 1 + number}", self._when(number))
            for number in range(case.scale_outs)
        ]
        return (*losses, *wishes)

    def _when(self, number: int, later: int = 0) -> When:
        return When(self.first + number * self.apart + later, Unit.BATCHES)

    def settings(self, case: Case, side: str) -> Settings:
        """One batch in each pass, as fast as passes go; nothing is decided by load, and recovery comes first."""
        return Settings.of(
            nodes=NODES,
            pool=2 if case.both else 1,
            batch="0s",
            max_rows=case.rate,
            max_batches_per_pass=1,
            max_batches_per_round=4,
            max_batches_ahead=17,
            max_unpublished=17,
            checkpoint_every=self.checkpoint_every,
            recovery=Recovery.BLOCKING.value,
            elastic=True,
            elastic_nodes=(NODES, NODES + max(1, case.scale_outs)),
            period="1h",
            handover=HANDOVERS[side].value,
        )


def warm(bench: Bench, plan: ScaleOutPlan) -> tuple[Row, ...]:
    """A run that is not measured: the first one on a cluster is slow."""
    case, tap = plan.cases[0], Tap(bench.folder("tap"))
    tap.close()
    run(bench, joined(bench.seed, plan.load(case), tap), plan.settings(case, HEAVY), place=places)
    return ()


def measure(bench: Bench, plan: ScaleOutPlan, trial: Trial[Case]) -> list[Row]:
    """One run to the end of its rows; nodes that it has asked for do not stay for the next."""
    if trial.case.scale_outs:
        bench.close()
    tap, load = Tap(bench.folder("tap")), plan.load(trial.case)

    def begin(recorder: RunRecorder, _driver: Driver, _folder: Path) -> None:
        recorder.after_publication.append(lambda last: tap.close() if last >= load.seconds else None)

    recorder = run(
        bench,
        joined(bench.seed, load, tap),
        plan.settings(trial.case, trial.side),
        faults=plan.faults(trial.case),
        judged=True,
        place=places,
        prepare=begin,
    )
    if trial.case.scale_outs:
        bench.close()
    passes, final = recorder.of(Observed.PASS), recorder.of(Observed.FINAL)
    begun_s = value(passes, (pl.col("at_s") - pl.col("seconds")).min())
    met = [impact for impact in impacts(recorder.moments) if impact.nodes]
    back = [impact.recovered_s for impact in met if impact.recovered_s is not None]
    switched = recorder.of(Observed.SWITCHED)
    return [
        {
            "completion_s": value(final, pl.col("at_s").max()) - begun_s,
            "recovery_s": median(back) if back else None,
            "lost_tasks": len(recorder.lost),
            "replayed": recorder.replayed,
            "switches": switched.height,
            "written_bytes": recorder.costs.written_bytes,
            "queue_bytes": recorder.costs.queue_bytes,
            "exact": recorder.exact,
        }
    ]


def report(plan: ScaleOutPlan, frame: pl.DataFrame) -> Findings:
    """Times by method."""
    return Findings(
        settings={
            "cluster": f"local-cluster[{NODES} + 1 in the pool,2,1024]: one node filters, two join",
            "topology": f"tuples (1) → filter (1) → join (2) → sink; a window of {plan.window_s} s, of which the join "
            f"keeps all rows; it waits {plan.wait_us} µs for each",
            "a batch": f"1 s of event time, as fast as they can be run, {plan.seconds} of them",
            LIGHT: "handover=replay: the join is never stored, a lost task steps again what the filter retains",
            HEAVY: f"handover=checkpoint: all tasks are stored every {plan.checkpoint_every} batches",
            "failure": f"SIGKILL of a node of the join, after batch {plan.first} and every {plan.apart} from there; a "
            "node of the pool takes its task; nothing but recovery goes on meanwhile",
        },
        tables=(
            table(
                "Completion of all rows, and from a kill until no task is missing, the median of several",
                frame,
                "method = side | tuples/s = rate | scale-outs = scale_outs | faults | both lost = both | "
                "completion s = completion_s | recovery s = recovery_s | tasks lost = lost_tasks | "
                "batches behind = replayed | stored kB = stored | retained kB = retained | exact",
                both=yes_no("both", otherwise="no"),
                stored=pl.col("written_bytes") / 1e3,
                retained=pl.col("queue_bytes") / 1e3,
                exact=yes_no("exact"),
            ),
        ),
        claims=tuple(_claims(frame)),
        remarks=(
            f"the oracle found {frame['exact'].sum()} of {frame.height} runs exact: final results as those of a replay "
            "of the same batches in the same versions, to the byte",
            "tasks of the join wait for their rows, so that more of them do more on a machine with few cores, and a "
            "row costs what a tuple of the paper does",
            "the paper's HSOM freezes an operator while it is stored; checkpoints of Tenax are taken beside the live "
            "passes. Its LSOM keeps what was sent on the node before; ours retains it where it was sent, and beyond "
            "that has the log of the sources",
            "a scale-out stores all tasks once, by either method: the states of many tasks become those of others "
            "only there. By hand each time a task and a node more",
            "both lost: the paper leaves it open. What the filter had retained is gone with it, so the join is rebuilt "
            "from the log of the sources, or from the checkpoint",
        ),
        panels=tuple(_panels(frame)),
        panel_columns=2,
    )


def _claims(frame: pl.DataFrame) -> Iterator[Claim]:
    on = ["rate", "scale_outs", "faults", "both"]
    single = frame.filter(pl.col("faults") == 1, ~pl.col("both"))
    for rate in sorted({int(each) for each in values(single, "rate")}):
        own = ratios(single.filter(rate=rate), "recovery_s", LIGHT, HEAVY, on)
        said = "LSOM slower" if rate >= SLOWER_FROM else "LSOM faster"
        yield from claim_of_ratios(f"Figure 4: recovery at {rate:,} tuples/s, LSOM over HSOM", said, own, "runs")
    clean = frame.filter(pl.col("faults") == 0, pl.col("scale_outs") == 0)
    yield from _compared("Figure 5: completion without faults", "LSOM faster", clean, on)
    scaled = frame.filter(pl.col("scale_outs") > 0)
    yield from _compared("Figure 6: completion with scale-outs", "LSOM slightly faster", scaled, on)
    most = int(value(frame, pl.col("scale_outs").max()))
    highest = clean.filter(pl.col("rate").is_in(scaled["rate"].implode()))
    for side in SIDES:
        more = [
            scaled_s / plain_s
            for scaled_s in values(scaled.filter(pl.col("scale_outs") == most, side=side), "completion_s")
            for plain_s in values(highest.filter(side=side), "completion_s")
        ]
        statement = f"Figure 6: {side}, completion with {most} scale-outs over that without"
        yield from claim_of_ratios(statement, "improves greatly with every scale-out", more, "runs")
    few = frame.filter(pl.col("faults").is_between(1, FASTER_BELOW - 1), ~pl.col("both"))
    faster = ratios(few, "completion_s", LIGHT, HEAVY, on)
    if faster:
        yield Claim(
            f"Figure 7: below {FASTER_BELOW} faults LSOM completes sooner than HSOM",
            f"by {FASTER_BY} % on average",
            100 * (1 - median(faster)),
            "%",
            f"median of {len(faster)} runs, {spread([100 * (1 - each) for each in faster], '.0f')}",
        )
    many = frame.filter(pl.col("faults") >= FASTER_BELOW)
    yield from _compared(f"Figure 7: completion with {FASTER_BELOW} faults or more", "LSOM slower", many, on)
    both = frame.filter(pl.col("both"))
    if both.height:
        yield Claim(
            "upstream and downstream lost together: results are exact",
            "hardly any effective fault tolerance; future work",
            100 * value(both, pl.col("exact").mean()),
            "%",
            f"of {both.height} runs, one of each method",
        )


def _compared(what: str, said: str, frame: pl.DataFrame, on: list[str]) -> list[Claim]:
    return claim_of_ratios(f"{what}, LSOM over HSOM", said, ratios(frame, "completion_s", LIGHT, HEAVY, on), "runs")


def _panels(frame: pl.DataFrame) -> Iterator[Panel]:
    plain = frame.filter(~pl.col("both"))
    alone = plain.filter(pl.col("scale_outs") == 0)
    busiest = plain.filter(pl.col("rate") == plain["rate"].max())
    shown = (
        ("Figure 4: recovery", "tuples/s", alone.filter(pl.col("faults") == 1), "rate", "recovery_s"),
        ("Figure 5: no faults", "tuples/s", alone.filter(pl.col("faults") == 0), "rate", "completion_s"),
        ("Figure 6: scale-outs", "by hand", busiest.filter(pl.col("faults") == 0), "scale_outs", "completion_s"),
        ("Figure 7: faults", "of a node", busiest.filter(pl.col("scale_outs") == 0), "faults", "completion_s"),
    )
    said = (
        f"LSOM is slower to recover from {SLOWER_FROM} tuples/s on",
        "LSOM is faster",
        "both improve greatly, LSOM slightly faster",
        f"LSOM faster below {FASTER_BELOW} faults, slower above",
    )
    for (title, label, own, x, y), claim in zip(shown, said, strict=True):
        drawn = curves(own, x, y, looks=SIDES)
        if drawn:
            yield Panel(title, label, "s", drawn, claim)


def _cases(rates: tuple[int, ...], scale_outs: tuple[int, ...], faults: tuple[int, ...]) -> tuple[Case, ...]:
    most = max(rates)
    return (
        *(Case(rate, faults=count) for rate in rates for count in (0, 1)),
        *(Case(most, faults=count) for count in faults),
        Case(most, faults=1, both=True),
        *(Case(most, scale_outs=count) for count in scale_outs),
    )


EXPERIMENT = Experiment(
    full=ScaleOutPlan(_cases((100, 500, 1_000), (1, 3), (3, 6)), SIDES),
    quick=ScaleOutPlan(_cases((100,), (1,), ()), SIDES, seconds=14, window_s=4, first=5, checkpoint_every=3),
    measure=measure,
    report=report,
    prepare=warm,
)
