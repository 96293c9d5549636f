"""What checkpoints write to the store, and how long they take, over their interval and over the rate of elements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from tenax.model.protection import Protection, Strategy
from tenax.pictures.figures import Panel
from tenax_lab.findings import Claim, Findings
from tenax_lab.lab import Bench, Experiment, Plan, Row, Trial
from tenax_lab.loads.chain import BATCHES_PER_S, CLUSTER, STATEFUL, Load, chain, chain_plan, chain_settings
from tenax_lab.recorder import Kind
from tenax_lab.report import curves, highest, median, met, ratios, table, value, values, wide
from tenax_lab.runs import run

SYNCHRONOUS, INDIVIDUAL, SWEEPING, ALIGNED = (
    each.value for each in (Strategy.SYNCHRONOUS, Strategy.INDIVIDUAL, Strategy.SWEEPING, Strategy.ALIGNED)
)
STRATEGIES = (SYNCHRONOUS, INDIVIDUAL, SWEEPING, ALIGNED)
PAPER_RATE = 3_000
GOAL = 10.0  # synchronous bytes for one of sweeping, at least
CASE = ["groups", "interval", "rate"]


@dataclass(frozen=True, slots=True)
class Case:
    """How large states are, every how many batches they are stored, how fast elements come.

    The first interval warms up; `intervals` are run in all.
    """

    groups: int
    interval: int
    intervals: int
    rate: int = PAPER_RATE

    @property
    def load(self) -> Load:
        """What it runs."""
        return Load(self.interval * self.intervals, round(self.rate / BATCHES_PER_S), self.groups)


def _cases(
    small: Mapping[int, int],
    large: Mapping[int, int],
    rates: tuple[int, ...] = (),
    sizes: tuple[int, int] = (20, 4_000),
) -> tuple[Case, ...]:
    """Intervals with how many of each are run, for a small state and a large one; rates with the shortest interval."""
    both = zip(sizes, (small, large), strict=True)
    by_interval = [Case(groups, each, count) for groups, counts in both for each, count in counts.items()]
    shortest = min(small)
    return (*by_interval, *(Case(sizes[0], shortest, small[shortest], rate) for rate in rates))


def measure(bench: Bench, _: Plan[Case], trial: Trial[Case]) -> Iterator[Row]:
    """Run the chain without failures; a row for each checkpoint and each pass."""
    case = trial.case
    application = chain(bench.seed, case.load)
    asked = Protection(checkpoint=trial.side, checkpoint_every=case.interval)
    recorder = run(bench, application, chain_settings(asked, case.load), plan=chain_plan(application, asked))
    for row in recorder.rows:
        if row["what"] in (Kind.CHECKPOINT, Kind.PASS):
            yield row


def costs_of(frame: pl.DataFrame) -> pl.DataFrame:
    """What checkpoints cost after the first interval of a case; the last, at the end of the run, is left out."""
    end = pl.col("interval") * pl.col("intervals")
    counted = frame.filter(
        pl.col("what") == Kind.CHECKPOINT, pl.col("interval") <= pl.col("batch"), pl.col("batch") < end
    )
    passes = frame.filter(pl.col("what") == Kind.PASS, pl.col("last") > pl.col("interval"))
    costs = counted.group_by(*CASE, "side", maintain_order=True).agg(
        pl.col("intervals").first(),
        checkpoints=pl.len(),
        tasks=pl.col("tasks").mean(),
        state_bytes=pl.col("state_bytes").sum(),
        queue_bytes=pl.col("queue_bytes").sum(),
        median_ms=1000 * pl.col("seconds").median(),
        least_ms=1000 * pl.col("seconds").min(),
        most_ms=1000 * pl.col("seconds").max(),
        writing_ms=1000 * pl.col("writing_s").median(),
    )
    pass_ms = passes.group_by(*CASE, "side").agg(pass_ms=1000 * pl.col("seconds").median())
    bytes_ = pl.col("state_bytes") + pl.col("queue_bytes")
    elements = (end - pl.col("interval")) * (pl.col("rate") / BATCHES_PER_S).round()
    return costs.join(pass_ms, on=[*CASE, "side"], maintain_order="left").with_columns(
        bytes=bytes_, average_bytes=bytes_ / pl.col("checkpoints"), element_bytes=bytes_ / elements
    )


def report(plan: Plan[Case], frame: pl.DataFrame) -> Findings:
    """Bytes by interval and state, times by rate."""
    costs = costs_of(frame)
    small = plan.cases[0].groups
    large = max(case.groups for case in plan.cases)
    at_rate = costs.filter(rate=PAPER_RATE)
    rated = costs.filter(pl.col("groups") == small, pl.col("interval") == plan.cases[0].interval)
    for_one = wide(at_rate, "bytes", by=["groups", "interval"])
    average = wide(at_rate, "average_bytes", by=["groups", "interval"])
    return Findings(
        settings={
            "cluster": CLUSTER,
            "elements a batch": f"{round(PAPER_RATE / BATCHES_PER_S)} (a batch stands for 1/{BATCHES_PER_S} s)",
            "small state, elements": small,
            "large state, elements": large if large > small else None,
            "tasks with a state": len(STATEFUL),
            "passes": "1 batch each, as fast as they go",
            "interval for rates": f"{plan.cases[0].interval} batches",
            "median pass, s": value(costs, pl.col("pass_ms").median()) / 1000,
        },
        tables=(
            table(
                "What checkpoints write to the store, at 3,000 elements/s",
                at_rate,
                "state elements = groups | interval | strategy = side | checkpoints | tasks in each = tasks | "
                "average KB = average_kb | state KB in all = state_kb_in_all | "
                "queues KB in all = queues_kb_in_all | bytes an element = element_bytes",
                average_kb=pl.col("average_bytes") / 1000,
                state_kb_in_all=pl.col("state_bytes") / 1000,
                queues_kb_in_all=pl.col("queue_bytes") / 1000,
            ),
            table(
                "Bytes of the others for one byte of sweeping",
                for_one.with_columns(average=average[SYNCHRONOUS] / average[SWEEPING]),
                {
                    "state elements": "groups",
                    "interval": "interval",
                    **{name: pl.col(name) / pl.col(SWEEPING) for name in (SYNCHRONOUS, INDIVIDUAL, ALIGNED)},
                    "synchronous, average checkpoint": "average",
                },
            ),
            table(
                f"Time of a checkpoint over the rate, every {plan.cases[0].interval} batches, small state",
                rated.sort(pl.col("side").replace_strict(STRATEGIES, range(len(STRATEGIES))), "rate"),
                "elements/s = rate | strategy = side | checkpoints | median ms = median_ms | "
                "least ms = least_ms | most ms = most_ms | of it writing ms = writing_ms | pass ms = pass_ms",
            ),
        ),
        claims=tuple(_claims(plan, costs)),
        remarks=_remarks(plan, costs),
        panels=tuple(_panels(plan, costs, rated)),
        panel_columns=2,
    )


def _claims(plan: Plan[Case], costs: pl.DataFrame) -> Iterator[Claim]:
    first = plan.cases[0]
    small = costs.filter(groups=first.groups, rate=PAPER_RATE)
    longest = max(case.interval for case in plan.cases if case.groups == first.groups)
    longer = small.filter(interval=longest)
    over = f"every {longest} batches, state of {first.groups} elements"
    for what, column, said in (
        ("an average checkpoint", "average_bytes", "about 30"),
        ("all checkpoints", "bytes", "13 to 30"),
    ):
        (synchronous,), (individual,) = (
            ratios(longer, column, side, SWEEPING, CASE) for side in (SYNCHRONOUS, INDIVIDUAL)
        )
        yield Claim(
            f"bytes of {what}, synchronous or individual for one of sweeping",
            said,
            synchronous,
            "times",
            f"synchronous, {over}; individual {individual:.3g} times",
        )
    rated = costs.filter(groups=first.groups, interval=first.interval)
    times, writing = (ratios(rated, each, SYNCHRONOUS, SWEEPING, CASE) for each in ("median_ms", "writing_ms"))
    yield Claim(
        "time of a checkpoint, synchronous for one of sweeping",
        "about 4",
        median(times),
        "times",
        f"median over {len(times)} rates, every {first.interval} batches, from the order to the commit; of what "
        f"the engine counts, each in its own way, {median(writing):.3g} times",
    )
    least = min(ratios(small, "bytes", SYNCHRONOUS, SWEEPING, CASE))
    yield Claim(
        "bytes of all checkpoints, synchronous for one of sweeping",
        f"at least {GOAL:g}",
        least,
        "times",
        f"the least of {small['interval'].n_unique()} intervals, state of {first.groups} elements; "
        f"{met(least >= GOAL)}",
        "we aim at",
    )


def _remarks(plan: Plan[Case], costs: pl.DataFrame) -> tuple[str, ...]:
    first = plan.cases[0]
    small = costs.filter(groups=first.groups, rate=PAPER_RATE)
    longest = small.filter(pl.col("interval") == pl.col("interval").max())
    parts = values(longest, 100 * pl.col("queue_bytes") / pl.col("bytes"))
    shares = ", ".join(f"{side} {part:.0f} %" for side, part in zip(longest["side"], parts, strict=True))
    return (
        "bytes are those of segments that a checkpoint writes to the store: of states, and of queues, which are "
        "outputs that a consumer restored at an older batch would ask for; what the store holds already is not written "
        "again",
        f"queues are so much of the bytes, every {longest['interval'][0]} batches, state of {first.groups} elements: "
        f"{shares}",
        "a sweep takes a node in one step, since tasks of a node that feed only each other are stored together; every "
        "step stores states as they were when the sweep began, so that all they had sent is acknowledged",
        "synchronous and individual checkpoints follow timers that are spread evenly over the interval; a queue then "
        "holds what its consumer has not stored since, which grows with the interval. What is stored together counts "
        "as acknowledged, so queues within a node stay empty here; in the paper they hold a whole interval",
        "the timers of nodes go off in the order of their names: a consumer is stored a quarter of an interval before "
        "its producer, or three quarters, so a synchronous queue may have one or three quarters of an interval",
        "aligned checkpoints are at one batch and have no queues at all; they have no equal in the paper",
        "the time of a checkpoint is from its order to its commit, by the clock of the driver for every strategy; a "
        "synchronous one is a Spark job of its own with nothing beside it, the others ride in the next pass, whose "
        "steps they wait for and are not stopped by. Writing is what the engine itself counts: for a job its whole "
        "time, for what rides in a pass the slowest node's writes, so that it must not be compared between the two",
        "the paper's intervals are 0.1 to 0.9 s; ours are counted in batches, for a pass takes far longer than its "
        "messages do",
    )


def _panels(plan: Plan[Case], costs: pl.DataFrame, rated: pl.DataFrame) -> Iterator[Panel]:
    small, large = plan.cases[0].groups, max(case.groups for case in plan.cases)
    at_rate = costs.filter(rate=PAPER_RATE)
    x_label, per_element = "interval in batches", "bytes for each element"
    shown = [
        ("Average checkpoint", small, "KB", pl.col("average_bytes") / 1000, "sweeping about 1/30 of the others, and "
         "growing more slowly (Figure 2)"),
        ("All checkpoints", small, per_element, pl.col("element_bytes"), "sweeping 1/13 to 1/30 of the others, falling "
         "with the interval (Figure 3)"),
        ("All checkpoints", large, per_element, pl.col("element_bytes"), "with large states the improvement may be "
         "reduced (Section 3.3)"),
    ]  # fmt: skip
    for what, groups, y_label, column, claim in shown[: 3 if large > small else 2]:
        drawn = curves(at_rate.filter(groups=groups), "interval", column, looks=STRATEGIES)
        title = f"{what}, state of {groups:,} elements"
        yield Panel(title, x_label, y_label, drawn, claim=claim, logarithmic=True, nested=True)
    timed = curves(rated, "rate", "median_ms", looks=STRATEGIES)
    yield Panel(
        f"Time of a checkpoint, every {plan.cases[0].interval} batches",
        "elements/s",
        "ms from order to commit, median",
        timed,
        claim="sweeping about 1/4 of the others (Figure 4)",
        y_range=(0.0, 1.1 * highest(timed)),
        nested=True,
    )


# A large state has been seen whole within the shortest interval: 8 batches of 500 elements.
EXPERIMENT = Experiment(
    full=Plan(_cases({8: 4, 24: 3, 48: 2}, {8: 4, 24: 2}, (1_000, 7_000)), STRATEGIES),
    quick=Plan(_cases({4: 2}, {}), STRATEGIES),
    measure=measure,
    report=report,
)
