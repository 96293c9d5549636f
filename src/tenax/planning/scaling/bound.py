"""What a pass takes at least if one group has so many tasks, whatever the others have: where a search begins."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from tenax.planning.scaling.prediction import Chain, PassModel


class LeastTime:
    """Lower bounds of the time of a pass on so many nodes.

    - All work is shared by the nodes at best, level by level.
    - The level of a chain takes at least the longest of its tasks. What feeds the chain and what it feeds is on other
      levels, unless it may become part of the chain; there it takes at least its share.
    """

    def __init__(self, model: PassModel, nodes: int) -> None:
        self.model = model
        self.nodes = nodes

    def seconds(self, group: int, tasks: int) -> float:
        """What a pass takes at least if a group has so many tasks. O(operators · tasks)."""
        model, members = self.model, set(self.model.groups[group])
        each_s = [
            self._work_s(operator, tasks if operator in members else self._fewest[operator])
            for operator in range(len(model.present))
        ]
        least_s = sum(each_s) / self.nodes
        for chain in self._fused:
            if chain[0] in members:
                elsewhere = self._elsewhere(chain, single=tasks == 1)
                longest_s = max(map(sum, zip(*(model.busy_s(operator, tasks) for operator in chain), strict=True)))
                least_s = max(least_s, longest_s + sum(each_s[operator] for operator in elsewhere) / self.nodes)
        return model.whole_s(self._levels, least_s)

    @cached_property
    def _levels(self) -> int:
        """The fewest levels that there can be: those of single tasks, of which the most are fused."""
        return len(self.model.levels((1,) * len(self.model.present)))

    @cached_property
    def _fused(self) -> list[Chain]:
        """The chains that there are whatever the parallelism is."""
        return [chain for level in self.model.levels((2,) * len(self.model.present)) for chain in level]

    @cached_property
    def _fewest(self) -> list[int]:
        """The fewest tasks of every operator."""
        groups = self.model.demand.groups
        return list(self.model.with_groups([group.fewest for group in groups]))

    @cached_property
    def _related(self) -> list[set[int]]:
        """For every operator those that it depends on, and those that depend on it."""
        before: list[set[int]] = []
        for streams in self.model.demand.graph.streams:
            before.append({each for stream in streams for each in (stream.producer, *before[stream.producer])})
        return [
            ancestors | {other for other, theirs in enumerate(before) if operator in theirs}
            for operator, ancestors in enumerate(before)
        ]

    def _work_s(self, operator: int, tasks: int) -> float:
        return sum(self.model.busy_s(operator, tasks))

    def _elsewhere(self, chain: Chain, *, single: bool) -> Sequence[int]:
        """The operators that are on other levels than a chain for certain."""
        related = set.union(*(self._related[operator] for operator in chain))
        # As a single task it may be fused with other single tasks.
        together = [each for level in self._single for each in level if chain[0] in each] if single else [chain]
        return sorted(related.difference(*together))

    @cached_property
    def _single(self) -> tuple[tuple[Chain, ...], ...]:
        return self.model.levels((1,) * len(self.model.present))
