"""What is said of losses that follow each other, from made-up runs."""

from __future__ import annotations

import pytest

from tenax.chaos.record import Moment, What
from tenax.control.events import BatchesLogged
from tenax.errors import ClusterFailed
from tenax.model.graph import TaskGraph
from tenax_lab.arrivals import Arrivals
from tenax_lab.lab import Row, frame
from tenax_lab.loads.layered import layered_topology
from tenax_lab.recorder import Kind, RunRecorder
from tenax_lab.repeated_losses import CHECKPOINTS, EXPERIMENT, QUERIES, REPLAY, SIDES, Case, latency_rows
from tenax_lab.runs import SELDOM


def test_the_same_task_is_hit_again_and_again() -> None:
    faults = EXPERIMENT.full.faults(Case(3))
    assert [str(fault) for fault in faults] == ["--kill o0[0]@20s", "--kill o0[0]@26s", "--kill o0[0]@32s"]


def test_source_replay_stores_no_checkpoint_and_is_else_the_same() -> None:
    replay, checkpoints = (EXPERIMENT.full.settings(side) for side in (REPLAY, CHECKPOINTS))
    assert replay.protection.checkpoint_every == SELDOM
    assert replay.but(checkpoint_every=checkpoints.protection.checkpoint_every) == checkpoints


def recorded() -> RunRecorder:
    return RunRecorder(TaskGraph(layered_topology(1, QUERIES)))


def test_rows_came_when_the_clock_says_though_nobody_asked_for_them() -> None:
    recorder = recorded()
    arrivals = Arrivals(recorder, rate=10.0)
    with pytest.raises(ClusterFailed):
        assert arrivals.came_s
    for event in (BatchesLogged(1, 1, rows=10), BatchesLogged(2, 2, rows=1), BatchesLogged(3, 3, rows=20)):
        arrivals.learn(event)
    asked_s = arrivals.came_s[3]
    arrivals.learn(BatchesLogged(4, 5, rows=40))  # two intervals late, and both at once
    assert arrivals.came_s[5] - arrivals.came_s[4] == pytest.approx(2.0)
    assert arrivals.came_s[5] <= recorder.now_s
    assert arrivals.came_s[3] <= asked_s
    assert set(arrivals.came_s) == {3, 4, 5}  # the first ones are there before the clock begins


def test_latency_counts_from_when_rows_came() -> None:
    recorder, came_s = recorded(), {3: 1.0, 4: 2.0, 5: 3.0}
    for batch, at_s in ((2, 0.5), (3, 1.5), (4, 2.5), (5, 9.5)):
        recorder.add(Kind.SHOWN, at_s=at_s, output="o0", partition=0, first=batch, last=batch, tentative=False)
    with pytest.raises(ClusterFailed):
        list(latency_rows(recorder, came_s))
    recorder.moments.append(Moment(2.6, What.FAULT, {"kind": "kill", "nodes": ["n1"]}))
    *batches, outcome = latency_rows(recorder, came_s)
    assert [row["latency_s"] for row in batches] == [0.5, 0.5, 6.5]
    assert [row["after_s"] for row in batches] == pytest.approx([-1.6, -0.6, 0.4])
    assert (outcome["usual_s"], outcome["highest_s"], outcome["replayed"]) == (0.5, 6.5, 0)


def test_the_report_compares_several_losses_with_a_single_one() -> None:
    rows: list[Row] = []
    for case in EXPERIMENT.full.cases:
        for side, each_s in zip(SIDES, (10.0, 2.0), strict=True):
            about: Row = {"failures": case.failures, "side": side, "round": 1}
            rows.append({**about, "what": "batch", "after_s": 1.0, "latency_s": 0.5})
            highest_s = each_s * (case.failures if side == REPLAY else 1)
            rows.append(
                {**about, "what": "outcome", "usual_s": 0.5, "highest_s": highest_s, "replayed": 3, "exact": True}
            )
    findings = EXPERIMENT.report(EXPERIMENT.full, frame(rows))
    assert [claim.ours for claim in findings.claims] == [3.0, 1.0, pytest.approx(0.1)]
    assert len(findings.panels) == 3
