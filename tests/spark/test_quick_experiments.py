"""Experiments that measure on clusters of their own, at their smallest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from watching import Watched

from tenax_lab import recovery_techniques
from tenax_lab.loads.judged_queries import FOR_COMPLETENESS, MOST_COMPLETE, STRUCTURE_AWARE
from tenax_lab.registry import run_experiment

Row = dict[str, Any]


def quick(name: str, out: Path, table: str = "") -> list[Row]:
    """A quick run, with all that it writes; the rows of a table, or of all."""
    progress = Watched()
    result = run_experiment(name, out=out, quick=True, progress=progress)
    assert len(progress.labels) == progress.steps > 0
    assert sorted(path.name for path in (out / name).iterdir()) == ["figure.png", "result.json", "table.txt"]
    data = json.loads((out / name / "result.json").read_text(encoding="utf-8"))
    assert len(data["claims"]) == len(result.findings.claims) > 0
    assert all(row.get("exact", "yes") == "yes" for row in data["rows"])
    return [row for row in data["rows"] if row["table"].startswith(table)]


@pytest.mark.parametrize("name", ["checkpoint-costs", "checkpoint-throughput", "standby-costs", "recovery-delay"])
def test_a_quick_run_writes_its_table_its_data_and_its_figure(name: str, tmp_path: Path) -> None:
    assert quick(name, tmp_path)


def test_active_replicas_need_one_batch_and_others_replay(tmp_path: Path) -> None:
    rows = {row["technique"]: row for row in quick("recovery-techniques", tmp_path, "From the kill")}
    assert rows[recovery_techniques.ACTIVE]["batches"] == 1
    assert rows[recovery_techniques.CHECKPOINT]["replayed"] == 2
    assert rows[recovery_techniques.REPLAY]["replayed"] == 5


def test_checkpoints_are_counted(tmp_path: Path) -> None:
    stored = {row["checkpoints"]: row["stored"] for row in quick("checkpoint-cpu", tmp_path, "A batch")}
    assert stored["none"] == 0
    assert 0 not in {stored["every 1 s"], stored["every 2 s"]}


def test_half_of_the_replicas_show_tentative_outputs(tmp_path: Path) -> None:
    rows = {row["plan"]: row for row in quick("partial-replication", tmp_path, "From the kill")}
    assert rows["PPA-1.0"]["tentative"] == 0
    assert rows["PPA-0.5"]["quality"] in (None, pytest.approx(0.375))


def test_tentative_results_are_as_good_as_predicted_with_what_is_declared(tmp_path: Path) -> None:
    rows = {row["algorithm"]: row for row in quick("tentative-quality", tmp_path, "Predicted")}
    assert set(rows) == {STRUCTURE_AWARE, FOR_COMPLETENESS, MOST_COMPLETE}
    assert 0 < rows[STRUCTURE_AWARE]["accuracy"] < 1
    for row in rows.values():
        assert row["published"] == pytest.approx(row["declared fidelity"])  # both know what is declared
