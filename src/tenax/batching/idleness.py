"""Idle source partitions: which there are, and how far watermarks may go on without them; decided once, then logged."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tenax.application.application import Application
from tenax.connectors.source import NothingNew, Planned
from tenax.model.graph import TaskGraph
from tenax.operators.computation import NO_WATERMARK_US

MICROSECONDS = 1_000_000

Partition = tuple[str, int]
"""A source and the number of one of its partitions."""

HighestTimes = Callable[[], Mapping[Partition, int]]
"""The highest event time that every source partition is known to have read."""

Floors = Mapping[str, tuple[int | None, ...]]
"""By source, the time that each partition counts as having reached whatever it has read; None says nothing."""


@dataclass(frozen=True, slots=True)
class Idle:
    """What is logged with a batch: the idle partitions by source, and the floors of all that have ever been idle.

    A floor never falls and never goes, so that watermarks never go back when a partition comes back, and
    a driver that begins at a later batch finds all that there is to know in it.
    """

    partitions: Mapping[str, tuple[int, ...]]
    floors: Floors


NONE_IDLE = Idle({}, {})


class Idleness:
    """Decides which partitions are idle, by the driver's clock.

    - A partition is idle if it had no rows for its source's `idle_after_us`, or will get none any more. It is idle no
      longer as soon as it has rows. What an earlier driver has logged as idle stays so.
    - An idle partition counts as being where the slowest active partition of its source is; where all are idle, where
      the furthest of them is, or the slowest of the other sources that meet it in some operator.
    - Where all of those are idle as well, none is waited for: the furthest of them decides.
    - How far partitions are is what passes have reported. So a floor may lag behind, and never runs ahead.
    """

    def __init__(self, application: Application, clock: Callable[[], float] = time.monotonic) -> None:
        self._sources = application.sources
        self._counts = {name: application.topology.operator(name).parallelism for name in application.sources}
        self._near = _grouped(TaskGraph(application.topology))
        self._clock = clock
        self._rows_s: dict[Partition, float] = {}
        self.highest_us: HighestTimes = dict

    def decide(self, answers: Mapping[str, Planned | NothingNew], before: Idle, ended: Sequence[str]) -> Idle:
        """What holds for a batch with these ranges; `ended` sources need no floor, for nothing waits for them."""
        now_s = self._clock()
        idle: dict[str, tuple[int, ...]] = {}
        for name, answer in answers.items():
            quiet = answer.quiet if isinstance(answer, Planned) else tuple(range(self._counts[name]))
            done = answer.done if isinstance(answer, Planned) else ()
            for partition in range(self._counts[name]):
                if partition not in quiet or (name, partition) not in self._rows_s:
                    self._rows_s[name, partition] = now_s
            was = before.partitions.get(name, ())
            resting = tuple(
                partition
                for partition in quiet
                if partition in done or partition in was or self._is_idle(name, partition, now_s)
            )
            if resting and name not in ended:
                idle[name] = resting
        return Idle(idle, self._floors(idle, before.floors, ended))

    def kept_up(self, before: Idle, lateness_us: Mapping[str, int]) -> Idle:
        """What was logged when sources allowed so much lateness: where one allows more now, nothing goes back."""
        floors = dict(before.floors)
        for name, then_us in lateness_us.items():
            if name in self._sources and self._sources[name].lateness_us > then_us:
                times_us = self.highest_us()
                known = before.floors.get(name, (None,) * self._counts[name])
                own = (times_us.get((name, number), NO_WATERMARK_US) for number in range(self._counts[name]))
                floors[name] = tuple(
                    floor
                    if time_us == NO_WATERMARK_US
                    else max(time_us - then_us, NO_WATERMARK_US if floor is None else floor)
                    for time_us, floor in zip(own, known, strict=True)
                )
        return Idle(before.partitions, floors)

    def _is_idle(self, name: str, partition: int, now_s: float) -> bool:
        after_us = self._sources[name].idle_after_us
        return after_us is not None and (now_s - self._rows_s[name, partition]) * MICROSECONDS >= after_us

    def _floors(self, idle: Mapping[str, tuple[int, ...]], before: Floors, ended: Sequence[str]) -> Floors:
        if not idle:
            return before
        reached = self._reached(before)
        slowest, furthest = {}, {}
        for name, watermarks in reached.items():
            active = [watermark for number, watermark in enumerate(watermarks) if number not in idle.get(name, ())]
            furthest[name] = max(watermarks)
            if active and name not in ended:
                slowest[name] = min(active)
        floors = dict(before)
        for name, partitions in idle.items():
            near = [slowest[other] for other in self._near[name] if other in slowest]
            if name in slowest:
                floor = slowest[name]
            elif near:
                floor = max(furthest[name], min(near))
            else:
                floor = max(furthest[other] for other in self._near[name])
            known = list(before.get(name, (None,) * self._counts[name]))
            for partition in partitions:
                if floor > reached[name][partition]:
                    known[partition] = floor
            if any(floor is not None for floor in known):
                floors[name] = tuple(known)
        return floors

    def _reached(self, floors: Floors) -> dict[str, tuple[int, ...]]:
        """The watermark of every partition, as far as it is known."""
        times_us = self.highest_us()
        reached: dict[str, tuple[int, ...]] = {}
        for name, count in self._counts.items():
            lateness_us = self._sources[name].lateness_us
            own = (times_us.get((name, number), NO_WATERMARK_US) for number in range(count))
            watermarks = (
                NO_WATERMARK_US if highest_us == NO_WATERMARK_US else highest_us - lateness_us for highest_us in own
            )
            below = floors.get(name, (None,) * count)
            reached[name] = tuple(
                max(watermark, NO_WATERMARK_US if floor is None else floor)
                for watermark, floor in zip(watermarks, below, strict=True)
            )
        return reached


def _grouped(graph: TaskGraph) -> dict[str, frozenset[str]]:
    """For every source those whose rows meet its own in some operator, directly or by way of others; itself too."""
    groups = {operator.name: frozenset({operator.name}) for operator in graph.operators if operator.is_source}
    above: dict[str, frozenset[str]] = {}
    for operator in graph.operators:  # producers come before consumers
        sources = frozenset(itertools.chain.from_iterable(above[stream.operator] for stream in operator.inputs))
        above[operator.name] = sources | ({operator.name} if operator.is_source else frozenset())
        together = frozenset[str]().union(*(groups[name] for name in above[operator.name]))
        groups |= dict.fromkeys(together, together)
    return groups
