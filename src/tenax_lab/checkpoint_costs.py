"""What checkpoints write to the store, and how long they take, over their interval and over the rate of elements."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from tenax.application.application import Protection
from tenax.control.state import Strategy
from tenax.engine.session import Session
from tenax.pictures.figures import Curve, Panel
from tenax.store.records import JsonObject, integer, text
from tenax_lab.element_chain import NODES, PATIENT, STATEFUL, Load, chain, chain_settings, run_chain
from tenax_lab.processes import run_apart
from tenax_lab.results import Claim, Findings, Progress, Table
from tenax_lab.sides.sides import Series, Step, serve

DEADLINE_S = 3_600.0
COMPARED = (Strategy.SYNCHRONOUS, Strategy.INDIVIDUAL, Strategy.SWEEPING, Strategy.ALIGNED)
BATCHES_PER_S = 6  # of event time: at the paper's 3,000 elements/s a batch has 500
PAPER_RATE = 3_000
GOAL = 10.0  # synchronous bytes for one of sweeping, at least
KB = 1_000


@dataclass(frozen=True, slots=True)
class Case:
    """One run: how states are stored, every how many batches, how large they are, and how fast elements come.

    The first interval warms up; `intervals` are run in all.
    """

    strategy: Strategy
    interval: int
    intervals: int
    groups: int
    rate: int = PAPER_RATE

    @property
    def name(self) -> str:
        """For people and as the name of its measurements."""
        told = f"{self.strategy} every {self.interval} batches"
        return f"{told}, state of {self.groups} elements, {self.rate} elements/s"

    @property
    def load(self) -> Load:
        """What it runs."""
        return Load(self.interval * self.intervals, round(self.rate / BATCHES_PER_S), self.groups)


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured: intervals with how many of each are run, for a small state and a large one; rates.

    The rates are run with the first of the intervals that is at least `rate_interval`.
    """

    small: int
    large: int
    intervals: Mapping[int, int]
    large_intervals: Mapping[int, int]
    rates: tuple[int, ...]
    rate_interval: int

    def cases(self) -> tuple[Case, ...]:
        """All runs; strategies alternate, so that a disturbance hits all of them."""
        found = [
            Case(strategy, interval, count, groups)
            for groups, intervals in ((self.small, self.intervals), (self.large, self.large_intervals))
            for (interval, count), strategy in product(intervals.items(), COMPARED)
        ]
        found += [
            Case(strategy, self.rate_interval, self.intervals[self.rate_interval], self.small, rate)
            for rate, strategy in product(self.rates, COMPARED)
        ]
        return tuple(dict.fromkeys(found))

    def rated(self, strategy: Strategy) -> list[Case]:
        """The runs of a strategy by rate."""
        return sorted(
            (
                one
                for one in self.cases()
                if one.strategy is strategy and one.interval == self.rate_interval and one.groups == self.small
            ),
            key=lambda one: one.rate,
        )

    def by_interval(self, strategy: Strategy, groups: int) -> list[Case]:
        """The runs of a strategy at the paper's rate by interval."""
        return [
            one for one in self.cases() if one.strategy is strategy and one.groups == groups and one.rate == PAPER_RATE
        ]


# A large state has been seen whole within the shortest interval: 8 batches of 500 elements.
FULL = Plan(20, 4_000, {8: 4, 24: 3, 48: 2}, {8: 4, 24: 2}, (1_000, 7_000), 8)
QUICK = Plan(20, 400, {6: 2}, {}, (), 6)
PLANS = {"full": FULL, "quick": QUICK}


def run(seed: int, quick: bool, progress: Progress) -> Findings:
    """Run every case in one session, in a process of its own."""
    plan = QUICK if quick else FULL
    progress.total(len(plan.cases()))
    return findings(plan, run_apart(__name__, seed, quick=quick, deadline_s=DEADLINE_S, step=progress.advance))


def measure(arguments: JsonObject, step: Step) -> Series:
    """All cases, one run each."""
    plan, work = PLANS[text(arguments, "plan")], Path(text(arguments, "work"))
    session = Session(work / "cluster", NODES, heartbeat=PATIENT)
    found: Series = {}
    try:
        for number, case in enumerate(plan.cases()):
            folder = work / f"run-{number}"
            application = chain(integer(arguments, "seed"), case.load, folder / "results")
            asked = Protection(checkpoint=case.strategy.value, checkpoint_every=case.interval)
            settings = chain_settings(application, asked, case.load)
            found |= run_chain(application, folder / "store", settings, session).series(case.name)
            step(case.name)
    finally:
        session.stop()
    return found


@dataclass(frozen=True, slots=True)
class Cost:
    """What the checkpoints of a case cost after its first interval; the last one, at the end of the run, is left out.

    - `state_bytes` and `queue_bytes` are of all checkpoints together, `written` elements went by meanwhile.
    - `seconds` are the times of the checkpoints.
    """

    checkpoints: int
    tasks: float
    state_bytes: float
    queue_bytes: float
    elements: int
    seconds: tuple[float, ...]
    pass_s: float

    @property
    def total_bytes(self) -> float:
        """Of all checkpoints."""
        return self.state_bytes + self.queue_bytes

    @property
    def average_bytes(self) -> float:
        """Of a checkpoint."""
        return self.total_bytes / self.checkpoints

    @property
    def per_element(self) -> float:
        """Bytes of checkpoints for each element."""
        return self.total_bytes / self.elements

    @property
    def typical_s(self) -> float:
        """The median time of a checkpoint."""
        return statistics.median(self.seconds)


def cost_of(case: Case, found: Mapping[str, Sequence[float]]) -> Cost:
    """The costs of a case between its first interval and its end."""

    def column(name: str) -> Sequence[float]:
        return found[f"{case.name} {name}"]

    end = case.load.batches
    chosen = [place for place, batch in enumerate(column("batch")) if case.interval <= batch < end]
    passes = [seconds for last, seconds in zip(column("last"), column("pass s"), strict=True) if last > case.interval]
    return Cost(
        checkpoints=len(chosen),
        tasks=statistics.fmean(column("tasks")[place] for place in chosen),
        state_bytes=sum(column("state bytes")[place] for place in chosen),
        queue_bytes=sum(column("queue bytes")[place] for place in chosen),
        elements=(end - case.interval) * case.load.batch_rows,
        seconds=tuple(column("seconds")[place] for place in chosen),
        pass_s=statistics.median(passes),
    )


def findings(plan: Plan, found: Mapping[str, Sequence[float]]) -> Findings:
    """Tables, claims and pictures of recorded series."""
    costs = {case: cost_of(case, found) for case in plan.cases()}
    longest = max(plan.intervals)
    return Findings(
        settings={
            "cluster": f"local-cluster[{NODES},2,1024], 8 tasks, 2 on each node",
            "elements a batch": f"{round(PAPER_RATE / BATCHES_PER_S)} (a batch stands for 1/{BATCHES_PER_S} s)",
            "small state, elements": plan.small,
            "large state, elements": plan.large if plan.large_intervals else None,
            "tasks with a state": len(STATEFUL),
            "passes": "1 batch each, as fast as they go",
            "interval for rates": f"{plan.rate_interval} batches",
            "median pass, s": statistics.median(one.pass_s for one in costs.values()),
        },
        tables=(_bytes_table(costs), _ratio_table(plan, costs), _time_table(plan, costs)),
        claims=_claims(plan, costs, longest),
        remarks=_remarks(plan, costs, longest),
        panels=_panels(plan, costs),
        panel_columns=2,
    )


def _bytes_table(costs: Mapping[Case, Cost]) -> Table:
    return Table(
        "What checkpoints write to the store, at 3,000 elements/s",
        (
            "state elements",
            "interval",
            "strategy",
            "checkpoints",
            "tasks in each",
            "average KB",
            "state KB in all",
            "queues KB in all",
            "bytes an element",
        ),
        tuple(
            (
                case.groups,
                case.interval,
                str(case.strategy),
                cost.checkpoints,
                cost.tasks,
                cost.average_bytes / KB,
                cost.state_bytes / KB,
                cost.queue_bytes / KB,
                cost.per_element,
            )
            for case, cost in costs.items()
            if case.rate == PAPER_RATE
        ),
    )


def _ratio_table(plan: Plan, costs: Mapping[Case, Cost]) -> Table:
    rows = []
    for groups, intervals in ((plan.small, plan.intervals), (plan.large, plan.large_intervals)):
        for interval in intervals:
            by = _by_strategy(costs, interval, groups)
            rows.append(
                (
                    groups,
                    interval,
                    _synchronous_for_sweeping(costs, interval, groups),
                    by[Strategy.INDIVIDUAL].total_bytes / by[Strategy.SWEEPING].total_bytes,
                    by[Strategy.ALIGNED].total_bytes / by[Strategy.SWEEPING].total_bytes,
                    by[Strategy.SYNCHRONOUS].average_bytes / by[Strategy.SWEEPING].average_bytes,
                )
            )
    return Table(
        "Bytes of the others for one byte of sweeping",
        ("state elements", "interval", "synchronous", "individual", "aligned", "synchronous, average checkpoint"),
        tuple(rows),
    )


def _time_table(plan: Plan, costs: Mapping[Case, Cost]) -> Table:
    return Table(
        f"Time of a checkpoint over the rate, every {plan.rate_interval} batches, small state",
        ("elements/s", "strategy", "checkpoints", "median ms", "least ms", "most ms", "pass ms"),
        tuple(
            (
                case.rate,
                str(case.strategy),
                cost.checkpoints,
                1000 * cost.typical_s,
                1000 * min(cost.seconds),
                1000 * max(cost.seconds),
                1000 * cost.pass_s,
            )
            for strategy in COMPARED
            for case, cost in ((one, costs[one]) for one in plan.rated(strategy))
        ),
    )


def _by_strategy(costs: Mapping[Case, Cost], interval: int, groups: int) -> dict[Strategy, Cost]:
    return {
        case.strategy: cost
        for case, cost in costs.items()
        if (case.interval, case.groups, case.rate) == (interval, groups, PAPER_RATE)
    }


def _synchronous_for_sweeping(costs: Mapping[Case, Cost], interval: int, groups: int) -> float:
    """The bytes of synchronous checkpoints for one byte of sweeping ones."""
    by = _by_strategy(costs, interval, groups)
    return by[Strategy.SYNCHRONOUS].total_bytes / by[Strategy.SWEEPING].total_bytes


def _claims(plan: Plan, costs: Mapping[Case, Cost], longest: int) -> tuple[Claim, ...]:
    by = _by_strategy(costs, longest, plan.small)
    swept, synchronous, individual = by[Strategy.SWEEPING], by[Strategy.SYNCHRONOUS], by[Strategy.INDIVIDUAL]
    over = f"every {longest} batches, state of {plan.small} elements"
    times = [
        costs[other].typical_s / costs[ours].typical_s
        for ours, other in zip(plan.rated(Strategy.SWEEPING), plan.rated(Strategy.SYNCHRONOUS), strict=True)
    ]
    ratios = [_synchronous_for_sweeping(costs, interval, plan.small) for interval in plan.intervals]
    return (
        Claim(
            "bytes of an average checkpoint, synchronous or individual for one of sweeping",
            "about 30",
            synchronous.average_bytes / swept.average_bytes,
            "times",
            f"synchronous, {over}; individual {individual.average_bytes / swept.average_bytes:.3g} times",
        ),
        Claim(
            "bytes of all checkpoints, synchronous or individual for one of sweeping",
            "13 to 30",
            _synchronous_for_sweeping(costs, longest, plan.small),
            "times",
            f"synchronous, {over}; individual {individual.total_bytes / swept.total_bytes:.3g} times",
        ),
        Claim(
            "time of a checkpoint, synchronous for one of sweeping",
            "about 4",
            statistics.median(times),
            "times",
            f"median over {len(times)} rates, every {plan.rate_interval} batches",
        ),
        Claim(
            "bytes of all checkpoints, synchronous for one of sweeping",
            f"at least {GOAL:g}",
            min(ratios),
            "times",
            f"the least of {len(ratios)} intervals, state of {plan.small} elements; "
            f"{'met' if min(ratios) >= GOAL else 'not met'}",
            "we aim at",
        ),
    )


def _remarks(plan: Plan, costs: Mapping[Case, Cost], longest: int) -> tuple[str, ...]:
    by = _by_strategy(costs, longest, plan.small)
    shares = ", ".join(f"{name} {100 * cost.queue_bytes / cost.total_bytes:.0f} %" for name, cost in by.items())
    return (
        "bytes are those of segments that a checkpoint writes to the store: of states, and of queues, which are "
        "outputs that a consumer restored at an older batch would ask for; what the store holds already is not written "
        "again",
        f"queues are so much of the bytes, every {longest} batches, state of {plan.small} elements: {shares}",
        "a sweep takes a node in one step, since tasks of a node that feed only each other are stored together; every "
        "step stores states as they were when the sweep began, so that all they had sent is acknowledged",
        "synchronous and individual checkpoints follow timers that are spread evenly over the interval; a queue then "
        "holds what its consumer has not stored since, which grows with the interval. What is stored together counts "
        "as acknowledged, so queues within a node stay empty here; in the paper they hold a whole interval",
        "the timers of nodes go off in the order of their names: a consumer is stored a quarter of an interval before "
        "its producer, or three quarters, so a synchronous queue may have one or three quarters of an interval",
        "aligned checkpoints are at one batch and have no queues at all; they have no equal in the paper",
        "the time of a checkpoint is from its order to its commit; a synchronous one is a Spark job of its own, with "
        "nothing beside it; the others ride in the next pass and are there when that has finished",
        "the paper's intervals are 0.1 to 0.9 s; ours are counted in batches, for a pass takes far longer than its "
        "messages do",
    )


def _panels(plan: Plan, costs: Mapping[Case, Cost]) -> tuple[Panel, ...]:
    def curves(groups: int, value: str) -> tuple[Curve, ...]:
        return tuple(
            Curve(
                str(strategy),
                tuple(float(one.interval) for one in plan.by_interval(strategy, groups)),
                tuple(
                    costs[one].average_bytes / KB if value == "average" else costs[one].per_element
                    for one in plan.by_interval(strategy, groups)
                ),
                look,
            )
            for look, strategy in enumerate(COMPARED)
        )

    panels = [
        Panel(
            f"Average checkpoint, state of {plan.small} elements",
            "interval in batches",
            "KB",
            curves(plan.small, "average"),
            claim="sweeping about 1/30 of the others, and growing more slowly (Figure 2)",
            logarithmic=True,
            nested=True,
        ),
        Panel(
            f"All checkpoints, state of {plan.small} elements",
            "interval in batches",
            "bytes for each element",
            curves(plan.small, "all"),
            claim="sweeping 1/13 to 1/30 of the others, falling with the interval (Figure 3)",
            logarithmic=True,
            nested=True,
        ),
    ]
    if plan.large_intervals:
        panels.append(
            Panel(
                f"All checkpoints, state of {plan.large:,} elements",
                "interval in batches",
                "bytes for each element",
                curves(plan.large, "all"),
                claim="with large states the improvement may be reduced (Section 3.3)",
                logarithmic=True,
                nested=True,
            )
        )
    timed = tuple(
        Curve(
            str(strategy),
            tuple(float(one.rate) for one in plan.rated(strategy)),
            tuple(1000 * costs[one].typical_s for one in plan.rated(strategy)),
            look,
        )
        for look, strategy in enumerate(COMPARED)
    )
    panels.append(
        Panel(
            f"Time of a checkpoint, every {plan.rate_interval} batches",
            "elements/s",
            "ms, median",
            timed,
            claim="sweeping about 1/4 of the others (Figure 4)",
            y_range=(0.0, 1.1 * max(ms for curve in timed for ms in curve.y)),
            nested=True,
        )
    )
    return tuple(panels)


if __name__ == "__main__":
    serve(measure)
