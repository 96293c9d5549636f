"""How soon the tasks of a node are back if it is lost: the rounds of its recovery, reckoned as they would run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tenax.model.graph import Bools, TaskGraph
from tenax.planning.levels import layout


@dataclass(frozen=True, slots=True)
class NodeLoss:
    """What the loss of one node takes, by what was measured, just before the next checkpoint.

    - `steps_s` is spent in steps: of every level, by the node that has most to do in it.
    - `scheduling_s` comes on top: until the loss is known, and what rounds take beside their steps.
    - `retainers_live` says that no lost task needs what another has lost: else backups help it little.
    """

    node: str
    steps_s: float
    scheduling_s: float
    retainers_live: bool = True

    @property
    def total_s(self) -> float:
        """From the loss until all its tasks are where they were."""
        return self.steps_s + self.scheduling_s


@dataclass(frozen=True, slots=True)
class Rounds:
    """What recovery takes beside steps: rounds, each of whose levels has a fixed part; and to know of a loss."""

    count: int = 1
    level_s: float = 0.0
    detection_s: float = 0.0


def node_losses(
    graph: TaskGraph, homes: Mapping[int, str], covered: Bools, backups: Bools, rounds: Rounds
) -> tuple[NodeLoss, ...]:
    """What the loss of each node would take, by the reprocess times of a graph. O(nodes × (tasks + edges)).

    - `homes` has the node of every task; those that are `covered` go on elsewhere at once.
    - Tasks that were lost go to the nodes that hold fewest, and so do they here; without another node, to one that
      comes for them.
    - Producers that retain nothing, and all that are lost, step with them; what others retained is read. Tasks of a
      level on one node take turns, levels follow each other.
    """
    names = sorted(set(homes.values()))
    is_source = np.array([not graph.streams[operator] for operator in graph.operator_of], dtype=np.bool_)
    made = []
    for name in names:
        lost = [
            task for task, home in sorted(homes.items()) if home == name and not is_source[task] and not covered[task]
        ]
        if lost:
            made.append(_loss(graph, name, lost, _dealt_out(homes, name, names), is_source, backups, rounds))
    return tuple(made)


def _dealt_out(homes: Mapping[int, str], gone: str, names: Sequence[str]) -> dict[int, str]:
    """The nodes of all tasks without one of them."""
    held = dict.fromkeys([name for name in names if name != gone] or [gone], 0)
    left: list[int] = []
    placed: dict[int, str] = {}
    for task, home in sorted(homes.items()):
        if home == gone:
            left.append(task)
        else:
            placed[task] = home
            held[home] += 1
    for task in left:
        name = min(held, key=lambda each: (held[each], each))
        placed[task] = name
        held[name] += 1
    return placed


def _loss(
    graph: TaskGraph,
    name: str,
    lost: Sequence[int],
    placed: Mapping[int, str],
    is_source: Bools,
    backups: Bools,
    rounds: Rounds,
) -> NodeLoss:
    gone, stepping, read = set(lost), set(lost), set[int]()
    waiting, together = list(lost), False
    while waiting:  # ends: every task is looked at once
        for producer in graph.producers_of(waiting.pop()):
            together |= producer in gone
            if producer in stepping:
                continue
            if backups[producer] and producer not in gone and not is_source[producer]:
                read.add(int(graph.operator_of[producer]))
                continue
            stepping.add(producer)
            if not is_source[producer]:
                waiting.append(producer)
    names = sorted(set(placed.values()))
    place = {each: number for number, each in enumerate(names)}
    levels = layout(graph, names, {task: (place[placed[task]],) for task in stepping}, frozenset(read)).levels
    level_of = {operator: number for number, level in enumerate(levels) for operator in level}
    work = np.zeros((len(levels), len(names)))
    for task in stepping:
        work[level_of[int(graph.operator_of[task])], place[placed[task]]] += graph.reprocess[task]
    scheduling_s = rounds.detection_s + rounds.count * len(levels) * rounds.level_s
    return NodeLoss(name, float(work.max(axis=1).sum()), scheduling_s, retainers_live=not together)
