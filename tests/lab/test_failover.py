"""The comparison under failures: what its figures mean on recorded runs, and the files and processes it watches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from observing import rows_of

import tenax as tx
from tenax.control import events
from tenax.control.coordinator import Coordinator
from tenax.control.instructions import Part, Publish
from tenax.control.versions import PassId
from tenax.model.graph import TaskGraph
from tenax.model.settings import Settings
from tenax.model.tasks import Task
from tenax_lab import failover, failover_report, lab
from tenax_lab.failover_cases import EQUAL, GOING_ON, LARGE, QUICK_LARGE, QUICK_SMALL, SIDES, SMALL
from tenax_lab.failover_measures import APPEARED, OUTCOME, OUTCOME_COLUMNS, SHOWN, Period, Shown, SideRun, percentile
from tenax_lab.findings import Findings, Machine, Result
from tenax_lab.loads.matches import Matches
from tenax_lab.peers import same_results
from tenax_lab.recorder import Kind, RunRecorder
from tenax_lab.sides.failover_files import OnDisk, Scenario, Seconds, SinkLog, committed_rows, newest_second
from tenax_lab.sides.failover_queries import EVENTS, MATCHES, MEANS, Query
from tenax_lab.sides.failover_structured import BACKEND, EXECUTOR_ID, executors
from tenax_lab.sides.inputs import Shape, write_inputs

START = datetime(2024, 1, 1)
SHAPE = Shape(batches=3, batch_rows=40, segments=4, partitions=2)

# Seconds 0 to 9 appear at 0 to 9 s and are shown 0.5 s later. The kill is at 3.7 s: half of second 4 is shown at 5 s,
# all of it with second 5 at 7 s; then all is as before. Nodes may return at 7.7 s.
BEFORE = tuple(Shown(second + 0.5, second, 1.0, 0.0) for second in range(1, 4))
OUTAGE = (Shown(5.0, 4, 0.5, 0.0), Shown(6.0, 5, 0.5, 0.25), Shown(7.0, 4, 1.0, 0.0), Shown(7.0, 5, 1.0, 0.0))
AFTER = tuple(Shown(second + 0.5, second, 1.0, 0.0) for second in range(7, 10))
RUN = SideRun(
    side="passive",
    number=1,
    appeared_s=tuple(float(second) for second in range(10)),
    shown=(*BEFORE, *OUTAGE, *AFTER),
    killed_s=3.7,
    returned_s=7.7,
    killed=2,
    detection_s=0.1,
    restarts=0,
    tentative=3,
    corrected=3,
    exact=True,
    state_mb=600.0,
)


def observed(side_run: SideRun, state: str = SMALL.state) -> list[lab.Row]:
    trial: lab.Row = {"state": state, "side": side_run.side, "round": side_run.number}
    outcome: lab.Row = {name: getattr(side_run, name) for name in OUTCOME_COLUMNS}
    return [
        *({**trial, "what": APPEARED, "second": n, "at_s": at_s} for n, at_s in enumerate(side_run.appeared_s)),
        *(
            {**trial, "what": SHOWN, "at_s": each.at_s, "second": each.second, "final": each.final,
             "tentative_part": each.tentative}
            for each in side_run.shown
        ),
        {**trial, "what": OUTCOME, **outcome},
        {**trial, "what": EQUAL, "rows": 120},
    ]  # fmt: skip


def comparison() -> Findings:
    """Both cases: sides that do not go on are silent until everything is there at once."""
    silent = replace(RUN, shown=(*BEFORE, Shown(9.7, 9, 1.0, 0.0)), tentative=0, corrected=0, exact=None)
    runs = [replace(RUN if side in GOING_ON else silent, side=side) for side in SIDES]
    frame = lab.frame(
        row for case in failover.EXPERIMENT.quick.cases for side_run in runs for row in observed(side_run, case.state)
    )
    return failover_report.report(failover.EXPERIMENT.quick, frame)


def scenario(inputs: Path, backlog: int = 0) -> Scenario:
    return Scenario(Query(MEANS, 10), inputs, SHAPE, backlog, 4, 2, 0.01, 6.3, 5.0, 5.0)


def test_a_case_has_as_many_rounds_as_moments_of_its_kills() -> None:
    plan = replace(failover.EXPERIMENT.full, cases=(SMALL, replace(LARGE, kills_after_s=(1.0, 2.0))), rounds=2)
    rounds = [(trial.case.state, trial.round) for trial in plan.trials() if trial.side == "blocking"]
    assert rounds == [("small", 1), ("large", 1), ("large", 2)]
    assert failover.EXPERIMENT.full.rounds == max(len(case.kills_after_s) for case in failover.EXPERIMENT.full.cases)


def test_silence_ends_with_the_first_output_that_holds_something_new() -> None:
    assert RUN.silence_s(whole=False) == pytest.approx(1.3)
    assert RUN.silence_s(whole=True) == pytest.approx(3.3)
    assert RUN.first_share() == 0.5
    # what was out at the kill says nothing, even if it is shown again
    again = replace(RUN, shown=(*BEFORE, Shown(3.8, 3, 1.0, 0.0), *OUTAGE, *AFTER))
    assert again.silence_s(whole=False) == pytest.approx(1.3)


def test_the_longest_gap_counts_from_the_kill_to_the_end() -> None:
    assert RUN.longest_gap_s() == pytest.approx(1.5)  # from 6 s, when second 5 is first shown, to 7.5 s
    assert replace(RUN, shown=BEFORE).longest_gap_s() is None


def test_a_run_is_back_when_outputs_are_complete_and_as_prompt_as_before() -> None:
    assert RUN.back_s() == pytest.approx(3.8)
    # one prompt output that was on its way at the kill does not count
    lucky = replace(RUN, shown=(*BEFORE, Shown(4.4, 4, 1.0, 0.0), Shown(7.0, 5, 1.0, 0.0), *AFTER))
    assert lucky.back_s() == pytest.approx(3.8)
    assert replace(RUN, shown=(*BEFORE, *OUTAGE)).back_s() is None


def test_every_second_has_the_latency_of_the_first_output_that_covers_it() -> None:
    first, final = RUN.latencies(whole=False), RUN.latencies(whole=True)
    assert first[5] == (6.0, 1.0)
    assert final[4] == (7.0, 3.0)
    assert first[6] == (7.5, 1.5)  # nothing showed it before second 7 came
    assert 0 not in first


def test_seconds_that_were_not_out_at_the_kill_belong_to_the_outage() -> None:
    periods = RUN.periods(whole=True)
    assert periods[Period.BEFORE] == [0.5, 0.5, 0.5]
    assert periods[Period.DURING] == [3.0, 2.0, 1.5, 0.5]
    assert periods[Period.AFTER] == [0.5, 0.5]
    assert RUN.incomplete() == 2


def test_percentiles_are_values_that_occurred() -> None:
    assert percentile([3.0, 1.0, 2.0, 4.0], 50) == 2.0
    assert percentile([3.0, 1.0], 99) == 3.0
    assert percentile([], 50) is None


def test_a_run_is_read_back_from_its_rows() -> None:
    assert SideRun.from_rows(lab.frame(observed(RUN))) == RUN
    less = replace(RUN, side="structured", detection_s=None, exact=None)
    both = lab.frame([*observed(RUN), *observed(less)])
    assert failover_report.side_runs(both) == [RUN, less]


def test_claims_say_how_many_batch_intervals_outputs_were_silent() -> None:
    claims = comparison().claims
    goals = [claim for claim in claims if "next output" in claim.statement]
    assert [claim.ours for claim in goals] == pytest.approx([1.3, 1.3])
    assert all("met" in claim.over for claim in goals)
    ratios = {claim.statement.split(":")[0]: claim.ours for claim in claims if "silence" in claim.statement}
    assert ratios["Tenax, tentative"] == pytest.approx(1.3 / 6.0)
    assert ratios["Tenax, blocking"] == pytest.approx(1.0)


def test_with_a_large_state_claims_say_how_many_times_later_other_sides_go_on() -> None:
    findings = comparison()
    times = {
        claim.statement.split(":")[0]: claim.ours for claim in findings.claims if "its first output" in claim.statement
    }
    assert times["Tenax, blocking"] == times["Structured Streaming"] == pytest.approx(6.0 / 1.3)
    assert times["Tenax, replicas"] == pytest.approx(1.0)
    (paper,) = [claim for claim in findings.claims if "Su, Zhou 2016" in claim.statement]
    assert paper.ours == pytest.approx(3.3 / 1.3)
    large = [row for row in rows_of(findings, "The first output") if row["state"] == LARGE.state]
    assert [row["times tentative"] for row in large] == pytest.approx([1.0, 1.0, 6.0 / 1.3, 6.0 / 1.3])


def test_the_table_has_a_row_for_each_case_side_and_round_and_is_written(tmp_path: Path) -> None:
    findings = comparison()
    rows = rows_of(findings, "After the kill")
    assert [row["side"] for row in rows] == [*SIDES.values()] * 2
    assert [row["state"] for row in rows] == [SMALL.state] * 4 + [LARGE.state] * 4
    assert [row["exact"] for row in rows] == ["yes", "yes", "–", "–"] * 2
    assert [row["usual"] for row in rows] == [0.5] * 8
    assert len(rows_of(findings, "Latency")) == 24
    Result("name", "summary", "figure", 1, True, Machine.here(), 1.0, findings).write(tmp_path)
    assert json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))["claims"]
    assert (tmp_path / "figure.png").exists()


def test_readers_see_the_share_of_partitions_of_a_batch_at_each_moment() -> None:
    published = pl.DataFrame(
        [(1.0, 0, 1, 2, False), (1.0, 1, 2, 2, True), (2.0, 1, 2, 2, False)],
        schema=["at_s", "partition", "first", "last", "tentative"],
        orient="row",
    )
    rows = list(failover.shown(published, {2: 7}, partitions=2))  # batch 1 has no results
    assert rows == [
        {"what": SHOWN, "at_s": 1.0, "second": 7, "final": 0.5, "tentative_part": 0.5},
        {"what": SHOWN, "at_s": 2.0, "second": 7, "final": 1.0, "tentative_part": 0.0},
    ]


def test_the_files_of_a_second_appear_together(tmp_path: Path) -> None:
    write_inputs(tmp_path / "inputs", 1, SHAPE)
    seconds = Seconds(scenario(tmp_path / "inputs"), tmp_path / "appearing")
    seconds.start()
    seconds.join()
    folders = sorted((tmp_path / "appearing" / "locations").iterdir())
    assert [folder.name for folder in folders] == ["second-000000", "second-000001", "second-000002"]
    assert [len(list(folder.iterdir())) for folder in folders] == [2, 2, 2]
    assert len(seconds.appeared_s) == 3


def test_no_second_appears_after_the_schedule_was_stopped(tmp_path: Path) -> None:
    write_inputs(tmp_path / "inputs", 1, SHAPE)
    seconds = Seconds(replace(scenario(tmp_path / "inputs"), interval_s=3_600.0), tmp_path / "appearing")
    seconds.start()
    seconds.stop()
    seconds.join()
    assert len(seconds.appeared_s) <= 1


def test_a_backlog_is_there_from_the_start(tmp_path: Path) -> None:
    write_inputs(tmp_path / "inputs", 1, SHAPE)
    rare = replace(scenario(tmp_path / "inputs", backlog=2), interval_s=3_600.0)
    seconds = Seconds(rare, tmp_path / "appearing")
    seconds.start()
    deadline = time.monotonic() + 60.0
    while len(seconds.appeared_s) < 3 and time.monotonic() < deadline:  # the first after a backlog is due with it
        time.sleep(0.01)
    seconds.stop()
    seconds.join()
    assert len(seconds.appeared_s) == 3


def test_files_that_a_machine_is_to_read_from_disk_are_still_what_they_were(tmp_path: Path) -> None:
    (tmp_path / "segments").mkdir()
    (tmp_path / "segments" / "first").write_bytes(b"state" * 10_000)
    on_disk = OnDisk(tmp_path, threading.Event())
    on_disk.look()
    (tmp_path / "segments" / "first").unlink()
    (tmp_path / "segments" / "second").write_bytes(b"state" * 10_000)
    on_disk.look()
    assert (tmp_path / "segments" / "second").read_bytes() == b"state" * 10_000


def test_a_scenario_travels_as_plain_data(tmp_path: Path) -> None:
    assert Scenario.from_data(json.loads(json.dumps(scenario(tmp_path).to_data()))) == scenario(tmp_path)


def test_only_files_that_the_log_of_a_sink_names_are_results(tmp_path: Path) -> None:
    def part(name: str, second: int) -> dict[str, str]:
        end = (START + timedelta(seconds=second)).replace(tzinfo=UTC)
        pl.DataFrame({"segment": [1], "window_end": [end]}).write_parquet(tmp_path / name)
        return {"path": (tmp_path / name).as_uri()}

    def log(name: str, parts: list[dict[str, str]]) -> None:
        lines = ["v1", *(json.dumps(each) for each in parts)]
        (tmp_path / "_spark_metadata" / name).write_text("\n".join(lines))

    (tmp_path / "_spark_metadata").mkdir()
    first, second = part("a b.parquet", 3), part("b.parquet", 4)
    part("left-behind.parquet", 9)
    sink = SinkLog(tmp_path)
    assert sink.look() == []
    log("0", [first])
    (commit,) = sink.look()
    assert newest_second(commit.files, "window_end") == 3
    log("1.compact", [first, second])
    (commit,) = sink.look()
    assert commit.files == (tmp_path / "b.parquet",)
    assert newest_second([], "window_end") is None
    assert committed_rows(tmp_path).height == 2


def test_only_executors_of_this_process_are_hit() -> None:
    words = [BACKEND, EXECUTOR_ID, "3"]
    command = [sys.executable, "-c", "print(flush=True); input()", *words]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert process.stdout.readline()  # a process that has only begun to start has no command line yet
        assert executors() == {3: process.pid}
        assert os.getpid() not in executors().values()
    finally:
        process.kill()
        process.communicate()
    assert executors() == {}


def test_all_partitions_of_a_publication_are_seen_at_one_moment() -> None:
    application = failover.application(Query(MEANS, 10), Path("nowhere"), partitions=2)
    graph = TaskGraph(application.topology)
    recorder, coordinator = RunRecorder(graph), Coordinator(graph, Settings())
    parts = tuple(Part(Task(failover.OUTPUT, index), 1, 1, 1.0) for index in range(2))
    recorder.handled(coordinator, events.Woken(0), [Publish(PassId(1, 1), parts, False, 1)])
    recorder.handled(coordinator, events.Published(PassId(1, 1), False), [])
    seen = recorder.of(Kind.SHOWN)
    assert seen["partition"].to_list() == [0, 1]
    assert seen["at_s"].n_unique() == 1
    rows = list(failover.shown(seen, {1: 1}, partitions=2))
    assert [(row["final"], row["tentative_part"]) for row in rows] == [(1.0, 0.0)]


def test_clicks_are_matched_as_in_plain_polars_however_batches_are_cut(tmp_path: Path) -> None:
    query = Query(MATCHES, 5, 40)
    query.write(tmp_path, 1, Shape(batches=12, batch_rows=200, segments=0, partitions=2))
    expected = query.expected(tmp_path)
    assert expected.height > 20
    rows = pl.read_parquet(tmp_path / EVENTS / "*.parquet").sort("ts")
    for batch_rows in (37, 200, 5_000):
        topology = tx.Topology("matches")
        source = tx.files(str(tmp_path / EVENTS / "*.parquet"), time="ts")
        stream = topology.source(EVENTS, source, partitions=2).key_by("ad")
        stream.apply(Matches(query.window_s), time="clicked", name="matches").output("results", tx.console())
        results = tx.testing.run(topology, {EVENTS: rows}, batch_rows=batch_rows)["results"]
        assert same_results({"plain Polars": expected, "Tenax": results}, query.keys) == expected.height


def test_the_state_of_matches_is_the_window_and_no_more() -> None:
    rows = pl.DataFrame({"ts": [START + timedelta(seconds=second) for second in range(4_000)]})
    rows = rows.with_columns(ad=pl.col("ts").cast(pl.String), click=pl.lit(False), text=pl.lit("x"))
    state: tx.State = {}
    for batch in range(40):
        part = rows[100 * batch : 100 * (batch + 1)]
        watermark_us = int(part["ts"].dt.epoch("us")[-1])
        state = Matches(300).step(state, tx.StepInput((part,), watermark_us, batch + 1)).state
    assert 300 <= sum(frame.height for frame in state.values()) <= 500


def test_the_large_state_is_at_least_half_a_gigabyte_over_a_window_of_minutes() -> None:
    shape, query = LARGE.shape, LARGE.query
    assert query.window_s >= 120
    assert shape.batch_rows * query.window_s * query.row_bytes >= 500e6
    assert LARGE.backlog >= query.window_s
    assert {QUICK_SMALL.state, QUICK_LARGE.state} == {SMALL.state, LARGE.state}
