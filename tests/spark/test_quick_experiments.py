"""Experiments that measure on a cluster, at their smallest, on one that all of them share."""

from __future__ import annotations

from pathlib import Path

import pytest
from observing import check_run, table_rows
from watching import Watched

from tenax.engine.session import Session
from tenax_lab import query_recovery, recovery_techniques, scale_out
from tenax_lab.findings import Result
from tenax_lab.loads.judged_queries import FOR_COMPLETENESS, MOST_COMPLETE, STRUCTURE_AWARE
from tenax_lab.registry import run_experiment


def quick(name: str, out: Path, session: Session | None) -> Result:
    """A quick run that has observed and said all that it must; without a session on clusters of its own."""
    progress = Watched()
    result = run_experiment(name, out=out, quick=True, progress=progress, session=session, nodes=4)
    check_run(result, progress, out)
    return result


@pytest.mark.parametrize(
    "name",
    [
        "checkpoint-costs",
        "checkpoint-throughput",
        "standby-costs",
        "recovery-delay",
        "recovery-bound",
        "repeated-losses",
        pytest.param("lost-capacity", marks=pytest.mark.long),  # the other side takes two minutes
        "adaptive-batches",
    ],
)
def test_a_quick_run_observes_every_case_side_and_round_and_reports_on_them(
    name: str, tmp_path: Path, four: Session
) -> None:
    assert quick(name, tmp_path, four).observations.height > 0


def test_nodes_come_and_go_by_hand_and_with_the_load(tmp_path: Path) -> None:
    result = quick("elasticity", tmp_path, None)
    assert [row["nodes"] for row in table_rows(result, "Rescales by hand")] == [2, 1]
    (step,) = table_rows(result, "3 times the rate")
    assert step["rescales"] >= 1
    assert step["nodes"] > 1


def test_tasks_are_recovered_and_scaled_out_by_either_method(tmp_path: Path) -> None:
    result = quick("scale-out", tmp_path, None)
    for row in table_rows(result, "Completion"):
        assert (row["recovery s"] is not None) is (row["faults"] > 0)
    retained = {row["method"]: row["retained kB"] for row in table_rows(result, "Completion")}
    assert retained[scale_out.LIGHT] > retained[scale_out.HEAVY] == 0


def test_active_replicas_need_one_batch_and_others_replay(tmp_path: Path, four: Session) -> None:
    rows = {row["technique"]: row for row in table_rows(quick("recovery-techniques", tmp_path, four), "From the kill")}
    assert rows[recovery_techniques.ACTIVE]["batches"] == 1
    assert rows[recovery_techniques.ALIGNED]["replayed"] == 2
    assert 0 < rows[recovery_techniques.CHECKPOINT]["replayed"] <= 5  # by what its timers have stored last
    assert rows[recovery_techniques.REPLAY]["replayed"] == 5


def test_a_pool_takes_all_lost_tasks_at_once_and_others_wait_for_nodes(tmp_path: Path, four: Session) -> None:
    result = quick("query-recovery", tmp_path, four)
    rows = {row["recovery"]: row for row in table_rows(result, "From the kill")}
    assert {row["exact"] for row in rows.values()} == {"yes"}
    assert {row["least of optimum"] for row in rows.values()} == {1.0}
    for side, waits in ((query_recovery.DENSITY, True), (query_recovery.BEST, False)):
        first = result.observations.filter(what="moment", side=side).row(0, named=True)
        assert (first["with_nodes"] < first["lost_priority"]) is waits


def test_checkpoints_are_counted(tmp_path: Path, four: Session) -> None:
    stored = {
        row["checkpoints"]: row["stored"] for row in table_rows(quick("checkpoint-cpu", tmp_path, four), "A batch")
    }
    assert stored["none"] == 0
    assert 0 not in {stored["every 1 s"], stored["every 2 s"]}


def test_half_of_the_replicas_show_tentative_outputs(tmp_path: Path, four: Session) -> None:
    rows = {row["plan"]: row for row in table_rows(quick("partial-replication", tmp_path, four), "From the kill")}
    assert rows["PPA-1.0"]["tentative"] == 0
    half = rows["PPA-0.5"]
    assert half["tentative"] > 0
    assert half["quality"] == half["fidelity"] == pytest.approx(0.375)
    assert half["tentative s"] < half["final s"] <= half["all back s"]
    assert 0 < half["least"] <= half["content"] <= 1
    assert half["replayed"] >= 4


def test_tentative_results_are_as_good_as_predicted_with_what_is_declared(tmp_path: Path, four: Session) -> None:
    rows = {row["algorithm"]: row for row in table_rows(quick("tentative-quality", tmp_path, four), "Predicted")}
    assert set(rows) == {STRUCTURE_AWARE, FOR_COMPLETENESS, MOST_COMPLETE}
    assert 0 < rows[STRUCTURE_AWARE]["accuracy"] < 1
    for row in rows.values():
        assert row["published"] == pytest.approx(row["declared fidelity"])  # both know what is declared
