"""Where the boxes of a topology stand and how the edges between them run, in inches, flowing left to right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

LANE_HEIGHT = 0.36  # room for a long edge where it passes a layer of boxes
BOX_GAP = 0.32  # between neighbours of one layer
PART_GAP = 0.5  # between parts of a topology that have no edge in common
SWEEPS = 24  # of moving boxes towards their neighbours; layouts settle long before
LANE_STIFFNESS = 2.0  # a bend in a long edge looks worse than a box off its centre

Edge = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Box:
    """A placed rectangle, by its centre; y grows downward."""

    x: float
    y: float
    width: float
    height: float

    @property
    def left(self) -> float:
        """Its left side."""
        return self.x - self.width / 2

    @property
    def right(self) -> float:
        """Its right side."""
        return self.x + self.width / 2

    @property
    def top(self) -> float:
        """Its upper side."""
        return self.y - self.height / 2

    @property
    def bottom(self) -> float:
        """Its lower side."""
        return self.y + self.height / 2


@dataclass(frozen=True, slots=True)
class Arrangement:
    """All boxes, and for every edge the lanes that it takes past other boxes, from left to right."""

    boxes: tuple[Box, ...]
    lanes: Mapping[Edge, tuple[Box, ...]]
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Spacing:
    """The room between two layers: it grows with how far the steepest edge climbs."""

    least: float
    most: float
    per_climb: float
    label: float = 0.0
    """Straight ends of edges, kept free for their labels."""


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a box, and how much of it lies above the line on which its edges meet it."""

    width: float
    above: float
    below: float


LANE = Size(0.0, LANE_HEIGHT / 2, LANE_HEIGHT / 2)


@dataclass(slots=True)
class _Part:
    """One connected part of the graph: ids below the number of boxes are boxes, the others lanes."""

    layers: list[list[int]]
    edges: list[Edge]


def arrange(sizes: Sequence[Size], edges: Sequence[Edge], spacing: Spacing) -> Arrangement:
    """Place boxes of these sizes so that edges flow left to right.

    Layers and the order within them come from the Sugiyama method (fast_sugiyama), which knows nothing of sizes; the
    positions then follow from SWEEPS passes that move each box towards the mean of its neighbours without overlap.
    """
    boxes: dict[int, Box] = {}
    lanes: dict[Edge, tuple[Box, ...]] = {}
    width = top = 0.0
    for part in _parts(len(sizes), edges):
        own = {id_: sizes[id_] if id_ < len(sizes) else LANE for layer in part.layers for id_ in layer}
        level = _vertical(part, own, len(sizes))
        highest = min(level[id_] - own[id_].above for id_ in level)
        placed: dict[int, Box] = {}
        left = 0.0
        for number, layer in enumerate(part.layers):
            widest = max(own[id_].width for id_ in layer)
            if number:
                left += _gap(part, number, level, own, spacing)
            for id_ in layer:
                size = own[id_]
                y = level[id_] - highest + top + (size.below - size.above) / 2
                width_here = size.width if id_ < len(sizes) else widest
                placed[id_] = Box(left + widest / 2, y, width_here, size.above + size.below)
            left += widest
        boxes |= {id_: box for id_, box in placed.items() if id_ < len(sizes)}
        lanes |= _routes(part, placed, len(sizes))
        width = max(width, left)
        top = max(box.bottom for box in placed.values()) + PART_GAP
    return Arrangement(tuple(boxes[number] for number in range(len(sizes))), lanes, width, top - PART_GAP)


def _parts(count: int, edges: Sequence[Edge]) -> list[_Part]:
    """The connected parts in order of their first box."""
    import fast_sugiyama

    connected = sorted({end for edge in edges for end in edge})
    number = {id_: position for position, id_ in enumerate(connected)}
    parts = [_Part([[id_]], []) for id_ in range(count) if id_ not in number]
    components = fast_sugiyama.from_edges([(number[a], number[b]) for a, b in edges]) if edges else []
    for positions, _, _, pairs in components:

        def own(given: int | str) -> int:
            id_ = int(given)
            return connected[id_] if id_ < len(connected) else id_ - len(connected) + count

        layers: dict[float, list[tuple[float, int]]] = {}
        for id_, (x, y) in positions:
            layers.setdefault(-float(y), []).append((float(x), own(id_)))
        parts.append(
            _Part(
                [[id_ for _, id_ in sorted(layers[level])] for level in sorted(layers)],
                sorted((own(a), own(b)) for a, b in pairs or ()),
            )
        )
    return sorted(parts, key=lambda part: min(id_ for layer in part.layers for id_ in layer))


def _vertical(part: _Part, sizes: Mapping[int, Size], count: int) -> dict[int, float]:
    """Levels that keep every layer's order and gaps, each near the mean of its neighbours'."""
    before: dict[int, list[int]] = {id_: [] for id_ in sizes}
    after: dict[int, list[int]] = {id_: [] for id_ in sizes}
    for a, b in part.edges:
        after[a].append(b)
        before[b].append(a)
    stiffness = {id_: LANE_STIFFNESS if id_ >= count else 1.0 for id_ in sizes}
    level = dict.fromkeys(sizes, 0.0)
    for layer in part.layers:
        _settle(layer, dict.fromkeys(layer, 0.0), sizes, stiffness, level)
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        last = sweep >= SWEEPS - 2  # at the end both sides count, so that a producer stands amid its consumers
        for layer in part.layers if forward else part.layers[::-1]:
            wanted = {}
            for id_ in layer:
                near = before[id_] + after[id_] if last else (before if forward else after)[id_]
                wanted[id_] = sum(level[other] for other in near) / len(near) if near else level[id_]
            _settle(layer, wanted, sizes, stiffness, level)
    return level


def _settle(
    layer: Sequence[int],
    wanted: Mapping[int, float],
    sizes: Mapping[int, Size],
    stiffness: Mapping[int, float],
    level: dict[int, float],
) -> None:
    """The levels nearest to the wanted ones (least squares) that do not overlap: pool adjacent violators, O(n)."""
    offsets = [0.0]
    for upper, lower in pairwise(layer):
        offsets.append(offsets[-1] + sizes[upper].below + sizes[lower].above + BOX_GAP)
    pools: list[tuple[float, float, int]] = []  # mean, weight, members
    for id_, offset in zip(layer, offsets, strict=True):
        mean, weight, members = wanted[id_] - offset, stiffness[id_], 1
        while pools and pools[-1][0] > mean:
            other, heavy, many = pools.pop()
            mean = (mean * weight + other * heavy) / (weight + heavy)
            weight, members = weight + heavy, members + many
        pools.append((mean, weight, members))
    means = [mean for mean, _, members in pools for _ in range(members)]
    for id_, offset, mean in zip(layer, offsets, means, strict=True):
        level[id_] = mean + offset


def _gap(part: _Part, number: int, level: Mapping[int, float], sizes: Mapping[int, Size], spacing: Spacing) -> float:
    """The room before a layer."""
    layer = set(part.layers[number])
    climb = 0.0
    for a, b in part.edges:
        if b in layer:
            climb = max(climb, abs(level[a] - level[b]) + abs(_height(sizes[a]) - _height(sizes[b])) / 2)
    return spacing.label + min(spacing.most, max(spacing.least, spacing.per_climb * climb))


def _height(size: Size) -> float:
    return size.above + size.below


def _routes(part: _Part, placed: Mapping[int, Box], count: int) -> dict[Edge, tuple[Box, ...]]:
    """Follow every edge through its lanes: a lane has one way in and one way out."""
    onward: dict[int, int] = {a: b for a, b in part.edges if a >= count}
    routes = {}
    for a, b in part.edges:
        if a >= count:
            continue
        lanes = []
        end = b
        while end >= count:  # at most as many lanes as layers
            lanes.append(placed[end])
            end = onward[end]
        routes[a, end] = tuple(lanes)
    return routes
