"""Rounds of recovery: which tasks step next in the background, through which batches, with which inputs.

Tasks that are behind catch up in bounded rounds, those that lag most first, up to the batch of the next ones. What they
need of producers outside the round is read where it was retained; where no node retained it, replay copies of the
producers make it again, from a checkpoint or from where an earlier round left them. Sources read their log.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tenax.control.checkpoints.strategies import stored_outputs, stored_point
from tenax.control.copies import Copy, Role
from tenax.control.instructions import Reading, Step
from tenax.control.recovery.standing import Standing
from tenax.control.run import Run
from tenax.control.state import RunState
from tenax.control.versions import NO_PASS, Version


@dataclass(slots=True)
class Round:
    """Steps through the batches behind `after` up to `last`, and what is read for them."""

    after: int
    last: int
    steps: list[Step] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class LaggingCopy:
    """A copy that is to catch up from its batch."""

    number: int
    copy: Copy
    role: Role

    @property
    def batch(self) -> int:
        """The batch that it is at."""
        return self.copy.batch

    @property
    def rebuilds(self) -> bool:
        """Whether its state is being rebuilt, without output."""
        return self.copy.rebuilding is not None

    @property
    def sends(self) -> bool:
        """Whether others get its outputs: neither a replica's nor those of a state that is being rebuilt."""
        return self.role is not Role.REPLICA and not self.rebuilds

    @property
    def most(self) -> int:
        """The batch at which a round with it ends at the latest: a state that is rebuilt sends from then on."""
        return sys.maxsize if self.copy.rebuilding is None else self.copy.rebuilding.batch

    def step(self, run: Run) -> Step:
        """Its step in a round."""
        copy, start = self.copy, self.copy.start
        stored = copy.stored and start == copy.head
        return Step(run.tasks[self.number], copy.node, start, self.role, stored, rebuilding=copy.rebuilding)


def next_round(run: Run, state: RunState, now: Standing) -> Round | None:
    """The next round for tasks that are behind, or else for replicas that are; None if all are up to date."""
    copies = lagging(state, now)
    if not copies:
        return None
    batch = min(copy.batch for copy in copies)
    ahead = [copy.batch for copy in copies if copy.batch > batch]
    furthest = [copy for copy in copies if copy.batch == batch]
    while True:  # ends: the copies become fewer, and the last of them feeds no other
        most = (copy.most for copy in furthest)
        last = min(batch + run.settings.max_batches_per_round, state.finished, *ahead, *most)
        gathered = _gathered(run, state, furthest, batch, last)
        feeding = {reading.task for reading in gathered.readings}
        feeding |= {step.task for step in gathered.steps if step.role is Role.REPLAY}
        apart = [copy for copy in furthest if not copy.rebuilds or run.tasks[copy.number] not in feeding]
        if len(apart) == len(furthest):
            return gathered
        furthest = apart  # a copy that is rebuilt cannot feed others beside it: it follows in a round of its own


def lag(state: RunState, now: Standing) -> int | None:
    """The batches between the copy that lags most and the live passes; None if no copy lags."""
    copies = lagging(state, now)
    return None if not copies else state.finished - min(copy.batch for copy in copies)


def lagging(state: RunState, now: Standing) -> list[LaggingCopy]:
    """The copies that are to catch up next: those of tasks that are behind, or else replicas that are."""
    return _tasks_behind(state, now) or _replicas_behind(state, now)


def _tasks_behind(state: RunState, now: Standing) -> list[LaggingCopy]:
    copies = []
    for number in map(int, now.catching_up):
        task = state.tasks[number]
        assert task.primary is not None
        copies.append(LaggingCopy(number, task.primary, Role.PRIMARY))
        if task.in_step is not None:
            copies.append(LaggingCopy(number, task.in_step, Role.REPLICA))
    return copies


def _replicas_behind(state: RunState, now: Standing) -> list[LaggingCopy]:
    """Replicas behind their primaries; only while everything else is well."""
    if not now.healthy:
        return []
    return [
        LaggingCopy(number, task.replica, Role.REPLICA)
        for number, task in enumerate(state.tasks)
        if task.replica is not None and task.replica.batch < task.batch
    ]


def _gathered(run: Run, state: RunState, copies: Sequence[LaggingCopy], after: int, last: int) -> Round:
    """The round of these copies, with all inputs; or an earlier round that must make inputs again first. O(edges)."""
    gathered = Round(after, last, [copy.step(run) for copy in copies])
    seen = {copy.number for copy in copies if copy.sends}
    open_numbers = [copy.number for copy in copies]
    while open_numbers:  # ends: every task is looked at once
        for producer in run.graph.producers_of(open_numbers.pop()):
            if producer in seen:
                continue
            seen.add(producer)
            task = state.tasks[producer]
            assert task.primary is not None, "what catches up has all its producers"
            if run.is_source[producer]:
                start = Version(run.tasks[producer], after, NO_PASS)
                gathered.steps.append(Step(start.task, task.primary.node, start, Role.REPLAY))
            elif readings := _readings(run, state, producer, after, gathered.last):
                gathered.readings += readings
                gathered.last = readings[-1].last
            else:
                replay = _replay_copy(state, producer, after)
                if replay.batch < after:
                    bound = min(after, replay.batch + run.settings.max_batches_per_round, replay.most)
                    return _gathered(run, state, [replay], replay.batch, bound)
                gathered.steps.append(replay.step(run))
                open_numbers.append(producer)
    gathered.readings = [
        replace(reading, last=min(reading.last, gathered.last))
        for reading in gathered.readings
        if reading.first <= gathered.last
    ]
    return gathered


def _readings(run: Run, state: RunState, number: int, after: int, last: int) -> list[Reading]:
    """The outputs of a task behind a batch that were retained or lie in the store, up to the first that are not."""
    task, primary = state.tasks[number], state.tasks[number].primary
    assert primary is not None
    readings: list[Reading] = []
    while after < last:  # ends: each span reaches further
        first = after + 1
        span, stored = task.covering(first), False
        if span is None:
            span, stored = stored_outputs(state, number, first), True
        if span is None:
            break
        after = min(span.last, last)
        node = primary.node if stored or primary.node in span.nodes else span.nodes[0]
        readings.append(Reading(run.tasks[number], node, span.pass_id, first, after, stored))
    return readings


def _replay_copy(state: RunState, number: int, batch: int) -> LaggingCopy:
    """The replay copy of a task at a batch, or as near before it as there is a version to start from."""
    task = state.tasks[number]
    assert task.primary is not None
    stored = stored_point(state, number, batch)
    assert stored is not None, "outputs that no task of a cut can make again are retained beside it"
    copy = Copy(task.primary.node, stored, stored=True)
    known = task.replay
    if known is not None and known.head.batch <= batch and _place(copy) < _place(known):
        copy = known
    return LaggingCopy(number, copy, Role.REPLAY)


def _place(copy: Copy) -> tuple[int, int]:
    """How near a copy is to going on: the batch that it will send after, then how far it has come."""
    return copy.head.batch, copy.batch
