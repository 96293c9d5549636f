"""What an experiment says, as frozen values, and how that is written: a table for people, JSON for programs."""

from __future__ import annotations

import json
import os
import platform
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import polars as pl

from tenax.pictures.figures import Panel, draw_figure

Cell = str | int | float | None
"""A value in a table; None where there is nothing to show."""
TEXT_WIDTH = 110


@dataclass(frozen=True, slots=True)
class Claim:
    """Something a paper says, beside what was measured here.

    `paper` is the paper's number as it prints it, `ours` the measured one in `unit`, `over` what it was measured over.
    """

    statement: str
    paper: str
    ours: float
    unit: str
    over: str
    whose: str = "paper says"
    """Who claims it: a paper, or we as a goal."""

    @property
    def measured(self) -> str:
        """Our number with its unit."""
        return f"{show(self.ours)} {self.unit}".rstrip()


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under named columns."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True, slots=True)
class Findings:
    """What an experiment says of its observations: everything but the circumstances of the run."""

    settings: Mapping[str, Cell]
    tables: tuple[Table, ...]
    claims: tuple[Claim, ...]
    remarks: tuple[str, ...]
    panels: tuple[Panel, ...]
    panel_columns: int = 3


@dataclass(frozen=True, slots=True)
class Machine:
    """Where an experiment ran."""

    cores: int
    python: str
    system: str

    @classmethod
    def here(cls) -> Machine:
        """The machine that this runs on."""
        return cls(os.cpu_count() or 1, platform.python_version(), f"{platform.system()} {platform.machine()}")


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """Findings with the circumstances under which they were made."""

    name: str
    summary: str
    figure: str
    seed: int
    quick: bool
    machine: Machine
    seconds: float
    findings: Findings
    observations: pl.DataFrame = field(default_factory=pl.DataFrame)
    """What everything above was computed from; not written."""

    def text(self) -> str:
        """The readable table, and what the paper says beside what was measured."""
        findings = self.findings
        pace = "quick run, too small to compare with the paper" if self.quick else "full run"
        lines = [
            f"{self.name}: {self.summary}",
            f"{self.figure}; seed {self.seed}; {pace}; {self.machine.cores} cores, Python {self.machine.python}; "
            f"{self.seconds:.1f} s",
            "",
            *_wrapped("settings: ", "; ".join(f"{name} {show(value)}" for name, value in findings.settings.items())),
            "",
        ]
        for table in findings.tables:
            lines += [table.title, "", *_aligned(table), ""]
        for claim in findings.claims:
            lines += _wrapped(f"{claim.whose}: ".ljust(13), f"{claim.statement}: {claim.paper}")
            lines += _wrapped("we measured: ", f"{claim.measured}, {claim.over}")
            lines.append("")
        for remark in findings.remarks:
            lines += _wrapped("note: ", remark)
        return "\n".join(lines).rstrip() + "\n"

    def data(self) -> dict[str, object]:
        """Everything but the figure, as plain data."""
        findings = self.findings
        return {
            "name": self.name,
            "summary": self.summary,
            "figure": self.figure,
            "seed": self.seed,
            "quick": self.quick,
            "machine": asdict(self.machine),
            "seconds": round(self.seconds, 3),
            "settings": dict(findings.settings),
            "rows": [
                {"table": table.title, **dict(zip(table.columns, row, strict=True))}
                for table in findings.tables
                for row in table.rows
            ],
            "claims": [asdict(claim) for claim in findings.claims],
            "remarks": list(findings.remarks),
        }

    def write(self, folder: Path) -> None:
        """Write table.txt, result.json and figure.png."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "table.txt").write_text(self.text(), encoding="utf-8")
        text = json.dumps(self.data(), indent=2, ensure_ascii=False, allow_nan=False)
        (folder / "result.json").write_text(text + "\n", encoding="utf-8")
        panels = self.findings.panels
        draw_figure(panels, folder / "figure.png", title=self.summary, columns=self.findings.panel_columns)


def show(value: Cell) -> str:
    """A cell as people read it: three or four significant digits."""
    if value is None:
        return "–"
    if isinstance(value, float):
        if value == int(value) and abs(value) < 1e6:
            return f"{value:.0f}"
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _aligned(table: Table) -> list[str]:
    columns, rows = table.columns, table.rows
    cells = [[show(value) for value in row] for row in rows]
    numeric = [all(not isinstance(row[place], str) for row in rows) for place in range(len(columns))]
    widths = [max([len(name), *(len(row[place]) for row in cells)]) for place, name in enumerate(columns)]

    def line(row: Sequence[str]) -> str:
        parts = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ]
        return "  ".join(parts).rstrip()

    return [line(columns), "  ".join("─" * width for width in widths), *(line(row) for row in cells)]


def _wrapped(label: str, text: str) -> list[str]:
    indent = " " * len(label)
    return textwrap.wrap(text, TEXT_WIDTH, initial_indent=label, subsequent_indent=indent)
