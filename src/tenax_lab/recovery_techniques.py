"""How long outputs wait after one node or all primaries are lost: active replicas, checkpoints, replay from sources."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from tenax.model.protection import Protection, Recovery, Strategy
from tenax.pictures.figures import Panel
from tenax_lab.findings import Claim, Findings
from tenax_lab.lab import Bench, Experiment, Plan, Row, Trial
from tenax_lab.loads.tree import SHAPE, Arrival, Load
from tenax_lab.report import claim_of_ratios, curves, ratios, spread, table, values, yes_no
from tenax_lab.runs import SELDOM
from tenax_lab.tree_losses import CLUSTER, LOSS, PER_ROUND, Scenario, all_primaries, kill_after, lose, one_node

ACTIVE, CHECKPOINT, REPLAY = "active replicas", "checkpoint", "source replay"
ALIGNED = "aligned checkpoint"
TECHNIQUES = (ACTIVE, CHECKPOINT, ALIGNED, REPLAY)
ONE, PRIMARIES = "one node", "all primaries"
AFTER = 3  # batches that come after the kill
GOAL_BATCHES = 1
LATENCY = "final_s"
GROWS_WITH_RATE = {ACTIVE: "little influence", CHECKPOINT: "proportional", REPLAY: "proportional"}
GROWS_WITH_WINDOWS = {ACTIVE: "little influence", REPLAY: "longer windows, longer latency"}


@dataclass(frozen=True, slots=True)
class Case:
    """A loss to be measured."""

    lost: str
    rate: int
    window_s: int


@dataclass(frozen=True, slots=True)
class TechniquePlan(Plan[Case]):
    """Batches of `batch_s` of event time, a checkpoint every `interval` batches.

    Nodes are killed when windows are full and the next batch would bring a checkpoint, so that as much as ever is
    replayed from the last one; and from the sources little more than a window.
    """

    batch_s: int = 2
    interval: int = 5

    def load(self, case: Case) -> Load:
        """What the tree has to do."""
        return Load(case.rate, case.window_s, self.batch_s)

    def kill_at(self, case: Case) -> int:
        """The batch after which nodes are killed."""
        return kill_after(self.load(case), self.interval)


def protection(technique: str, interval: int) -> Protection:
    """What a user asks for; nothing but recovery goes on while tasks are missing, as in the paper."""
    return Protection(
        replicas="all" if technique == ACTIVE else 0,
        recovery=Recovery.BLOCKING.value,
        checkpoint=(Strategy.INDIVIDUAL if technique == CHECKPOINT else Strategy.ALIGNED).value,
        checkpoint_every=SELDOM if technique == REPLAY else interval,
    )


def measure(bench: Bench, plan: TechniquePlan, trial: Trial[Case]) -> list[Row]:
    """One loss; nodes that were killed are back before the next begins."""
    load, kill_at = plan.load(trial.case), plan.kill_at(trial.case)
    kill = one_node(kill_at) if trial.case.lost == ONE else all_primaries(load, kill_at)
    batches = kill_at + AFTER
    return lose(bench, Scenario(load, Arrival(batches, batches), protection(trial.side, plan.interval), kill))


def report(plan: TechniquePlan, frame: pl.DataFrame) -> Findings:
    """Latencies to the first final output, by technique and loss."""
    losses = frame.filter(what=LOSS)
    scale = values(losses, plan.batch_s / pl.col("batch_time_s"))
    kills = sorted({(case.window_s, plan.kill_at(case)) for case in plan.cases})
    return Findings(
        settings={
            "cluster": CLUSTER,
            "topology": f"{SHAPE}, windows every 1 s in four operators, selectivity 0.5",
            "rates": "tuples/s of each of 16 sources, in event time",
            "a batch": f"{plan.batch_s} s of event time, as fast as they can be run: {min(scale):.2g} to "
            f"{max(scale):.2g} s of event time a second",
            "checkpoints": f"every {plan.interval} batches ({plan.interval * plan.batch_s} s), of each task by itself; "
            f"{ALIGNED}s of all at one batch",
            "failure": "SIGKILL after the batch before a checkpoint, once windows are full: "
            + ", ".join(f"batch {batch} for {window_s} s" for window_s, batch in kills),
            "recovery": f"blocking, in rounds of at most {PER_ROUND} batches",
        },
        tables=(
            table(
                "From the kill to the first complete final output after it; progress is back as the paper counts "
                "recovery",
                losses,
                "technique = side | lost | window s = window_s | tuples/s = rate | tasks lost = lost_tasks | "
                "detection s = detection_s | progress back s = back_s | final again s = final_s | "
                "× a batch = times_a_batch | replayed | batches | exact",
                times_a_batch=pl.col(LATENCY) / pl.col("batch_time_s"),
                exact=yes_no("exact"),
            ),
        ),
        claims=tuple(_claims(losses)),
        remarks=(
            f"the oracle found {losses['exact'].sum()} of {losses.height} runs exact: final results as without "
            "failures, to the byte",
            "checkpoint is as in the paper: every task is stored by itself, by timers that are spread over the "
            "interval, while the others go on. Then what a lost task needs of its producers since may be asked for "
            "again. An aligned checkpoint, which the paper has not, is of all tasks at one batch",
            "a batch is computed by columns, so that a core has more to do with 32 tasks, stages and jobs than with so "
            "many tuples: twice the rate, which is the paper's, changes little here",
            "source replay: no checkpoint is stored before the kill, so everything since batch 1 is replayed, which is "
            "little more than a window; the paper's Storm replays the tuples of unfinished windows",
            "one node lost: its tasks go to the other node with primaries unless they have replicas; all primaries "
            "lost: to the standby nodes; sources are logged and go on anywhere at once, the paper keeps them alive",
            "replicas step with their primaries and drop nothing but what a checkpoint covers: the paper's interval of "
            "synchronisation has nothing to resend here, and is not varied",
        ),
        panels=tuple(_panels(plan, losses)),
        panel_columns=2,
    )


def _claims(losses: pl.DataFrame) -> Iterator[Claim]:
    active = losses.filter(side=ACTIVE)
    yield Claim(
        "active replicas: batches run from the kill to the first complete final output, at any rate and window",
        f"{GOAL_BATCHES} batch",
        max(values(active, "batches")),
        "batches at most",
        f"{active.filter(pl.col('batches') <= GOAL_BATCHES).height} of {active.height} losses in {GOAL_BATCHES}; in "
        f"seconds {spread(active[LATENCY])}, {spread(active[LATENCY] / active['batch_time_s'])} times what a batch "
        "takes without a failure",
        "we aim at",
    )
    for lost in (ONE, PRIMARIES):
        own = losses.filter(lost=lost)
        for technique in (CHECKPOINT, ALIGNED, REPLAY):
            slower = ratios(own, LATENCY, technique, ACTIVE, ["rate", "window_s"])
            statement = f"{lost} lost: latency with {technique} over that with active replicas"
            said = "active is much lower (no number)" if technique != ALIGNED else "not compared"
            yield from claim_of_ratios(statement, said, slower)
    for column, compared, said_of in (
        ("rate", "latency at {:,} over that at {:,} tuples/s", GROWS_WITH_RATE),
        ("window_s", "latency with windows of {} s over that with {} s", GROWS_WITH_WINDOWS),
    ):
        least, most = (int(end(values(losses, column))) for end in (min, max))
        for technique, said in said_of.items() if most > least else ():
            own = losses.filter(side=technique)
            others = [other for other in ("lost", "rate", "window_s") if other != column]
            more = ratios(own, LATENCY, pl.col(column) == most, pl.col(column) == least, others)
            yield from claim_of_ratios(f"{technique}: {compared.format(most, least)}", said, more)


def _panels(plan: TechniquePlan, losses: pl.DataFrame) -> Iterator[Panel]:
    said = {
        ONE: "active much lower, whatever rate and window; passive grows with the rate (Figure 7)",
        PRIMARIES: "the benefit of active replicas is larger than for a single node (Figure 8)",
    }
    labels = "tuples/s of each source", "seconds to the next final output"
    for lost in (ONE, PRIMARIES):
        own = losses.filter(lost=lost)
        for window_s in sorted({case.window_s for case in plan.cases}):
            drawn = curves(own.filter(window_s=window_s), "rate", LATENCY, looks=TECHNIQUES)
            if drawn:
                title = f"{lost[0].upper()}{lost[1:]} lost, windows of {window_s} s"
                yield Panel(title, *labels, drawn, said[lost], y_range=(0.0, 1.1 * max(values(own, LATENCY))))


def _cases(rates: tuple[int, ...], windows_s: tuple[int, ...]) -> tuple[Case, ...]:
    return tuple(Case(lost, rate, each) for each in windows_s for rate in rates for lost in (ONE, PRIMARIES))


EXPERIMENT = Experiment(
    full=TechniquePlan(_cases((1_000, 2_000), (10, 30)), TECHNIQUES),
    quick=TechniquePlan(
        _cases((50,), (4,)),
        TECHNIQUES,
        applies=lambda case, side: (side in (CHECKPOINT, ALIGNED)) == (case.lost == ONE),
        interval=3,
    ),
    measure=measure,
    report=report,
)
