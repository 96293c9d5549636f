"""What is said of elastic runs, from made-up rows; and how the rows of such a run come."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from observing import claimed, rows_of, written

import tenax as tx
from tenax.connectors.source import Limits, NothingNew, Planned
from tenax_lab.elasticity import EXPERIMENT
from tenax_lab.elasticity_cases import DAY, ELASTIC, OF, SMALL, STEP, STRUCTURED, SWITCH, Case
from tenax_lab.elasticity_measures import mean_nodes, switches, throughput, undone
from tenax_lab.lab import Row, frame
from tenax_lab.loads.layered import Tap
from tenax_lab.loads.varying import PARTITIONS, Load, Lookups, Rhythm, VaryingRows

FULL = EXPERIMENT.full
SECOND_US = 1_000_000


def test_a_rhythm_counts_rows_as_its_rate_goes() -> None:
    even, step = Rhythm.even(100, 10), Rhythm.step(100, 3, 4, 10)
    assert even.rows(2.5) == pytest.approx(250)
    assert even.after_s(250) == pytest.approx(2.5)
    assert step.total == 4 * 100 + 6 * 300
    assert step.after_s(700) == pytest.approx(5)
    assert step.whole(99) == step.total
    day = Rhythm.day(1_000, 10, 200)
    assert [day.rate(0), day.rate(100)] == pytest.approx([100, 1_000])
    assert day.total == pytest.approx(550 * 200, rel=0.01)


def test_rows_come_once_one_of_each_key_is_there_and_the_tap_is_open(tmp_path: Path) -> None:
    tap, limits = Tap(tmp_path / "tap"), Limits(1_000)
    source = VaryingRows(1, Load(Rhythm.even(100, 2), wait_us=0, keys=30), tap)
    warm = source.plan(None, PARTITIONS, limits, SECOND_US)
    assert isinstance(warm, Planned)
    assert (warm.rows, warm.more) == (30, False)
    assert source.plan(warm.position, PARTITIONS, limits, 2 * SECOND_US) == NothingNew()
    tap.open()
    begun = source.plan(warm.position, PARTITIONS, limits, 3 * SECOND_US)
    assert isinstance(begun, Planned)
    assert begun.rows == 0
    after = source.plan(begun.position, PARTITIONS, limits, 3 * SECOND_US + SECOND_US // 2)
    assert isinstance(after, Planned)
    assert (after.rows, after.ended) == (50, False)
    last = source.plan(after.position, PARTITIONS, Limits(100), 9 * SECOND_US)
    assert isinstance(last, Planned)
    assert (last.rows, last.more, last.ended) == (100, True, False)
    keys = pl.concat([source.read(partition, planned) for partition, planned in enumerate(warm.ranges)])["key"]
    assert sorted(keys) == list(range(30))


def test_lookups_keep_the_contract_and_split_by_key(tmp_path: Path) -> None:
    load = Load(Rhythm.even(10, 1), wait_us=0, keys=7, text_bytes=16)
    source = VaryingRows(1, load, Tap(tmp_path / "tap"))
    tx.testing.check_computation(
        Lookups(load, Tap(tmp_path / "tap")), source.read(0, [0, 40, 1]), time="ts", keys=["key"]
    )


def outputs(latencies: list[float], rate: float = 100.0) -> list[Row]:
    return [
        {
            "what": "output",
            "batch": number,
            "after_s": 2.0 * number,
            "latency_s": latency_s,
            "final_s": 2.0 * number + latency_s,
            "rows": rate * 2.0 * number,
        }
        for number, latency_s in enumerate(latencies, start=1)
    ]


def test_a_rescale_is_measured_against_what_was_usual() -> None:
    rows: list[Row] = [
        *outputs([1.5] * 10 + [4.5, 3.5] + [1.5] * 8),
        {"what": "asked", "after_s": 21.6},
        {"what": "switched", "after_s": 23.0, "number": 2, "tasks": 6, "groups": 64},
        {"what": "nodes", "after_s": -3.0, "nodes": 2},
        {"what": "nodes", "after_s": 22.0, "nodes": 4},
        {"what": "pass", "after_s": 20.0, "seconds": 1.0, "read_bytes": 0, "state_bytes": 2_000, "waiting": 1.0},
        {"what": "pass", "after_s": 24.0, "seconds": 1.0, "read_bytes": 1_500, "state_bytes": 4_000, "waiting": 1.5},
        {"what": "pass", "after_s": 25.0, "seconds": 1.0, "read_bytes": 100, "state_bytes": 4_000, "waiting": 1.5},
    ]
    (rescale,) = switches(FULL, frame(rows).with_columns(outcome=pl.lit(None, pl.String)))
    assert (rescale["nodes"], rescale["usual_s"], rescale["highest_s"]) == (4, 1.5, 4.5)
    assert rescale["later"] == pytest.approx(1.5)  # in intervals of 2 s
    assert rescale["pause_s"] == pytest.approx(26.5 - 21.5)
    assert (rescale["moved"], rescale["again_bytes"]) == (1.5, 100)


def test_throughput_counts_what_is_final_around_a_moment() -> None:
    steady = frame(outputs([1.0] * 20))
    assert throughput(steady, 20.0) == pytest.approx(100.0)


def test_a_rescale_goes_back_without_a_reason_only_if_the_load_has_not_turned() -> None:
    day = Case(DAY, 1_000, 200.0)
    judged: list[Row] = [
        {"what": "judged", "after_s": at_s, "outcome": outcome}
        for at_s, outcome in [(40.0, "scale-out"), (60.0, "keep"), (150.0, "scale-in"), (152.0, "scale-out")]
    ]
    assert undone(day, frame(judged)) == [152.0]


def test_nodes_are_counted_over_time() -> None:
    changes: list[Row] = [
        {"what": "nodes", "after_s": at_s, "nodes": nodes} for at_s, nodes in [(-5.0, 2), (10.0, 4), (15.0, 2)]
    ]
    assert mean_nodes(frame(changes), 20.0) == pytest.approx((10 * 2 + 5 * 4 + 5 * 2) / 20)


def test_the_report_holds_every_case_against_its_goal(tmp_path: Path) -> None:
    rows: list[Row] = []
    for trial in FULL.trials():
        lately = 60.0 if trial.side == STRUCTURED else 1.5
        observed = outputs([lately] * 40) if trial.side != SMALL else outputs([1.5 * n for n in range(1, 41)])
        observed += [{"what": "nodes", "after_s": 0.0, "nodes": 2}, {"what": "outcome", "exact": trial.side != SMALL}]
        if trial.side != STRUCTURED:
            measures: Row = {"seconds": 1.2, "read_bytes": 10, "state_bytes": 5, "waiting": 1.0}
            observed += [{"what": "pass", "after_s": at_s, **measures} for at_s in (10.0, 35.0, 65.0)]
        if trial.side == ELASTIC or trial.case.what_happens == SWITCH:
            observed += [
                {"what": "asked", "after_s": 30.0},
                {"what": "judged", "after_s": 31.0, "outcome": "scale-out"},
            ]
            switched: Row = {"number": 2, "tasks": 6, "groups": 64}
            observed += [{"what": "switched", "after_s": 33.0, **switched}]
        rows += [{**trial.columns, **row} for row in observed]
    findings = EXPERIMENT.report(FULL, frame(rows))
    assert claimed(findings, "no result comes later") == 0.0
    assert claimed(findings, "throughput over the ten seconds") == pytest.approx(100.0)
    assert claimed(findings, "bytes read over those") == 5.0
    assert claimed(findings, "rescales after 3 times the rate") == 1
    assert claimed(findings, "rescales that went back") == 0
    assert [claim.over.endswith("goal met") for claim in findings.claims].count(False) == 1
    assert {row["side"] for row in rows_of(findings, "A day")} == set(OF[DAY])
    assert "goal not met" in written(findings, tmp_path)


def test_what_happens_to_a_case_happens_while_rows_come() -> None:
    for case in (*FULL.cases, *EXPERIMENT.quick.cases):
        assert 0 < case.turn_s < case.lasts_s
        assert case.what_happens in {SWITCH, STEP, DAY}
