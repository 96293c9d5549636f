"""Tentative results against predictions: what counts as accurate, what is known of streams, what the tables say."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from observing import rows_of

from tenax.chaos.record import Moment, What
from tenax.connectors.generators import START_US
from tenax.connectors.parquet import ParquetSink
from tenax.connectors.source import Limits, NothingNew, Planned
from tenax.connectors.workloads import incident_reports
from tenax.control import events
from tenax.control.versions import PassId
from tenax.model.cluster import Node
from tenax.model.graph import TaskGraph
from tenax.model.topology import Partitioning
from tenax.planning.rates import Rows
from tenax.store.records import Json
from tenax_lab import lab
from tenax_lab import tentative_quality as quality
from tenax_lab.findings import Machine, Result
from tenax_lab.loads.judged_queries import (
    ALGORITHMS,
    CLOCK,
    GREEDY,
    INCIDENTS,
    QUERIES,
    STRUCTURE_AWARE,
    TOP_PAGES,
    Metered,
    Query,
    application,
    declared,
    measured,
    predicted,
    replicas_of,
)
from tenax_lab.recorder import Kind, RunRecorder, ShownFiles
from tenax_lab.tentative_runs import PLAN as OF_PLAN
from tenax_lab.tentative_runs import WINDOW, accurate_until, missing_until, stated, while_missing, window_accuracies

START = datetime(2024, 1, 1)
QUERY_NAMES, RATIOS = ("Q1", "Q2"), (0.3, 0.7)
PLAN = quality._plan(QUERY_NAMES, RATIOS, tuple(ALGORITHMS), 9)


def results(*rows: tuple[int, int]) -> pl.DataFrame:
    """Rows of windows of 2 s, each by the second of its end and a page."""
    ends = [START + timedelta(seconds=end) for end, _ in rows]
    return pl.DataFrame(
        {
            "page": [page for _, page in rows],
            "window_start": [end - timedelta(seconds=2) for end in ends],
            "window_end": ends,
        },
        schema_overrides={"window_start": pl.Datetime("us"), "window_end": pl.Datetime("us")},
    )


def between(first_s: int, last_s: int) -> tuple[int, int]:
    return START_US + first_s * 1_000_000, START_US + last_s * 1_000_000


def even(query: Query) -> Rows:
    """As if every task had taken in and given out one row."""
    tasks = len(TaskGraph(application(query, 1, 9).topology))
    return Rows((1.0,) * tasks, (1.0,) * tasks)


def test_accuracy_is_the_part_of_final_rows_that_was_shown_window_by_window() -> None:
    final = results((6, 1), (6, 2), (6, 3), (6, 4), (7, 1), (7, 2), (8, 1))
    shown = results((6, 1), (6, 2), (6, 3), (6, 99), (7, 1))
    assert window_accuracies(final, shown, ["page"], between(4, 8)) == [0.75, 0.5, 0.0]


def test_only_windows_that_lie_wholly_between_failure_and_return_count() -> None:
    final = results((5, 1), (6, 1), (7, 1), (8, 1))
    shown = results((5, 1), (7, 1), (8, 1))
    assert window_accuracies(final, shown, ["page"], between(4, 7)) == [0.0, 1.0]


def test_a_run_that_showed_nothing_has_no_accuracy() -> None:
    assert window_accuracies(results((6, 1), (7, 1), (7, 2)), pl.DataFrame(), ["page"], between(0, 9)) == [0.0, 0.0]


def test_tentative_results_and_final_ones_before_a_return_are_kept(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path / "jams")
    sink.tentative.mkdir()
    sink.folder.mkdir()
    recorder = RunRecorder(TaskGraph(application(INCIDENTS, 1, 9).topology))
    shown = ShownFiles(recorder, sink, tmp_path / "kept", final=True)

    def publish(batch: int, partition: int, tentative: bool, value: float) -> None:
        """Publish one row; a final result removes the tentative one."""
        name = f"{batch}-{partition}.parquet"
        (sink.tentative / name).unlink(missing_ok=True)
        results((batch, partition)).write_parquet((sink.tentative if tentative else sink.folder) / name)
        columns: dict[str, Any] = {"output": "jams", "partition": partition, "first": batch, "last": batch}
        recorder.add(Kind.SHOWN, tentative=tentative, quality=value, **columns)
        shown.learn(events.Published(PassId(1, batch * 10 + partition), tentative))

    recorder.add(Kind.JOINED, nodes=1)  # before the failure: no return
    publish(4, 0, False, 1.0)
    recorder.add(Kind.LOST, nodes=2)
    shown.learn(events.NodesLost(("a", "b")))
    publish(5, 0, True, 0.5)
    publish(5, 1, False, 1.0)
    publish(6, 0, True, 0.25)
    recorder.add(Kind.JOINED, nodes=1)
    shown.learn(events.NodesJoined((Node("c"),)))
    publish(5, 0, False, 1.0)
    publish(6, 1, False, 1.0)  # what was missing until then showed nothing
    publish(5, 2, False, 1.0)
    assert shown.rows()["page"].to_list() == [0, 0, 1, 0]
    assert stated(while_missing(recorder), "jams", range(5, 8), 2) == [0.75, 0.125, 0.0]


def test_the_failure_lies_between_the_last_accurate_batch_and_the_first_node_that_returns() -> None:
    passed = [Moment(0.0, What.PASS_ENDED, {"kind": "live", "first": batch, "last": batch}) for batch in range(1, 8)]
    lost = [Moment(0.0, What.LOST, {"nodes": [name]}) for name in "ab"]
    joined = Moment(0.0, What.JOINED, {"nodes": ["c"]})
    moments = [*passed[:3], lost[0], lost[1], *passed[3:6], joined, passed[6]]
    assert (accurate_until(moments), missing_until(moments)) == (3, 6)


def test_batches_hold_equal_spans_of_time_whatever_the_clock_says() -> None:
    source = Metered(incident_reports(3, users=50, segments=10, pace=CLOCK), 3_000_000, 4)
    position: Json = None
    for batch in range(4):
        planned = source.plan(position, 2, Limits(1 << 30), 12345)
        assert isinstance(planned, Planned)
        assert planned.ended is (batch == 3)
        times = pl.concat([source.read(part, span) for part, span in enumerate(planned.ranges)])["ts"]
        first, end = START + timedelta(seconds=3 * batch), START + timedelta(seconds=3 * batch + 3)
        assert len(times) == planned.rows > 0
        assert all(first <= time < end for time in times)
        position = planned.position
    assert source.plan(position, 2, Limits(1 << 30), 0) == NothingNew(ended=True)


def test_a_span_without_rows_is_planned_all_the_same() -> None:
    source = Metered(incident_reports(3, users=50, segments=50, exponent=0.0, pace=CLOCK), 1_000, 9)
    first = source.plan(None, 2, Limits(100), 0)
    assert isinstance(first, Planned)
    second = source.plan(first.position, 2, Limits(100), 0)
    assert isinstance(second, Planned)
    assert second.rows == 0
    assert [source.read(part, span).height for part, span in enumerate(second.ranges)] == [0, 0]


def test_rows_that_stay_with_their_key_make_a_stream_one_to_one() -> None:
    app = application(INCIDENTS, 1, 9)
    for topology in (declared(app), measured(app, even(INCIDENTS))):
        assert {each.operator: each.partitioning for each in topology.operator("join-1").inputs} == {
            "speed-window": Partitioning.ONE_TO_ONE,
            "incidents": Partitioning.FULL,
        }


def test_measured_rates_are_what_tasks_gave_out() -> None:
    app = application(TOP_PAGES, 1, 9)
    graph = TaskGraph(app.topology)
    given = [float(graph.operator_of[number] + 1) for number in range(len(graph))]
    graph_of_rates = TaskGraph(measured(app, Rows(even(TOP_PAGES).taken, tuple(given))))
    assert graph_of_rates.output_rate == pytest.approx(given)


def test_plans_are_the_same_on_every_call_and_within_their_budget() -> None:
    topology = measured(application(INCIDENTS, 1, 9), even(INCIDENTS))
    for ratio in (0.3, 0.7):
        for algorithm in ALGORITHMS:
            replicas = replicas_of(INCIDENTS, topology, ratio, algorithm)
            assert replicas == replicas_of(INCIDENTS, topology, ratio, algorithm)
            assert len(replicas) <= round(ratio * 18)


def test_a_join_without_one_of_its_inputs_is_worthless_to_fidelity_alone() -> None:
    topology = measured(application(INCIDENTS, 1, 9), even(INCIDENTS))
    graph = TaskGraph(topology)
    kept = [task for task in graph.tasks(range(len(graph))) if task.operator not in ("incidents", "locations")]
    prediction = predicted(topology, [task for task in kept if task.operator != "reports"])
    assert prediction.fidelity == 0
    assert 0 < prediction.processed < prediction.completeness < 1


def test_ranks_are_shared_by_equal_values() -> None:
    assert quality.rank_correlation([1, 2, 3], [10, 20, 30]) == pytest.approx(1.0)
    assert quality.rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1.0)
    assert quality.rank_correlation([1, 1, 2, 3], [5, 5, 6, 7]) == pytest.approx(1.0)
    assert quality.rank_correlation([1, 2, 2, 3], [1, 3, 2, 4]) == pytest.approx(0.9487, abs=1e-4)
    assert quality.rank_correlation([1, 1], [1, 2]) is None


@cache
def recorded() -> pl.DataFrame:
    """A run in which every window is as accurate as fidelity says."""
    rows: list[lab.Row] = []
    for trial in PLAN.trials():
        query = QUERIES[trial.case.query]
        app = application(query, 1, PLAN.batches)
        topology = measured(app, even(query))
        replicas = replicas_of(query, topology, trial.case.ratio, trial.side)
        by_rates, by_declaration = predicted(topology, replicas), predicted(declared(app), replicas)
        predictions: lab.Row = {
            "fidelity": by_rates.fidelity,
            "completeness": by_rates.processed,
            "completeness_with_sources": by_rates.completeness,
            "declared_fidelity": by_declaration.fidelity,
            "declared_completeness": by_declaration.processed,
            "quality": 0.5,
        }
        plan: lab.Row = {"what": OF_PLAN, "tasks": " ".join(map(str, replicas)), "replicas": len(replicas)}
        judged: lab.Row = {"killed_after": 4, "final": 36, "corrected": 20, "exact": True}
        window: lab.Row = {"what": WINDOW, "accuracy": by_rates.fidelity}
        rows += [{**trial.columns, **plan, **predictions, **judged}, *[{**trial.columns, **window}] * 2]
    return lab.frame(rows)


def test_a_prediction_that_comes_true_fits_without_difference(tmp_path: Path) -> None:
    findings = quality.report(PLAN, recorded())
    fits = {(row["query"], row["prediction"]): row for row in rows_of(findings, "How predictions fit")}
    for name in QUERY_NAMES:
        assert fits[name, "fidelity, measured rates"]["mean |difference|"] == pytest.approx(0.0)
        assert fits[name, "fidelity, measured rates"]["rank correlation"] == pytest.approx(1.0)
        assert fits[name, "completeness, measured rates"]["mean |difference|"] != pytest.approx(0.0)
    Result("name", "summary", "figure", 1, True, Machine.here(), 1.0, findings).write(tmp_path)
    assert json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))["rows"]


def test_greedy_plans_stand_beside_structure_aware_ones() -> None:
    rows = rows_of(quality.report(PLAN, recorded()), "Predicted")
    assert len(rows) == len(QUERY_NAMES) * len(RATIOS) * len(ALGORITHMS)
    by_case = {(row["query"], row["budget"], row["algorithm"]): row for row in rows}
    for name in QUERY_NAMES:
        for ratio in RATIOS:
            aware, greedy = (by_case[name, ratio, algorithm]["fidelity"] for algorithm in (STRUCTURE_AWARE, GREEDY))
            assert isinstance(aware, float)
            assert isinstance(greedy, float)
            assert aware >= greedy
