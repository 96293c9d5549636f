"""What checkpoints cost in processor time beside the work itself, over the time between them."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tenax.chaos.injector import pid_of
from tenax.chaos.oracle import with_results_in
from tenax.chaos.record import Recorder
from tenax.control.coordinator import Coordinator
from tenax.control.events import Event
from tenax.control.instructions import Decided, Outcome
from tenax.engine.costs import Costs
from tenax.engine.driver import Driver
from tenax.engine.observer import Observer
from tenax.engine.session import Session
from tenax.engine.worker.orders import Report
from tenax.errors import ClusterFailed
from tenax.model.settings import Settings
from tenax.pictures.figures import Curve, Panel
from tenax.store.records import JsonObject, integer, text
from tenax_lab.processes import cpu_s, run_apart, tree
from tenax_lab.results import Cell, Claim, Findings, Progress, Table
from tenax_lab.sides.sides import Series, Step, serve
from tenax_lab.tree_failures import PATIENT
from tenax_lab.tree_windows import WIDTHS, Arrival, Ending, Load, window_tree

NODES = 2
DEADLINE_S = 3_600.0
SELDOM = 1_000_000  # batches between checkpoints where there are to be none
MAX_ROWS = 1 << 30  # a batch is a span of time, however many rows it has


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured: seconds of event time between checkpoints, each in as many rounds.

    The first `warmup` batches fill windows; the `measured` ones after them hold a whole number of every interval.
    """

    load: Load
    intervals_s: tuple[int, ...]
    rounds: int
    warmup: int
    measured: int

    @property
    def steps(self) -> int:
        """How many parts the work has: a run that is not counted, then in each round one without checkpoints too."""
        return 1 + self.rounds * (1 + len(self.intervals_s))


FULL = Plan(Load(1_000, 30, 1), (1, 5, 15, 30), 3, 30, 30)
QUICK = Plan(Load(50, 2, 1), (1, 2), 1, 2, 4)
PLANS = {"full": FULL, "quick": QUICK}

NONE_S = 0  # stands for no checkpoints where intervals are named
MEASURES = ("nodes s", "driver s", "checkpoints", "checkpoint cpu s", "step cpu s", "written MB")


def run(seed: int, quick: bool, progress: Progress) -> Findings:
    """Measure in a process of its own, whose children are then all processes of the cluster."""
    plan = QUICK if quick else FULL
    progress.total(plan.steps)
    return findings(plan, run_apart(__name__, seed, quick=quick, deadline_s=DEADLINE_S, step=progress.advance))


def measure(arguments: JsonObject, step: Step) -> Series:
    """All runs in one session: in every other round the sides come in the opposite order."""
    plan, work, seed = PLANS[text(arguments, "plan")], Path(text(arguments, "work")), integer(arguments, "seed")
    session = Session(work / "cluster", PATIENT)
    sides = [NONE_S, *plan.intervals_s]
    found: Series = {}
    try:
        # Code is compiled and pages are touched for the first time: nobody's cost.
        measured(session, plan, seed, plan.intervals_s[0], work / "warm")
        step("a run that is not counted")
        for number in range(plan.rounds):
            for interval_s in sides if number % 2 == 0 else reversed(sides):
                values = measured(session, plan, seed, interval_s, work / f"run-{number}-{interval_s}")
                for name, value in zip(MEASURES, values, strict=True):
                    found.setdefault(f"{interval_s} {name}", []).append(value)
                step(f"round {number + 1}, {_every(interval_s)}")
    finally:
        session.stop()
    return found


def measured(session: Session, plan: Plan, seed: int, interval_s: int, folder: Path) -> tuple[float, ...]:
    """Run the tree once, and tell what its measured batches cost, in the order of `MEASURES`."""
    batches = plan.warmup + plan.measured
    arrival = Arrival(batches + 1, batches + 1)
    application = window_tree(seed, plan.load, arrival)
    every = plan.load.batches(interval_s) if interval_s else SELDOM
    settings = Settings.of(
        nodes=NODES,
        batch="0s",
        max_rows=MAX_ROWS,
        checkpoint_every=every,
        max_batches_per_pass=1,
        max_batches_ahead=8,
        max_unpublished=8,
    )
    meter, ending = Meter(plan.warmup, batches), Ending(arrival)
    watching = Recorder(also=(meter, ending))
    driver = Driver(with_results_in(application, folder / "results"), folder / "store", settings, watching, session)
    ending.driver = driver
    stop = driver.run()
    if stop.outcome is Outcome.FAILED or meter.spent is None:
        raise ClusterFailed(f"a measured run ends well, found {stop.outcome} ({stop.reason}): correct that first")
    costs = meter.costs
    return (
        meter.spent.nodes_s,
        meter.spent.driver_s,
        float(costs.checkpoints),
        costs.checkpoint_cpu_s,
        costs.step_cpu_s,
        costs.written_bytes / 2**20,
    )


@dataclass(frozen=True, slots=True)
class Spent:
    """Processor time: of the executors with their Python workers, and of the driver with its virtual machine."""

    nodes_s: float
    driver_s: float

    @classmethod
    def by(cls, executors: Iterable[int]) -> Spent:
        """What was spent so far."""
        nodes = {pid for executor in executors for pid in tree(executor)}
        return cls(cpu_s(nodes), cpu_s(set(tree(os.getpid())) - nodes))

    def since(self, before: Spent) -> Spent:
        """What was spent in between."""
        return Spent(self.nodes_s - before.nodes_s, self.driver_s - before.driver_s)


@dataclass(slots=True)
class Meter(Observer):
    """Watches a run: what the batches after `first` up to `last` cost. A checkpoint belongs to the batch before it."""

    first: int
    last: int
    costs: Costs = field(default_factory=Costs)
    spent: Spent | None = None
    _before: Spent | None = None
    _executors: tuple[int, ...] = ()

    def passed(self, first: int, last: int, reports: list[Report], seconds: float) -> None:  # noqa: ARG002
        """A pass of one batch has finished; the next one, and a checkpoint, begin when this returns."""
        if self._counts:
            self.costs.passed(reports)
        if last == self.first:
            self._before = Spent.by(self._executors)
        elif last == self.last and self._before is not None:
            self.spent = Spent.by(self._executors).since(self._before)

    def handled(self, coordinator: Coordinator, event: Event, then: Sequence[Decided]) -> None:  # noqa: ARG002
        """Something has happened; checkpoints count."""
        if not self._executors:
            self._executors = tuple(pid_of(node.name) for node in coordinator.state.nodes)
        if self._counts:
            self.costs.handled(event)

    @property
    def _counts(self) -> bool:
        return self._before is not None and self.spent is None


@dataclass(frozen=True, slots=True)
class Share:
    """What checkpoints of an interval cost, in percent of the normal work, round by round.

    - `counted`: processor time that the engine itself counts for checkpoints, over that inside steps.
    - `nodes` and `everything`: processor time with checkpoints beyond that without any, of the same round, of the
      executors and workers, and of all processes.
    """

    interval_s: int
    counted: tuple[float, ...]
    nodes: tuple[float, ...]
    everything: tuple[float, ...]


def shares(plan: Plan, found: Mapping[str, Sequence[float]]) -> list[Share]:
    """What checkpoints cost at each interval."""
    plain = found[f"{NONE_S} nodes s"]
    plain_driver = found[f"{NONE_S} driver s"]
    told = []
    for one in plan.intervals_s:
        nodes, driver, checkpoint, step = (
            found[f"{one} {name}"] for name in ("nodes s", "driver s", "checkpoint cpu s", "step cpu s")
        )
        told.append(
            Share(
                one,
                tuple(100 * seconds / steps for seconds, steps in zip(checkpoint, step, strict=True)),
                tuple(100 * (ours / bare - 1) for ours, bare in zip(nodes, plain, strict=True)),
                tuple(
                    100 * ((ours + beside) / (bare + bare_beside) - 1)
                    for ours, beside, bare, bare_beside in zip(nodes, driver, plain, plain_driver, strict=True)
                ),
            )
        )
    return told


def findings(plan: Plan, found: Mapping[str, Sequence[float]]) -> Findings:
    """Tables, claims and pictures of recorded series."""
    costs = shares(plan, found)
    load = plan.load
    return Findings(
        settings={
            "cluster": f"local-cluster[{NODES},2,1024]",
            "topology": f"{' > '.join(map(str, WIDTHS))} merges, windows of {load.window_s} s every 1 s at four levels",
            "rate": f"{load.rate:,} tuples/s of each of 16 sources",
            "a batch": f"{load.batch_s} s of event time, one a pass, as fast as they can be run; intervals are in "
            "event time",
            "measured": f"{plan.measured} batches after {plan.warmup} that fill windows, {plan.rounds} rounds",
            "checkpoints": "aligned",
        },
        tables=(_shares(costs), _spent(plan, found)),
        claims=_claims(costs),
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
            *_fewer(plan, found),
        ),
        panels=_panels(plan, costs, found),
        panel_columns=2,
    )


def _fewer(plan: Plan, found: Mapping[str, Sequence[float]]) -> list[str]:
    """Where checkpoints were due more often than they could be stored."""
    told = []
    for one in plan.intervals_s:
        due, stored = plan.measured // plan.load.batches(one), statistics.median(found[f"{one} checkpoints"])
        if stored < due:
            told.append(
                f"every {one} s: {due} checkpoints were due and {stored:g} were stored, since one is on its way at a "
                "time, from the pass after which it is due to the end of the next one"
            )
    return told


def _shares(costs: Sequence[Share]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (
            one.interval_s,
            statistics.median(one.counted),
            _range(one.counted),
            statistics.median(one.nodes),
            _range(one.nodes),
            statistics.median(one.everything),
            _range(one.everything),
        )
        for one in costs
    ]
    columns = ("interval s", "counted %", "spread", "nodes %", "spread of it", "everything %", "spread of that")
    title = "Processor time of checkpoints over that of normal work: as the engine counts, of nodes, of all processes"
    return Table(title, columns, tuple(rows))


def _spent(plan: Plan, found: Mapping[str, Sequence[float]]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for one in (NONE_S, *plan.intervals_s):
        nodes, driver, stored, checkpoint, step, written = (
            statistics.median(found[f"{one} {name}"]) for name in MEASURES
        )
        per_batch = (1000 * value / plan.measured for value in (nodes, driver, step, checkpoint))
        rows.append((_every(one), *per_batch, stored, written))
    columns = ("checkpoints", "nodes ms", "driver ms", "in steps ms", "counted ms", "stored", "written MB")
    return Table("A batch, in ms (medians of rounds), and what was stored in all", columns, tuple(rows))


def _claims(costs: Sequence[Share]) -> tuple[Claim, ...]:
    shortest, longest = costs[0], costs[-1]
    least = statistics.median(longest.counted)
    return (
        Claim(
            f"processor time for a checkpoint every {shortest.interval_s} s, over that of normal work",
            "prohibitively expensive (no number)",
            statistics.median(shortest.counted),
            "%",
            f"median of {len(shortest.counted)} rounds, {_range(shortest.counted)}; of all processes "
            f"{statistics.median(shortest.everything):.3g} %",
        ),
        Claim(
            f"the same, every {longest.interval_s} s",
            f"increases quickly from {longest.interval_s} s to {shortest.interval_s} s (no number)",
            least,
            "%",
            f"median of {len(longest.counted)} rounds, {_range(longest.counted)}; with checkpoints "
            f"{longest.interval_s / shortest.interval_s:g} times as often it is "
            f"{statistics.median(shortest.counted) - least:.3g} percentage points more",
        ),
    )


def _panels(plan: Plan, costs: Sequence[Share], found: Mapping[str, Sequence[float]]) -> tuple[Panel, ...]:
    places = tuple(float(one.interval_s) for one in costs)

    def curve(label: str, look: int, values: Sequence[Sequence[float]]) -> Curve:
        middles, spread = tuple(map(statistics.median, values)), tuple((min(one), max(one)) for one in values)
        return Curve(label, places, middles, look, spread=spread)

    def per_batch(name: str, interval_s: int) -> list[float]:
        return [1000 * value / plan.measured for value in found[f"{interval_s} {name}"]]

    def without(name: str, look: int) -> Curve:
        ends = (places[0], places[-1])
        level = statistics.median(per_batch(f"{name} s", NONE_S))
        return Curve(f"{name} without checkpoints", ends, (level, level), look, dashed=True)

    return (
        Panel(
            "Processor time over that of normal work",
            "seconds of event time between checkpoints",
            "percent",
            (
                curve("of nodes", 0, [one.nodes for one in costs]),
                curve("of all processes", 1, [one.everything for one in costs]),
                curve("as the engine counts", 2, [one.counted for one in costs]),
            ),
            claim="increases quickly with shorter intervals; every second is prohibitively expensive (Figure 9)",
        ),
        Panel(
            "Processor time of a batch",
            "seconds of event time between checkpoints",
            "ms",
            (
                curve("nodes", 0, [per_batch("nodes s", one.interval_s) for one in costs]),
                without("nodes", 0),
                curve("driver", 1, [per_batch("driver s", one.interval_s) for one in costs]),
                without("driver", 1),
            ),
            y_range=(0.0, 1.3 * max(max(per_batch("nodes s", one)) for one in (NONE_S, *plan.intervals_s))),
        ),
    )


def _every(interval_s: int) -> str:
    return f"every {interval_s} s" if interval_s else "none"


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.3g} to {max(values):.3g}"


if __name__ == "__main__":
    serve(measure)
