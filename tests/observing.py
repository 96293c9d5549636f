"""What every run of an experiment must have observed and said, whatever its figure."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import polars as pl
from watching import Watched

from tenax_lab.findings import Findings, Machine, Result
from tenax_lab.lab import EXPERIMENT, ROUND, SIDE, plain_fields
from tenax_lab.registry import declared


def check_run(result: Result, progress: Watched, out: Path) -> None:
    """Everything below."""
    assert len(progress.labels) == progress.steps > 0
    check_observations(result)
    check_findings(result)
    check_files(result, out / result.name)
    assert all(row.get("exact") not in {"NO", "no"} for row in _rows(result))


def check_observations(result: Result) -> None:
    """Every declared case, side and round was observed, and times and counts are numbers that can be."""
    experiment, seen = declared(result.name), result.observations
    plan = experiment.plan(quick=result.quick)
    assert seen[EXPERIMENT].unique().to_list() == [result.name]
    for trial in plan.trials():
        own = seen.filter(
            *(pl.col(name).eq_missing(pl.lit(value)) for name, value in plain_fields(trial.case).items()),
            pl.col(SIDE) == trial.side,
            pl.col(ROUND) == trial.round,
        )
        assert not own.is_empty(), f"nothing was observed of {trial.label}"
    assert seen.filter(pl.col(SIDE).is_not_null()).select(SIDE, ROUND).unique().height > 0
    for name, column in zip(seen.columns, seen, strict=True):
        if column.dtype.is_float():
            assert column.drop_nulls().is_finite().all(), name
        if column.dtype.is_numeric() and name.endswith(("_s", "_ms", "_mb", "_bytes", "rows", "messages")):
            # what passes take longer than others, and when results came from the fault on, may be negative
            assert name in {"extra_s", "after_s"} or (column.drop_nulls() >= 0).all(), name
    if "exact" in seen.columns:
        judged = seen["exact"].drop_nulls()
        assert len(judged) > 0
        assert judged.all()


def check_findings(result: Result) -> None:
    """The report is made of the frame and nothing else; its tables are full, its claims are numbers."""
    findings = result.findings
    again = declared(result.name).report(declared(result.name).plan(quick=result.quick), result.observations)
    assert again.tables == findings.tables
    assert again.claims == findings.claims
    assert findings.settings
    assert findings.remarks
    assert findings.claims
    assert findings.panels
    for claim in findings.claims:
        assert claim.statement
        assert claim.paper
        assert claim.over
        assert math.isfinite(claim.ours), claim
    for table in findings.tables:
        assert table.rows, table.title
        assert len(set(table.columns)) == len(table.columns)
        assert all(len(row) == len(table.columns) for row in table.rows)
        numbers = [cell for row in table.rows for cell in row if isinstance(cell, float)]
        assert all(map(math.isfinite, numbers)), table.title
    for panel in findings.panels:
        assert panel.curves, panel.title
        assert all(len(curve.x) == len(curve.y) > 0 for curve in panel.curves)


def check_files(result: Result, folder: Path) -> None:
    """Table, data and figure are there, and say the same."""
    assert sorted(path.name for path in folder.iterdir()) == ["figure.png", "result.json", "table.txt"]
    assert (folder / "table.txt").read_text(encoding="utf-8") == result.text()
    data = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    assert data == json.loads(json.dumps(result.data()))
    assert len(data["claims"]) == len(result.findings.claims)
    assert len(data["rows"]) == sum(len(table.rows) for table in result.findings.tables)


def rows_of(findings: Findings, title: str) -> list[dict[str, object]]:
    """The rows of a table, by its headings."""
    table = next(table for table in findings.tables if table.title.startswith(title))
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def claimed(findings: Findings, statement: str, whose: str | None = None) -> float:
    """What was measured beside the first claim that begins so."""
    fitting = (claim for claim in findings.claims if claim.statement.startswith(statement))
    return next(claim.ours for claim in fitting if whose in (None, claim.whose))


def written(findings: Findings, folder: Path) -> str:
    """Everything on disk; the table as people read it."""
    result = Result("name", "summary", "figure", 1, True, Machine.here(), 1.0, findings)
    result.write(folder)
    assert result.data()["rows"]
    check_files(result, folder)
    return (folder / "table.txt").read_text(encoding="utf-8")


def table_rows(result: Result, title: str) -> list[dict[str, Any]]:
    """The rows of a table as they are written, by its headings."""
    return [row for row in _rows(result) if row["table"].startswith(title)]


def _rows(result: Result) -> list[dict[str, Any]]:
    rows: Any = result.data()["rows"]
    return list(rows)
