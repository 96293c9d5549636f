"""The arithmetic of windows: a binary tree over panes, and which of its nodes appear, are used and go.

A pane is numbered by its place on the line of time, from below 0 on. Node (level, index) stands for the 2^level panes
from index · 2^level on. A window of n panes is made of the largest nodes within it, so no level above log2 n is kept.
What a step does follows how far the watermark moved, `before` to `now` being the last complete panes: when it moved
further than there are nodes (or for the first time), a look at every node is cheaper than one at every pane.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

PaneNode = tuple[int, int]


def name_of(node: PaneNode) -> str:
    """The name of the segment that holds a node."""
    return f"node/{node[0]}/{node[1]}"


def node_of(name: str) -> PaneNode:
    """The node that a segment holds."""
    _, level, index = name.split("/")
    return int(level), int(index)


def last_pane(node: PaneNode) -> int:
    """The last pane of a node."""
    level, index = node
    return ((index + 1) << level) - 1


def top_level(panes: int) -> int:
    """The level of the largest node within a window of so many panes."""
    return panes.bit_length() - 1


def cover(start: int, end: int) -> Iterator[PaneNode]:
    """The largest nodes that make up the panes from start to before end, in order: at most two of each level."""
    while start < end:  # ends: start grows by at least 1
        level = (end - start).bit_length() - 1
        if start:
            level = min(level, (start & -start).bit_length() - 1)
        yield level, start >> level
        start += 1 << level


def completed(nodes: Collection[str], level: int, before: int | None, now: int) -> Iterable[int]:
    """The indexes, ascending, at a level above 0 where a node may appear: its last pane has been completed now.

    A node whose last pane was complete before is there already, or no window needs it any longer.
    """
    if before is not None and now - before <= len(nodes):
        return range((before + 1) >> level, (now + 1) >> level)
    below = (node_of(name) for name in nodes)
    above = {index >> 1 for lower, index in below if lower == level - 1}
    first = None if before is None else (before + 1) >> level
    return sorted(index for index in above if (first is None or index >= first) and last_pane((level, index)) <= now)


def closing(nodes: Collection[str], panes: int, before: int | None, now: int) -> Iterable[int]:
    """The ends, ascending, of the windows that close now and may have rows: the first pane behind each."""
    if before is not None and now - before <= len(nodes):
        return range(before + 2, now + 2)
    return ends_of(map(node_of, nodes), panes, before, now)


def ends_of(nodes: Iterable[PaneNode], panes: int, before: int | None, now: int) -> Iterator[int]:
    """The ends of the windows that hold one of these nodes whole: a union of ranges."""
    past = None if before is None else before + 1  # the last end that closed before
    for first, last in sorted((last_pane((level, index)) + 1, (index << level) + panes) for level, index in nodes):
        start = first if past is None else max(first, past + 1)
        end = min(last, now + 1)
        yield from range(start, end + 1)
        past = end if past is None else max(past, end)


def outlived(nodes: Collection[str], panes: int, before: int | None, now: int) -> Iterator[PaneNode]:
    """The nodes, there or not, that no window to come needs, though it might have needed them before this step.

    The next window begins with pane `now` + 2 − panes. A right child is needed until a window begins behind its first
    pane; a left child only until its parent is there, because a window that begins before it holds its parent, too.
    """
    if before is None or now - before > len(nodes):
        for name in nodes:
            level, index = node_of(name)
            early = index << level < now + 2 - panes
            replaced = level < top_level(panes) and index % 2 == 0 and last_pane((level + 1, index >> 1)) <= now
            if early or replaced:
                yield level, index
        return
    for level in range(top_level(panes) + 1):
        for index in range(-((panes - 2 - before) >> level), -((panes - 2 - now) >> level)):
            yield level, index  # from the first node that begins at before + 2 − panes or later
        if level < top_level(panes):
            for index in range((before + 1) >> (level + 1), (now + 1) >> (level + 1)):
                yield level, 2 * index
