"""What a pass takes at least if one group has so many tasks, whatever the others have: where a search begins."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from tenax.planning.scaling.prediction import Chain, PassModel


class LeastTime:
    """Lower bounds of the time of a pass on so many nodes, where every group has at least its `fewest` tasks.

    - Operators are in blocks: those that may be one chain, with as few tasks as they may have. Blocks that depend on
      each other are on different levels whatever the parallelism is.
    - A block takes at least its share of all nodes, and at least its longest task. So a pass takes at least what any
      line of blocks takes that depend on each other, and at least the share of everything.
    """

    def __init__(self, model: PassModel, nodes: int, fewest: Sequence[int]) -> None:
        self.model = model
        self.nodes = nodes
        self._fewest = tuple(fewest)

    def seconds(self, group: int, tasks: int) -> float:
        """What a pass takes at least if a group has so many tasks. O(operators · tasks)."""
        model, members = self.model, set(self.model.groups[group])
        least = model.with_groups([*self._fewest[:group], tasks, *self._fewest[group + 1 :]])
        work_s = [sum(model.busy_s(operator, count)) for operator, count in enumerate(least)]
        longest_s: dict[int, float] = {}
        for chain in self._fused:
            if chain[0] in members:
                longest_s[chain[0]] = self._longest_s(chain, tasks)
            elif model.group_of[chain[0]] < 0:
                longest_s[chain[0]] = self._longest_s(chain, model.present[chain[0]])
        levels = model.levels(least)  # few tasks are fused most, so they have the fewest levels
        return model.whole_s(len(levels), max(sum(work_s) / self.nodes, self._line_s(levels, work_s, longest_s)))

    def _line_s(self, levels: Sequence[Sequence[Chain]], work_s: Sequence[float], longest_s: dict[int, float]) -> float:
        """The longest that any line of blocks takes at least."""
        until_s: dict[int, float] = {}  # by operator: with all that it depends on
        for level in levels:
            for block in level:
                share_s = sum(work_s[operator] for operator in block) / self.nodes
                own_s = max([share_s, *(longest_s.get(operator, 0.0) for operator in block)])
                streams = self.model.demand.graph.streams[block[0]]
                before_s = max((until_s[stream.producer] for stream in streams), default=0.0)
                until_s |= dict.fromkeys(block, before_s + own_s)
        return max(until_s.values())

    def _longest_s(self, chain: Chain, tasks: int) -> float:
        return max(map(sum, zip(*(self.model.busy_s(operator, tasks) for operator in chain), strict=True)))

    @cached_property
    def _fused(self) -> list[Chain]:
        """The chains that there are whatever the parallelism is."""
        return [chain for level in self.model.levels((2,) * len(self.model.present)) for chain in level]
