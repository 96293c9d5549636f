"""All primaries are lost while all, half or none of the tasks have replicas: when outputs come, how good, when all."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from tenax.chaos.runs import RESULTS as FOLDER
from tenax.connectors.parquet import ParquetSink, read_committed
from tenax.control.coordinator import Coordinator
from tenax.control.events import Event, Published
from tenax.control.instructions import Decided
from tenax.engine.observer import Observer
from tenax.engine.session import Session
from tenax.model.graph import TaskGraph
from tenax.model.plans import ReplicaPlan
from tenax.model.protection import Protection
from tenax.model.topology import Topology
from tenax.operators.event_time import WINDOW_END
from tenax.pictures.figures import Curve, Panel
from tenax.planning.replicas import plan_replicas
from tenax.store.records import JsonObject, integer, text
from tenax_lab.processes import run_apart
from tenax_lab.results import Cell, Claim, Findings, Progress, Table
from tenax_lab.sides.sides import Series, Step, serve
from tenax_lab.tree_failures import (
    NODES,
    PATIENT,
    PER_ROUND,
    STANDBY,
    Facts,
    Ordeal,
    Publication,
    all_primaries,
    from_series,
    lose,
    to_series,
)
from tenax_lab.tree_windows import RESULTS, WIDTHS, Arrival, Load, tree_topology

DEADLINE_S = 3_600.0
ALGORITHM = "structure-aware"
EVERYTHING, HALF, NOTHING = 1.0, 0.5, 0.0
SHARES = (EVERYTHING, HALF, NOTHING)
PACED = 2  # batches that come by the clock before the kill


@dataclass(frozen=True, slots=True)
class Case:
    """A loss to be measured: the part of the tasks that has replicas, the event time between checkpoints."""

    share: float
    interval_s: int
    round: int = 1

    @property
    def name(self) -> str:
        """As the paper calls the plan."""
        return f"PPA-{self.share:.1f}" if self.share else "PPA-0"

    @property
    def label(self) -> str:
        """For those who wait, and the name of its series."""
        return f"{self.name}, a checkpoint every {self.interval_s} s, round {self.round}"


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured; batches come every `arrival_s` by the clock when nodes are killed, and so many `after` that."""

    load: Load
    cases: tuple[Case, ...]
    arrival_s: float
    after: int

    def kill_at(self, case: Case) -> int:
        """The batch after which nodes are killed: windows are full, and the next one would bring a checkpoint."""
        full, interval = self.load.batches(self.load.window_s) + 1, self.load.batches(case.interval_s)
        return -(-(full + 1) // interval) * interval - 1


def _cases(intervals_s: Sequence[int], rounds: int) -> tuple[Case, ...]:
    return tuple(Case(share, every, one + 1) for one in range(rounds) for every in intervals_s for share in SHARES)


FULL = Plan(Load(1_000, 30, 2), _cases((10, 30), 3), arrival_s=1.0, after=12)
# A gap of four batches: within cutover_lag, live passes wait for lost tasks, and nothing tentative is shown.
QUICK = Plan(Load(50, 4, 2), _cases((10,), 1), arrival_s=0.5, after=4)
PLANS = {"full": FULL, "quick": QUICK}


def run(seed: int, quick: bool, progress: Progress) -> Findings:
    """Measure in a process of its own, because it needs a cluster of its own size."""
    plan = QUICK if quick else FULL
    progress.total(len(plan.cases))
    series = run_apart(__name__, seed, quick=quick, deadline_s=DEADLINE_S, step=progress.advance)
    return findings(plan, {case: Outage.from_series(case.label, series) for case in plan.cases})


def measure(arguments: JsonObject, step: Step) -> Series:
    """All cases in one session, one after the other; nodes that were killed are back before the next begins."""
    plan, work, seed = PLANS[text(arguments, "plan")], Path(text(arguments, "work")), integer(arguments, "seed")
    session = Session(work / "cluster", PATIENT)
    found: Series = {}
    try:
        for number, case in enumerate(plan.cases):
            outage = _outage(session, plan, case, seed, work / f"run-{number}")
            found |= outage.to_series(case.label)
            step(case.label)
    finally:
        session.stop()
    return found


def _outage(session: Session, plan: Plan, case: Case, seed: int, folder: Path) -> Outage:
    """One loss of all primaries."""
    kill_at = plan.kill_at(case)
    protection = Protection(
        replicas=tuple(map(str, replica_plan(plan.load, case.share).replicas)),
        checkpoint_every=plan.load.batches(case.interval_s),
    )
    results = ParquetSink(folder / FOLDER / RESULTS)
    shown = Tentative(results, folder / "tentative")
    arrival = Arrival(kill_at + plan.after, kill_at - PACED, plan.arrival_s)
    facts = lose(
        session, Ordeal(seed, plan.load, arrival, protection, all_primaries(plan.load, kill_at)), folder, (shown,)
    )
    return Outage(facts, content(read_committed(results.folder), shown.rows()))


def replica_plan(load: Load, share: float) -> ReplicaPlan:
    """The replicas for a part of the tasks; sources are logged, cannot be lost and need none."""
    topology = tree_topology(load)
    operators = (replace(one, safe=True) if one.is_source else one for one in topology.operators)
    graph = TaskGraph(Topology(topology.name, tuple(operators)))
    return plan_replicas(graph, round(share * int((~graph.safe).sum())), ALGORITHM)


class Tentative(Observer):
    """Keeps the files of tentative results, which final ones will remove, as an observer of a run."""

    def __init__(self, results: ParquetSink, kept: Path) -> None:
        self._folder = results.tentative
        self._kept = kept
        kept.mkdir(parents=True)

    def handled(self, coordinator: Coordinator, event: Event, then: Sequence[Decided]) -> None:  # noqa: ARG002
        """Publications follow each other, and an event is handled before the next one begins: none is missed."""
        if isinstance(event, Published) and event.tentative:
            for path in self._folder.glob("*.parquet"):
                if not (self._kept / path.name).exists():
                    os.link(path, self._kept / path.name)

    def rows(self) -> pl.DataFrame:
        """All rows that were shown tentatively."""
        frames = [pl.read_parquet(path, use_pyarrow=True) for path in sorted(self._kept.glob("*.parquet"))]
        return pl.concat(frames) if frames else pl.DataFrame()


def content(final: pl.DataFrame, tentative: pl.DataFrame) -> tuple[float, ...]:
    """For every window that was shown tentatively, the part of its final readings that it counted, in order."""
    if tentative.is_empty():
        return ()
    whole, shown = (
        one.group_by(WINDOW_END).agg(pl.col("readings").cast(pl.Int64).sum().alias(name))  # 32 bits overflow
        for one, name in ((final, "whole"), (tentative, "shown"))
    )
    both = shown.join(whole, on=WINDOW_END).sort(WINDOW_END)
    return tuple((both["shown"] / both["whole"]).to_list())


@dataclass(frozen=True, slots=True)
class Outage:
    """How a loss was met, and the content of each window that was shown tentatively."""

    facts: Facts
    content: tuple[float, ...] = ()

    def to_series(self, name: str) -> Series:
        """To travel between processes."""
        return {**to_series(name, self.facts), f"{name} content": list(self.content)}

    @classmethod
    def from_series(cls, name: str, found: Mapping[str, Sequence[float]]) -> Outage:
        """What `to_series` made series of."""
        return cls(from_series(name, found), tuple(found[f"{name} content"]))

    @property
    def recovered_s(self) -> float:
        """Until no task is missing and a new batch is final."""
        return max(self.facts.whole_s, self.facts.final_s)

    @property
    def tentative(self) -> list[Publication]:
        """What was shown tentatively."""
        return [one for one in self.facts.publications if one.tentative]

    @property
    def newest(self) -> list[Publication]:
        """Publications in order, each of a newer batch than all before it: how good the newest output was when."""
        found: list[Publication] = []
        for one in self.facts.publications:
            if not found or one.last > found[-1].last:
                found.append(one)
        return found


Found = Mapping[Case, Outage]


def findings(plan: Plan, found: Found) -> Findings:
    """Tables, claims and pictures of what was measured."""
    load = plan.load
    kills = {(one.interval_s, plan.kill_at(one)) for one in plan.cases}
    return Findings(
        settings={
            "cluster": f"local-cluster[{NODES},2,1024]: {STANDBY} standby, {NODES - STANDBY} with all primaries",
            "topology": f"{' > '.join(map(str, WIDTHS))} merges, windows of {load.window_s} s every 1 s at four levels",
            "rate": f"{load.rate:,} tuples/s of each of 16 sources, in event time",
            "a batch": f"{load.batch_s} s of event time every {plan.arrival_s:g} s: "
            f"{load.batch_s / plan.arrival_s:g} s of event time a second",
            "failure": "SIGKILL of all nodes with primaries after the batch before a checkpoint, once windows are "
            "full: " + ", ".join(f"batch {batch} for {interval_s} s" for interval_s, batch in sorted(kills)),
            "recovery": f"on the standby nodes, in rounds of at most {PER_ROUND} batches, live passes go on",
            "replicas": f"by {ALGORITHM}, of the tasks that are no sources",
        },
        tables=(_table(plan, found),),
        claims=tuple(_claims(found)),
        remarks=_remarks(found),
        panels=_panels(found),
        panel_columns=2,
    )


def _table(plan: Plan, found: Found) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for case, one in found.items():
        replicas = replica_plan(plan.load, case.share)
        facts = one.facts
        rows.append(
            (
                case.name,
                case.interval_s,
                case.round,
                len(replicas.replicas),
                replicas.value,
                facts.detection_s,
                facts.tentative_s,
                facts.final_s,
                one.recovered_s,
                facts.replayed,
                len(one.tentative),
                statistics.fmean(part.quality for part in one.tentative) if one.tentative else None,
                statistics.fmean(one.content) if one.content else None,
                min(one.content, default=None),
                "yes" if facts.exact else "NO",
            )
        )
    columns = (
        "plan",
        "interval s",
        "round",
        "replicas",
        "fidelity",
        "detection s",
        "tentative s",
        "final s",
        "all back s",
        "replayed",
        "tentative",
        "quality",
        "content",
        "least",
        "exact",
    )
    title = (
        "From the kill to the first tentative and the first final output and until all is back; tentative outputs, the "
        "quality that the run states of them, and the part of the readings that they held"
    )
    return Table(title, columns, tuple(rows))


def _claims(found: Found) -> list[Claim]:
    half = [case for case in found if case.share == HALF]

    def recovered(case: Case) -> float:
        return found[case].recovered_s

    def output(case: Case) -> float:
        return found[case].facts.output_s

    lower = [recovered(case) / recovered(replace(case, share=NOTHING)) for case in half]
    higher = [recovered(case) / recovered(replace(case, share=EVERYTHING)) for case in half]
    earlier = [recovered(case) / output(case) for case in half if found[case].tentative]
    active = [output(case) / output(replace(case, share=EVERYTHING)) for case in half if found[case].tentative]
    silent = [output(replace(case, share=NOTHING)) / output(case) for case in half]
    return [
        *_claim("PPA-0.5 over PPA-0, until all is back", "lower (no number)", lower),
        *_claim("PPA-0.5 over PPA-1.0, until all is back", "higher (no number)", higher),
        *_claim("PPA-0.5: until all is back, over until the first tentative output", "up to 10 ×", earlier),
        *_claim("until the first output, PPA-0.5 (its active tasks) over PPA-1.0", "slightly less", active),
        *_claim("until the first output, PPA-0 over PPA-0.5", "outputs need not wait (no number)", silent),
    ]


def _claim(what: str, said: str, ratios: Sequence[float]) -> list[Claim]:
    if not ratios:
        return []
    over = f"median of {len(ratios)} runs, {min(ratios):.2f} to {max(ratios):.2f}"
    return [Claim(what, said, statistics.median(ratios), "×", over)]


def _remarks(found: Found) -> tuple[str, ...]:
    exact = sum(one.facts.exact for one in found.values())
    return (
        f"the oracle found {exact} of {len(found)} runs exact: final results as without failures, to the byte",
        "all is back when no task is missing and the first batch after the kill is final; with replicas for all "
        "tasks nothing is ever missing, and that is the next output",
        "quality is what the run states when it publishes: the fidelity of the tasks that step; content is how many "
        "of its final readings a tentative window counted: higher, for windows reach back to before the failure",
        "with half of the replicas tentative passes go on beside the recovery, on the same cores; without any there is "
        "nothing to show, and the recovery has them for itself. The paper's nodes have cores of their own",
        "sources are logged and go on anywhere at once, the paper keeps them alive",
    )


def _panels(found: Found) -> tuple[Panel, ...]:
    panels = []
    for interval_s in sorted({case.interval_s for case in found}):
        ours = {case: one for case, one in found.items() if (case.interval_s, case.round) == (interval_s, 1)}
        curves = tuple(_steps(case.name, one, look) for look, (case, one) in enumerate(ours.items()))
        title = f"Quality shown, a checkpoint every {interval_s} s"
        panels.append(
            Panel(
                title, "seconds since the kill (round 1)", "quality stated", curves, y_range=(-0.03, 1.05), nested=True
            )
        )
    return (*panels, *(_times(found, interval_s) for interval_s in sorted({case.interval_s for case in found})))


def _steps(label: str, outage: Outage, look: int) -> Curve:
    """The quality of the newest output at any time: none at first, then that of the last one shown."""
    points = [(0.0, 0.0)]
    for one in outage.newest:
        points += [(one.after_s, points[-1][1]), (one.after_s, one.quality)]
    seconds, qualities = zip(*points, strict=True)
    return Curve(label, seconds, qualities, look)


def _times(found: Found, interval_s: int) -> Panel:
    """Until the first output and until all is back, over the part of the tasks that has replicas."""
    shares = tuple(sorted(SHARES))

    def curve(label: str, look: int, seconds: Callable[[Outage], float]) -> Curve:
        ours = [
            [seconds(one) for case, one in found.items() if (case.share, case.interval_s) == (share, interval_s)]
            for share in shares
        ]
        spread = tuple((min(one), max(one)) for one in ours)
        return Curve(label, shares, tuple(map(statistics.median, ours)), look, spread=spread)

    return Panel(
        f"Seconds since the kill, a checkpoint every {interval_s} s",
        "part of the tasks that has replicas",
        "seconds",
        (
            curve("all is back", 1, lambda one: one.recovered_s),
            curve("first output, tentative or final", 0, lambda one: one.facts.output_s),
        ),
        claim="PPA-0.5 lies between PPA-1.0 and PPA-0, its active tasks near PPA-1.0 (Figure 10)",
        y_range=(0.0, 1.1 * max(one.recovered_s for one in found.values())),
    )


if __name__ == "__main__":
    serve(measure)
