"""How long outputs wait after one node or all primaries are lost: active replicas, checkpoints, replay from sources."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tenax.engine.session import Session
from tenax.model.protection import Protection, Recovery
from tenax.pictures.figures import Curve, Panel
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
    all_primaries,
    from_series,
    lose,
    one_node,
    to_series,
)
from tenax_lab.tree_windows import WIDTHS, Arrival, Load

DEADLINE_S = 3_600.0
ACTIVE, CHECKPOINT, REPLAY = "active replicas", "checkpoint", "source replay"
TECHNIQUES = (ACTIVE, CHECKPOINT, REPLAY)
ONE, PRIMARIES = "one node", "all primaries"
SELDOM = 1_000_000  # batches between checkpoints where there are to be none
AFTER = 3  # batches that come after the kill
GOAL_BATCHES = 1


@dataclass(frozen=True, slots=True)
class Case:
    """A loss to be measured."""

    technique: str
    lost: str
    rate: int
    window_s: int

    @property
    def label(self) -> str:
        """For those who wait, and the name of its series."""
        return f"{self.technique}, {self.lost} lost, {self.rate:,} tuples/s, windows of {self.window_s} s"


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured: batches of `batch_s` of event time, a checkpoint every `interval` batches.

    Nodes are killed when windows are full and the next batch would bring a checkpoint, so that as much as ever is
    replayed from the last one; and from the sources little more than a window.
    """

    cases: tuple[Case, ...]
    batch_s: int
    interval: int

    def load(self, case: Case) -> Load:
        """What the tree has to do."""
        return Load(case.rate, case.window_s, self.batch_s)

    def kill_at(self, case: Case) -> int:
        """The batch after which nodes are killed."""
        full = self.load(case).batches(case.window_s) + 1
        return -(-(full + 1) // self.interval) * self.interval - 1


def _cases(rates: Sequence[int], windows: Sequence[int]) -> tuple[Case, ...]:
    """Every technique in turn under each circumstance, so that what disturbs the machine disturbs all of them."""
    return tuple(
        Case(technique, lost, rate, window_s)
        for window_s in windows
        for rate in rates
        for lost in (ONE, PRIMARIES)
        for technique in TECHNIQUES
    )


FULL = Plan(_cases((1_000, 2_000), (10, 30)), batch_s=2, interval=5)
QUICK = Plan(
    (Case(ACTIVE, PRIMARIES, 50, 4), Case(CHECKPOINT, ONE, 50, 4), Case(REPLAY, PRIMARIES, 50, 4)),
    batch_s=2,
    interval=3,
)
PLANS = {"full": FULL, "quick": QUICK}


def run(seed: int, quick: bool, progress: Progress) -> Findings:
    """Measure in a process of its own, because it needs a cluster of its own size."""
    plan = QUICK if quick else FULL
    progress.total(len(plan.cases))
    series = run_apart(__name__, seed, quick=quick, deadline_s=DEADLINE_S, step=progress.advance)
    return findings(plan, {case: from_series(case.label, series) for case in plan.cases})


def measure(arguments: JsonObject, step: Step) -> Series:
    """All cases in one session, one after the other; nodes that were killed are back before the next begins."""
    plan, work, seed = PLANS[text(arguments, "plan")], Path(text(arguments, "work")), integer(arguments, "seed")
    session = Session(work / "cluster", PATIENT)
    found: Series = {}
    try:
        for number, case in enumerate(plan.cases):
            facts = lose(session, ordeal(plan, case, seed), work / f"run-{number}")
            found |= to_series(case.label, facts)
            step(case.label)
    finally:
        session.stop()
    return found


def ordeal(plan: Plan, case: Case, seed: int) -> Ordeal:
    """What a case means for a run: batches come as fast as they are run, and some more after the kill."""
    load, kill_at = plan.load(case), plan.kill_at(case)
    kill = one_node(kill_at) if case.lost == ONE else all_primaries(load, kill_at)
    batches = kill_at + AFTER
    return Ordeal(seed, load, Arrival(batches, batches), protection(case.technique, plan.interval), kill)


def protection(technique: str, interval: int) -> Protection:
    """What a user asks for; nothing but recovery goes on while tasks are missing, as in the paper."""
    return Protection(
        replicas="all" if technique == ACTIVE else 0,
        recovery=Recovery.BLOCKING.value,
        checkpoint_every=SELDOM if technique == REPLAY else interval,
    )


Found = Mapping[Case, Facts]


def findings(plan: Plan, found: Found) -> Findings:
    """Tables, claims and pictures of what was measured."""
    scale = [plan.batch_s / one.batch_s for one in found.values()]
    kills = {(one.window_s, plan.kill_at(one)) for one in plan.cases}
    return Findings(
        settings={
            "cluster": f"local-cluster[{NODES},2,1024]: {STANDBY} standby, {NODES - STANDBY} with all primaries",
            "topology": f"{' > '.join(map(str, WIDTHS))} merges, windows every 1 s at four levels, selectivity 0.5",
            "rates": "tuples/s of each of 16 sources, in event time",
            "a batch": f"{plan.batch_s} s of event time, as fast as they can be run: {min(scale):.2g} to "
            f"{max(scale):.2g} s of event time a second",
            "checkpoints": f"aligned, every {plan.interval} batches ({plan.interval * plan.batch_s} s)",
            "failure": "SIGKILL after the batch before a checkpoint, once windows are full: "
            + ", ".join(f"batch {batch} for {window_s} s" for window_s, batch in sorted(kills)),
            "recovery": f"blocking, in rounds of at most {PER_ROUND} batches",
        },
        tables=(_table(found),),
        claims=tuple(_claims(found)),
        remarks=_remarks(found),
        panels=_panels(found),
        panel_columns=2,
    )


def _table(found: Found) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (
            case.technique,
            case.lost,
            case.window_s,
            case.rate,
            one.lost,
            one.detection_s,
            one.back_s,
            one.final_s,
            one.final_s / one.batch_s,
            one.replayed,
            one.batches,
            "yes" if one.exact else "NO",
        )
        for case, one in found.items()
    ]
    columns = (
        "technique",
        "lost",
        "window s",
        "tuples/s",
        "tasks lost",
        "detection s",
        "progress back s",
        "final again s",
        "× a batch",
        "replayed",
        "batches",
        "exact",
    )
    title = "From the kill to the first complete final output after it; progress is back as the paper counts recovery"
    return Table(title, columns, tuple(rows))


def _claims(found: Found) -> list[Claim]:
    ours = [one for case, one in found.items() if case.technique == ACTIVE]
    claims = [
        Claim(
            "active replicas: batches run from the kill to the first complete final output, at any rate and window",
            f"{GOAL_BATCHES} batch",
            float(max(one.batches for one in ours)),
            "batches at most",
            f"{sum(one.batches <= GOAL_BATCHES for one in ours)} of {len(ours)} losses in {GOAL_BATCHES}; in seconds "
            f"{_range([one.final_s for one in ours])}, {_range([one.final_s / one.batch_s for one in ours])} times "
            "what a batch takes without a failure",
            "we aim at",
        )
    ]
    for lost in (ONE, PRIMARIES):
        for technique in (CHECKPOINT, REPLAY):
            cases = [case for case in found if (case.technique, case.lost) == (technique, lost)]
            claims += _claim(
                f"{lost} lost: latency with {technique} over that with active replicas",
                "active is much lower (no number)",
                ratios(found, [(case, replace(case, technique=ACTIVE)) for case in cases]),
            )
    low, high = (pick(case.rate for case in found) for pick in (min, max))
    for technique, said in ((ACTIVE, "little influence"), (CHECKPOINT, "proportional"), (REPLAY, "proportional")):
        cases = [case for case in found if case.technique == technique and low < case.rate == high]
        claims += _claim(
            f"{technique}: latency at {high:,} over that at {low:,} tuples/s",
            said,
            ratios(found, [(case, replace(case, rate=low)) for case in cases]),
        )
    short, long = (pick(case.window_s for case in found) for pick in (min, max))
    for technique, said in ((ACTIVE, "little influence"), (REPLAY, "longer windows, longer latency")):
        cases = [case for case in found if case.technique == technique and short < case.window_s == long]
        claims += _claim(
            f"{technique}: latency with windows of {long} s over that with {short} s",
            said,
            ratios(found, [(case, replace(case, window_s=short)) for case in cases]),
        )
    return claims


def _claim(what: str, said: str, found: Sequence[float]) -> list[Claim]:
    """A ratio of latencies beside what the paper says; nothing if nothing was compared."""
    if not found:
        return []
    return [Claim(what, said, statistics.median(found), "×", f"median of {len(found)} pairs, {_range(found)}")]


def ratios(found: Found, pairs: Sequence[tuple[Case, Case]]) -> list[float]:
    """The latency of the first case over that of the second, for pairs of which both were measured."""
    return [found[one].final_s / found[other].final_s for one, other in pairs if one in found and other in found]


def _remarks(found: Found) -> tuple[str, ...]:
    exact = sum(one.exact for one in found.values())
    return (
        f"the oracle found {exact} of {len(found)} runs exact: final results as without failures, to the byte",
        "a batch is computed by columns, so that a core has more to do with 32 tasks, stages and jobs than with so "
        "many tuples: twice the rate, which is the paper's, changes little here",
        "source replay: no checkpoint is stored before the kill, so everything since batch 1 is replayed, which is "
        "little more than a window; the paper's Storm replays the tuples of unfinished windows",
        "one node lost: its tasks go to the other node with primaries unless they have replicas; all primaries lost: "
        "to the standby nodes; sources are logged and go on anywhere at once, the paper keeps them alive",
        "replicas step with their primaries and drop nothing but what a checkpoint covers: the paper's interval of "
        "synchronisation has nothing to resend here, and is not varied",
    )


def _panels(found: Found) -> tuple[Panel, ...]:
    said = {
        ONE: "active much lower, whatever rate and window; passive grows with the rate (Figure 7)",
        PRIMARIES: "the benefit of active replicas is larger than for a single node (Figure 8)",
    }
    panels = []
    for lost in (ONE, PRIMARIES):
        for window_s in sorted({case.window_s for case in found}):
            curves = []
            for look, technique in enumerate(TECHNIQUES):
                points = sorted(
                    (case.rate, one.final_s)
                    for case, one in found.items()
                    if (case.technique, case.lost, case.window_s) == (technique, lost, window_s)
                )
                if points:
                    rates, seconds = zip(*points, strict=True)
                    curves.append(Curve(technique, tuple(map(float, rates)), seconds, look))
            if curves:
                highest = 1.1 * max(one.final_s for case, one in found.items() if case.lost == lost)
                title = f"{lost[0].upper()}{lost[1:]} lost, windows of {window_s} s"
                labels = ("tuples/s of each source", "seconds to the next final output")
                panels.append(Panel(title, *labels, tuple(curves), said[lost], y_range=(0.0, highest)))
    return tuple(panels)


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f}"


if __name__ == "__main__":
    serve(measure)
