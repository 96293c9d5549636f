"""Boxes never overlap, edges flow left to right, and long edges pass beside the boxes between their ends."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tenax.pictures.layout import Arrangement, Box, Edge, Size, Spacing, arrange

SPACING = Spacing(0.5, 2.0, 0.3)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[Size], list[Edge]]:
    count = draw(st.integers(1, 14))
    lengths = st.floats(0.1, 5.0)
    sizes = [Size(draw(lengths), draw(lengths), draw(lengths)) for _ in range(count)]
    pairs = [(a, b) for b in range(count) for a in range(b)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=25)) if pairs else []
    return sizes, edges


def overlap(box: Box, other: Box) -> bool:
    slack = 1e-6
    return (
        box.left < other.right - slack
        and other.left < box.right - slack
        and box.top < other.bottom - slack
        and other.top < box.bottom - slack
    )


@settings(deadline=None, max_examples=120)
@given(graphs())
def test_boxes_and_lanes_never_overlap_and_edges_flow_to_the_right(graph: tuple[list[Size], list[Edge]]) -> None:
    sizes, edges = graph
    arrangement: Arrangement = arrange(sizes, edges, SPACING)
    placed = [*arrangement.boxes, *(lane for lanes in arrangement.lanes.values() for lane in lanes)]
    for number, box in enumerate(placed):
        assert box.left >= -1e-6
        assert box.top >= -1e-6
        assert box.right <= arrangement.width + 1e-6
        assert box.bottom <= arrangement.height + 1e-6
        assert not any(overlap(box, other) for other in placed[number + 1 :])
    assert sorted(arrangement.lanes) == sorted(edges)
    for (producer, consumer), lanes in arrangement.lanes.items():
        way = [arrangement.boxes[producer], *lanes, arrangement.boxes[consumer]]
        for before, after in pairwise(way):
            assert before.right + SPACING.least <= after.left + 1e-6


@settings(deadline=None, max_examples=30)
@given(graphs())
def test_the_same_graph_is_arranged_the_same_way(graph: tuple[list[Size], list[Edge]]) -> None:
    assert arrange(*graph, SPACING) == arrange(*graph, SPACING)


def test_a_line_is_level_where_its_edges_meet_the_boxes() -> None:
    """0 ── 1 ── 2, boxes of different heights."""
    sizes = [Size(1, 1, 1), Size(1, 3, 1), Size(1, 1, 2)]
    boxes = arrange(sizes, [(0, 1), (1, 2)], SPACING).boxes
    assert len({round(box.top + size.above, 6) for box, size in zip(boxes, sizes, strict=True)}) == 1
