"""Pictures of topologies: operators as boxes, their tasks as circles, and the marks that plans and failures leave."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from tenax.errors import InvalidRequest, TooLarge
from tenax.model.graph import Stream, TaskGraph
from tenax.model.tasks import Task
from tenax.model.topology import Operator, PerTask, suggestion
from tenax.pictures.glyphs import (
    EDGE,
    INK,
    LINE,
    MARKS,
    PANEL,
    PAPER,
    QUIET,
    RADIUS,
    SIGN,
    Line,
    Mark,
    draw_task,
)
from tenax.pictures.layout import Arrangement, Box, Size, Spacing, arrange

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.path import Path as MatplotlibPath

MAX_DRAWN_TASKS = 120  # beyond, circles and their edges are no longer told apart: one box per operator
MAX_DRAWN_OPERATORS = 300
PNG_DPI = 160
MAX_PIXELS = 20_000  # of a PNG's longer side
MARGIN = 0.35
PAD = 0.14
TASK_COLUMNS = ((20, 1, 0.36), (40, 2, 0.20), (MAX_DRAWN_TASKS, 3, 0.135))
"""Up to so many tasks: columns, and the step down from task to task; columns are staggered, so each has its height."""
COLUMN_WIDTH = 0.38
PORT_STEP = 0.27  # between the labelled edges that enter one box
BAR_WIDTH = 1.0
BAR_HEIGHT = 0.075
NO_MARKS: Mapping[str, Collection[Task]] = MappingProxyType({})


def draw_topology(
    graph: TaskGraph,
    path: Path,
    *,
    marks: Mapping[str, Collection[Task]] = NO_MARKS,
    title: str = "",
    notes: Sequence[str] = (),
    kinds: Mapping[str, str] | None = None,
) -> None:
    """Draw a topology to an SVG or PNG file; the same arguments give the same picture.

    `marks` are tasks to show as "backups", "replicas", "failed" or "recovered". Above MAX_DRAWN_TASKS tasks every
    operator is one box with counts. `notes` are lines of text below. `kinds` say by operator what it is, where
    rates are not known; otherwise its rate is shown.
    """
    suffix = path.suffix.lower()
    if suffix not in (".svg", ".png"):
        raise InvalidRequest(f"a picture is an .svg or .png file, found {path.name!r}: change the ending")
    if len(graph.operators) > MAX_DRAWN_OPERATORS:
        raise TooLarge(
            f"a picture shows at most {MAX_DRAWN_OPERATORS} operators, found {len(graph.operators)}: draw a part of it"
        )
    picture = _Picture(graph, _numbered(graph, marks), kinds)
    _write(picture, path, suffix, _heading(title), [Line(note, 8.5, QUIET) for note in notes])


def _numbered(graph: TaskGraph, marks: Mapping[str, Collection[Task]]) -> dict[str, frozenset[int]]:
    known = [mark.name for mark in MARKS]
    for name in marks:
        if name not in known:
            raise InvalidRequest(f"unknown mark {name!r}{suggestion(name, known)}")
    return {name: frozenset(graph.numbers(marks[name]).tolist()) for name in known if marks.get(name)}


def _heading(title: str) -> list[Line]:
    return [Line(title, 13, INK, bold=True)] if title else []


@dataclass(frozen=True, slots=True)
class _Frame:
    """The inside of a box: its lines of text, then room for tasks or counts."""

    lines: tuple[Line, ...]
    width: float
    height: float

    @property
    def text_height(self) -> float:
        return sum(line.height for line in self.lines)


class _Picture:
    """A topology laid out: everything but title, legend and notes, in inches from its own upper left corner."""

    def __init__(
        self, graph: TaskGraph, marks: Mapping[str, frozenset[int]], kinds: Mapping[str, str] | None = None
    ) -> None:
        self.kinds = kinds
        self.graph = graph
        self.marks = marks
        self.grouped = len(graph) > MAX_DRAWN_TASKS
        self.frames = [self._frame(number) for number in range(len(graph.operators))]
        spacing = Spacing(0.55, 1.4, 0.3, self._label_width() + 0.2) if self.grouped else Spacing(0.8, 2.6, 0.28)
        self.arrangement: Arrangement = arrange(
            [self._size(frame) for frame in self.frames],
            [(stream.producer, stream.consumer) for inputs in graph.streams for stream in inputs],
            spacing,
        )

    def draw(self, axes: Axes, left: float, top: float) -> None:
        """Draw it with its corner at these coordinates."""
        boxes = [_shifted(box, left, top) for box in self.arrangement.boxes]
        for number, box in enumerate(boxes):
            self._draw_box(axes, number, box)
        for inputs in self.graph.streams:
            for stream in inputs:
                lanes = self.arrangement.lanes[stream.producer, stream.consumer]
                shifted = [_shifted(lane, left, top) for lane in lanes]
                if self.grouped:
                    self._draw_grouped_edge(axes, stream, boxes, shifted)
                else:
                    self._draw_task_edges(axes, stream, boxes, shifted)

    def _frame(self, number: int) -> _Frame:
        lines = _describe(self.graph, number, self.kinds)
        tasks = self.graph.operators[number].parallelism
        if self.grouped:
            lines = (*lines, Line(f"{tasks:,} task{'s' if tasks > 1 else ''}", 7.5, QUIET))
            counts = self._counts(number)
            rows = [SIGN + 0.06 + max(Line(_count(mark, count), 7.5).width, BAR_WIDTH) for mark, count in counts]
            width = max([*(line.width for line in lines), *rows])
            ports = PORT_STEP * len(self.graph.streams[number])
            height = max(sum(line.height for line in lines) + (SIGN + 0.06) * len(counts) + 0.04, ports)
        else:
            columns, step = _columns(tasks)
            width = max(*(line.width for line in lines), COLUMN_WIDTH * (columns - 1) + SIGN)
            height = sum(line.height for line in lines) + 0.08 + SIGN + step * (tasks - 1)
        return _Frame(tuple(lines), width + 2 * PAD, height + 2 * PAD * 0.8)

    def _size(self, frame: _Frame) -> Size:
        """Tasks line up with those of the next box, whatever the number of lines above them."""
        lift = 0.0 if self.grouped else (frame.text_height + 0.08) / 2
        return Size(frame.width, frame.height / 2 + lift, frame.height / 2 - lift)

    def _counts(self, number: int) -> list[tuple[Mark, int]]:
        span = self.graph.span(number)
        counts = []
        for mark in MARKS:
            count = sum(span.start <= task < span.stop for task in self.marks.get(mark.name, ()))
            if count:
                counts.append((mark, count))
        return counts

    def _draw_box(self, axes: Axes, number: int, box: Box) -> None:
        from matplotlib.patches import FancyBboxPatch

        span = self.graph.span(number)
        output = bool(self.graph.is_output[span.start])
        axes.add_patch(
            FancyBboxPatch(
                (box.left, box.top),
                box.width,
                box.height,
                boxstyle="round,pad=0,rounding_size=0.09",
                facecolor=PANEL,
                edgecolor=INK if output else LINE,
                lw=1.5 if output else 0.9,
                zorder=1,
            )
        )
        y = box.top + PAD * 0.8
        for line in self.frames[number].lines:
            line.draw(axes, box.x, y, "center")
            y += line.height
        if self.grouped:
            self._draw_counts(axes, number, box, y + 0.06)
            return
        for task in range(span.stop - span.start):
            own = [name for name, tasks in self.marks.items() if span.start + task in tasks]
            draw_task(axes, self._task_x(number, box, task), self._task_y(number, box, task), str(task), own)

    def _draw_counts(self, axes: Axes, number: int, box: Box, top: float) -> None:
        """One row per mark: its sign, how many tasks have it, and a bar of their part of all."""
        from matplotlib.patches import Rectangle

        tasks = self.graph.operators[number].parallelism
        for row, (mark, count) in enumerate(self._counts(number)):
            y = top + row * (SIGN + 0.06)
            draw_task(axes, box.left + PAD + SIGN / 2, y + SIGN / 2, "", [mark.name])
            left, bar = box.left + PAD + SIGN + 0.06, y + SIGN - BAR_HEIGHT - 0.03
            Line(_count(mark, count), 7.5, INK).draw(axes, left, y + 0.03)
            width = box.right - PAD - left
            axes.add_patch(Rectangle((left, bar), width, BAR_HEIGHT, facecolor="#dfe4ea", lw=0, zorder=3))
            axes.add_patch(
                Rectangle((left, bar), width * count / tasks, BAR_HEIGHT, facecolor=mark.colour, lw=0, zorder=4)
            )

    def _task_x(self, number: int, box: Box, task: int) -> float:
        columns, _ = _columns(self.graph.operators[number].parallelism)
        return box.x + COLUMN_WIDTH * (task % columns - (columns - 1) / 2)

    def _task_y(self, number: int, box: Box, task: int) -> float:
        _, step = _columns(self.graph.operators[number].parallelism)
        return box.top + PAD * 0.8 + self.frames[number].text_height + 0.08 + SIGN / 2 + step * task

    def _draw_task_edges(self, axes: Axes, stream: Stream, boxes: Sequence[Box], lanes: Sequence[Box]) -> None:
        """One thin curve per substream, through the lanes side by side; many of them are drawn fainter."""
        from matplotlib.collections import PathCollection

        before, after = boxes[stream.producer], boxes[stream.consumer]
        producers, consumers, _ = stream.substreams()
        paths = []
        for place, (producer, consumer) in enumerate(zip(producers.tolist(), consumers.tolist(), strict=True)):
            start = self._task_y(stream.producer, before, producer)
            end = self._task_y(stream.consumer, after, consumer)
            aside = ((place + 0.5) / len(producers) - 0.5) * min(0.9, len(producers) * 0.06)
            points = [(self._task_x(stream.producer, before, producer) + RADIUS, before.right, start)]
            points += [(lane.left, lane.right, lane.y + aside * lane.height) for lane in lanes]
            points.append((after.left, self._task_x(stream.consumer, after, consumer) - RADIUS, end))
            paths.append(_curve(points))
        alpha = max(0.10, min(0.75, 6.0 / len(paths) ** 0.62)) * (0.5 if lanes else 1.0)  # lanes press them together
        axes.add_collection(
            PathCollection(paths, facecolors="none", edgecolors=EDGE, linewidths=0.7, alpha=alpha, zorder=2),
            autolim=False,
        )

    def _draw_grouped_edge(self, axes: Axes, stream: Stream, boxes: Sequence[Box], lanes: Sequence[Box]) -> None:
        """One arrow per stream; its straight end before the consumer carries the partitioning."""
        from matplotlib.patches import PathPatch, Polygon

        before, after = boxes[stream.producer], boxes[stream.consumer]
        free = self._label_width() + 0.2
        start = before.y + self._port(before, self._fan_out(stream, boxes), stream.consumer)
        end = after.y + self._port(after, self._fan_in(stream, boxes), stream.producer)
        points = [(before.right, before.right, start)]
        points += [(lane.left - free, lane.right, lane.y) for lane in lanes]
        points.append((after.left - free, after.left - 0.08, end))
        axes.add_patch(PathPatch(_curve(points), facecolor="none", edgecolor=EDGE, lw=1.5, alpha=0.8, zorder=2))
        tip = [(after.left, end), (after.left - 0.11, end - 0.055), (after.left - 0.11, end + 0.055)]
        axes.add_patch(Polygon(tip, facecolor=EDGE, lw=0, zorder=3))
        label = Line(stream.partitioning.value, 7, QUIET)
        label.draw(axes, after.left - 0.16, end - label.height - 0.01, "right")

    def _fan_in(self, stream: Stream, boxes: Sequence[Box]) -> list[int]:
        near = self.graph.streams[stream.consumer]
        ends = [(self._seen_from(boxes, stream, after=True), stream.producer) for stream in near]
        return [other for _, other in sorted(ends)]

    def _fan_out(self, stream: Stream, boxes: Sequence[Box]) -> list[int]:
        near = self.graph.consumers[stream.producer]
        ends = [(self._seen_from(boxes, stream, after=False), stream.consumer) for stream in near]
        return [other for _, other in sorted(ends)]

    def _seen_from(self, boxes: Sequence[Box], stream: Stream, *, after: bool) -> float:
        """The height at which an edge comes in or leaves, so that ports are in that order and edges do not cross."""
        lanes = self.arrangement.lanes[stream.producer, stream.consumer]
        shift = boxes[0].y - self.arrangement.boxes[0].y
        if lanes:
            return lanes[-1 if after else 0].y + shift
        return boxes[stream.producer if after else stream.consumer].y

    def _port(self, box: Box, others: Sequence[int], other: int) -> float:
        step = min(PORT_STEP, (box.height - PAD) / len(others))  # a box is high enough for what enters it
        return (others.index(other) - (len(others) - 1) / 2) * step

    def _label_width(self) -> float:
        kinds = {stream.partitioning.value for inputs in self.graph.streams for stream in inputs}
        return max((Line(kind, 7).width for kind in sorted(kinds)), default=0.0)


def _shifted(box: Box, x: float, y: float) -> Box:
    return Box(box.x + x, box.y + y, box.width, box.height)


def _columns(tasks: int) -> tuple[int, float]:
    return next((columns, step) for most, columns, step in TASK_COLUMNS if tasks <= most)


def _count(mark: Mark, count: int) -> str:
    name = mark.name[:-1] if count == 1 and mark.name.endswith("s") else mark.name
    return f"{count:,} {name}"


def _describe(graph: TaskGraph, number: int, kinds: Mapping[str, str] | None) -> tuple[Line, ...]:
    """The lines at the head of an operator's box: name, rate and kind."""
    operator = graph.operators[number]
    rate = float(graph.output_rate[graph.span(number)].sum())
    first = [word for word, holds in (("source", operator.is_source), ("join", _is_join(operator))) if holds]
    kind = " · ".join([*first, f"{_number(rate)}/s"]) if kinds is None else kinds.get(operator.name, "")
    lines = [Line(operator.name, 9.5, INK, bold=True), *([Line(kind, 7.5, QUIET)] if kind else [])]
    outputs = graph.topology.outputs
    if operator.name in outputs:
        lines.append(Line(f"output · {_priority(outputs[operator.name].priority)}", 7.5, INK))
    if operator.safe:
        lines.append(Line("safe", 7.5, QUIET))
    return tuple(lines)


def _is_join(operator: Operator) -> bool:
    return operator.correlated and len(operator.inputs) > 1


def _priority(priority: PerTask) -> str:
    if isinstance(priority, tuple):
        low, high = min(priority), max(priority)
        return f"priority {_number(low)}" if low == high else f"priorities {_number(low)} to {_number(high)}"
    return f"priority {_number(priority)}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def _curve(points: Sequence[tuple[float, float, float]]) -> MatplotlibPath:
    """A path of level pieces (from x, to x, y), joined by curves that leave and arrive level."""
    from matplotlib.path import Path as MatplotlibPath

    begin, level, y = points[0]
    vertices, codes = [(begin, y), (level, y)], [MatplotlibPath.MOVETO, MatplotlibPath.LINETO]
    for left, right, lane in points[1:]:
        middle = (level + left) / 2
        vertices += [(middle, y), (middle, lane), (left, lane), (right, lane)]
        codes += [MatplotlibPath.CURVE4] * 3 + [MatplotlibPath.LINETO]
        level, y = right, lane
    return MatplotlibPath(vertices, codes)


def _write(picture: _Picture, path: Path, suffix: str, heading: Sequence[Line], notes: Sequence[Line]) -> None:
    """Put title, picture, legend and notes under each other on a page that just holds them, and save it."""
    import matplotlib
    from matplotlib.figure import Figure

    shown = [mark for mark in MARKS if mark.name in picture.marks]
    legend = _legend(shown)
    legend_width = sum(width for _, width in legend)
    size = picture.arrangement
    widths = [size.width, legend_width, *(line.width for line in (*heading, *notes))]
    width = max(widths) + 2 * MARGIN
    above = sum(line.height for line in heading) + (0.16 if heading else 0.0)
    below = (SIGN + 0.22 if shown else 0.0) + (0.14 + sum(line.height for line in notes) if notes else 0.0)
    height = above + size.height + below + 2 * MARGIN
    figure = Figure(figsize=(width, height), facecolor=PAPER)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    y = MARGIN
    for line in heading:
        line.draw(axes, MARGIN, y)
        y += line.height
    y = MARGIN + above
    picture.draw(axes, (width - size.width) / 2, y)
    y += size.height
    if shown:
        y += 0.22
        _draw_legend(axes, legend, (width - legend_width) / 2, y + SIGN / 2)
        y += SIGN
    y += 0.14
    for line in notes:
        line.draw(axes, MARGIN, y)
        y += line.height
    path.parent.mkdir(parents=True, exist_ok=True)
    dpi = min(float(PNG_DPI), MAX_PIXELS / max(width, height))
    if suffix == ".png":
        figure.savefig(path, format="png", dpi=dpi)
        return
    # matplotlib takes the salt of an SVG's names from its settings alone; without one the names are random
    with matplotlib.rc_context({"svg.hashsalt": "tenax", "svg.fonttype": "path"}):
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def _legend(shown: Sequence[Mark]) -> list[tuple[Mark, float]]:
    return [(mark, SIGN + 0.04 + Line(mark.name, 8.5).width + 0.3) for mark in shown]


def _draw_legend(axes: Axes, legend: Sequence[tuple[Mark, float]], left: float, y: float) -> None:
    for mark, width in legend:
        draw_task(axes, left + SIGN / 2, y, "", [mark.name])
        line = Line(mark.name, 8.5, INK)
        line.draw(axes, left + SIGN + 0.04, y - line.height / 2)
        left += width
