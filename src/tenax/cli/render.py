"""How results look in a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tenax.model.tasks import Task

FIGURES = "0123456789-+"  # what a figure begins with, or the dash that stands for none


def console() -> Console:
    """The terminal that results go to; plain text when it is a pipe."""
    return Console(highlight=False, soft_wrap=False)


def print_json(data: Mapping[str, object]) -> None:
    """One JSON object for a program to read."""
    print(json.dumps(data, indent=2, allow_nan=False))


def short(tasks: Sequence[Task]) -> str:
    """Tasks for people: neighbours of one operator as a range."""
    if not tasks:
        return "none"
    runs: list[tuple[str, int, int]] = []
    for task in tasks:
        if runs and runs[-1][0] == task.operator and runs[-1][2] == task.index - 1:
            runs[-1] = (task.operator, runs[-1][1], task.index)
        else:
            runs.append((task.operator, task.index, task.index))
    return ", ".join(f"{name}[{first}]" if first == last else f"{name}[{first}..{last}]" for name, first, last in runs)


def number(value: float) -> str:
    """A number as short as it can be read."""
    return f"{value:,.4g}" if abs(value) < 10_000 else f"{value:,.0f}"


def seconds(value: float) -> str:
    """A duration for people."""
    if value < 120:
        return f"{number(value)} s"
    return f"{value / 60:.3g} min" if value < 7200 else f"{value / 3600:.3g} h"


def percent(value: float) -> str:
    """A part of a whole."""
    return f"{100 * value:.3g} %"


def size(count: int | None) -> str:
    """Bytes for people; a dash if they are not known."""
    if count is None:
        return "-"
    amount = float(count)
    for unit in ("B", "kB", "MB"):
        if amount < 1000:
            return f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:.3g} GB"


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table; columns of figures are aligned at their right."""
    result = Table(title=title, title_justify="left", title_style="bold", header_style="dim", box=None, pad_edge=False)
    filled = [tuple(row) for row in rows]
    for position, column in enumerate(columns):
        figures = all(row[position][:1] in FIGURES for row in filled)
        result.add_column(column, justify="right" if figures else "left", overflow="fold")
    for row in filled:
        result.add_row(*row)
    return result


def facts(title: str, pairs: Iterable[tuple[str, str | Text]]) -> Table:
    """Names with their values, one a line."""
    result = Table(title=title, title_justify="left", title_style="bold", show_header=False, box=None, pad_edge=False)
    result.add_column(style="dim", no_wrap=True)
    result.add_column(overflow="fold")
    for name, value in pairs:
        result.add_row(name, value)
    return result


def proof(optimal: bool, unproven: str) -> Text:
    """Whether a plan is proven to be the best, and how far it may be from it."""
    return Text("proven optimal", style="green") if optimal else Text(unproven, style="yellow")


def drawn(path: Path) -> None:
    """Tell where a picture went."""
    console().print(f"[dim]picture[/dim] {path}")
