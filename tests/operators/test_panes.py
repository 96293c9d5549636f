"""The tree over panes, against definitions that look at every node.

level 2   |       0       |
level 1   |   0   |   1   |
level 0   | 0 | 1 | 2 | 3 |   a window of panes 1 to 3 is made of (0, 1) and (1, 1)
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tenax.operators.panes import PaneNode, closing, completed, cover, name_of, node_of, outlived, top_level

MAX_LEVEL = 8


def panes_of(node: PaneNode) -> range:
    level, index = node
    return range(index * 2**level, (index + 1) * 2**level)


def within(node: PaneNode, start: int, end: int) -> bool:
    return start <= panes_of(node)[0] and panes_of(node)[-1] < end


def largest_within(start: int, end: int) -> set[PaneNode]:
    nodes = {(level, pane // 2**level) for level in range(MAX_LEVEL) for pane in range(start, end)}
    return {node for node in nodes if within(node, start, end) and not within((node[0] + 1, node[1] // 2), start, end)}


@settings(deadline=None, max_examples=200)
@given(st.integers(-40, 40), st.integers(0, 70))
def test_a_window_is_made_of_the_largest_nodes_within_it(start: int, length: int) -> None:
    nodes = list(cover(start, start + length))
    assert set(nodes) == largest_within(start, start + length)
    assert [pane for node in nodes for pane in panes_of(node)] == list(range(start, start + length))


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 20),
    st.integers(-30, 30),
    st.lists(st.integers(1, 5) | st.integers(1, 60), min_size=1, max_size=12),
    st.sets(st.integers(-40, 200)),
    st.booleans(),
)
def test_every_node_that_a_window_needs_is_there_and_the_others_go(
    panes: int, start: int, moves: list[int], empty: set[int], full: bool
) -> None:
    """Steps of any length over panes of which some, or none, are empty; short ones count, long ones look."""
    nodes: set[str] = set()
    before: int | None = None
    now = start
    for move in moves:
        now += move
        first = start + 1 if before is None else before + 1
        nodes |= {name_of((0, pane)) for pane in range(first, now + 1) if full or pane not in empty}
        for level in range(1, top_level(panes) + 1):
            for index in completed(nodes, level, before, now):
                if {name_of((level - 1, 2 * index)), name_of((level - 1, 2 * index + 1))} & nodes:
                    nodes.add(name_of((level, index)))
        ends = list(closing(nodes, panes, before, now))
        assert ends == sorted(set(ends))
        for end in range(first + 1, now + 2):
            rows = {pane for pane in range(max(end - panes, start + 1), end) if full or pane not in empty}
            assert end in ends or not rows
            covered = {
                pane for node in largest_within(end - panes, end) if name_of(node) in nodes for pane in panes_of(node)
            }
            assert rows <= covered
        nodes -= {name_of(node) for node in outlived(nodes, panes, before, now)}
        kept = {node_of(name) for name in nodes}
        assert all(panes_of(node)[0] >= now + 2 - panes for node in kept), "a node that begins before the next window"
        assert sum(len(panes_of(node)) for node in kept) <= panes * (top_level(panes) + 1)
        assert len(kept) <= panes + top_level(panes) + 1
        before = now
