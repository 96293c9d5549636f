"""Experiments write their three files, say what they measured beside every claim, and stay within logic's bounds."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from matplotlib.image import imread
from observing import check_run
from watching import Watched

from tenax.errors import InvalidRequest
from tenax.pictures.figures import Curve, Panel
from tenax_lab.findings import Claim, Findings, Machine, Result, Table, show
from tenax_lab.registry import EXPERIMENTS, run_experiment

PLANNING = ("backups", "replicas-random", "recovery-order", "planner-scale")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("experiments")


@pytest.fixture(scope="module", params=PLANNING)
def quick_run(request: pytest.FixtureRequest, folder: Path) -> tuple[Path, Result, Watched]:
    progress = Watched()
    result = run_experiment(request.param, out=folder, quick=True, progress=progress)
    return folder / request.param, result, progress


def numbers(rows: list[dict[str, object]], *columns: str) -> list[float]:
    cells = [row[column] for row in rows for column in columns if column in row]
    return [value for value in cells if isinstance(value, int | float)]


def test_a_run_writes_its_table_its_data_and_its_figure(quick_run: tuple[Path, Result, Watched]) -> None:
    folder, result, _ = quick_run
    assert sorted(path.name for path in folder.iterdir()) == ["figure.png", "result.json", "table.txt"]
    assert (folder / "table.txt").read_text(encoding="utf-8") == result.text()
    assert imread(folder / "figure.png").shape[0] > 300


def test_the_data_holds_settings_rows_claims_and_circumstances(quick_run: tuple[Path, Result, Watched]) -> None:
    folder, result, _ = quick_run
    data = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    assert data == json.loads(json.dumps(result.data()))
    assert data["name"] == folder.name
    assert data["seed"] == 1
    assert data["quick"] is True
    assert set(data["machine"]) == {"cores", "python", "system"}
    assert data["seconds"] > 0
    assert data["settings"]
    assert data["rows"]


def test_every_claim_has_the_papers_number_and_a_measured_one(quick_run: tuple[Path, Result, Watched]) -> None:
    _, result, _ = quick_run
    assert result.findings.claims
    for claim in result.findings.claims:
        assert claim.paper
        assert claim.over
        assert math.isfinite(claim.ours)
        assert claim.ours >= 0 or claim.unit == "(exponent)"  # a fit through tiny times may fall
        if "% of" in f"{claim.unit} {claim.over}":
            assert claim.ours <= 100
    text = result.text()
    assert text.count("paper says:") == text.count("we measured:") == len(result.findings.claims)


def test_every_case_and_side_is_observed_and_the_report_is_made_of_that(
    quick_run: tuple[Path, Result, Watched],
) -> None:
    folder, result, progress = quick_run
    check_run(result, progress, folder.parent)


def test_progress_reaches_its_total(quick_run: tuple[Path, Result, Watched]) -> None:
    _, _, progress = quick_run
    assert len(progress.labels) == progress.steps > 0


def test_measurements_are_within_their_logical_ranges(quick_run: tuple[Path, Result, Watched]) -> None:
    folder, _, _ = quick_run
    rows = json.loads((folder / "result.json").read_text(encoding="utf-8"))["rows"]
    for value in numbers(rows, "structure-aware", "greedy", "best-density", "operator-centric", "dp"):
        assert 0 <= value <= 1
    for row in rows:
        if folder.name == "backups" and "R s" in row:
            fewest = row["exact"]
            assert all(value >= fewest for value in numbers([row], "line", "tree", "dag", "share", "exhaustive"))
            assert all(value <= row["R s"] for value in numbers([row], "exact s", "dag s", "share s"))
        if folder.name == "recovery-order":
            assert all(value <= row["exact"] + 1e-9 for value in numbers([row], "best-density", "operator-centric"))
            assert row["guarantee"] <= row["least best-density / exact"] <= 1 + 1e-9
        if folder.name == "replicas-random" and row.get("proven"):
            assert all(value <= row["exact"] + 1e-9 for value in numbers([row], "structure-aware", "greedy"))
        if "met" in row:
            assert row["met"] in ("yes", "no")
            assert math.isfinite(row["measured"])


def test_a_seed_decides_the_topologies_and_nothing_else_does(folder: Path) -> None:
    first = run_experiment("recovery-order", out=folder / "first", quick=True, seed=5)
    second = run_experiment("recovery-order", out=folder / "second", quick=True, seed=5)
    other = run_experiment("recovery-order", out=folder / "other", quick=True, seed=6)
    assert first.findings.tables == second.findings.tables
    assert first.findings.tables != other.findings.tables


def test_an_unknown_experiment_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="unknown experiment 'backup': did you mean 'backups'"):
        run_experiment("backup", out=tmp_path)


def test_the_registry_imports_no_experiment_solver_or_picture() -> None:
    code = (
        "import sys; from tenax_lab.registry import EXPERIMENTS; "
        "print([name for name in sys.modules if name.split('.')[0] in ('ortools', 'matplotlib') "
        "or name.startswith('tenax.planning')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_experiment_names_are_unique_and_described() -> None:
    names = [entry.name for entry in EXPERIMENTS]
    assert len(set(names)) == len(names)
    assert set(PLANNING) <= set(names)
    assert all(entry.summary and entry.figure and "\n" not in entry.summary for entry in EXPERIMENTS)


def test_cells_are_shown_with_few_digits() -> None:
    assert [show(value) for value in (None, 3, 12_345, 0.123456, 12.0, 123_456.7, "x")] == [
        "–",
        "3",
        "12,345",
        "0.123",
        "12",
        "123,457",
        "x",
    ]


def test_a_table_is_aligned_under_its_columns() -> None:
    panel = Panel("p", "x", "y", (Curve("c", (1.0,), (1.0,)),))
    table = Table("Rows", ("name", "count"), (("a", 1), ("long name", 100)))
    findings = Findings({"size": 2}, (table,), (Claim("it grows", "a lot", 2.0, "×", "over two"),), ("ours",), (panel,))
    text = Result("demo", "a demo", "paper 0", 7, False, Machine(2, "3.11", "any"), 0.5, findings).text()
    assert "name       count\n─────────  ─────\na              1\nlong name    100\n" in text
    assert "paper says:  it grows: a lot\nwe measured: 2 ×, over two\n" in text
