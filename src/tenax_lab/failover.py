"""Two of four nodes die at once: how long outputs are silent, in Tenax three ways and in Structured Streaming."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import polars as pl

from tenax.api.streams import Topology
from tenax.application.application import Application
from tenax.chaos.record import Moment, What, impacts, names
from tenax.chaos.runs import RESULTS
from tenax.chaos.schedule import Fault, Kind, Unit, When
from tenax.connectors.files import files
from tenax.connectors.parquet import parquet, read_committed
from tenax.control import events
from tenax.engine.driver import Driver
from tenax.model.protection import Protection
from tenax.model.settings import Settings
from tenax.pictures.figures import Curve, Panel
from tenax.store.records import Json
from tenax_lab import recorder as recording
from tenax_lab.failover_measures import APPEARED, OUTCOME, SHOWN, Period, SideRun, percentile
from tenax_lab.findings import Cell, Claim, Findings, Table
from tenax_lab.lab import Bench, Experiment, Plan, Row, Trial
from tenax_lab.peers import same_results
from tenax_lab.processes import run_side
from tenax_lab.report import table, value
from tenax_lab.runs import run
from tenax_lab.sides.failover_files import Scenario, Seconds, committed_rows, newest_second
from tenax_lab.sides.inputs import Shape, write_inputs
from tenax_lab.sides.plain_polars import windowed

REPLICAS, PASSIVE, BLOCKING, STRUCTURED = "replicas", "passive", "blocking", "structured"
SIDES = {
    REPLICAS: "Tenax, replicas",
    PASSIVE: "Tenax, tentative",
    BLOCKING: "Tenax, blocking",
    STRUCTURED: "Structured Streaming",
}
PROTECTIONS = {REPLICAS: Protection(replicas="all"), PASSIVE: Protection(), BLOCKING: Protection(recovery="blocking")}
GOING_ON = (REPLICAS, PASSIVE)  # the sides of which we want the next output soon
OUTPUT = "results"
EQUAL = "equal"
NODES, RACKS = 4, 2
INTERVAL_S = 1.0
SHUFFLE_PARTITIONS = 4
GOAL_INTERVALS = 2
SIDE_DEADLINE_S = 1_200.0
POLL_S = 0.05
PICTURE_S = (-5.0, 10.0)  # from so long before the kill to so long after the return
INPUT_LOOK, MARK_LOOK = 6, 4


@dataclass(frozen=True, slots=True)
class Case:
    """What every side goes through; each round kills at another moment of the second, after so long."""

    shape: Shape
    kills_after_s: tuple[float, ...]
    away_s: float
    tail_s: float

    def scenario(self, inputs: Path, number: int) -> Scenario:
        """That of a round."""
        kill_after_s = self.kills_after_s[number - 1]
        return Scenario(inputs, self.shape, NODES, RACKS, INTERVAL_S, kill_after_s, self.away_s, self.tail_s)


def prepare(bench: Bench, plan: Plan[Case]) -> tuple[Row, ...]:
    """Write the input once: every side reads it as it appears."""
    bench.prepared = bench.folder("inputs")
    write_inputs(bench.prepared, bench.seed, plan.cases[0].shape)
    return ()


def measure(bench: Bench, _: Plan[Case], trial: Trial[Case]) -> Iterator[Row]:
    """Let one side go through it, and compare its final results with plain Polars."""
    scenario = trial.case.scenario(bench.prepared, trial.round)
    if trial.side == STRUCTURED:
        work = bench.folder("structured")
        arguments: dict[str, Json] = {
            "work": str(work),
            "scenario": scenario.to_data(),
            "shuffle_partitions": SHUFFLE_PARTITIONS,
        }
        yield from run_side("tenax_lab.sides.failover_structured", arguments, deadline_s=SIDE_DEADLINE_S).rows
        results = committed_rows(work / RESULTS)
    else:
        recorder, seconds = run_tenax(bench, PROTECTIONS[trial.side], scenario)
        yield from rows_of(recorder, seconds)
        results = read_committed(recorder.results(OUTPUT))
    expected = windowed("means", bench.prepared).collect()
    yield {"what": EQUAL, "rows": same_results({"plain Polars": expected, SIDES[trial.side]: results})}


def application(inputs: Path, partitions: int) -> Application:
    """The query as a user of Tenax writes it; files lie in folders, one for each second."""
    topology = Topology("means")
    schema = pl.Schema({"ts": pl.Datetime("us"), "segment": pl.Int64(), "speed": pl.Float64()})
    source = files(inputs / "locations" / "*" / "*.parquet", time="ts", follow=True, schema=schema)
    locations = topology.source("locations", source, partitions=partitions)
    means = locations.key_by("segment").window("10s", every="1s").aggregate(pl.col("speed").mean(), name="means")
    means.output(OUTPUT, parquet(Path(OUTPUT)))
    return topology.build()


def run_tenax(bench: Bench, protection: Protection, scenario: Scenario) -> tuple[recording.RunRecorder, Seconds]:
    """Run under faults until all input is final; it begins to appear when the nodes are there.

    Batches are of one second of input, and one rack dies and returns.
    """
    seconds = Seconds(scenario, bench.folder("appearing"))
    app = application(seconds.folder, scenario.nodes)
    back_s = scenario.kill_after_s + scenario.away_s
    faults = (
        Fault(Kind.KILL, "rack1", When(scenario.kill_after_s, Unit.SECONDS)),
        Fault(Kind.RETURN, "all", When(back_s, Unit.SECONDS)),
    )
    settings = Settings(protection=protection).but(
        nodes=scenario.nodes,
        racks=scenario.racks,
        batch=timedelta(seconds=scenario.interval_s),
        max_rows=scenario.shape.batch_rows,
    )
    usual = settings.cluster.heartbeat
    over = threading.Event()
    ends: list[threading.Thread] = []

    def begin(recorder: recording.RunRecorder, driver: Driver, _: Path) -> None:
        recorder.after_event.append(lambda event: seconds.start() if isinstance(event, events.Started) else None)
        ends.append(threading.Thread(target=_end, args=(driver, recorder, seconds, scenario.tail_s, over), daemon=True))
        ends[0].start()

    try:
        watched = run(bench, app, settings, heartbeat=usual, faults=faults, judged=True, stopped=True, prepare=begin)
    finally:
        over.set()
        for thread in ends:
            thread.join()
    return watched, seconds


def _end(
    driver: Driver, recorder: recording.RunRecorder, seconds: Seconds, tail_s: float, over: threading.Event
) -> None:
    """End the input some time after the last fault, and the run when all of it is final."""
    while len(_faults(recorder.moments)) < 2:
        if over.wait(POLL_S):
            return
    over.wait(tail_s)
    seconds.stop()
    seconds.join()
    while driver.publisher.final < len(seconds.appeared_s):  # a batch is a second
        if over.wait(POLL_S):
            return
    driver.request_stop()


def _faults(moments: Sequence[Moment]) -> list[Moment]:
    return [moment for moment in moments if moment.what is What.FAULT]


def rows_of(recorder: recording.RunRecorder, seconds: Seconds) -> Iterator[Row]:
    """What a run of ours tells: times are of the clock that files appear by."""
    for second, at_s in enumerate(seconds.appeared_s):
        yield {"what": APPEARED, "second": second, "at_s": at_s}
    published = recorder.of(recording.Kind.SHOWN).filter(output=OUTPUT)
    published = published.with_columns(pl.col("at_s") + recorder.began_s)
    yield from shown(published, _seconds(recorder.results(OUTPUT)), NODES)
    killed, returned = _faults(recorder.moments)
    (impact,) = impacts(recorder.moments)
    verdict = recorder.verdict
    assert verdict is not None
    yield {
        "what": OUTCOME,
        "killed_s": recorder.began_s + killed.at_s,
        "returned_s": recorder.began_s + returned.at_s,
        "killed": len(names(killed.detail["nodes"])),
        "detection_s": impact.detection_s,
        "restarts": 0,
        "tentative": verdict.tentative,
        "corrected": verdict.corrected,
        "exact": verdict.held,
    }


def shown(published: pl.DataFrame, seconds: Mapping[int, int], partitions: int) -> Iterator[Row]:
    """What readers saw: after each publication, which share of a batch's partitions was final or only tentative.

    `seconds` has the second of input of each batch that has results; a batch without any shows nothing.
    """
    final: dict[int, set[int]] = {}
    tentative: dict[int, set[int]] = {}
    moments: dict[tuple[float, int], tuple[float, float]] = {}
    columns = published.select("at_s", "partition", "first", "last", "tentative")
    for at_s, partition, first, last, is_tentative in columns.iter_rows():
        for batch in range(first, last + 1):
            (tentative if is_tentative else final).setdefault(batch, set()).add(partition)
            done, still_open = final.get(batch, set()), tentative.get(batch, set())
            moments[at_s, batch] = (len(done) / partitions, len(still_open - done) / partitions)
    for (at_s, batch), (final_part, tentative_part) in moments.items():
        if batch in seconds:
            second = seconds[batch]
            yield {"what": SHOWN, "at_s": at_s, "second": second, "final": final_part, "tentative_part": tentative_part}


def _seconds(results: Path) -> dict[int, int]:
    """The second of input of each batch that has results."""
    by_batch: dict[int, list[Path]] = {}
    for path in results.glob("*.parquet"):
        by_batch.setdefault(int(path.name.split("-b")[1].split("-")[0]), []).append(path)
    newest = {batch: newest_second(paths) for batch, paths in by_batch.items()}
    return {batch: second for batch, second in newest.items() if second is not None}


def side_runs(frame: pl.DataFrame) -> list[SideRun]:
    """The runs of all sides, side by side, by round."""
    runs = [
        SideRun.from_rows(rows) for rows in frame.filter(pl.col("side").is_not_null()).partition_by("side", "round")
    ]
    return sorted(runs, key=lambda each: (list(SIDES).index(each.side), each.number))


def report(plan: Plan[Case], frame: pl.DataFrame) -> Findings:
    """Tables, goals and pictures of a comparison."""
    (case,) = plan.cases
    runs = side_runs(frame)
    compared = value(frame.filter(what=EQUAL), pl.col("rows").min())
    return Findings(
        settings={
            "input": f"{case.shape.batch_rows:,} rows a second, in {case.shape.partitions} files",
            "keys": case.shape.segments,
            "query": "mean per key over windows of 10 s, one every 1 s",
            "cluster": f"local-cluster[{NODES},2,1024] on all sides",
            "batch interval s": INTERVAL_S,
            "killed": f"{', '.join(f'{each:g}' for each in case.kills_after_s)} s after the first result, by round",
            "away": f"{case.away_s:g} s",
        },
        tables=(_outages(runs), _latencies(runs)),
        claims=tuple(_claims(runs)),
        remarks=tuple(_remarks(case, runs, int(compared))),
        panels=_panels(runs),
    )


def _outages(runs: Sequence[SideRun]) -> Table:
    rows = [
        {
            "side": SIDES[each.side],
            "round": each.number,
            "noticed": each.detection_s,
            "silent": each.silence_s(whole=False),
            "shown %": _percent(each.first_share()),
            "final again": each.silence_s(whole=True),
            "longest gap": each.longest_gap_s(),
            "up to date": each.back_s(),
            "partial": each.incomplete(),
            "tentative": each.tentative,
            "corrected": each.corrected,
            "restarts": each.restarts,
            "exact": "–" if each.exact is None else "yes" if each.exact else "NO",
        }
        for each in runs
    ]
    title = "After the kill, in s: what readers of the results saw"
    return table(title, pl.DataFrame(rows, infer_schema_length=None), {name: name for name in rows[0]})


def _percent(share: float | None) -> Cell:
    return None if share is None else round(100 * share)


def _latencies(runs: Sequence[SideRun]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for side, name in SIDES.items():
        own = [each for each in runs if each.side == side]
        for period in Period:
            first, final = (
                [latency_s for each in own for latency_s in each.periods(whole=whole)[period]]
                for whole in (False, True)
            )
            figures = [percentile(latencies, percent) for latencies in (first, final) for percent in (50, 99)]
            rows.append((name, period.value, len(final), *figures))
    columns = ("side", "outage", "seconds", "shown p50", "shown p99", "final p50", "final p99")
    return Table("Latency in s from when a second of input appeared until its results were shown", columns, tuple(rows))


def _claims(runs: Sequence[SideRun]) -> Iterator[Claim]:
    goal_s = GOAL_INTERVALS * INTERVAL_S
    theirs = _silences(runs, STRUCTURED)
    for side in GOING_ON:
        ours = list(_silences(runs, side).values())
        killed = max((each.killed for each in runs if each.side == side), default=0)
        if ours:
            yield Claim(
                f"{SIDES[side]}: the next output after {killed} of {NODES} nodes died",
                f"within {GOAL_INTERVALS} batch intervals ({goal_s:g} s)",
                max(ours) / INTERVAL_S,
                "batch intervals",
                f"the slowest of {_rounds(ours)}; goal {'met' if max(ours) <= goal_s else 'missed'}",
                "we aim at",
            )
    for side, name in SIDES.items():
        silences = _silences(runs, side) if side != STRUCTURED else {}
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


def _silences(runs: Sequence[SideRun], side: str) -> dict[int, float]:
    """How long a side was silent, by round."""
    silences = {each.number: each.silence_s(whole=False) for each in runs if each.side == side}
    return {number: silence for number, silence in silences.items() if silence is not None}


def _rounds(values: Sequence[float]) -> str:
    return f"{len(values)} round{'s' * (len(values) > 1)}"


def _remarks(case: Case, runs: Sequence[SideRun], compared: int) -> list[str]:
    restarts = sum(each.restarts for each in runs)
    return [
        "the kill is the same on all sides: executors are dealt out to two racks in the order of their ids, and both "
        "of rack 1 get SIGKILL at once; the limit of executors is lowered first, so that none is replaced, and raised "
        "to let them return",
        "an output counts when readers can see rows of a window that no output had before: with a second of input, the "
        "windows that end where it begins are complete; `silent` is until any partition shows one, `final again` until "
        "all partitions do, final; `up to date` is when outputs are complete and as prompt as the slowest before the "
        f"kill, {case.away_s:g} s of which count",
        "the windowed mean was chosen because it asks least of Structured Streaming: one stateful operator, where the "
        "windowed join needs three of them to come back. The state is small on all sides",
        "with it, lost tasks of Tenax without a replica leave their keys out (partial) while the others stay final; "
        "results are tentative where tasks go on without some of their inputs",
        "replicas: the budget is all tasks but sources, which need none. Tenax stores a checkpoint every 10 batches; "
        "the kill comes between two of them, so that lost tasks have something to catch up with",
        "Structured Streaming: RocksDB with changelog checkpointing, append mode, no watermark delay, default trigger, "
        f"{SHUFFLE_PARTITIONS} shuffle partitions, Spark's own retries; should its query die, it is started again from "
        f"its checkpoint at once, which happened {restarts} times",
        f"final results were equal on all sides and in plain Polars: {compared:,} rows; `exact` is the oracle: "
        "the same batches run again without failures, compared to the byte",
    ]


def _panels(runs: Sequence[SideRun]) -> tuple[Panel, ...]:
    """The first round: all sides together, each alone, and how old outputs were."""
    first = {each.side: each for each in reversed(runs)}
    first = {side: first[side] for side in SIDES}
    return (
        _together(first),
        *(_alone(side_run) for side_run in first.values()),
        _ages(first),
    )


def _together(first: dict[str, SideRun]) -> Panel:
    curves = [
        Curve(SIDES[side], *_stairs(side_run, whole=False), look=look)
        for look, (side, side_run) in enumerate(first.items())
    ]
    return _panel("All sides: the newest output of any kind", first[STRUCTURED], curves)


def _alone(side_run: SideRun) -> Panel:
    curves = [
        Curve("final, complete", *_stairs(side_run, whole=True), look=0),
        Curve("shown: partial or tentative", *_open(side_run), look=1, dashed=True),
    ]
    return _panel(SIDES[side_run.side], side_run, [curve for curve in curves if curve.x])


def _panel(title: str, side_run: SideRun, curves: Sequence[Curve]) -> Panel:
    begin_s, end_s = _span(side_run)
    appeared = Curve("input", (begin_s, end_s), (begin_s, end_s), INPUT_LOOK)
    return Panel(
        title,
        "seconds since the kill",
        "newest second of input shown, 0 is the kill",
        (appeared, *curves, *_marks(side_run, begin_s, end_s)),
    )


def _marks(side_run: SideRun, low: float, high: float) -> tuple[Curve, ...]:
    """Upright lines at the kill and at the return."""
    back_s = side_run.returned_s - side_run.killed_s
    return (
        Curve("2 of 4 nodes killed", (0.0, 0.0), (low, high), MARK_LOOK),
        Curve("nodes may return", (back_s, back_s), (low, high), MARK_LOOK, dashed=True),
    )


def _span(side_run: SideRun) -> tuple[float, float]:
    return PICTURE_S[0], side_run.returned_s - side_run.killed_s + PICTURE_S[1]


def _stairs(side_run: SideRun, *, whole: bool) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The newest second shown over time, from edge to edge; both counted from the kill, on the clock of the input."""
    begin_s, end_s = _span(side_run)
    newest = {output.at_s: output.second for output in side_run.advances(whole=whole)}  # of each moment, the last
    steps = [
        (at_s - side_run.killed_s, side_run.appeared_s[second] - side_run.killed_s) for at_s, second in newest.items()
    ]
    points = [(begin_s, y) for x, y in steps if x < begin_s][-1:]
    for x, y in steps:
        if begin_s <= x <= end_s:
            points += [(x, points[-1][1]), (x, y)] if points else [(x, y)]
    if points and steps[-1][0] > end_s:
        points.append((end_s, points[-1][1]))
    return tuple(x for x, _ in points), tuple(y for _, y in points)


def _open(side_run: SideRun) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The outputs that were not complete and final when they were shown."""
    begin_s, end_s = _span(side_run)
    points = [
        (output.at_s - side_run.killed_s, side_run.appeared_s[output.second] - side_run.killed_s)
        for output in side_run.advances(whole=False)
        if not output.whole and begin_s <= output.at_s - side_run.killed_s <= end_s
    ]
    return tuple(x for x, _ in points), tuple(y for _, y in points)


def _ages(first: dict[str, SideRun]) -> Panel:
    curves = []
    highest = 0.0
    for look, (side, side_run) in enumerate(first.items()):
        begin_s, end_s = _span(side_run)
        oldest: dict[float, float] = {}
        for at_s, age_s in side_run.latencies(whole=False).values():
            oldest[at_s - side_run.killed_s] = max(age_s, oldest.get(at_s - side_run.killed_s, 0.0))
        points = [(x, y) for x, y in oldest.items() if begin_s <= x <= end_s]
        highest = max([highest, *(y for _, y in points)])
        curves.append(Curve(SIDES[side], tuple(x for x, _ in points), tuple(y for _, y in points), look))
    return Panel(
        "Latency: the oldest second in each output",
        "seconds since the kill",
        "seconds from input to output",
        (*curves, *_marks(first[STRUCTURED], 0.0, highest)),
    )


EXPERIMENT = Experiment(
    full=Plan((Case(Shape(150, 10_000, 1_000, NODES), (26.3, 26.8), 15.0, 12.0),), tuple(SIDES), rounds=2),
    quick=Plan((Case(Shape(150, 2_000, 100, NODES), (6.3,), 5.0, 5.0),), tuple(SIDES)),
    measure=measure,
    report=report,
    prepare=prepare,
)
