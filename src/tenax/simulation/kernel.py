"""A discrete-event kernel: processes that wait in virtual time, in an order that is always the same.

A process is a generator that yields the seconds to wait. Events at the same time happen in the order in which they were
scheduled: an explicit counter breaks ties, as in SimPy, so a run depends on nothing but its inputs.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator
from dataclasses import dataclass, field

Steps = Generator[float, None, None]


class TooLong(AssertionError):
    """A simulation passed its bound of time or events: it makes no progress."""


@dataclass(slots=True, eq=False)
class Group:
    """Processes that stop, pause and go on together, as those of one machine do."""

    alive: bool = True
    paused: bool = False
    held: list[Steps] = field(default_factory=list)
    """Those that were due during the pause."""


class Kernel:
    """Runs processes in virtual time.

    - `now_s` never decreases.
    - A killed group takes no further step; a paused one catches up, in order, once it is resumed.
    - `run` ends when nothing is left to do, and fails beyond its bounds.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self._queue: list[tuple[float, int, Group, Steps]] = []
        self._ties = 0

    def start(self, group: Group, steps: Steps, delay_s: float = 0.0) -> None:
        """Let a process take its first step after a delay."""
        self._ties += 1
        heapq.heappush(self._queue, (self.now_s + delay_s, self._ties, group, steps))

    def kill(self, group: Group) -> None:
        """End all processes of a group where they are."""
        group.alive = False
        group.held.clear()

    def pause(self, group: Group) -> None:
        """Hold all processes of a group where they are."""
        group.paused = True

    def resume(self, group: Group) -> None:
        """Let a paused group go on."""
        group.paused = False
        held, group.held = group.held, []
        for steps in held:
            self.start(group, steps)

    def run(self, max_time_s: float, max_events: int) -> None:
        """Take steps until none is left."""
        for _ in range(max_events):
            if not self._queue:
                return
            time_s, _, group, steps = heapq.heappop(self._queue)
            if not group.alive:
                continue
            if time_s > max_time_s:
                raise TooLong(f"not over after {max_time_s:g} virtual seconds")
            self.now_s = time_s
            if group.paused:
                group.held.append(steps)
                continue
            wait_s = next(steps, None)
            if wait_s is not None:
                self.start(group, steps, wait_s)
        if self._queue:
            raise TooLong(f"not over after {max_events} events")
