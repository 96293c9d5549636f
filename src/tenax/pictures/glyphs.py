"""The signs of a topology picture: a task's circle with its marks, text, and the colours of everything."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK = "#1f2933"
QUIET = "#5f6b7a"
LINE = "#9aa5b4"
EDGE = "#4a5a70"
PANEL = "#f5f7fa"
PAPER = "#ffffff"

RADIUS = 0.12  # of a task's circle, in inches
SIGN = 0.32  # the room that a circle takes with any marks
LINE_SPACING = 1.35  # baseline to baseline, in font sizes


@dataclass(frozen=True, slots=True)
class Mark:
    """What a mark looks like: its shape is its own, so that colour is never the only difference."""

    name: str
    colour: str
    tint: str


MARKS = (
    Mark("backups", "#b07400", "#fdf0d2"),  # a square around the circle
    Mark("replicas", "#0072b2", "#d9ecf8"),  # a second ring
    Mark("failed", "#c8330a", "#fbdcd1"),  # a cross behind the circle
    Mark("recovered", "#00785a", "#d3efe6"),  # a tick at its shoulder
)
"""In rising order of what a task's fill shows when it has several (colours after Okabe and Ito, darkened for text)."""


def draw_task(axes: Axes, x: float, y: float, label: str, marks: Collection[str]) -> None:
    """A task: a circle with its index, and the shapes of its marks."""
    from matplotlib.patches import Circle, Rectangle

    shown = [mark for mark in MARKS if mark.name in marks]
    fill, ring = (shown[-1].tint, shown[-1].colour) if shown else (PAPER, EDGE)
    for mark in shown:
        match mark.name:
            case "backups":
                side = 2 * RADIUS + 0.055
                corner = (x - side / 2, y - side / 2)
                axes.add_patch(Rectangle(corner, side, side, facecolor=PAPER, edgecolor=mark.colour, lw=1.3, zorder=4))
            case "replicas":
                axes.add_patch(Circle((x, y), RADIUS + 0.035, facecolor=PAPER, edgecolor=mark.colour, lw=1.1, zorder=5))
            case "failed":
                reach = RADIUS * 1.12
                for slope in (1, -1):
                    ends = [y - slope * reach, y + slope * reach]
                    axes.plot([x - reach, x + reach], ends, color=mark.colour, lw=2.6, solid_capstyle="round", zorder=5)
    axes.add_patch(Circle((x, y), RADIUS, facecolor=fill, edgecolor=ring, lw=1.0, zorder=6))
    if label:
        size = 7.0 if len(label) < 3 else 5.5
        axes.text(x, y, label, fontsize=size, color=INK, ha="center", va="center_baseline", zorder=7)
    for mark in shown:
        if mark.name == "recovered":
            left, top = x + RADIUS * 0.35, y - RADIUS * 1.05
            xs = [left, left + 0.045, left + 0.125]
            ys = [top + 0.0, top + 0.05, top - 0.065]
            axes.plot(xs, ys, color=PAPER, lw=4.2, solid_capstyle="round", solid_joinstyle="round", zorder=8)
            axes.plot(xs, ys, color=mark.colour, lw=2.0, solid_capstyle="round", solid_joinstyle="round", zorder=9)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of text and how it looks."""

    text: str
    size: float
    colour: str = INK
    bold: bool = False

    @property
    def height(self) -> float:
        """What it adds to a stack of lines, in inches."""
        return self.size * LINE_SPACING / 72

    @property
    def width(self) -> float:
        """Its length in inches, as the font that comes with matplotlib sets it."""
        from matplotlib.font_manager import FontProperties
        from matplotlib.textpath import TextToPath

        font = FontProperties(family="DejaVu Sans", size=self.size, weight="bold" if self.bold else "normal")
        return float(TextToPath().get_text_width_height_descent(self.text, font, False)[0]) / 72

    def draw(self, axes: Axes, x: float, top: float, align: str = "left") -> None:
        """Set it with its upper edge at `top`."""
        axes.text(
            x,
            top + self.height * 0.76,
            self.text,
            fontsize=self.size,
            color=self.colour,
            weight="bold" if self.bold else "normal",
            family="DejaVu Sans",
            ha=align,
            va="baseline",
            parse_math=False,
            zorder=10,
        )
