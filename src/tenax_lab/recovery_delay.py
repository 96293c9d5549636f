"""How long results stay away when a node is lost: detection, redeployment and replay, and what the output shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import polars as pl

from tenax.chaos.record import Moment, What, impacts
from tenax.chaos.runs import RESULTS
from tenax.chaos.schedule import Fault, Kind, Unit, When
from tenax.errors import ClusterFailed
from tenax.model.protection import Protection, Recovery, Strategy
from tenax.model.settings import PER_PASS, ClusterSettings, Settings
from tenax.pictures.figures import Curve, Panel
from tenax_lab.findings import Claim, Findings
from tenax_lab.lab import Bench, Experiment, Plan, Row, Trial
from tenax_lab.loads.chain import CLUSTER, NODES, OUTPUT, Load, chain, chain_plan
from tenax_lab.report import curves, table, value, values, yes_no
from tenax_lab.runs import run

VICTIM = "pe5[0]"  # on the third of the four nodes, with pe6
ACTIVE, PASSIVE = "active", "passive"
KILL, HANG = Kind.KILL.value, Kind.HANG.value
PARTS = ("detection_s", "redeployment_s", "replay_s", "new_pass_s")
DELAY, SHOWN = "delay", "shown"


@dataclass(frozen=True, slots=True)
class Case:
    """A loss: whether the node is killed or hangs, its heartbeats, and batches between checkpoints."""

    fault: str
    heartbeat_s: float
    interval: int

    @property
    def fails_at(self) -> int:
        """The batch after which the node fails: the next one but one would bring its next checkpoint."""
        return 2 * self.interval - 1


@dataclass(frozen=True, slots=True)
class DelayPlan(Plan[Case]):
    """Elements come at `rate` a second in batches of `batch_s`, and go on for `after` batches after the fault.

    An active standby is compared with a passive one through the kill of the first case; those after it have a passive
    one: killed nodes over intervals, hung ones over heartbeats.
    """

    rate: int = 3_000
    batch_s: float = 0.5
    after: int = 10

    def of(self, fault: str) -> list[Case]:
        """The cases of a fault."""
        return [case for case in self.cases if case.fault == fault]


def _plan(
    interval: int, intervals: tuple[int, ...], heartbeat_s: float, heartbeats_s: tuple[float, ...]
) -> tuple[Case, ...]:
    """Cases with the same heartbeats follow each other: others need a cluster of their own."""
    killed = [Case(KILL, heartbeat_s, each) for each in dict.fromkeys((interval, *intervals))]
    hung = [Case(HANG, each, interval) for each in sorted(heartbeats_s, key=lambda each: each != heartbeat_s)]
    return (*killed, *hung)


def protection(case: Case, standby: str) -> Protection:
    """What a case asks for. All results depend on what is lost, so nothing goes on meanwhile."""
    return Protection(
        replicas="all" if standby == ACTIVE else 0,
        recovery=Recovery.BLOCKING.value,
        checkpoint=Strategy.SWEEPING.value,
        checkpoint_every=case.interval,
    )


def measure(bench: Bench, plan: DelayPlan, trial: Trial[Case]) -> Iterator[Row]:
    """Run the chain as the clock goes, let a node fail, and ask the oracle about all results."""
    case, batch_rows = trial.case, round(plan.rate * plan.batch_s)
    application = chain(bench.seed, Load(case.fails_at + plan.after, batch_rows), rate=plan.rate, paced=True)
    faults = (Fault(Kind(case.fault), VICTIM, When(case.fails_at, Unit.BATCHES)),)
    settings = Settings(protection=protection(case, trial.side)).but(
        nodes=NODES, batch=timedelta(seconds=plan.batch_s), max_rows=batch_rows, keep_batches=True
    )
    folders: list[Path] = []
    recorder = run(
        bench,
        application,
        settings,
        plan=chain_plan(application, settings.protection),
        heartbeat=timedelta(seconds=case.heartbeat_s),
        faults=faults,
        judged=True,
        prepare=lambda _recorder, _driver, folder: folders.append(folder),
    )
    yield {**delay(recorder.moments), "exact": recorder.exact}
    yield from shown(recorder.moments, sequences(folders[0] / RESULTS / OUTPUT))


def delay(moments: Sequence[Moment]) -> Row:
    """The parts of the recovery delay, one after the other, in seconds.

    Detection ends when the run knows that the node is gone, redeployment when it begins to run what was lost again (or
    goes on, if nothing was), replay when that is through, and the first new pass when its results are there.
    """
    (impact,) = impacts(moments)
    if impact.detection_s is None or impact.first_output_s is None:
        raise ClusterFailed(f"a lost node is missed and results come again, found {impact}: run it again")
    known_s, output_s = impact.at_s + impact.detection_s, impact.at_s + impact.first_output_s
    begun = [moment for moment in moments if moment.what is What.PASS_BEGUN and known_s <= moment.at_s <= output_s]
    live = [moment.at_s for moment in begun if moment.detail["kind"] == "live"]
    if not live:
        raise ClusterFailed(f"new results come of a new pass, found {impact} without one: run it again")
    first_s, live_s = begun[0].at_s, live[0]
    return {
        "what": DELAY,
        "detection_s": impact.detection_s,
        "redeployment_s": first_s - known_s,
        "replay_s": live_s - first_s,
        "new_pass_s": output_s - live_s,
        "replayed": replayed([moment for moment in begun if moment.at_s < live_s]),
    }


def replayed(begun: Sequence[Moment]) -> int:
    """How many batches rounds run again."""
    batches: set[int] = set()
    for moment in begun:
        match moment.detail:
            case {"kind": "round", "first": int(first), "last": int(last)}:
                batches |= set(range(first, last + 1))
            case _:
                pass
    return len(batches)


def shown(moments: Sequence[Moment], newest: dict[int, int]) -> Iterator[Row]:
    """Seconds since the fault, and the highest sequence number among the results that are final by then."""
    (impact,) = impacts(moments)
    for moment in moments:
        match moment.what, moment.detail:
            case What.PUBLISHED, {"tentative": False, "last": int(last)} if last in newest:
                yield {"what": SHOWN, "after_s": moment.at_s - impact.at_s, "sequence": newest[last]}
            case _:
                pass


def sequences(results: Path) -> dict[int, int]:
    """The highest sequence number of each batch that has results."""
    newest: dict[int, int] = {}
    for path in results.glob("*.parquet"):
        highest = pl.read_parquet(path, columns=["sequence"])["sequence"].max()
        if isinstance(highest, int):
            batch = int(path.name.split("-b")[1].split("-")[0])
            newest[batch] = max(highest, newest.get(batch, 0))
    return newest


def report(plan: DelayPlan, frame: pl.DataFrame) -> Findings:
    """The parts of every loss, and how they grow."""
    delays = frame.filter(what=DELAY).with_columns(total_s=pl.sum_horizontal(PARTS))
    first = plan.cases[0]
    return Findings(
        settings={
            "cluster": CLUSTER,
            "elements/s": plan.rate,
            "batch s": plan.batch_s,
            "state, elements": Load(1, 1).groups,
            "missed heartbeats": ClusterSettings().missed,
            "heartbeat s where a node is killed": first.heartbeat_s,
            "interval where a node hangs": f"{first.interval} batches",
            "runs of each": plan.rounds,
        },
        tables=(
            table(
                "From the loss of a node to the first new result, in seconds",
                delays,
                {
                    "standby": "side",
                    "fault": "fault",
                    "heartbeat s": "heartbeat_s",
                    "interval": "interval",
                    **{part.removesuffix("_s").replace("_", " "): part for part in PARTS},
                    "in all": "total_s",
                    "batches replayed": "replayed",
                    "exact": yes_no("exact"),
                },
            ),
        ),
        claims=tuple(_claims(plan, delays)),
        remarks=_remarks(plan, delays),
        panels=_panels(plan, frame, delays),
        panel_columns=3,
    )


def _claims(plan: DelayPlan, delays: pl.DataFrame) -> Iterator[Claim]:
    first = plan.cases[0]
    compared = delays.filter(fault=KILL, interval=first.interval)
    active_s, passive_s = (value(compared.filter(side=side), pl.col("total_s").mean()) for side in (ACTIVE, PASSIVE))
    passive, last_s = delays.filter(side=PASSIVE), max(case.heartbeat_s for case in plan.of(HANG))
    intervals = sorted(case.interval for case in plan.of(KILL))
    short_s, long_s = (
        value(passive.filter(fault=KILL, interval=each), pl.col("replay_s").mean())
        for each in (intervals[0], intervals[-1])
    )
    yield Claim(
        "silence at the output with an active standby, for one second with a passive one",
        "almost none: the failure is almost transparent",
        active_s / passive_s,
        "s",
        f"{active_s:.2f} s and {passive_s:.2f} s after a kill, means of {plan.rounds}",
    )
    yield Claim(
        "redeployment",
        "about 500 ms",
        1000 * value(passive, pl.col("redeployment_s").median()),
        "ms",
        f"median of {passive.height} losses with a passive standby",
    )
    yield Claim(
        "the largest part of the delay where heartbeats must miss a node",
        "detection, growing linearly with the heartbeat interval",
        value(passive.filter(fault=HANG, heartbeat_s=last_s), 100 * (pl.col("detection_s") / pl.col("total_s")).mean()),
        "% is detection",
        f"a hung node, heartbeats every {last_s:g} s",
    )
    yield Claim(
        "replay from the shortest to the longest checkpoint interval",
        "tends to increase; the whole delay does not change much",
        long_s / max(1e-9, short_s),
        "times",
        f"every {intervals[0]} and every {intervals[-1]} batches, means of {plan.rounds} kills each",
    )
    yield Claim(
        "runs whose final results are those of a run without failures, to the byte",
        "all",
        value(delays, 100 * pl.col("exact").mean()),
        "% of runs",
        f"{delays.height} runs, all judged by the oracle",
        "we aim at",
    )


def _remarks(plan: DelayPlan, delays: pl.DataFrame) -> tuple[str, ...]:
    killed_s = value(delays.filter(fault=KILL), pl.col("detection_s").median())
    return (
        "detection ends when the run knows of the loss; redeployment when it begins to run what was lost on other "
        "nodes, whose workers run already; replay reads the checkpoint and steps through what came after it; new pass "
        "is the first one with new elements, to its published results. The paper counts the last two as one",
        f"a killed node is known after {killed_s:.2f} s (median), whatever the heartbeats; a hung one is given up "
        f"after {ClusterSettings().missed} missed ones",
        "an active standby is silent while the loss is noticed and for one pass: results come pass by pass, and what "
        "was running when the node died is run again. In the paper its copy goes on sending element by element",
        "nodes fail just before the lost tasks would be stored again, so that replay is as long as it gets for "
        "an interval; in the paper they fail at random",
        f"a round of replay is a Spark job through at most {PER_PASS} batches, and no more than an "
        "interval: time follows the number of jobs rather than of batches, and a longer interval need not cost more",
        f"the paper's intervals are 0.1 to 0.9 s and its heartbeats 0.1 to 0.5 s; ours are as long as batches of "
        f"{plan.batch_s:g} s and {NODES} virtual machines on one computer ask for",
    )


def _panels(plan: DelayPlan, frame: pl.DataFrame, delays: pl.DataFrame) -> tuple[Panel, ...]:
    # the last round: the first ones meet a cluster that has just started
    last = pl.col("what") == SHOWN, pl.col("fault") == KILL, pl.col("round") == plan.rounds
    compared = frame.filter(*last, pl.col("interval") == plan.cases[0].interval)
    labels = {side: f"{side} standby" for side in (ACTIVE, PASSIVE)}
    passive = delays.filter(side=PASSIVE)
    return (
        Panel(
            "Results at the output; a node is killed at 0 s",
            f"seconds (run {plan.rounds} of each)",
            "sequence number",
            curves(compared, "after_s", "sequence", looks=[ACTIVE, PASSIVE], labels=labels),
            claim="active: almost transparent; passive: a silent period (Figure 6)",
        ),
        _stacked(
            "A hung node over the heartbeat interval",
            "heartbeat interval in s",
            "heartbeat_s",
            passive.filter(fault=HANG),
            "detection grows linearly and dominates (Figure 7)",
        ),
        _stacked(
            "A killed node over the checkpoint interval",
            "interval in batches",
            "interval",
            passive.filter(fault=KILL),
            "replay tends to grow, the whole does not change much (Figure 8)",
        ),
    )


def _stacked(title: str, x_label: str, x: str, delays: pl.DataFrame, claim: str) -> Panel:
    """The parts on top of each other, mean over the runs; each band is a part."""
    means = delays.group_by(x).agg(pl.col(*PARTS).mean()).sort(x)
    places = tuple(values(means, x))
    levels = [
        tuple(values(means, pl.sum_horizontal(PARTS[:count]))) if count else (0.0,) * len(places)
        for count in range(len(PARTS) + 1)
    ]
    names = ("detection", "+ redeployment", "+ replay", "+ new pass: all")
    drawn = tuple(
        Curve(name, places, upper, part, spread=tuple(zip(lower, upper, strict=True)))
        for part, (name, lower, upper) in enumerate(zip(names, levels, levels[1:], strict=False))
    )
    room = 0.0, 1.5 * max(levels[-1])  # for the legend
    return Panel(title, x_label, "seconds since the loss", drawn[::-1], claim=claim, y_range=room)


def _applies(interval: int) -> Callable[[Case, str], bool]:
    return lambda case, side: side == PASSIVE or (case.fault, case.interval) == (KILL, interval)


EXPERIMENT = Experiment(
    full=DelayPlan(_plan(8, (4, 8, 16), 1.0, (0.5, 1.0, 2.0)), (ACTIVE, PASSIVE), 3, _applies(8)),
    quick=DelayPlan(_plan(3, (3,), 5.0, (5.0,)), (ACTIVE, PASSIVE), 1, _applies(3), rate=400, after=3),
    measure=measure,
    report=report,
)
