"""Experiments that measure on clusters of their own, at their smallest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tenax.experiments.registry import run_experiment


@pytest.mark.parametrize("name", ["checkpoint-costs", "standby-costs", "recovery-delay"])
def test_a_quick_run_writes_its_table_its_data_and_its_figure(name: str, tmp_path: Path) -> None:
    result = run_experiment(name, out=tmp_path, quick=True)
    assert sorted(path.name for path in (tmp_path / name).iterdir()) == ["figure.png", "result.json", "table.txt"]
    data = json.loads((tmp_path / name / "result.json").read_text(encoding="utf-8"))
    assert data["rows"]
    assert len(data["claims"]) == len(result.findings.claims) > 0
    assert all(row.get("exact", "yes") == "yes" for row in data["rows"])
