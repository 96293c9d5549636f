"""Two of four nodes die at once: how long outputs are silent, in Tenax three ways and in Structured Streaming."""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tenax.chaos.runs import RESULTS
from tenax.connectors.parquet import read_committed
from tenax.pictures.figures import Curve, Panel
from tenax.store.records import Json
from tenax_lab.failover_measures import Period, SideRun, percentile
from tenax_lab.failover_tenax import BLOCKING, OUTPUT, PASSIVE, REPLICAS
from tenax_lab.peers import same_results
from tenax_lab.processes import SideFailed, run_side
from tenax_lab.results import Cell, Claim, Findings, Progress, Table
from tenax_lab.sides.failover_files import Ordeal, committed_rows
from tenax_lab.sides.inputs import Shape, write_inputs
from tenax_lab.sides.plain_polars import windowed
from tenax_lab.sides.sides import Series

STRUCTURED = "structured"
SIDES = {
    REPLICAS: "Tenax, replicas",
    PASSIVE: "Tenax, tentative",
    BLOCKING: "Tenax, blocking",
    STRUCTURED: "Structured Streaming",
}
GOING_ON = (REPLICAS, PASSIVE)  # the sides of which we want the next output soon
NODES, RACKS = 4, 2
INTERVAL_S = 1.0
SHUFFLE_PARTITIONS = 4
GOAL_INTERVALS = 2
SIDE_DEADLINE_S = 1_200.0
PICTURE_S = (-5.0, 10.0)  # from so long before the kill to so long after the return
INPUT_LOOK, MARK_LOOK = 6, 4


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured; each round kills at another moment of the second, after so long."""

    shape: Shape
    kills_after_s: tuple[float, ...]
    away_s: float
    tail_s: float


FULL = Plan(Shape(150, 10_000, 1_000, NODES), (26.3, 26.8), 15.0, 12.0)
QUICK = Plan(Shape(150, 2_000, 100, NODES), (6.3,), 5.0, 5.0)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that was measured, and how many result rows were the same on all sides."""

    plan: Plan
    runs: tuple[SideRun, ...]
    compared: int

    def of(self, side: str) -> list[SideRun]:
        """The runs of one side, by round."""
        return sorted((one for one in self.runs if one.side == side), key=lambda one: one.number)


def run(seed: int, quick: bool, progress: Progress) -> Findings:
    """Let all sides go through the same, in turn, each in a process of its own."""
    plan = QUICK if quick else FULL
    progress.total(len(SIDES) * len(plan.kills_after_s))
    folder = Path(tempfile.mkdtemp(prefix="tenax-failover-"))
    found = compare(folder, seed, plan, progress)
    shutil.rmtree(folder)  # not after an error, which names it: what a side left behind tells why it failed
    return findings(found)


def compare(folder: Path, seed: int, plan: Plan, progress: Progress) -> Comparison:
    """Write the input once, let every side read it as it appears, compare what they found."""
    inputs = folder / "inputs"
    write_inputs(inputs, seed, plan.shape)
    runs = []
    for number, kill_after_s in enumerate(plan.kills_after_s, start=1):
        ordeal = Ordeal(inputs, plan.shape, NODES, RACKS, INTERVAL_S, kill_after_s, plan.away_s, plan.tail_s)
        for side in SIDES if number % 2 else reversed(SIDES):
            series = _through(ordeal, side, _work(folder, side, number), progress)
            runs.append(SideRun.from_series(side, number, series))
    frames = {"plain Polars": windowed("means", inputs).collect()}
    for one in runs:
        results = _work(folder, one.side, one.number) / RESULTS
        rows = committed_rows(results) if one.side == STRUCTURED else read_committed(results / OUTPUT)
        frames[f"{SIDES[one.side]}, round {one.number}"] = rows
    return Comparison(plan, tuple(runs), same_results(frames))


def _through(ordeal: Ordeal, side: str, work: Path, progress: Progress) -> Series:
    """Let one side go through it."""
    theirs = side == STRUCTURED
    module = "tenax_lab.sides.failover_structured" if theirs else "tenax_lab.failover_tenax"
    told: dict[str, Json] = {"work": str(work), "ordeal": ordeal.to_data()}
    told |= {"shuffle_partitions": SHUFFLE_PARTITIONS} if theirs else {"side": side}
    try:
        return run_side(module, told, deadline_s=SIDE_DEADLINE_S, step=progress.advance).series
    except SideFailed as failure:
        raise SideFailed(f"{failure}; this was {SIDES[side]!r}, and what it left behind is in {work}") from failure


def _work(folder: Path, side: str, number: int) -> Path:
    return folder / f"{side}-{number}"


def findings(found: Comparison) -> Findings:
    """Tables, goals and pictures of a comparison."""
    plan = found.plan
    return Findings(
        settings={
            "input": f"{plan.shape.batch_rows:,} rows a second, in {plan.shape.partitions} files",
            "keys": plan.shape.segments,
            "query": "mean per key over windows of 10 s, one every 1 s",
            "cluster": f"local-cluster[{NODES},2,1024] on all sides",
            "batch interval s": INTERVAL_S,
            "killed": f"{', '.join(f'{one:g}' for one in plan.kills_after_s)} s after the first result, by round",
            "away": f"{plan.away_s:g} s",
        },
        tables=(_outages(found), _latencies(found)),
        claims=tuple(_claims(found)),
        remarks=tuple(_remarks(found)),
        panels=_panels(found),
    )


def _outages(found: Comparison) -> Table:
    rows = [
        (
            SIDES[one.side],
            one.number,
            one.detection_s,
            one.silence_s(whole=False),
            _percent(one.first_share()),
            one.silence_s(whole=True),
            one.longest_gap_s(),
            one.back_s(),
            one.incomplete(),
            one.tentative,
            one.corrected,
            one.restarts,
            "–" if one.exact is None else "yes" if one.exact else "NO",
        )
        for side in SIDES
        for one in found.of(side)
    ]
    columns = (
        "side",
        "round",
        "noticed",
        "silent",
        "shown %",
        "final again",
        "longest gap",
        "up to date",
        "partial",
        "tentative",
        "corrected",
        "restarts",
        "exact",
    )
    return Table("After the kill, in s: what readers of the results saw", columns, tuple(rows))


def _percent(share: float | None) -> Cell:
    return None if share is None else round(100 * share)


def _latencies(found: Comparison) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for side, name in SIDES.items():
        runs = found.of(side)
        for period in Period:
            first = [value for one in runs for value in one.periods(whole=False)[period]]
            final = [value for one in runs for value in one.periods(whole=True)[period]]
            figures = [percentile(values, percent) for values in (first, final) for percent in (50, 99)]
            rows.append((name, period.value, len(final), *figures))
    columns = ("side", "outage", "seconds", "shown p50", "shown p99", "final p50", "final p99")
    return Table("Latency in s from when a second of input appeared until its results were shown", columns, tuple(rows))


def _claims(found: Comparison) -> Iterator[Claim]:
    goal_s = GOAL_INTERVALS * INTERVAL_S
    theirs = _silences(found, STRUCTURED)
    for side in GOING_ON:
        ours = list(_silences(found, side).values())
        if ours:
            yield Claim(
                f"{SIDES[side]}: the next output after {found.of(side)[0].killed} of {NODES} nodes died",
                f"within {GOAL_INTERVALS} batch intervals ({goal_s:g} s)",
                max(ours) / INTERVAL_S,
                "batch intervals",
                f"the slowest of {_rounds(ours)}; goal {'met' if max(ours) <= goal_s else 'missed'}",
                "we aim at",
            )
    for side, name in SIDES.items():
        silences = _silences(found, side) if side != STRUCTURED else {}
        ratios = [silence / theirs[number] for number, silence in silences.items() if number in theirs]
        if ratios:
            yield Claim(
                f"{name}: silence against Structured Streaming's",
                "shorter",
                statistics.median(ratios),
                "times theirs",
                f"median of {_rounds(ratios)}, {min(ratios):.2f} to {max(ratios):.2f}, sides in turn",
                "we aim at",
            )


def _silences(found: Comparison, side: str) -> dict[int, float]:
    """How long a side was silent, by round."""
    silences = {one.number: one.silence_s(whole=False) for one in found.of(side)}
    return {number: silence for number, silence in silences.items() if silence is not None}


def _rounds(values: Sequence[float]) -> str:
    return f"{len(values)} round{'s' * (len(values) > 1)}"


def _remarks(found: Comparison) -> list[str]:
    restarts = sum(one.restarts for one in found.runs)
    return [
        "the kill is the same on all sides: executors are dealt out to two racks in the order of their ids, and both "
        "of rack 1 get SIGKILL at once; the limit of executors is lowered first, so that none is replaced, and raised "
        "to let them return",
        "an output counts when readers can see rows of a window that no output had before: with a second of input, the "
        "windows that end where it begins are complete; `silent` is until any partition shows one, `final again` until "
        "all partitions do, final; `up to date` is when outputs are complete and as prompt as the slowest before the "
        f"kill, {found.plan.away_s:g} s of which count",
        "the windowed mean was chosen because it asks least of Structured Streaming: one stateful operator, where the "
        "windowed join needs three of them to come back. The state is small on all sides",
        "with it, lost tasks of Tenax without a replica leave their keys out (partial) while the others stay final; "
        "results are tentative where tasks go on without some of their inputs",
        "replicas: the budget is all tasks but sources, which need none. Tenax stores a checkpoint every 10 batches; "
        "the kill comes between two of them, so that lost tasks have something to catch up with",
        "Structured Streaming: RocksDB with changelog checkpointing, append mode, no watermark delay, default trigger, "
        f"{SHUFFLE_PARTITIONS} shuffle partitions, Spark's own retries; should its query die, it is started again from "
        f"its checkpoint at once, which happened {restarts} times",
        f"final results were equal on all sides and in plain Polars: {found.compared:,} rows; `exact` is the oracle: "
        "the same batches run again without failures, compared to the byte",
    ]


def _panels(found: Comparison) -> tuple[Panel, ...]:
    """The first round: all sides together, each alone, and how old outputs were."""
    first = {side: found.of(side)[0] for side in SIDES}
    return (
        _together(first),
        *(_alone(one) for one in first.values()),
        _ages(first),
    )


def _together(first: dict[str, SideRun]) -> Panel:
    curves = [
        Curve(SIDES[side], *_stairs(one, whole=False), look=look) for look, (side, one) in enumerate(first.items())
    ]
    return _panel("All sides: the newest output of any kind", first[STRUCTURED], curves)


def _alone(one: SideRun) -> Panel:
    curves = [
        Curve("final, complete", *_stairs(one, whole=True), look=0),
        Curve("shown: partial or tentative", *_open(one), look=1, dashed=True),
    ]
    return _panel(SIDES[one.side], one, [curve for curve in curves if curve.x])


def _panel(title: str, one: SideRun, curves: Sequence[Curve]) -> Panel:
    begin_s, end_s = _span(one)
    appeared = Curve("input", (begin_s, end_s), (begin_s, end_s), INPUT_LOOK)
    return Panel(
        title,
        "seconds since the kill",
        "newest second of input shown, 0 is the kill",
        (appeared, *curves, *_marks(one, begin_s, end_s)),
    )


def _marks(one: SideRun, low: float, high: float) -> tuple[Curve, ...]:
    """Upright lines at the kill and at the return."""
    back_s = one.returned_s - one.killed_s
    return (
        Curve("2 of 4 nodes killed", (0.0, 0.0), (low, high), MARK_LOOK),
        Curve("nodes may return", (back_s, back_s), (low, high), MARK_LOOK, dashed=True),
    )


def _span(one: SideRun) -> tuple[float, float]:
    return PICTURE_S[0], one.returned_s - one.killed_s + PICTURE_S[1]


def _stairs(one: SideRun, *, whole: bool) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The newest second shown over time, from edge to edge; both counted from the kill, on the clock of the input."""
    begin_s, end_s = _span(one)
    newest = {output.at_s: output.second for output in one.advances(whole=whole)}  # of each moment, the last
    steps = [(at_s - one.killed_s, one.appeared_s[second] - one.killed_s) for at_s, second in newest.items()]
    points = [(begin_s, y) for x, y in steps if x < begin_s][-1:]
    for x, y in steps:
        if begin_s <= x <= end_s:
            points += [(x, points[-1][1]), (x, y)] if points else [(x, y)]
    if points and steps[-1][0] > end_s:
        points.append((end_s, points[-1][1]))
    return tuple(x for x, _ in points), tuple(y for _, y in points)


def _open(one: SideRun) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The outputs that were not complete and final when they were shown."""
    begin_s, end_s = _span(one)
    points = [
        (output.at_s - one.killed_s, one.appeared_s[output.second] - one.killed_s)
        for output in one.advances(whole=False)
        if not output.whole and begin_s <= output.at_s - one.killed_s <= end_s
    ]
    return tuple(x for x, _ in points), tuple(y for _, y in points)


def _ages(first: dict[str, SideRun]) -> Panel:
    curves = []
    highest = 0.0
    for look, (side, one) in enumerate(first.items()):
        begin_s, end_s = _span(one)
        oldest: dict[float, float] = {}
        for at_s, age_s in one.latencies(whole=False).values():
            oldest[at_s - one.killed_s] = max(age_s, oldest.get(at_s - one.killed_s, 0.0))
        points = [(x, y) for x, y in oldest.items() if begin_s <= x <= end_s]
        highest = max([highest, *(y for _, y in points)])
        curves.append(Curve(SIDES[side], tuple(x for x, _ in points), tuple(y for _, y in points), look))
    return Panel(
        "Latency: the oldest second in each output",
        "seconds since the kill",
        "seconds from input to output",
        (*curves, *_marks(first[STRUCTURED], 0.0, highest)),
    )
