"""Checkpoints: which tasks are stored when, and what must lie beside their states. One policy per strategy.

The store holds a line through the run: of every task the version that was stored last, and beside it the queue of its
outputs that a consumer, restored at its own version, would still ask for. So any set of tasks can be lost together:
each is restored where the line has it, and its producers come from further back, or their queues have what it needs.

A task that is never stored is on the line as a recipe (`Version`): from which batch on it is stepped again. That batch
counts in place of its own in all that must be there for it: the source log, the queues of its producers. It is at a
batch from which it feeds its own consumers, so that no queue of it is needed.

A policy only says who is due, from the line and the batches that are finished; it remembers nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tenax.control.copies import TaskState
from tenax.control.run import Run
from tenax.control.state import RunState, Strategy, Upload
from tenax.control.versions import Span, StoredCheckpoint, Version

MAX_SWEEPS = 4  # under way at a time: the versions that they have yet to come by stay on nodes

Policy = Callable[[Run, RunState, Sequence[int]], Collection[int]]
"""Those of the given tasks whose checkpoint is due."""


def wanted(run: Run, state: RunState) -> set[int]:
    """The tasks that should be stored now. O(tasks)."""
    line = state.newest
    found: set[int] = set()
    for strategy, numbers in run.by_strategy.items():
        found.update(POLICIES[strategy](run, state, numbers))
    return {number for number in found if _is_behind(run, line, number, state.finished)}


def is_last(run: Run, state: RunState, line: StoredCheckpoint) -> bool:
    """Whether a line has all that is finished."""
    return not any(_is_behind(run, line, number, state.finished) for number in everybody(run))


def everybody(run: Run) -> list[int]:
    """All tasks but the sources."""
    return np.flatnonzero(~run.is_source).tolist()


def _is_behind(run: Run, line: StoredCheckpoint, number: int, finished: int) -> bool:
    """Whether a line could have a newer version of a task; a recipe is drawn anew with every line."""
    here = line.top if run.strategy_of[number] is Strategy.NONE else line.versions[number].batch
    return here < finished


def interval(run: Run, state: RunState) -> int:
    """Batches from one checkpoint to the next.

    Given in seconds it follows the measured pace. By Young's formula it is √(2 × the time that a checkpoint takes × the
    time between failures): more often costs more than it saves, and less often as well.
    """
    settings = run.settings
    seconds = settings.checkpoint_every_s
    if settings.failure_every_s is not None and state.checkpoint_s:
        seconds = math.sqrt(2.0 * state.checkpoint_s * settings.failure_every_s)
    if seconds is None or not state.batch_s:
        return settings.checkpoint_every
    return max(1, round(seconds / state.batch_s))


def acknowledged(run: Run, line: StoredCheckpoint, number: int) -> int:
    """The batch that all consumers of a task are through at their versions of a line; the newest if there are none."""
    return min((line.versions[one].after for one in run.graph.consumers_of(number)), default=line.top)


def sweeping(run: Run, state: RunState, numbers: Collection[int]) -> RunState:
    """Begin a sweep if the last tasks are among these: all others are to be stored as they are now."""
    if not any(run.sweeps[number] and not run.graph.consumers_of(number) for number in numbers):
        return state
    heads = tuple(task.head for task in state.tasks)
    return replace(state, sweeps=(*state.sweeps, heads)[-MAX_SWEEPS:])


def swept(run: Run, state: RunState) -> RunState:
    """End the sweeps that have come to their first tasks."""
    numbers, line = run.by_strategy.get(Strategy.SWEEPING, ()), state.newest.versions
    left = (heads for heads in state.sweeps if any(line[one].batch < heads[one].batch for one in numbers))
    return replace(state, sweeps=tuple(left)) if state.sweeps else state


def captured(run: Run, state: RunState, numbers: Collection[int]) -> Upload | None:
    """What is stored if these tasks are; None if there is nothing that can be."""
    line = state.newest
    offers = _offers(run, state, numbers)
    chosen = {number for number, version in offers.items() if version != line.versions[number]}
    recipes = not chosen.isdisjoint(run.rebuilt)
    chosen.difference_update(run.rebuilt)
    if run.all_aligned and line.batch == line.top:
        heads = tuple(task.head for task in state.tasks)
        return Upload(StoredCheckpoint(_next_number(state), heads), heads, tuple(map(_node, state.tasks)))
    while chosen or recipes:  # ends: the chosen only become fewer
        drawn = _line(run, state, {number: offers[number] for number in chosen})
        if drawn.versions == line.versions:
            return None
        queues = {number: _queue(state.tasks[number], line.queue(number), drawn, number) for number in chosen}
        lacking = {number for number, queue in queues.items() if queue is None}
        if not lacking:
            ready = {number: queue for number, queue in queues.items() if queue is not None}
            return _upload(run, state, drawn, ready)
        chosen -= lacking  # its queue lies elsewhere; when its consumers have come further it is not needed any more
    return None


def _next_number(state: RunState) -> int:
    """Lines are numbered by batches; several of one batch have the numbers after it, which the next must not meet."""
    return max(state.newest.number + 1, state.finished)


def _line(run: Run, state: RunState, chosen: Mapping[int, Version]) -> StoredCheckpoint:
    """The line that there will be; sources are wherever the batch log is."""
    line = state.newest
    versions = [
        chosen.get(number, task.head if run.is_source[number] else line.versions[number])
        for number, task in enumerate(state.tasks)
    ]
    for number in run.rebuilt:  # consumers first
        bound = min((versions[one].after for one in run.graph.consumers_of(number)), default=state.finished)
        versions[number] = state.tasks[number].recipe(versions[number], bound)
    drawn = replace(line, number=_next_number(state), versions=tuple(versions))
    before = line.acknowledged or (0,) * len(versions)
    marks = (acknowledged(run, drawn, one) if one in chosen else before[one] for one in range(len(versions)))
    return replace(drawn, acknowledged=tuple(marks))


def _offers(run: Run, state: RunState, numbers: Collection[int]) -> dict[int, Version]:
    """The versions of these tasks that would be stored now.

    That is the head; of one that a sweep comes by, what it was when the sweep began, if no consumer is behind that.
    """
    line, found = state.newest.versions, dict[int, Version]()
    for number in sorted(numbers, reverse=True):  # consumers before their producers
        found[number] = state.tasks[number].head
        consumers = run.graph.consumers_of(number)
        if run.sweeps[number] and consumers and state.sweeps:
            bound = min(found.get(one, line[one]).after for one in consumers)
            versions = (heads[number] for heads in state.sweeps if line[number].batch < heads[number].batch <= bound)
            found[number] = max(versions, key=lambda one: one.batch, default=found[number])
    return found


def _queue(task: TaskState, stored: Sequence[Span], line: StoredCheckpoint, number: int) -> tuple[Span, ...] | None:
    """The outputs that go beside a task's version, oldest first; None if some are neither on its node nor stored."""
    assert task.primary is not None
    here = [span for span in task.retained if task.primary.node in span.nodes]
    found: list[Span] = []
    batch, last = line.acknowledged[number] + 1, line.versions[number].batch
    while batch <= last:  # ends: each span reaches further
        span = next((one for one in (*here, *stored) if one.first <= batch <= one.last), None)
        if span is None:
            return None
        found.append(Span(batch, min(span.last, last), span.pass_id))
        batch = found[-1].last + 1
    return tuple(found)


def _upload(run: Run, state: RunState, line: StoredCheckpoint, queues: Mapping[int, tuple[Span, ...]]) -> Upload:
    before = state.newest
    lying = tuple(
        () if version.is_recipe else queues.get(number, before.queue(number))
        for number, version in enumerate(line.versions)
    )
    stored = sorted({*queues, *(number for number, source in enumerate(run.is_source) if source)})
    versions = tuple(line.versions[number] for number in stored)
    nodes = tuple(_node(state.tasks[number]) for number in stored)
    return Upload(replace(line, queues=lying if any(lying) else ()), versions, nodes)


def _node(task: TaskState) -> str:
    assert task.primary is not None
    return task.primary.node


def stored_queue(state: RunState, number: int, batch: int) -> Span | None:
    """Outputs of a task for a batch that lie in the store; after a rollback the older checkpoints are asked first."""
    lines = state.kept[::-1]
    lines = lines[state.rollbacks :] + lines[: state.rollbacks]
    spans = (span for line in lines for span in line.queue(number))
    return next((span for span in spans if span.first <= batch <= span.last), None)


def stored_version(state: RunState, number: int, batch: int) -> Version | None:
    """The newest stored version of a task that is not after a batch.

    Of two recipes of one batch it is the one that reaches back less: what the other needs may be trimmed.
    """
    versions = (line.versions[number] for line in state.kept)
    return max((one for one in versions if one.batch <= batch), key=lambda one: (one.batch, one.after), default=None)


def _crossed(every: int, before: int, now: int, phase: int = 0) -> bool:
    """Whether a multiple of the interval lies between two batches; a pass may go beyond it."""
    return (now + phase) // every > (before + phase) // every


def _aligned(run: Run, state: RunState, numbers: Sequence[int]) -> Collection[int]:
    """All together, at one batch: no queue is needed among them."""
    before = min((state.newest.versions[number].batch for number in numbers), default=state.finished)
    return numbers if _crossed(interval(run, state), before, state.finished) else ()


def _synchronous(run: Run, state: RunState, numbers: Sequence[int]) -> Collection[int]:
    """All of a node together, every node by its own timer."""
    by_node: dict[str, list[int]] = {}
    for number in numbers:
        by_node.setdefault(_node(state.tasks[number]), []).append(number)
    every = interval(run, state)
    found: list[int] = []
    for place, node in enumerate(sorted(by_node)):
        here = by_node[node]
        before = min(state.newest.versions[number].batch for number in here)
        if _crossed(every, before, state.finished, place * every // len(by_node)):
            found += here
    return found


def _individual(run: Run, state: RunState, numbers: Sequence[int]) -> Collection[int]:
    """Every task by its own timer."""
    every = interval(run, state)
    return [
        number
        for place, number in enumerate(numbers)
        if _crossed(every, state.newest.versions[number].batch, state.finished, place * every // len(numbers))
    ]


def _none(run: Run, state: RunState, numbers: Sequence[int]) -> Collection[int]:
    """By one timer: nothing is stored but that the line has moved on, so that the log before it can go."""
    return numbers if _crossed(interval(run, state), state.newest.top, state.finished) else ()


def _sweeping(run: Run, state: RunState, numbers: Sequence[int]) -> Collection[int]:
    """The last tasks by a timer; every other one when its consumers have let go of some of its queue.

    It is then stored as it was when the sweep began: all that it had sent until then is acknowledged, so that nothing
    of it lies in a queue.

    Tasks of a node that feed only each other let go at once, so that a sweep takes them in one step.
    """
    line, every = state.newest, interval(run, state)
    found: set[int] = set()
    for number in reversed(numbers):  # consumers before their producers
        if not run.graph.consumers_of(number):
            due = _crossed(every, line.versions[number].batch, state.finished)
        elif (follower := _followed_by(run, state, number)) is not None:
            due = follower in found
        else:
            before = line.acknowledged[number] if line.acknowledged else 0
            due = acknowledged(run, line, number) > before
        if due:
            found.add(number)
    return found


def _followed_by(run: Run, state: RunState, number: int) -> int | None:
    """The only consumer of a task, if it sweeps and is on the same node as well: the two are stored together."""
    consumers = run.graph.consumers_of(number)
    if len(consumers) != 1 or not run.sweeps[number] or not run.sweeps[consumers[0]]:
        return None
    here, there = (state.tasks[one].primary for one in (number, consumers[0]))
    together = here is not None and there is not None and here.node == there.node
    return int(consumers[0]) if together else None


POLICIES: Mapping[Strategy, Policy] = {
    Strategy.ALIGNED: _aligned,
    Strategy.SYNCHRONOUS: _synchronous,
    Strategy.INDIVIDUAL: _individual,
    Strategy.SWEEPING: _sweeping,
    Strategy.NONE: _none,
}
