"""Recovery and its cost: what tables say of recorded losses and processor times."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from tenax_lab import checkpoint_cpu, partial_replication, recovery_techniques
from tenax_lab.findings import Findings, Machine, Result
from tenax_lab.tree_failures import Facts, Publication

FINAL = Publication(0.9, False, 10, 10, 1.0)
FACTS = Facts(2, 16, 0.1, 0.0, 0.9, 1, 0, 0, 0.1, 0.45, True, (FINAL,))


def rows_of(found: Findings, title: str) -> list[dict[str, object]]:
    table = next(one for one in found.tables if one.title.startswith(title))
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def claim(found: Findings, start: str) -> float:
    return next(one.ours for one in found.claims if one.statement.startswith(start))


def written(found: Findings, folder: Path) -> str:
    """Everything on disk; the table as people read it."""
    Result("name", "summary", "figure", 1, True, Machine.here(), 1.0, found).write(folder)
    assert json.loads((folder / "result.json").read_text(encoding="utf-8"))["rows"]
    assert sorted(path.name for path in folder.iterdir()) == ["figure.png", "result.json", "table.txt"]
    return (folder / "table.txt").read_text(encoding="utf-8")


def techniques() -> Findings:
    """Active replicas always take 1 s; checkpoints 2 s, and as much more as the rate; replay 0.2 s per window s."""
    found = {}
    for case in recovery_techniques.FULL.cases:
        match case.technique:
            case recovery_techniques.ACTIVE:
                found[case] = replace(FACTS, final_s=1.0)
            case recovery_techniques.CHECKPOINT:
                found[case] = replace(FACTS, final_s=case.rate / 500, batches=5, replayed=4)
            case _:
                found[case] = replace(FACTS, final_s=0.2 * case.window_s, batches=10, replayed=9, exact=False)
    return recovery_techniques.findings(recovery_techniques.FULL, found)


def test_every_technique_meets_every_loss_at_every_rate_and_window(tmp_path: Path) -> None:
    found = techniques()
    rows = rows_of(found, "From the kill")
    assert len(rows) == 3 * 2 * 2 * 2
    assert len({tuple(row[name] for name in ("technique", "lost", "window s", "tuples/s")) for row in rows}) == 24
    told = written(found, tmp_path)
    assert "16 of 24 runs exact" in told
    assert "NO" in told


def test_latencies_are_compared_between_losses_that_are_alike_in_all_else() -> None:
    found = techniques()
    assert claim(found, "active replicas: batches") == 1
    assert claim(found, "one node lost: latency with checkpoint") == 3.0
    assert claim(found, "all primaries lost: latency with source replay") == 4.0
    assert claim(found, "active replicas: latency at") == 1.0
    assert claim(found, "checkpoint: latency at 2,000 over that at 1,000") == 2.0
    assert claim(found, "source replay: latency with windows of 30 s") == 3.0


def test_nodes_are_killed_when_windows_are_full_and_a_checkpoint_is_about_to_come() -> None:
    plan = recovery_techniques.FULL
    assert {(case.window_s, plan.kill_at(case)) for case in plan.cases} == {(10, 9), (30, 19)}


def test_source_replay_stores_no_checkpoint_and_replicas_are_active_alone() -> None:
    active, checkpoint, replay = (recovery_techniques.protection(one, 5) for one in recovery_techniques.TECHNIQUES)
    assert (active.replicas, checkpoint.replicas, replay.replicas) == ("all", 0, 0)
    assert (active.checkpoint_every, checkpoint.checkpoint_every) == (5, 5)
    assert isinstance(replay.checkpoint_every, int)
    assert replay.checkpoint_every > 1000


CPU_PLAN = replace(checkpoint_cpu.FULL, intervals_s=(1, 30), rounds=2, measured=10)
SPENT = {
    0: ([4.0, 4.0], [1.0, 1.0], [0.0, 0.0], [0.0, 0.0], [2.0, 2.0], [0.0, 0.0]),
    1: ([6.0, 5.0], [2.0, 1.0], [10.0, 10.0], [1.0, 1.0], [2.0, 2.0], [5.0, 5.0]),
    30: ([4.4, 4.0], [1.0, 1.0], [1.0, 1.0], [0.1, 0.2], [2.0, 2.0], [4.0, 4.0]),
}
SERIES = {
    f"{interval} {name}": values
    for interval, columns in SPENT.items()
    for name, values in zip(checkpoint_cpu.MEASURES, columns, strict=True)
}


def test_checkpoints_cost_what_a_round_takes_beyond_the_one_without(tmp_path: Path) -> None:
    often, seldom = checkpoint_cpu.shares(CPU_PLAN, SERIES)
    assert often.nodes == pytest.approx((50.0, 25.0))
    assert often.everything == pytest.approx((60.0, 20.0))
    assert often.counted == pytest.approx((50.0, 50.0))
    assert seldom.nodes == pytest.approx((10.0, 0.0))
    found = checkpoint_cpu.findings(CPU_PLAN, SERIES)
    assert claim(found, "processor time for a checkpoint every 1 s") == pytest.approx(50.0)
    assert [row["checkpoints"] for row in rows_of(found, "A batch")] == ["none", "every 1 s", "every 30 s"]
    assert not any("were due" in one for one in found.remarks)
    late = checkpoint_cpu.findings(CPU_PLAN, SERIES | {"1 checkpoints": [4.0, 4.0]})
    assert [one.split(",")[0] for one in late.remarks if "were due" in one] == [
        "every 1 s: 10 checkpoints were due and 4 were stored"
    ]
    assert "paper says" in written(found, tmp_path)


def test_measured_batches_hold_a_whole_number_of_every_interval() -> None:
    plan = checkpoint_cpu.FULL
    assert all(plan.measured % plan.load.batches(one) == 0 for one in plan.intervals_s)
    assert plan.warmup >= plan.load.batches(plan.load.window_s)


TENTATIVE = (Publication(1.0, True, 20, 20, 0.375), Publication(2.0, True, 21, 21, 0.375))
CORRECTED = (Publication(4.0, False, 20, 20, 1.0), Publication(5.0, False, 21, 22, 1.0))
OUTAGES = {
    partial_replication.EVERYTHING: partial_replication.Outage(FACTS),
    partial_replication.HALF: partial_replication.Outage(
        replace(FACTS, final_s=4.0, whole_s=4.5, publications=TENTATIVE + CORRECTED), (0.9, 0.7)
    ),
    partial_replication.NOTHING: partial_replication.Outage(
        replace(FACTS, final_s=6.0, whole_s=5.9, publications=(Publication(6.0, False, 20, 20, 1.0),))
    ),
}


def test_plans_stand_beside_each_other_with_the_quality_of_what_they_show(tmp_path: Path) -> None:
    plan = partial_replication.FULL
    found = partial_replication.findings(plan, {case: OUTAGES[case.share] for case in plan.cases})
    everything, half, nothing = rows_of(found, "From the kill")[:3]
    assert (everything["replicas"], half["replicas"], nothing["replicas"]) == (16, 8, 0)
    assert (half["fidelity"], half["quality"], half["content"]) == (0.375, 0.375, pytest.approx(0.8))
    assert (half["tentative s"], half["all back s"], nothing["tentative s"]) == (1.0, 4.5, None)
    assert claim(found, "PPA-0.5 over PPA-0") == pytest.approx(0.75)
    assert claim(found, "PPA-0.5: until all is back") == pytest.approx(4.5)
    written(found, tmp_path)


def test_the_newest_output_is_never_an_older_batch() -> None:
    newest = OUTAGES[partial_replication.HALF].newest
    assert [(one.last, one.quality) for one in newest] == [(20, 0.375), (21, 0.375), (22, 1.0)]


def test_an_outage_travels_between_processes_unchanged() -> None:
    outage = OUTAGES[partial_replication.HALF]
    told = json.loads(json.dumps(outage.to_series("x")))
    assert partial_replication.Outage.from_series("x", told) == outage


def test_content_is_the_part_of_the_final_readings_that_a_tentative_window_counted() -> None:
    ends = [datetime(2024, 1, 1) + timedelta(seconds=one) for one in (1, 1, 2, 3)]
    many = 400_000_000  # ten times that does not fit into the 32 bits of a count
    types = {"window_end": pl.Datetime, "readings": pl.UInt32}
    final = pl.DataFrame({"window_end": ends, "readings": [5 * many, 6 * many, 10 * many, 10 * many]}, types)
    shown = pl.DataFrame({"window_end": ends[1:3], "readings": [round(4.4 * many), 10 * many]}, types)
    assert partial_replication.content(final, shown) == (0.4, 1.0)
    assert partial_replication.content(final, pl.DataFrame()) == ()
