"""Figures of experiments: panels of curves in one restrained style, each with what the paper says below it."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tenax.errors import InvalidRequest
from tenax.pictures.glyphs import INK, PAPER, QUIET

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LOOKS = (
    ("#0072b2", "o"),
    ("#d55e00", "s"),
    ("#009e73", "^"),
    ("#cc79a7", "D"),
    ("#a07800", "v"),
    ("#56b4e9", "P"),
    ("#4d4d4d", "X"),
)
"""Colour (after Okabe and Ito, safe for the colour-blind) and marker of a curve, so that neither stands alone."""
GRID = "#e4e8ee"
PANEL_WIDTH = 4.7
PANEL_HEIGHT = 3.7
TITLE_COLUMNS = 40  # characters of a figure's title above each of its panels
CLAIM_COLUMNS = 66  # characters in a line below a panel
MAX_PANELS = 24
DPI = 170


@dataclass(frozen=True, slots=True)
class Curve:
    """One series of points; `look` chooses its colour and marker, `spread` is its band (low, high) per point."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    look: int = 0
    dashed: bool = False
    spread: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Reference:
    """A level that the curves are compared with, such as a guarantee: a dashed line."""

    label: str
    y: float


@dataclass(frozen=True, slots=True)
class Panel:
    """One diagram; its title names its subject, `claim` is what the paper says about it."""

    title: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...]
    claim: str = ""
    references: tuple[Reference, ...] = ()
    logarithmic: bool = False
    y_range: tuple[float, float] | None = None
    nested: bool = False
    """Curves of an earlier look are broader, so that curves that coincide are seen all the same."""


def draw_figure(panels: Sequence[Panel], path: Path, *, title: str, columns: int = 3) -> None:
    """Draw panels row by row and save them as a PNG."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    if path.suffix.lower() != ".png":
        raise InvalidRequest(f"a figure is a .png file, found {path.name!r}: change the ending")
    if not 1 <= len(panels) <= MAX_PANELS:
        raise InvalidRequest(f"a figure has 1 to {MAX_PANELS} panels, found {len(panels)}: change their number")
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(columns * PANEL_WIDTH, rows * PANEL_HEIGHT + 0.5), facecolor=PAPER)
    figure.set_layout_engine(ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12))
    wrapped = textwrap.fill(title, TITLE_COLUMNS * columns)
    figure.suptitle(wrapped, x=0.01, ha="left", fontsize=13, fontweight="bold", color=INK)
    for number, panel in enumerate(panels):
        _draw_panel(figure.add_subplot(rows, columns, number + 1), panel)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="png", dpi=DPI)


def _draw_panel(axes: Axes, panel: Panel) -> None:
    from matplotlib.ticker import LogFormatter, MaxNLocator

    axes.set_title(panel.title, loc="left", fontsize=10.5, color=INK)
    if panel.logarithmic:
        axes.set_xscale("log")
        axes.set_yscale("log")
        places = sorted({x for curve in panel.curves for x in curve.x})
        axes.set_xticks(places, labels=[f"{x:,.0f}" for x in places])
        axes.set_xticks([], minor=True)
        axes.yaxis.set_major_formatter(LogFormatter())  # 600, not 6 × 10²
        axes.yaxis.set_minor_formatter(LogFormatter(labelOnlyBase=False, minor_thresholds=(1.0, 0.4)))
    elif all(x == int(x) for curve in panel.curves for x in curve.x):
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=(1, 2, 5, 10)))
    looks = sorted({curve.look for curve in panel.curves}, reverse=True)
    for curve in panel.curves:
        under = looks.index(curve.look) if panel.nested else 0
        colour, marker = LOOKS[curve.look % len(LOOKS)]
        if curve.spread:
            low, high = zip(*curve.spread, strict=True)
            axes.fill_between(curve.x, low, high, color=colour, alpha=0.12, lw=0, zorder=1)
        axes.plot(
            curve.x,
            curve.y,
            label=curve.label,
            color=colour,
            marker=marker,
            markersize=4.5 + 1.4 * under,
            markerfacecolor=PAPER if curve.dashed else colour,
            linestyle=(0, (4, 2)) if curve.dashed else "-",
            lw=1.4 + 0.6 * under,
            zorder=3,
        )
    for reference in panel.references:
        axes.axhline(reference.y, color=QUIET, linestyle=(0, (1, 2)), lw=1.4, label=reference.label, zorder=2)
    if panel.y_range is not None:
        axes.set_ylim(*panel.y_range)
    axes.set_xlabel(panel.x_label, fontsize=9, color=INK)
    axes.set_ylabel(panel.y_label, fontsize=9, color=INK)
    axes.tick_params(which="both", labelsize=8, colors=QUIET, length=3)
    axes.grid(visible=True, color=GRID, lw=0.8)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(QUIET)
    if panel.curves or panel.references:
        axes.legend(fontsize=7.5, frameon=False, labelcolor=INK)
    if panel.claim:
        text = "\n".join(textwrap.wrap(f"Paper: {panel.claim}", CLAIM_COLUMNS))
        axes.annotate(
            text,
            xy=(0, 0),
            xycoords="axes fraction",
            xytext=(0, -36),
            textcoords="offset points",
            fontsize=7.5,
            color=QUIET,
            style="italic",
            va="top",
            annotation_clip=False,
        )
