"""Recovery and its cost: what tables say of recorded losses and processor times."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from observing import claimed, rows_of, written

from tenax_lab import checkpoint_cpu, partial_replication, recovery_techniques
from tenax_lab.findings import Findings
from tenax_lab.lab import Plan, Row, Trial, frame

LOSS: Row = {
    "what": "loss",
    "killed": 2,
    "lost_tasks": 16,
    "detection_s": 0.1,
    "back_s": 0.0,
    "final_s": 0.9,
    "tentative_s": None,
    "output_s": 0.9,
    "batches": 1,
    "replayed": 0,
    "rounds": 0,
    "whole_s": 0.1,
    "recovered_s": 0.9,
    "batch_time_s": 0.45,
    "exact": True,
}


def publication(after_s: float, tentative: bool, last: int, quality: float) -> Row:
    return {"what": "publication", "after_s": after_s, "tentative": tentative, "last": last, "quality": quality}


def techniques() -> Findings:
    """Active replicas always take 1 s; checkpoints 2 s, and as much more as the rate; replay 0.2 s per window s."""
    plan, rows = recovery_techniques.EXPERIMENT.full, []
    for trial in plan.trials():
        case = trial.case
        match trial.side:
            case recovery_techniques.ACTIVE:
                met: Row = {"final_s": 1.0}
            case recovery_techniques.CHECKPOINT | recovery_techniques.ALIGNED:
                met = {"final_s": case.rate / 500, "batches": 5, "replayed": 4}
            case _:
                met = {"final_s": 0.2 * case.window_s, "batches": 10, "replayed": 9, "exact": False}
        rows.append({**trial.columns, **LOSS, **met})
    return recovery_techniques.report(plan, frame(rows))


def test_every_technique_meets_every_loss_at_every_rate_and_window(tmp_path: Path) -> None:
    findings = techniques()
    rows = rows_of(findings, "From the kill")
    assert len(rows) == 4 * 2 * 2 * 2
    assert len({tuple(row[name] for name in ("technique", "lost", "window s", "tuples/s")) for row in rows}) == 32
    text = written(findings, tmp_path)
    assert "24 of 32 runs exact" in text
    assert "NO" in text


def test_latencies_are_compared_between_losses_that_are_alike_in_all_else() -> None:
    findings = techniques()
    assert claimed(findings, "active replicas: batches") == 1
    assert claimed(findings, "one node lost: latency with checkpoint") == 3.0
    assert claimed(findings, "all primaries lost: latency with source replay") == 4.0
    assert claimed(findings, "active replicas: latency at") == 1.0
    assert claimed(findings, "checkpoint: latency at 2,000 over that at 1,000") == 2.0
    assert claimed(findings, "source replay: latency with windows of 30 s") == 3.0


def test_nodes_are_killed_when_windows_are_full_and_a_checkpoint_is_about_to_come() -> None:
    plan = recovery_techniques.EXPERIMENT.full
    assert {(case.window_s, plan.kill_at(case)) for case in plan.cases} == {(10, 9), (30, 19)}


def test_source_replay_stores_no_checkpoint_and_replicas_are_active_alone() -> None:
    active, checkpoint, aligned, replay = (
        recovery_techniques.protection(technique, 5) for technique in recovery_techniques.TECHNIQUES
    )
    assert (checkpoint.checkpoint, aligned.checkpoint) == ("individual", "aligned")  # the paper has the first
    assert (active.replicas, checkpoint.replicas, replay.replicas) == ("all", 0, 0)
    assert (active.checkpoint_every, checkpoint.checkpoint_every) == (5, 5)
    assert isinstance(replay.checkpoint_every, int)
    assert replay.checkpoint_every > 1000


CPU_PLAN = Plan(
    (replace(checkpoint_cpu.EXPERIMENT.full.cases[0], measured=10),), ("none", "every 1 s", "every 30 s"), rounds=2
)
MEASURES = ("nodes_s", "driver_s", "checkpoints", "checkpoint_cpu_s", "step_cpu_s", "written_mb")
SPENT: dict[str, tuple[list[float], ...]] = {
    "none": ([4.0, 4.0], [1.0, 1.0], [0, 0], [0.0, 0.0], [2.0, 2.0], [0.0, 0.0]),
    "every 1 s": ([6.0, 5.0], [2.0, 1.0], [10, 10], [1.0, 1.0], [2.0, 2.0], [5.0, 5.0]),
    "every 30 s": ([4.4, 4.0], [1.0, 1.0], [1, 1], [0.1, 0.2], [2.0, 2.0], [4.0, 4.0]),
}


def cpu_frame(stored_every_1_s: int = 10) -> pl.DataFrame:
    """Two rounds of each side."""
    rows = []
    for trial in CPU_PLAN.trials():
        spent = {name: column[trial.round - 1] for name, column in zip(MEASURES, SPENT[trial.side], strict=True)}
        if trial.side == "every 1 s":
            spent["checkpoints"] = stored_every_1_s
        rows.append({**trial.columns, "interval_s": checkpoint_cpu.interval_s(trial.side), **spent})
    return frame(rows)


def test_checkpoints_cost_what_a_round_takes_beyond_the_one_without(tmp_path: Path) -> None:
    shares = checkpoint_cpu.shares_of(cpu_frame())
    often, seldom = (shares.filter(interval_s=interval) for interval in (1, 30))
    assert often["nodes"].to_list() == pytest.approx((50.0, 25.0))
    assert often["everything"].to_list() == pytest.approx((60.0, 20.0))
    assert often["counted"].to_list() == pytest.approx((50.0, 50.0))
    assert seldom["nodes"].to_list() == pytest.approx((10.0, 0.0))
    findings = checkpoint_cpu.report(CPU_PLAN, cpu_frame())
    assert claimed(findings, "processor time for a checkpoint every 1 s") == pytest.approx(50.0)
    assert [row["checkpoints"] for row in rows_of(findings, "A batch")] == ["none", "every 1 s", "every 30 s"]
    assert not any("were due" in remark for remark in findings.remarks)
    late = checkpoint_cpu.report(CPU_PLAN, cpu_frame(stored_every_1_s=4))
    assert [remark.split(",")[0] for remark in late.remarks if "were due" in remark] == [
        "every 1 s: 10 checkpoints were due and 4 were stored"
    ]
    assert "paper says" in written(findings, tmp_path)


def test_measured_batches_hold_a_whole_number_of_every_interval() -> None:
    plan = checkpoint_cpu.EXPERIMENT.full
    (case,) = plan.cases
    intervals = [interval for side in plan.sides if (interval := checkpoint_cpu.interval_s(side)) is not None]
    assert len(intervals) == 4
    assert all(case.measured % case.load.batches(interval) == 0 for interval in intervals)
    assert case.warmup >= case.load.batches(case.load.window_s)


SHOWN = [
    publication(1.0, True, 20, 0.375),
    publication(2.0, True, 21, 0.375),
    publication(4.0, False, 20, 1.0),
    publication(5.0, False, 22, 1.0),
]


def outage(trial: Trial[partial_replication.Case]) -> list[Row]:
    """All replicas, half of them, none."""
    load = partial_replication.EXPERIMENT.full.load
    replicas = partial_replication.replica_plan(load, partial_replication.SHARES[trial.side])
    loss: Row = {**LOSS, "replicas": len(replicas.replicas), "fidelity": replicas.value}
    if trial.side == partial_replication.EVERYTHING:
        return [loss, publication(0.9, False, 10, 1.0)]
    if trial.side == partial_replication.NOTHING:
        met: Row = {"final_s": 6.0, "output_s": 6.0, "recovered_s": 6.0}
        return [{**loss, **met}, publication(6.0, False, 20, 1.0)]
    met = {"final_s": 4.0, "output_s": 1.0, "tentative_s": 1.0, "recovered_s": 4.5}
    return [{**loss, **met}, *SHOWN, {"what": "content", "content": 0.9}, {"what": "content", "content": 0.7}]


def test_plans_stand_beside_each_other_with_the_quality_of_what_they_show(tmp_path: Path) -> None:
    plan = partial_replication.EXPERIMENT.full
    rows = [{**trial.columns, **row} for trial in plan.trials() for row in outage(trial)]
    findings = partial_replication.report(plan, frame(rows))
    everything, half, nothing = rows_of(findings, "From the kill")[:3]
    assert (everything["replicas"], half["replicas"], nothing["replicas"]) == (16, 8, 0)
    assert (half["fidelity"], half["quality"], half["content"]) == (0.375, 0.375, pytest.approx(0.8))
    assert (half["tentative s"], half["all back s"], nothing["tentative s"]) == (1.0, 4.5, None)
    assert claimed(findings, "PPA-0.5 over PPA-0") == pytest.approx(0.75)
    assert claimed(findings, "PPA-0.5: until all is back") == pytest.approx(4.5)
    written(findings, tmp_path)


def test_the_newest_output_is_never_an_older_batch() -> None:
    newest = partial_replication.newest(frame(SHOWN))
    assert [(last, quality) for _, last, quality in newest] == [(20, 0.375), (21, 0.375), (22, 1.0)]


def test_content_is_the_part_of_the_final_readings_that_a_tentative_window_counted() -> None:
    ends = [datetime(2024, 1, 1) + timedelta(seconds=second) for second in (1, 1, 2, 3)]
    many = 400_000_000  # ten times that does not fit into the 32 bits of a count
    types = {"window_end": pl.Datetime, "readings": pl.UInt32}
    final = pl.DataFrame({"window_end": ends, "readings": [5 * many, 6 * many, 10 * many, 10 * many]}, types)
    shown = pl.DataFrame({"window_end": ends[1:3], "readings": [round(4.4 * many), 10 * many]}, types)
    assert partial_replication.content(final, shown) == [0.4, 1.0]
    assert partial_replication.content(final, pl.DataFrame()) == []
