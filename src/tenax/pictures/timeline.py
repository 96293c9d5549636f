"""A run under failures as one picture: results over time, how fresh they were, and which nodes lived."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tenax.errors import InvalidRequest
from tenax.pictures.figures import GRID
from tenax.pictures.glyphs import INK, PAPER, QUIET

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_OUTPUTS = 8
WIDTH = 10.5
OUTPUT_HEIGHT = 1.35
LATENCY_HEIGHT = 1.75
NODE_HEIGHT = 0.27
DPI = 110
LABEL_SIZE = 9.0
LABEL_LEVELS = 4
LANDMARKS_HEIGHT = 0.75  # room for the labels above the first panel

KINDS = {
    "final": ("o", "#0072b2", "final"),
    "partial": ("s", "#cc79a7", "partial: final, but partitions are missing"),
    "tentative": ("D", "#d55e00", "tentative: lacks some inputs"),
    "completed": ("v", "#00785a", "completion: final, adds what was missing"),
    "corrected": ("^", "#00785a", "correction: final, replaces a tentative one"),
}
HOLLOW = frozenset({"partial", "tentative"})  # what will be replaced or completed
"""Marker, colour and meaning of a result (colours after Okabe and Ito, safe for the colour-blind)."""
KILLED = "#c8330a"
ALIVE = "#7fa8c9"
RETURNED = "#00785a"
OUTAGE = "#fdf0e6"


@dataclass(frozen=True, slots=True)
class Result:
    """The results of an output for one batch when they came: how good and how old; `kind` is one of KINDS."""

    output: str
    at_s: float
    kind: str
    quality: float
    latency_s: float | None


@dataclass(frozen=True, slots=True)
class NodeBar:
    """A node from when it came to when it was lost; nodes that follow each other in one place share a row."""

    row: str
    label: str
    begin_s: float
    end_s: float | None


@dataclass(frozen=True, slots=True)
class Landmark:
    """A moment that explains the rest; a fault is drawn in red."""

    at_s: float
    label: str
    is_fault: bool = False


@dataclass(frozen=True, slots=True)
class History:
    """What the picture shows, in seconds since its nodes were up; `outages` are spans with tasks missing."""

    title: str
    end_s: float
    results: tuple[Result, ...]
    nodes: tuple[NodeBar, ...]
    landmarks: tuple[Landmark, ...]
    outages: tuple[tuple[float, float], ...] = ()

    @property
    def outputs(self) -> tuple[str, ...]:
        """The outputs, in the order of their first results."""
        return tuple(dict.fromkeys(result.output for result in self.results))


def save_timeline(history: History, path: Path) -> None:
    """Draw a history and save it as a PNG or SVG."""
    if path.suffix.lower() not in {".png", ".svg"}:
        raise InvalidRequest(f"a picture is a .png or .svg file, found {path.name!r}: change the ending")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_saved(history, path.suffix.lower()[1:]))


def timeline_svg(history: History) -> str:
    """The picture as an `<svg>` element for a page."""
    text = _saved(history, "svg").decode()
    return text[text.index("<svg") :]


def _saved(history: History, kind: str) -> bytes:
    """The picture in a format; the same history gives the same bytes."""
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "tenax", "svg.fonttype": "path"}):
        figure = _figure(history)
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        for axes in figure.axes:  # the layout differs in the last digits from time to time
            axes.set_position(tuple(round(value, 5) for value in axes.get_position().bounds))
        figure.savefig(buffer, format=kind, dpi=DPI, metadata={"Date": None} if kind == "svg" else {})
    return buffer.getvalue()


def _figure(history: History) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    if not 1 <= len(history.outputs) <= MAX_OUTPUTS:
        raise InvalidRequest(f"a timeline has 1 to {MAX_OUTPUTS} outputs, found {len(history.outputs)}: choose some")
    rows = list(dict.fromkeys(bar.row for bar in history.nodes))
    heights = [OUTPUT_HEIGHT] * len(history.outputs) + [LATENCY_HEIGHT, max(0.6, NODE_HEIGHT * len(rows) + 0.2)]
    figure = Figure(figsize=(WIDTH, sum(heights) + 1.6 + LANDMARKS_HEIGHT), facecolor=PAPER)
    figure.set_layout_engine(ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.06))
    figure.suptitle(history.title, x=0.012, ha="left", fontsize=13, fontweight="bold", color=INK)
    panels: Sequence[Axes] = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights)
    for axes, output in zip(panels, history.outputs, strict=False):
        _draw_output(axes, history, output)
    _draw_latency(panels[-2], history)
    _draw_nodes(panels[-1], history, rows)
    for axes in panels:
        _landmark_lines(axes, history)
        _style(axes)
    _landmark_labels(panels[0], history)
    panels[-1].set_xlim(0, 1.02 * history.end_s)
    panels[-1].set_xlabel("seconds since the nodes were up", fontsize=LABEL_SIZE, color=INK)
    _legend(figure, history)
    return figure


def _draw_output(axes: Axes, history: History, output: str) -> None:
    for kind in KINDS:
        shown = [result for result in history.results if (result.output, result.kind) == (output, kind)]
        _scatter(axes, kind, [result.at_s for result in shown], [result.quality for result in shown])
    axes.set_ylim(-0.1, 1.18)
    axes.set_yticks([0, 0.5, 1])
    axes.set_ylabel("quality", fontsize=LABEL_SIZE, color=INK)
    axes.set_title(f"results of {output}: 1 is complete", loc="left", fontsize=10, color=INK)


def _draw_latency(axes: Axes, history: History) -> None:
    highest = 0.0
    for kind in KINDS:
        latencies = [
            (result.at_s, result.latency_s)
            for result in history.results
            if result.kind == kind and result.latency_s is not None
        ]
        highest = max([highest, *(latency for _, latency in latencies)])
        _scatter(axes, kind, [at for at, _ in latencies], [latency for _, latency in latencies])
    axes.set_ylim(0, max(1.0, 1.12 * highest))
    axes.set_ylabel("seconds", fontsize=LABEL_SIZE, color=INK)
    axes.set_title("latency: how old the rows of a result are when it comes", loc="left", fontsize=10, color=INK)


def _scatter(axes: Axes, kind: str, x: Sequence[float], y: Sequence[float]) -> None:
    marker, colour, _ = KINDS[kind]
    hollow = kind in HOLLOW
    axes.scatter(
        x, y, s=22, marker=marker, facecolors=PAPER if hollow else colour, edgecolors=colour, linewidths=1.2, zorder=4
    )


def _draw_nodes(axes: Axes, history: History, rows: Sequence[str]) -> None:
    for bar in history.nodes:
        y = rows.index(bar.row)
        end_s = history.end_s if bar.end_s is None else bar.end_s
        axes.barh(y, end_s - bar.begin_s, left=bar.begin_s, height=0.62, color=ALIVE, zorder=3)
        axes.text(bar.begin_s + 0.3, y, bar.label, fontsize=7.5, color=INK, va="center", clip_on=True, zorder=5)
        if bar.end_s is not None:
            axes.scatter([end_s], [y], s=60, marker="X", color=KILLED, edgecolors=PAPER, linewidths=0.8, zorder=6)
    axes.set_yticks(range(len(rows)), labels=list(rows))
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_title("nodes", loc="left", fontsize=10, color=INK)


def _landmark_lines(axes: Axes, history: History) -> None:
    """What explains the marks, behind them."""
    for landmark in history.landmarks:
        dash = "-" if landmark.is_fault else (0, (4, 2))
        axes.axvline(landmark.at_s, color=KILLED if landmark.is_fault else RETURNED, lw=1.3, linestyle=dash, zorder=2)
    for begin_s, end_s in history.outages:
        axes.axvspan(begin_s, end_s, color=OUTAGE, lw=0, zorder=0)


def _landmark_labels(axes: Axes, history: History) -> None:
    """Labels above the first panel, like stairs down: no line crosses the label of an earlier one."""
    last_first = sorted(history.landmarks, key=lambda landmark: -landmark.at_s)
    for position, landmark in enumerate(last_first):
        axes.annotate(
            f" {landmark.label}",
            xy=(landmark.at_s, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 20 + 12 * (position % LABEL_LEVELS)),
            textcoords="offset points",
            fontsize=8.5,
            fontweight="bold",
            color=KILLED if landmark.is_fault else RETURNED,
            ha="left",
            arrowprops={
                "arrowstyle": "-",
                "color": KILLED if landmark.is_fault else RETURNED,
                "lw": 1.3,
                "shrinkA": 0,
                "shrinkB": 0,
                "relpos": (0, 0),
            },
        )


def _style(axes: Axes) -> None:
    axes.tick_params(labelsize=8, colors=QUIET, length=3)
    axes.grid(visible=True, axis="x", color=GRID, lw=0.8)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(QUIET)


def _legend(figure: Figure, history: History) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    seen = {result.kind for result in history.results}
    signs = [
        Line2D(
            [],
            [],
            linestyle="",
            marker=marker,
            markersize=6,
            color=colour,
            markerfacecolor=PAPER if kind in HOLLOW else colour,
            label=meaning,
        )
        for kind, (marker, colour, meaning) in KINDS.items()
        if kind in seen
    ]
    signs.append(Line2D([], [], linestyle="", marker="X", markersize=8, color=KILLED, label="node killed"))
    spans = [Patch(color=OUTAGE, label="tasks are missing")] if history.outages else []
    figure.legend(
        handles=[*signs, *spans], loc="outside lower left", ncols=3, fontsize=8.5, frameon=False, labelcolor=INK
    )
