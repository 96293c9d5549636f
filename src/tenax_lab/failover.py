"""Two of four nodes die at once: how long outputs are silent, in Tenax three ways and in Structured Streaming."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import polars as pl

from tenax.api.streams import Topology
from tenax.application.application import Application
from tenax.chaos.record import Moment, What, impacts, names
from tenax.chaos.runs import RESULTS, STORE
from tenax.chaos.schedule import Fault, Kind, Unit, When
from tenax.connectors.files import files
from tenax.connectors.parquet import parquet, read_committed
from tenax.control import events
from tenax.engine.driver import Driver
from tenax.model.protection import Protection
from tenax.model.settings import Settings
from tenax.store.records import Json
from tenax_lab import recorder as recording
from tenax_lab.failover_cases import (
    EQUAL,
    LARGE,
    NODES,
    PROTECTIONS,
    QUICK_LARGE,
    QUICK_SMALL,
    SHUFFLE_PARTITIONS,
    SIDES,
    SMALL,
    STRUCTURED,
    Case,
    FailoverPlan,
)
from tenax_lab.failover_measures import APPEARED, OUTCOME, SHOWN
from tenax_lab.failover_report import report
from tenax_lab.lab import Bench, Experiment, Plan, Row, Trial
from tenax_lab.loads import matches
from tenax_lab.peers import same_results
from tenax_lab.processes import run_side
from tenax_lab.report import value
from tenax_lab.runs import run
from tenax_lab.sides.failover_files import OnDisk, Scenario, Seconds, committed_rows, newest_second
from tenax_lab.sides.failover_queries import MATCHES, SCHEMAS, Query

OUTPUT = "results"
BACKLOG_BATCHES = 24  # a backlog is taken in about so many
SIDE_DEADLINE_S = 1_200.0
POLL_S, LOOK_S = 0.05, 0.5


def prepare(bench: Bench, plan: Plan[Case]) -> tuple[Row, ...]:
    """Write the input of every case once: every side reads it as it appears."""
    bench.prepared = {}
    for case in plan.cases:
        bench.prepared[case.state] = folder = bench.folder("inputs")
        case.query.write(folder, bench.seed, case.shape)
    return ()


def measure(bench: Bench, _: Plan[Case], trial: Trial[Case]) -> Iterator[Row]:
    """Let one side go through it, and compare its final results with plain Polars."""
    query, inputs = trial.case.query, bench.prepared[trial.case.state]
    scenario = trial.case.scenario(inputs, trial.round)
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
        yield from rows_of(recorder, seconds, query)
        results = read_committed(recorder.results(OUTPUT))
    compared = {"plain Polars": query.expected(inputs), SIDES[trial.side]: results}
    yield {"what": EQUAL, "rows": same_results(compared, query.keys)}


def application(query: Query, inputs: Path, partitions: int) -> Application:
    """The query as a user of Tenax writes it; files lie in folders, one for each second."""
    if query.name == MATCHES:
        return matches.application(query, inputs, partitions, OUTPUT)
    topology = Topology("means")
    schema = pl.Schema(SCHEMAS["locations"])
    source = files(inputs / "locations" / "*" / "*.parquet", time="ts", follow=True, schema=schema)
    locations = topology.source("locations", source, partitions=partitions)
    windowed = locations.key_by("segment").window(f"{query.window_s}s", every="1s")
    means = windowed.aggregate(pl.col("speed").mean(), name="means")
    means.output(OUTPUT, parquet(Path(OUTPUT)))
    return topology.build()


def run_tenax(bench: Bench, protection: Protection, scenario: Scenario) -> tuple[recording.RunRecorder, Seconds]:
    """Run under faults until all input is final; it begins to appear when the nodes are there.

    Batches are of one second of input, and one rack dies and returns.
    """
    seconds = Seconds(scenario, bench.folder("appearing"))
    app = application(scenario.query, seconds.folder, scenario.nodes)
    back_s = scenario.kill_after_s + scenario.away_s
    faults = (
        Fault(Kind.KILL, "rack1", When(scenario.kill_after_s, Unit.SECONDS)),
        Fault(Kind.RETURN, "all", When(back_s, Unit.SECONDS)),
    )
    settings = Settings(protection=protection).but(
        nodes=scenario.nodes,
        racks=scenario.racks,
        batch=timedelta(seconds=scenario.interval_s),
        max_rows=scenario.shape.batch_rows * (1 + scenario.backlog // BACKLOG_BATCHES),
    )
    usual = settings.cluster.heartbeat
    over = threading.Event()
    beside: list[threading.Thread] = []

    def begin(recorder: recording.RunRecorder, driver: Driver, folder: Path) -> None:
        recorder.after_event.append(lambda event: seconds.start() if isinstance(event, events.Started) else None)
        watched = driver, recorder, seconds, scenario.tail_s, over
        beside.extend([threading.Thread(target=_end, args=watched, daemon=True), OnDisk(folder / STORE, over)])
        for thread in beside:
            thread.start()

    try:
        watched = run(bench, app, settings, heartbeat=usual, faults=faults, judged=True, stopped=True, prepare=begin)
    finally:
        over.set()
        for thread in beside:
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
    rows = len(seconds.appeared_s) * seconds.shape.partitions * seconds.shape.file_rows
    while not _all_final(driver, recorder, rows):
        if over.wait(LOOK_S):
            return
    driver.request_stop()


def _all_final(driver: Driver, recorder: recording.RunRecorder, rows: int) -> bool:
    """Whether so many rows were read, and the results of all of them are final."""
    passes = recorder.of(recording.Kind.PASS)
    read = not passes.is_empty() and value(passes, pl.col("rows").sum()) >= rows
    return read and driver.publisher.final >= value(passes, pl.col("last").max())


def _faults(moments: Sequence[Moment]) -> list[Moment]:
    return [moment for moment in moments if moment.what is What.FAULT]


def rows_of(recorder: recording.RunRecorder, seconds: Seconds, query: Query) -> Iterator[Row]:
    """What a run of ours tells: times are of the clock that files appear by."""
    for second, at_s in enumerate(seconds.appeared_s):
        yield {"what": APPEARED, "second": second, "at_s": at_s}
    published = recorder.of(recording.Kind.SHOWN).filter(output=OUTPUT)
    published = published.with_columns(pl.col("at_s") + recorder.began_s)
    yield from shown(published, _seconds(recorder.results(OUTPUT), query), NODES)
    killed, returned = _faults(recorder.moments)
    (impact,) = impacts(recorder.moments)
    verdict = recorder.verdict
    assert verdict is not None
    state_bytes = recorder.of(recording.Kind.PASS).filter(pl.col("at_s") < killed.at_s)["state_bytes"]
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
        "state_mb": state_bytes[-1] / 1e6 if len(state_bytes) else 0.0,
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


def _seconds(results: Path, query: Query) -> dict[int, int]:
    """The second of input of each batch that has results."""
    by_batch: dict[int, list[Path]] = {}
    for path in results.glob("*.parquet"):
        by_batch.setdefault(int(path.name.split("-b")[1].split("-")[0]), []).append(path)
    newest = {batch: newest_second(paths, query.time) for batch, paths in by_batch.items()}
    return {batch: second for batch, second in newest.items() if second is not None}


EXPERIMENT = Experiment(
    full=FailoverPlan((SMALL, LARGE), tuple(SIDES), rounds=2),
    quick=FailoverPlan((QUICK_SMALL, QUICK_LARGE), tuple(SIDES)),
    measure=measure,
    report=report,
    prepare=prepare,
)
