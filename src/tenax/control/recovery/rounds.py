"""The way back: which tasks step next in the background, through which batches, with which inputs.

Tasks that are behind rise like water: the lowest first, up to the level of the next higher ones, in bounded rounds.
What they need of producers outside the round is read where it was retained; where nobody retained it, the producers
make it again as shadows, from a checkpoint or from where an earlier round left them. Sources read their log.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tenax.control.checkpoints.strategies import stored_queue, stored_version
from tenax.control.copies import Copy, Role
from tenax.control.instructions import Reading, Step
from tenax.control.recovery.standing import Standing
from tenax.control.run import Run
from tenax.control.state import RunState
from tenax.control.versions import NO_PASS, Version


@dataclass(slots=True)
class Round:
    """Steps from `level` to `last`, and what is read for them."""

    level: int
    last: int
    steps: list[Step] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Climber:
    """A copy that is to go on from `level`."""

    number: int
    copy: Copy
    role: Role

    @property
    def level(self) -> int:
        """The batch that it is at."""
        return self.copy.level

    @property
    def sends(self) -> bool:
        """Whether others get its outputs: neither a replica's nor those of a state that is being rebuilt."""
        return self.role is not Role.REPLICA and not self.copy.warming

    @property
    def most(self) -> int:
        """The batch at which a round with it ends at the latest: a state that is rebuilt sends from then on."""
        return self.copy.head.batch if self.copy.warming else sys.maxsize

    def step(self, run: Run) -> Step:
        """Its step in a round."""
        copy, start = self.copy, self.copy.start
        towards = copy.head if copy.warming else None
        stored = copy.stored and start == copy.head
        return Step(run.tasks[self.number], copy.node, start, self.role, stored, towards=towards)


def next_round(run: Run, state: RunState, now: Standing) -> Round | None:
    """The next round for tasks that are behind, or else for replicas that are; None if all are up to date."""
    climbers = _tasks_behind(state, now) or _replicas_behind(state, now)
    if not climbers:
        return None
    level = min(one.level for one in climbers)
    above = [one.level for one in climbers if one.level > level]
    lowest = [one for one in climbers if one.level == level]
    while True:  # ends: the climbers become fewer, and the last of them feeds no other
        last = min(level + run.settings.max_batches_per_round, state.finished, *above, *(one.most for one in lowest))
        found = _gathered(run, state, lowest, level, last)
        feeding = {reading.task for reading in found.readings}
        feeding |= {step.task for step in found.steps if step.role is Role.SHADOW}
        apart = [one for one in lowest if not (one.copy.warming and run.tasks[one.number] in feeding)]
        if len(apart) == len(lowest):
            return found
        lowest = apart  # whoever is rebuilt cannot feed others beside it: it follows in a round of its own


def gap(state: RunState, now: Standing) -> int | None:
    """How far behind the lowest climber is; None if there is none."""
    climbers = _tasks_behind(state, now) or _replicas_behind(state, now)
    return None if not climbers else state.finished - min(one.level for one in climbers)


def _tasks_behind(state: RunState, now: Standing) -> list[Climber]:
    found = []
    for number in map(int, now.rising):
        task = state.tasks[number]
        assert task.primary is not None
        found.append(Climber(number, task.primary, Role.PRIMARY))
        if task.in_step is not None:
            found.append(Climber(number, task.in_step, Role.REPLICA))
    return found


def _replicas_behind(state: RunState, now: Standing) -> list[Climber]:
    """Replicas below their primaries; only while everything else is well."""
    if not now.whole:
        return []
    return [
        Climber(number, task.replica, Role.REPLICA)
        for number, task in enumerate(state.tasks)
        if task.replica is not None and task.replica.level < task.level
    ]


def _gathered(run: Run, state: RunState, climbers: Sequence[Climber], level: int, last: int) -> Round:
    """The round of these copies, with all inputs; or an earlier round that must make inputs again first. O(edges)."""
    found = Round(level, last, [one.step(run) for one in climbers])
    seen = {one.number for one in climbers if one.sends}
    open_numbers = [one.number for one in climbers]
    while open_numbers:  # ends: every task is looked at once
        for producer in run.graph.producers_of(open_numbers.pop()):
            if producer in seen:
                continue
            seen.add(producer)
            task = state.tasks[producer]
            assert task.primary is not None, "what rises has all its producers"
            if run.is_source[producer]:
                start = Version(run.tasks[producer], level, NO_PASS)
                found.steps.append(Step(start.task, task.primary.node, start, Role.SHADOW))
            elif readings := _readings(run, state, producer, level, found.last):
                found.readings += readings
                found.last = readings[-1].last
            else:
                shadow = _shadow(state, producer, level)
                if shadow.level < level:
                    top = min(level, shadow.level + run.settings.max_batches_per_round, shadow.most)
                    return _gathered(run, state, [shadow], shadow.level, top)
                found.steps.append(shadow.step(run))
                open_numbers.append(producer)
    found.readings = [replace(one, last=min(one.last, found.last)) for one in found.readings if one.first <= found.last]
    return found


def _readings(run: Run, state: RunState, number: int, level: int, last: int) -> list[Reading]:
    """The outputs of a task after a level that were retained or lie in the store, up to the first gap."""
    task, primary = state.tasks[number], state.tasks[number].primary
    assert primary is not None
    found: list[Reading] = []
    while level < last:  # ends: each span reaches further
        first = level + 1
        span, stored = task.covering(first), False
        if span is None:
            span, stored = stored_queue(state, number, first), True
        if span is None:
            break
        level = min(span.last, last)
        node = primary.node if stored or primary.node in span.nodes else span.nodes[0]
        found.append(Reading(run.tasks[number], node, span.pass_id, first, level, stored))
    return found


def _shadow(state: RunState, number: int, level: int) -> Climber:
    """The shadow of a task at a level or as near below it as there is a version to start from."""
    task = state.tasks[number]
    assert task.primary is not None
    stored = stored_version(state, number, level)
    assert stored is not None, "whatever a line lacks lies in a queue"
    copy = Copy(task.primary.node, stored, stored=True)
    known = task.shadow
    if known is not None and known.head.batch <= level and _place(copy) < _place(known):
        copy = known
    return Climber(number, copy, Role.SHADOW)


def _place(copy: Copy) -> tuple[int, int]:
    """How near a copy is to going on: the batch that it will send after, then how far it has come."""
    return copy.head.batch, copy.level
