"""Batches that size themselves: what the report says of recorded speeds and latencies."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from observing import rows_of

from tenax.model.graph import TaskGraph
from tenax_lab import adaptive_batches, lab
from tenax_lab.adaptive_batches import AFTER, DEFAULT, LATENCY, PACED, SPEED, WHOLE, compared, fixed, max_rows
from tenax_lab.lab import Plan
from tenax_lab.peers import application
from tenax_lab.recorder import Kind, RunRecorder
from tenax_lab.sides.inputs import KINDS, Shape, write_inputs

PLAN = Plan((adaptive_batches.Case("means", "means", Shape(4, 100, 10)),), rounds=2)
SPEEDS = {  # by side: whole and after a quarter, in two rounds
    DEFAULT: ((80.0, 90.0), (100.0, 110.0)),
    "100,000": ((20.0, 20.0), (200.0, 20.0)),  # the fastest of all rounds is not the best
    "1,000,000": ((120.0, 100.0), (120.0, 100.0)),
}


def measured(side: str, number: int, speeds: tuple[float, float]) -> lab.Row:
    whole, after = speeds
    said = {"passes": 3, "pass_s": 0.9, "longest_s": 1.1, "batch_rows": 10.0, "max_rows": max_rows(side)}
    return {"what": SPEED, "load": "means", "side": side, "round": number, WHOLE: whole, AFTER: after, **said}


def waited(side: str, place: int, latency_s: float) -> lab.Row:
    return {"what": LATENCY, "load": PACED, "side": side, "round": 1, "place": place, "latency_s": latency_s}


FRAME = lab.frame(
    [
        *(measured(side, place, each) for side, speeds in SPEEDS.items() for place, each in enumerate(speeds, start=1)),
        *(
            waited(side, place, latency_s)
            for side, latencies in ((DEFAULT, (9.0, 0.2, 0.3, 0.4)), ("100,000", (9.0, 0.1, 0.6, 0.8)))
            for place, latency_s in enumerate(latencies)
        ),
    ]
)


def test_the_best_fixed_size_is_the_best_in_the_middle_of_its_rounds() -> None:
    best, over = compared(FRAME, "means", WHOLE)
    assert best == "1,000,000"
    assert over == pytest.approx([80 / 120, 100 / 120])


def test_a_load_meets_its_goal_by_the_median_of_rounds() -> None:
    findings = adaptive_batches.report(PLAN, FRAME)
    whole, after = rows_of(findings, "The default over")
    assert (whole["ratio"], whole["met"]) == (pytest.approx(0.75), "no")
    assert (after["ratio"], after["met"]) == (pytest.approx(1.0), "yes")
    assert [claim.ours for claim in findings.claims] == pytest.approx([0.75, 1.0, 0.3 / 0.6, 0.4 / 0.8])


def test_latencies_count_from_the_second_quarter_on() -> None:
    rows = {row["size"]: row for row in rows_of(adaptive_batches.report(PLAN, FRAME), "Latency")}
    assert (rows[DEFAULT]["batches"], rows[DEFAULT]["p50"], rows[DEFAULT]["p99"]) == (3, 0.3, 0.4)


def test_speed_is_told_of_the_whole_run_and_of_what_follows_its_first_quarter(tmp_path: Path) -> None:
    write_inputs(tmp_path, 1, Shape(1, 4, 2))
    recorder = RunRecorder(TaskGraph(application("means", tmp_path, follow=False).topology))
    for last, at_s, seconds, rows in ((8, 1.0, 1.0, 100), (16, 1.5, 0.5, 100), (24, 2.0, 0.5, 200)):
        recorder.add(Kind.PASS, first=last - 7, last=last, seconds=seconds, rows=rows)
        recorder.rows[-1]["at_s"] = at_s
        recorder.add(Kind.FINAL, last=last)
        recorder.rows[-1]["at_s"] = at_s + 0.5
    speeds = adaptive_batches.speeds(recorder)
    assert speeds[WHOLE] == pytest.approx(400 / 2.5)
    assert speeds[AFTER] == pytest.approx(300 / 1.0)
    assert (speeds["passes"], speeds["longest_s"], speeds["batch_rows"]) == (3, 1.0, 25.0)


def test_sides_are_named_by_their_size() -> None:
    assert max_rows(DEFAULT) is None
    assert max_rows(fixed(3_000_000)) == 3_000_000


def test_inputs_have_the_keys_that_are_asked_for(tmp_path: Path) -> None:
    write_inputs(tmp_path, 1, Shape(2, 100, 5, named=True), KINDS[:1])
    rows = pl.read_parquet(tmp_path / "locations")
    assert rows.height == 200
    assert set(rows["segment"]) == {f"segment {number:08}" for number in range(5)}
    assert not (tmp_path / "reports").exists()
